"""Which groups share memory, and what the log says where one doesn't."""

import pytest

from cluster import MUSTER, Cluster, Process
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


def ran(workers, segments):
    for worker in workers:
        assert worker.wait(LIMIT) == 0, worker.stderr
        words = said(worker)
        assert words["sums"] == [[3]] * 6
        assert (words["segments"], words["after"]) == (segments, 0)


@pytest.mark.parametrize("shm, segments, words", [
    ("auto", 1, "world uses shared memory: "),
    ("off", 0, "world uses no shared memory: shared memory is switched off"),
])
def test_ranks_of_one_host_share_memory_unless_it_is_off(shm, segments, words):
    with Cluster(node(LINES), workers=2, env={"MUSTER_SHM": shm, "MUSTER_LOG": "debug"}) as cluster:
        workers = cluster.succeed(timeout=LIMIT)
        ran(workers, segments)
        assert all(words in worker.stderr for worker in workers)


def test_the_schedulers_setting_counts():
    """Of all processes the scheduler alone wants none."""
    with Cluster(node(LINES), workers=2, started=0, env={"MUSTER_SHM": "off"}) as cluster:
        for _ in range(2):
            cluster.start_worker({"MUSTER_SHM": "require"})
        ran(cluster.succeed(timeout=LIMIT), 0)


@pytest.mark.parametrize("shm", ["auto", "require"])
def test_members_on_several_hosts_talk_over_tcp(shm):
    """`require` is for groups of one host."""
    with Cluster(node(LINES), workers=2, started=0, env={"MUSTER_SHM": shm, "MUSTER_LOG": "debug"}) as cluster:
        for rank in range(2):
            cluster.start_worker({"MUSTER_HOST_ID": f"host {rank}"})
        workers = cluster.succeed(timeout=LIMIT)
        ran(workers, 0)
        assert all("its members are on several hosts" in worker.stderr for worker in workers)


def test_ranks_that_say_they_are_on_one_host_and_are_not_talk_over_tcp():
    """As in containers that share a name and no network: the name of a doorbell means nothing there."""
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
                assert all("uses no shared memory: rank 0" in worker.stderr and "rank 1" in worker.stderr for worker in (first, second))
                assert scheduler.wait(LIMIT) == 0
