"""The scheduler and a rank die or stop, without recovery: the survivors find out by themselves who it was."""

import os
import pathlib
import re
import signal
import time

import pytest

from cluster import Cluster, stop
from nodes import await_joined, node, said

LIMIT = 60
# A heartbeat time-out of 2 s and one interval; and what a busy machine may add. A store call may take 300 s, a group 1,800.
SOON = 12
# Ranks 0 to 4 survive, each in another call; rank 5 is the victim.
LINES = """
    c = join()
    c.world.allreduce([1])
    c.store_set(f"there {c.rank}", b"1")
    say(ready=True)
    hold("they die")
    calls = {
        0: lambda: c.store_get("never", 100_000),
        1: lambda: c.world.allreduce([1]),
        2: lambda: c.world.receive(8, 5),
        3: lambda: c.world.allreduce([1]),
        4: lambda: [c.store_add("count", 1) for _ in range(10**9)],
        5: lambda: time.sleep(100),
    }

    def named():
        try:
            return c.failure()["rank"]
        except MusterError:
            return None

    words = fails(calls[c.rank])
    if words["error"] == "UNREACHABLE":  # the store may end a moment before a stopped rank is found out
        say(store=words["sentence"])
        words = fails(c.world.allreduce, [1])
    say(**words, named=named())
    c.leave()
"""


# A store that is only stopped is waited for: those two are in a collective then.
WITHOUT_STORE = LINES.replace('c.store_get("never", 100_000)', "c.world.allreduce([1])").replace(
    '[c.store_add("count", 1) for _ in range(10**9)]', "c.world.allreduce([1])")


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("scheduler", ["killed", "stopped"])
def test_all_survivors_name_the_rank_that_died_with_the_scheduler(tmp_path, scheduler, how):
    lines = LINES if scheduler == "killed" else WITHOUT_STORE
    for each in survivors_say(tmp_path, lines, scheduler, [(5, how)]):
        assert each["error"] == "PEER_LOST" and each["named"] == 5, each
        assert "rank 5 (" in each["sentence"], each
        # For the first seconds a scheduler that is stopped may still answer.
        assert scheduler == "stopped" or "unconfirmed" not in each["sentence"], each
        if "store" in each:
            assert each["rank"] in (0, 4) and "without recovery its store does not come back" in each["store"], each
        assert each["after"] < SOON, each


@pytest.mark.parametrize("dead", [(2, 4), (0, 5), (0, 1)])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_of_several_that_died_with_the_scheduler_all_survivors_name_the_lowest(tmp_path, how, dead):
    """All the others wait for all of them."""
    lines = re.sub("calls = {.*?}", "calls = dict.fromkeys(range(6), lambda: c.world.allreduce([1]))", LINES, flags=re.DOTALL)
    for each in survivors_say(tmp_path, lines, "killed", [(rank, how) for rank in dead]):
        assert each["error"] == "PEER_LOST" and each["named"] == dead[0], each
        assert f"rank {dead[0]} (" in each["sentence"] and "unconfirmed" not in each["sentence"], each
        assert each["after"] < SOON, each


def survivors_say(folder, lines, scheduler, victims):
    """What they say after the scheduler's fate and the victims', each a rank and how it goes."""
    env = {"HOLD_FOLDER": folder, "MS_NODE_TIMEOUT": 2}
    with Cluster(node(lines), workers=6, env=env, keeps_port=True) as cluster:
        await_joined(*cluster.workers)
        for worker in cluster.workers:
            worker.wait_for('"ready"', LIMIT)
        ranks = {said(worker)["rank"]: worker for worker in cluster.workers}
        for process, fate in [(cluster.scheduler, scheduler), *((ranks.pop(rank), how) for rank, how in victims)]:
            if fate == "killed":
                os.kill(process.pid, signal.SIGKILL)
            else:
                stop(process.pid)
        pathlib.Path(folder, "they die").touch()
        for worker in ranks.values():
            worker.wait(LIMIT)
        return [said(worker) for worker in ranks.values()]


# Ranks 0 and 1 wait for a group, before the scheduler dies or when it has; rank 2 waits for a message of theirs.
MAKING = """
    c = join()
    c.world.allreduce([1])
    say(ready=True)
    if when == "after":
        hold("it dies")
        time.sleep(3)  # longer than the heartbeat time-out: the scheduler counts as gone when the group is asked for
    words = fails(c.world.receive, 8, 0) if c.rank == 2 else fails(c.world.split, 0)
    say(**words, named=c.failure()["rank"], status=c.failure()["status"], again=fails(c.world.split, 0)["sentence"])
    c.leave()
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_groups_that_nobody_can_make_any_more_end_the_wait_for_all(tmp_path, when):
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 2}
    with Cluster(node(f"    when = {when!r}" + MAKING), workers=3, env=env, keeps_port=True) as cluster:
        await_joined(*cluster.workers)
        for worker in cluster.workers:
            worker.wait_for('"ready"', LIMIT)
        time.sleep(0.5)  # so that the scheduler has heard who asks; where it has not, the test is the one of "after"
        os.kill(cluster.scheduler.pid, signal.SIGKILL)
        pathlib.Path(tmp_path, "it dies").touch()
        for worker in cluster.workers:
            worker.wait(LIMIT)
        words = [said(worker) for worker in cluster.workers]
    for each in words:
        assert each["error"] == each["status"] == "UNREACHABLE" and each["named"] == -1, words
        assert "without recovery no group can be made any more" in each["sentence"], words
        assert each["sentence"] == each["again"], words
        # Where none has heard another's, each counts for itself how long it has not heard the scheduler.
        assert re.sub(r"for [0-9.]+ s", "", each["sentence"]) == re.sub(r"for [0-9.]+ s", "", words[0]["sentence"]), words
        assert each["after"] < SOON, words
