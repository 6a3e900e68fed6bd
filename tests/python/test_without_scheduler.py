"""The scheduler and a rank die or stop, without recovery: the survivors find out by themselves who it was."""

import os
import pathlib
import signal

import pytest

from cluster import Cluster, stop
from nodes import await_joined, node, said

LIMIT = 60
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
        3: lambda: c.world.barrier(),
        4: lambda: [c.store_add("count", 1) for _ in range(10**9)],
        5: lambda: time.sleep(100),
    }

    def named():
        try:
            return c.failure()["rank"]
        except MusterError:
            return None

    words = fails(calls[c.rank])
    say(**words, named=named())
    c.leave()
"""


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("scheduler", ["killed", "stopped"])
def test_all_survivors_name_the_rank_that_died_with_the_scheduler(tmp_path, scheduler, how):
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 2}
    with Cluster(node(LINES), workers=6, env=env, keeps_port=True) as cluster:
        await_joined(*cluster.workers)
        for worker in cluster.workers:
            worker.wait_for('"ready"', LIMIT)
        victims = [worker for worker in cluster.workers if said(worker)["rank"] == 5]
        survivors = [worker for worker in cluster.workers if worker not in victims]
        for process, fate in ((cluster.scheduler, scheduler), (victims[0], how)):
            if fate == "killed":
                os.kill(process.pid, signal.SIGKILL)
            else:
                stop(process.pid)
        pathlib.Path(tmp_path, "they die").touch()
        for worker in survivors:
            worker.wait(LIMIT)
        words = [said(worker) for worker in survivors]
        for each in words:
            # The store may have ended a moment before a stopped rank was found out.
            is_store = each["rank"] in (0, 4) and each["error"] == "UNREACHABLE"
            if is_store:
                assert "without recovery its store does not come back" in each["sentence"], words
            else:
                assert each["error"] == "PEER_LOST", words
                assert "rank 5 (" in each["sentence"] and "unconfirmed" not in each["sentence"], words
                assert each["named"] == 5, words
            assert each["after"] < LIMIT / 2, words
