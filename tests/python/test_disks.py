"""A disk that stops taking anything: the scheduler or the node says so, with the path; nothing acknowledged is lost."""

import pathlib
import re
import signal
import time

import pytest

from cluster import MUSTER, Cluster, Process, command_line, reserved_port
from disks import DISKS, Frozen
from launch import until
from nodes import JOIN_AND_LEAVE, await_joined, failed_at_once, node, said

LIMIT = 60
# The codes of `muster scheduler --help`: it could not serve the job; its journal could not be written any more.
UNABLE, CUT_SHORT = 4, 5
SCHEDULER = [MUSTER, "scheduler"]

# Rank 0 writes into the store and counts in it, each time to find there all that was acknowledged; the others do without the
# scheduler.
WORK = """
    c = join()
    others = c.world.create([1, 2])
    stop = pathlib.Path(os.environ["HOLD_FOLDER"], "stop")
    if c.rank == 0:
        last, number = {}, 0
        while not stop.exists():
            number += 1
            c.store_set(f"key {number % 8}", b"%08d" % number * 2500)
            last[number % 8] = number
            assert c.store_add("count", 1) == number, number
            say(acknowledged=number)
            time.sleep(0.002)
        for place, number in last.items():
            assert c.store_get(f"key {place}", 0) == b"%08d" % number * 2500, (place, number)
        say(found=number)
    else:
        rounds = 0
        while not others.allreduce([int(stop.exists())], MAX)[0]:
            rounds += 1
            say(rounds=rounds)
            time.sleep(0.01)
    c.world.barrier()
    say(epoch=c.epoch)
    c.leave()
"""


@pytest.fixture(params=DISKS)
def disk(request):
    with DISKS[request.param]() as disk:
        yield disk


def ended_by(disk, scheduler, code=UNABLE):
    """The scheduler has ended with this code, and says on which path it failed, why, and what to do."""
    assert scheduler.wait(LIMIT) == code
    last = scheduler.stderr.splitlines()[-1]
    assert re.match(rf"muster scheduler: .*cannot [a-z ]+ {disk.path}/scheduler\.", last), last
    for words in disk.words:
        assert words in last, last
    return last


def test_a_scheduler_on_such_a_disk_does_not_start(disk):
    with Cluster(node(), workers=1, started=0, scheduler=False, keeps_port=True) as cluster:
        cluster.scheduler_program = disk.command(SCHEDULER)
        cluster.env |= {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": disk.path}
        disk.breaks()
        ended_by(disk, cluster.start_scheduler())
        cluster.scheduler_program = disk.command(node())
        failed_at_once(cluster.start_scheduler(), "JOURNAL", disk.path / "scheduler.", *disk.words)
        disk.is_mended()
        cluster.start_scheduler()
        cluster.start_worker(program=disk.command(node()))
        assert cluster.workers[0].wait(LIMIT) == 0
        assert cluster.scheduler.wait(LIMIT) == 0


def test_a_scheduler_whose_disk_fails_meanwhile_loses_nothing(disk, tmp_path):
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "nodes", "HOLD_FOLDER": tmp_path}
    with Cluster(node(WORK), workers=3, started=0, scheduler=False, keeps_port=True, env=env) as cluster:
        cluster.scheduler_program = disk.command(SCHEDULER)
        on_it = {"MS_RECOVERY_PATH": disk.path}
        first = cluster.start_scheduler(on_it)
        for _ in range(3):
            cluster.start_worker()
        cluster.workers[0].wait_for('"acknowledged": 9}', LIMIT)
        disk.breaks()
        ended_by(disk, first, CUT_SHORT)
        before = said(cluster.workers[1])["rounds"]
        until(lambda: said(cluster.workers[1])["rounds"] > before + 10, LIMIT, "the nodes go on")
        ended_by(disk, cluster.start_scheduler(on_it))
        acknowledged = said(cluster.workers[0])["acknowledged"]
        disk.is_mended()
        cluster.start_scheduler(on_it)
        until(lambda: said(cluster.workers[0])["acknowledged"] > acknowledged + 10, LIMIT, "the store goes on")
        (tmp_path / "stop").touch()
        for worker in cluster.workers:
            assert worker.wait(LIMIT) == 0
            assert said(worker)["epoch"] == 1, "nobody was lost"
        assert "found" in said(cluster.workers[0])
        assert cluster.scheduler.wait(LIMIT) == 0
        assert "this scheduler was started again" in cluster.scheduler.stderr


def test_a_node_that_cannot_keep_its_identity_says_so(disk):
    recovery = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": disk.path}
    with reserved_port() as port:
        settings = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": 0, "MS_WORKER_NUM": 1, "MS_SCHED_HOST": "127.0.0.1"}
        disk.breaks()
        with Process(disk.command(node()), {**settings, **recovery, "MS_SCHED_PORT": port}) as worker:
            failed_at_once(worker, "JOURNAL", disk.path / "node-", ".identity", *disk.words)
    disk.is_mended()
    with Cluster(disk.command(node(JOIN_AND_LEAVE)), workers=1, env=recovery) as cluster:
        cluster.succeed(LIMIT)


# Rank 2 has a thread that writes to the disk.
WRITER = """
    c = join()
    if c.rank == 2:
        import threading
        file = open(pathlib.Path(os.environ["DISK"], "file"), "wb", buffering=0)
        def write():
            while True:
                file.write(b"x")
                file.seek(0)
                time.sleep(0.001)  # a process that only writes would keep the others from the processors
        threading.Thread(target=write, daemon=True).start()
    say(writes=True)
    words = fails(lambda: [c.world.allreduce([1]) for _ in iter(int, 1)])
    say(**words, at=time.monotonic())
    c.leave()
"""
HEARTBEAT_TIMEOUT = 15


def threads_of(pid):
    """The state of each thread of a process: D waits for a disk, and takes no signal."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]


def test_a_rank_that_is_killed_while_it_waits_for_a_disk_is_lost_before_the_heartbeat_time_out():
    """Its connections stay open until the disk answers."""
    with Frozen() as disk:
        env = {"DISK": disk.path, "MS_NODE_TIMEOUT": HEARTBEAT_TIMEOUT}
        with Cluster(disk.command(node(WRITER)), workers=3, env=env, scheduler=node()) as cluster:
            await_joined(*cluster.workers)
            for worker in cluster.workers:
                worker.wait_for('"writes"', LIMIT)
            victim = next(worker for worker in cluster.workers if said(worker)["rank"] == 2)
            disk.breaks()
            try:
                until(lambda: "D" in threads_of(victim.pid), LIMIT, "a thread waits for the disk")
                victim.signal(signal.SIGKILL)
                killed = time.monotonic()
                survivors = [worker for worker in cluster.workers if worker is not victim]
                for worker in survivors:
                    worker.wait_for('"at"', LIMIT)
                    words = said(worker)
                    assert words["error"] == "PEER_LOST" and "rank 2 (" in words["sentence"], words
                    assert "its process has ended, although its connection is still open" in words["sentence"], words
                    assert words["at"] - killed < HEARTBEAT_TIMEOUT * 4 / 5, words
                assert "D" in threads_of(victim.pid)
            finally:
                disk.is_mended()


# The first message makes a link, of which the log tells: from then on the thread that writes waits for the disk.
LOGS = """
    c = join()
    say(stands=True)
    hold("the disk stalls")
    begun = time.monotonic()
    c.world.send(b"x", 1 - c.rank)
    c.world.receive(1, 1 - c.rank)
    while not c.world.allreduce([int(time.monotonic() - begun > 3)], MAX)[0]:
        time.sleep(0.01)  # the pace of a program that also computes; nothing is awaited here
    begun = time.monotonic()
    c.leave()
    say(left_after=time.monotonic() - begun)
"""


def test_ranks_and_scheduler_whose_log_is_a_file_on_a_disk_that_stalls_go_on(tmp_path):
    """For three times the heartbeat time-out: none is lost, and all leave within a part of their limit."""
    with Frozen() as disk:
        env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 1, "MUSTER_LOG": "debug"}
        into_a_file = ["sh", "-c", f'exec "$@" 2>> "{disk.path}/$$.log"', "sh"]

        def logs(program):
            return disk.command([*into_a_file, *command_line(program)])

        with Cluster(logs(node(LOGS)), workers=2, env=env, scheduler=logs(SCHEDULER)) as cluster:
            await_joined(*cluster.workers)
            for worker in cluster.workers:
                worker.wait_for('"stands"', LIMIT)
            disk.breaks()
            try:
                (tmp_path / "the disk stalls").touch()
                for worker in cluster.workers:
                    worker.wait_for('"left_after"', LIMIT)
                    assert said(worker)["left_after"] < 10, said(worker)
                    assert "D" in threads_of(worker.pid), "nothing was logged"
            finally:
                disk.is_mended()
            cluster.succeed(LIMIT)

