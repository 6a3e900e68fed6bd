"""Which groups share memory, and what the log and `muster status` say of it."""

import json
import os
import re
import subprocess

import pytest

from certificates import Certificates
from cluster import MUSTER, Cluster, Process, clean_environment, command_line
from launch import until
from networks import Hosts
from nodes import await_joined, node, said

LIMIT = 60
PORT = 8118  # of a network of the test's own

# `segments()` is how many this process has mapped.
LINES = """
    def segments():
        return pathlib.Path("/proc/self/maps").read_text().count("/memfd:muster")

    c = join()
    sums = [c.world.allreduce([c.rank + 1]) for _ in range(6)]
    say(sums=sums, segments=segments())
    c.leave()
    say(after=segments())
"""
# Rank 0 may make no file that is long enough, if it is `limited`.
HELD = """
    c = join()
    if {limited} and c.rank == 0:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    for _ in range(3):
        c.world.barrier()
    say(early=True)
    hold("early")
    c.world.barrier()
    say(found=True)
    hold("leave")
    c.leave()
"""
CARRIERS = {
    "memory": ("auto", False, r"2 ranks on host \S+, \d+\.\d MiB"),
    "off": ("off", False, r"the scheduler's setting shm is off"),
    "refused": ("auto", True, r"rank 0 \(node id .*, host .*, pid \d+\): the memory cannot be made: File too large .*"),
}


def told(port, form):
    """What `muster status` tells in this form."""
    asked = [MUSTER, "status", f"--format={form}", "--timeout=30", f"--sched_port={port}"]
    ended = subprocess.run(asked, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout) if form == "json" else ended.stdout


def ran(workers, segments):
    for worker in workers:
        assert worker.wait(LIMIT) == 0, worker.stderr
        words = said(worker)
        assert words["sums"] == [[3]] * 6
        assert (words["segments"], words["after"]) == (segments, 0)


@pytest.mark.parametrize("shm, segments, words", [
    ("auto", 1, "world: memory (2 ranks on host "),
    ("off", 0, "world: links (the scheduler's setting shm is off)"),
])
def test_ranks_of_one_host_share_memory_unless_it_is_off(shm, segments, words):
    with Cluster(node(LINES), workers=2, env={"MUSTER_SHM": shm, "MUSTER_LOG": "debug"}) as cluster:
        workers = cluster.succeed(timeout=LIMIT)
        ran(workers, segments)
        assert all(words in worker.stderr for worker in workers)


def test_tls_leaves_memory_on(tmp_path):
    """Bytes in memory are on no wire. Each rank's peers have shown their certificates on the links that stay beside."""
    env = {**Certificates(tmp_path / "files").env(), "MUSTER_SHM": "require"}
    with Cluster(node(LINES), workers=2, env=env) as cluster:
        ran(cluster.succeed(timeout=LIMIT), 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes these namespaces")
def test_containers_that_share_the_network_alone_share_memory(tmp_path):
    """Each rank has processes, mounts, a /dev/shm and System V memory of its own, as containers of one pod have."""
    alone = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    with Cluster(node(LINES), workers=2, started=0, env={"MUSTER_SHM": "require", "MUSTER_HOST_ID": "pod"}) as cluster:
        for rank in range(2):
            cluster.start_worker({"MS_NODE_ID": rank}, [*alone, *command_line(node(LINES))])
        ran(cluster.succeed(timeout=LIMIT), 1)


@pytest.mark.parametrize("shm, limited, words", CARRIERS.values(), ids=CARRIERS)
def test_status_and_the_debug_log_say_what_carries_a_group_and_why_not_memory(shm, limited, words, tmp_path):
    env = {"MUSTER_SHM": shm, "MUSTER_LOG": "debug", "HOLD_FOLDER": tmp_path}
    with Cluster(node(HELD.format(limited=limited)), workers=2, env=env) as cluster:
        for worker in cluster.workers:
            worker.wait_for('"early"', LIMIT)
        assert told(cluster.port, "json")["carriers"] == [], "it is found out before the fourth collective"
        (tmp_path / "early").touch()
        for worker in cluster.workers:
            worker.wait_for('"found"', LIMIT)
        carried, = until(lambda: told(cluster.port, "json")["carriers"], LIMIT, "rank 0 has told")
        carrier = "memory" if (shm, limited) == ("auto", False) else "links"
        assert (carried["group"], carried["carrier"]) == ("world", carrier)
        assert re.fullmatch(words, carried["words"]), carried
        line = f"world: {carrier} ({carried['words']})"
        assert line in told(cluster.port, "text").splitlines()
        labels = ",".join(f"{name}={json.dumps(carried[name])}" for name in ("group", "carrier", "words"))
        assert f"muster_group_carrier_info{{{labels}}} 1" in told(cluster.port, "prometheus").splitlines()
        (tmp_path / "leave").touch()
        for worker in cluster.succeed(timeout=LIMIT):
            assert worker.stderr.count(line) == 1, worker.stderr


def test_the_schedulers_setting_counts():
    """Only the scheduler wants no shared memory."""
    with Cluster(node(LINES), workers=2, started=0, env={"MUSTER_SHM": "off"}) as cluster:
        for _ in range(2):
            cluster.start_worker({"MUSTER_SHM": "require"})
        ran(cluster.succeed(timeout=LIMIT), 0)


@pytest.mark.parametrize("shm", ["auto", "require"])
def test_members_each_on_a_host_of_its_own_talk_over_tcp(shm):
    """`require` is for ranks that have others on their host."""
    with Cluster(node(LINES), workers=2, started=0, env={"MUSTER_SHM": shm, "MUSTER_LOG": "debug"}) as cluster:
        for rank in range(2):
            cluster.start_worker({"MUSTER_HOST_ID": f"host {rank}"})
        workers = cluster.succeed(timeout=LIMIT)
        ran(workers, 0)
        assert all("each of its members is on a host of its own" in worker.stderr for worker in workers)


def test_ranks_that_say_they_are_on_one_host_and_are_not_talk_over_tcp():
    """Like containers that share a name and no network: the name of a doorbell means nothing there."""
    with Hosts("one") as hosts:
        settings = {"MS_SCHED_HOST": hosts.address("one", 0), "MS_SCHED_PORT": PORT, "MS_WORKER_NUM": 2,
                    "MUSTER_HOST_ID": "one", "MUSTER_SHM": "auto", "MUSTER_LOG": "debug"}
        scheduler = Process(hosts.command(0, [MUSTER, "scheduler"]), {**settings, "MS_ROLE": "MS_SCHED"}, "scheduler")
        with scheduler:
            starts = [(rank, {**settings, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, "MS_WORKER_IP": hosts.address("one", rank)})
                      for rank in range(2)]
            first, second = (Process(hosts.command(rank, node(LINES)), env, f"worker {rank}") for rank, env in starts)
            with first, second:
                await_joined(first, second)
                ran([first, second], 0)
                assert all("world: links (rank 0" in worker.stderr and "rank 1" in worker.stderr for worker in (first, second))
                assert scheduler.wait(LIMIT) == 0
