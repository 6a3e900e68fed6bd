"""Groups with several ranks on each of several hosts: within a host through memory, between hosts one rank for each."""

import contextlib
import os
import signal
import time

import pytest

from cluster import Cluster, stop
from nodes import node, said
from packaged import packaged

LIMIT = 120
# Where ranks are killed within calls, and asked for what they know: as long as a busy machine may take.
ENV = {"MUSTER_SHM": "auto", "MUSTER_LOG": "debug"}

SUMS = """
    c = join()
    w, n = c.world, c.size
    for count in (1, 700, 300_000):
        for turn in range(6):
            mine = [(c.rank + 1) * (turn + 1)] * count
            assert w.allreduce(mine) == [n * (n + 1) // 2 * (turn + 1)] * count, (count, turn)
            root = turn % n
            sent = bytes([root + turn]) * count
            assert w.broadcast(sent if c.rank == root else bytes(count), root) == sent, (count, turn)
            w.barrier()
    say(fine=True)
    c.leave()
"""


def started(lines, hosts, env=None, program=node):
    """A cluster whose ranks are on these hosts, as they say themselves."""
    cluster = Cluster(program(lines), workers=len(hosts), started=0, env={**ENV, **(env or {})})
    for rank, host in enumerate(hosts):
        cluster.start_worker({"MUSTER_HOST_ID": host, "MS_NODE_ID": str(rank)})
    return cluster


def carried(worker):
    line, = [line for line in worker.stderr.splitlines() if "world: " in line]
    return line.partition("world: ")[2]


@pytest.mark.parametrize("hosts", ["aaaabbb", "aaaab", "abab", "abbcca"])
def test_results_are_right_wherever_ranks_are(hosts):
    with started(SUMS, hosts) as cluster:
        for rank, worker in enumerate(cluster.succeed(timeout=LIMIT)):
            assert said(worker)["fine"]
            count, here = len(set(hosts)), hosts.count(hosts[rank])
            assert f"; links between {count} hosts)" in carried(worker)
            assert carried(worker).startswith(f"memory ({here} rank"), carried(worker)


EVERY_KIND = """
import numpy as np
c = muster.init()
same = np.testing.assert_array_equal
keep_lower = c.operation(lambda lower, inout, dtype: inout.__setitem__(slice(None), lower), commutative=False)
def every(g, count):
    rank, size = g.rank, g.size
    def of(each):
        return np.arange(count, dtype=np.float64) % 97 + each
    mine, everyone = of(rank), np.array([of(each) for each in range(size)])
    total = everyone.sum(0)
    for root in range(size):
        for op, wanted in [("sum", total), ("avg", total / size), (keep_lower, of(0))]:
            got = g.reduce(mine, out=np.empty(count), root=root, op=op)
            same(got, wanted) if rank == root else None
            in_place = mine.copy()
            g.reduce(in_place, root=root, op=op)
            same(in_place, wanted if rank == root else mine)
    same(np.ravel(g.allgather(mine)), everyone.ravel())
    whole = np.zeros((size, count))
    whole[rank] = mine
    g.allgather(whole[rank], out=whole)
    same(whole, everyone)
    parts = np.array([mine + 7 * to for to in range(size)])
    for op, wanted in [("sum", total + 7 * size * rank), ("avg", (total + 7 * size * rank) / size), (keep_lower, of(0) + 7 * rank)]:
        same(np.ravel(g.reduce_scatter(parts, op=op)), wanted)
        in_place = parts.copy()
        g.reduce_scatter(in_place, out=in_place[rank], op=op)
        same(in_place[rank], wanted)
    same(g.allreduce(mine.copy(), op="avg"), total / size)
    same(g.allreduce(mine.copy(), op=keep_lower), of(0))
    begun = [g.iallgather(mine), g.ireduce_scatter(parts), g.iallreduce(mine.copy()), g.ireduce(mine, out=np.empty(count), root=size - 1)]
    got = [request.wait() for request in reversed(begun)][::-1]
    for each, wanted in zip(got, [everyone, total + 7 * size * rank, total]):
        same(np.ravel(each), wanted.ravel())
    same(got[3], total) if rank == size - 1 else None
def long_sums():
    # So long that chunks are on their way between hosts while others are folded; the last one is short.
    for count in (600_000, 1_000_001):
        wanted = sum(np.arange(count, dtype=np.float64) + each for each in range(c.size))
        for op, result in [("sum", wanted), ("avg", wanted / c.size)]:
            mine = np.arange(count, dtype=np.float64) + c.rank
            same(c.world.allreduce(mine, out=np.empty(count), op=op), result)
            same(c.world.iallreduce(mine.copy(), op=op).wait(), result)
            for root in range(c.size):
                got = c.world.reduce(mine, out=np.empty(count), root=root, op=op)
                same(got, result) if c.rank == root else None
        for root in range(c.size):
            sent = np.arange(count, dtype=np.float64) * (root + 1)
            same(c.world.broadcast(sent.copy() if c.rank == root else np.empty(count), root=root), sent)
for count in (1, 300, 30_000):
    every(c.world, count)
long_sums()
half = c.world.split(c.rank % 2, key=-c.rank)
for count in (1, 3000):
    every(half, count)
say(fine=True)
c.finalize()
"""


@pytest.mark.parametrize("hosts", ["aaaabbb", "aaaab", "abab", "abbcca"])
def test_every_kind_is_right_in_the_world_and_in_parts_of_it(hosts):
    with started(EVERY_KIND, hosts, program=packaged) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["fine"]
            assert f"; links between {len(set(hosts))} hosts)" in carried(worker)


COMES_BACK_ELSEWHERE = """
    c = join()
    def right():
        n = c.size
        for count in (1, 50_000):
            assert c.world.allreduce([c.rank + 1] * count) == [n * (n + 1) // 2] * count
            assert c.world.broadcast(bytes([c.rank]) * count, 2) == bytes([2]) * count
    if c.restarts == 0:
        def barriers():
            c.world.barrier()  # rank 3 may be out of this one before others are, and they hear of its end here
            c.world.barrier()
        right()
        if c.rank == 3:
            c.world.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
        say(**fails(barriers))
        c.recover(60_000)
    right()
    say(epoch=c.epoch)
    c.leave()
"""


def test_a_rank_may_come_back_on_another_host(tmp_path):
    with started(COMES_BACK_ELSEWHERE, "aabb", {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": str(tmp_path)}) as cluster:
        assert cluster.workers[3].wait(LIMIT) == -signal.SIGKILL
        cluster.start_worker({"MUSTER_HOST_ID": "a", "MS_NODE_ID": "3"})
        for worker in (*cluster.workers[:3], cluster.workers[4]):
            assert worker.wait(LIMIT) == 0, worker.describe()
            assert said(worker)["epoch"] == 2
        lines = [line for line in cluster.workers[0].stderr.splitlines() if "world: memory" in line]
        assert [line.partition("memory (")[2][:7] for line in lines] == ["2 ranks", "3 ranks"], lines


def test_where_one_host_has_no_memory_all_take_one_level():
    limit = "if c.rank == 3: import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))"
    limited = SUMS.replace("w, n = c.world, c.size", f"w, n = c.world, c.size\n    {limit}")
    with started(limited, "aaabbb") as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["fine"]
            assert carried(worker).startswith("links (rank 3 ") and "the memory cannot be made" in carried(worker)


def test_where_one_host_has_no_memory_and_memory_is_required_all_are_told_which_rank_and_why():
    limit = "if c.rank == 3: import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))"
    lines = f"""
    c = join()
    {limit}
    say(**fails(c.world.barrier))
    c.leave()
"""
    with started(lines, "aaabbb", {"MUSTER_SHM": "require"}) as cluster:
        cluster.wait(timeout=LIMIT)
        for worker in cluster.workers:
            words = said(worker)
            assert words["error"] == "UNSUPPORTED", words
            assert "rank 3 (" in words["sentence"] and "the memory cannot be made" in words["sentence"], words


WORK = """
    c = join()
    def work():
        for turn in range(10 ** 9):
            c.world.allreduce([c.rank] * (1 if turn % 2 else 100_000))
            if turn == 8:
                say(running=True)
    told = fails(work)
    say(**told, at=time.monotonic())
    c.leave()
"""


LONG_WORK = """
import numpy as np
c = muster.init()
mine, out = np.full(1_500_000, float(c.rank)), np.empty(1_500_000)
def work():
    for turn in range(10 ** 9):
        c.world.allreduce(mine, out=out)
        if turn == 3:
            say(running=True)
words = told(work)
say(**{**words, "error": words["status"]}, at=time.monotonic())
c.finalize()
"""
# Calls that go as one, and calls whose chunks are under way at the same time.
WORKS = pytest.mark.parametrize("work, program", [(WORK, node), (LONG_WORK, packaged)], ids=["short", "long"])


@contextlib.contextmanager
def at_work(work, program, env=None):
    """A cluster whose ranks call one thing after another. Host a has ranks 0 to 2, host b 3 and 4: the first of each speaks for it."""
    with started(work, "aaabb", env, program) as cluster:
        for worker in cluster.workers:
            worker.wait_for('"running"', LIMIT)
        yield cluster


@WORKS
@pytest.mark.parametrize("victim", range(5))
def test_a_rank_that_dies_is_named_on_every_host(work, program, victim):
    with at_work(work, program) as cluster:
        cluster.workers[victim].kill()
        since = time.monotonic()
        cluster.wait(timeout=LIMIT)
        for worker in cluster.workers:
            if worker is not cluster.workers[victim]:
                words = said(worker)
                assert words["error"] == "PEER_LOST" and words["sentence"].startswith(f"rank {victim} "), words
                assert words["at"] - since < 4.0, "at once, on a machine that is busy"


@WORKS
@pytest.mark.parametrize("victim", range(5))
def test_a_rank_that_stands_still_is_named_on_every_host(work, program, victim):
    with at_work(work, program, {"MUSTER_TIMEOUT": "2"}) as cluster:
        stop(cluster.workers[victim].pid)
        for worker in cluster.workers:
            if worker is not cluster.workers[victim]:
                worker.wait_for('"error"', LIMIT)
                words = said(worker)
                assert words["error"] == "TIMEOUT" and f"rank {victim} " in words["sentence"], words
        os.kill(cluster.workers[victim].pid, signal.SIGCONT)
        cluster.wait(timeout=LIMIT)


DIFFERS = """
    c = join()
    def differs():
        for _ in range(5):
            c.world.allreduce([1])
        c.world.{odd} if c.rank == {rank} else c.world.allreduce([1, 2])
        c.world.barrier()
    say(**fails(differs))
    c.leave()
"""


@pytest.mark.parametrize("rank", [0, 2, 3, 4])
@pytest.mark.parametrize("odd", ["allreduce([1])", "barrier()", "allgather(1)"])
def test_a_rank_that_calls_something_else_is_named_on_every_host(rank, odd):
    with started(DIFFERS.format(rank=rank, odd=odd), "aaabb", {"MUSTER_TIMEOUT": "60"}) as cluster:
        cluster.wait(timeout=LIMIT)
        for worker in cluster.workers:
            words = said(worker)
            assert words["error"] == "MISMATCH" and f"rank {rank} " in words["sentence"], words
            assert words["after"] < 20, words
