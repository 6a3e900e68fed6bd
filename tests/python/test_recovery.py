"""With recovery: several lost at once, all but one, while forming, with the scheduler; who stands still, or has no name."""

import re
import signal
import socket
import time

import pytest

from nodes import failed_at_once, node, said
from recovering import LIMIT_SECONDS, Recovering, lives

HOST = socket.gethostname()
# What is asked of the scheduler is waited for 250 ms; the rest is for a busy machine.
UNCONFIRMED_SECONDS = 2.0


def cause(words):
    """What all must have been told alike."""
    assert words["sentence"] == words["cluster"], words
    return words["error"], words["sentence"], tuple(sorted(words["failure"].items()))


def test_several_are_lost_at_once_and_all_but_one(tmp_path):
    with Recovering(lives(lost={1: 2, 2: 4}), workers=5, folder=tmp_path) as job:
        for epoch, lost in [(1, [1, 3]), (2, [0, 1, 2, 4])]:
            job.await_all(f"stands_{epoch}")
            pids = {rank: job.workers[rank].pid for rank in lost}
            job.lose(*lost)
            rest = [rank for rank in range(5) if rank not in lost]
            told = {cause(words) for words in job.await_all(f"broken_{epoch}", rest)}
            assert len(told) == 1, told
            (status, sentence, _), = told
            named = re.match(rf'rank (\d) \(node id "\d", host {re.escape(HOST)}, pid (\d+)\) is lost', sentence)
            assert status == "PEER_LOST" and named and int(named[2]) == pids[int(named[1])], sentence
            assert sentence.count("node id") == 1, sentence
            assert f"the job is broken: {sentence}" in job.scheduler.stderr
            for rank in lost:
                job.scheduler.wait_for(rf'(broken|gone): rank {rank} \(node id "{rank}", host \S+ pid {pids[rank]}\)', 30)
            assert job.await_all(f"failed_{epoch}", rest) == [lost] * len(rest)
            for rank in lost:
                job.start_again(rank)
            job.let(f"recover_{epoch}")
        places = job.await_all("stands_3")
        assert [place["restarts"] for place in places] == [1, 2, 1, 1, 1]
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)


def test_one_that_dies_before_the_cluster_is_complete_is_not_missed(tmp_path):
    with Recovering(lives(), workers=3, folder=tmp_path, started=2, env={"MUSTER_LOG": "info"}) as job:
        job.scheduler.wait_for(rf'admitted worker node "1" on host \S+ \(pid {job.workers[1].pid}\)', 30)
        job.lose(1)
        job.scheduler.wait_for(r'node "1".*(free|place)', 30)
        job.start_again(1)
        job.start_worker()
        assert [(place["epoch"], place["restarts"]) for place in job.await_all("stands_1")] == [(1, 0)] * 3
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)
        assert "broken" not in job.scheduler.stderr


def test_nothing_goes_on_without_a_survivor_that_stands_still(tmp_path):
    """It is stopped inside muster_recover, for less than its time-out, while an epoch begins and breaks again."""
    with Recovering(lives(), workers=4, folder=tmp_path, env={"MS_NODE_TIMEOUT": 40}) as job:
        job.await_all("stands_1")
        job.lose(2)
        job.await_all("broken_1", [0, 1, 3])
        job.let("recover_1")
        job.scheduler.wait_for("3 of 4 nodes have called muster_recover", 30)
        job.workers[3].signal(signal.SIGSTOP)
        job.start_again(2)
        job.scheduler.wait_for("epoch 2 has begun", 30)
        job.workers[2].wait_for('"joined"', 30)
        job.lose(2)
        job.await_all("broken_2", [0, 1])
        job.start_again(2)
        job.let("recover_2")
        job.scheduler.wait_for(r'2 of 4 nodes have called muster_recover; awaited: rank 3 \(node id "3"', 30)
        assert "epoch 3 has begun" not in job.scheduler.stderr
        job.workers[3].signal(signal.SIGCONT)
        assert [place["restarts"] for place in job.await_all("stands_3")] == [0, 0, 2, 0]
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)
        late = said(job.workers[3])
        assert late["broken_2"]["error"] == "PEER_LOST" and "stands_2" not in late, late
        assert late["broken_2"]["sentence"] == said(job.workers[0])["broken_2"]["sentence"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_survivor_that_stood_still_for_too_long_goes_on_with_the_others(inside, tmp_path):
    """It is stopped before it calls muster_recover, or in it, until it counts as lost, too; nobody has taken its place."""
    with Recovering(lives(), workers=3, folder=tmp_path, env={"MS_NODE_TIMEOUT": 3}) as job:
        job.await_all("stands_1")
        job.lose(1)
        job.await_all("failed_1", [0, 2])
        if inside:
            job.let("recover_1")
            job.scheduler.wait_for("2 of 3 nodes have called muster_recover", 30)
        job.workers[2].signal(signal.SIGSTOP)
        job.scheduler.wait_for(r'also gone: rank 2 \(node id "2"', 30)
        job.let("recover_1")
        job.workers[2].signal(signal.SIGCONT)
        job.start_again(1)
        assert [place["restarts"] for place in job.await_all("stands_2")] == [0, 1, 0]
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)


def test_scheduler_and_worker_are_lost_together(tmp_path):
    """Nobody is there who could say what happened; then both come back."""
    with Recovering(lives(), workers=3, folder=tmp_path) as job:
        job.await_all("stands_1")
        victim = job.workers[1]
        job.lose_scheduler()
        since = time.monotonic()
        job.lose(1)
        for words in job.await_all("broken_1", [0, 2]):
            assert words["error"] == "PEER_LOST" and "is probably lost, unconfirmed" in words["sentence"], words
            assert words["sentence"].startswith(f'rank 1 (node id "1", host {HOST}, pid {victim.pid})'), words
            assert words["at"] - since < UNCONFIRMED_SECONDS, f'after {words["at"] - since} s'
        job.start_scheduler()
        job.start_again(1)
        job.let("recover_1")
        assert [place["restarts"] for place in job.await_all("stands_2")] == [0, 1, 0]
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)
        assert "this scheduler was started again" in job.scheduler.stderr


NAMELESS = """
    c = join()
    say(stands=True)
    words = fails(lambda: [c.world.allreduce([1]) for _ in iter(int, 1)])
    say(lost=words, ranks=c.failed_ranks())
    say(waited=fails(c.recover))
    hold("leave")
    c.leave()
"""
# How long a node that has no name is waited for: the forming time-out.
FORMING_SECONDS = 8


def test_one_without_a_name_is_warned_and_not_waited_for_without_end(tmp_path):
    env = {"MS_CLUSTER_TIMEOUT": FORMING_SECONDS}
    with Recovering(node(NAMELESS), workers=3, folder=tmp_path, numbered=False, env=env) as job:
        job.await_all("stands")
        for worker in job.workers:
            assert worker.stderr.count("it cannot come back") == 1, worker.stderr
            assert "has neither a node id (MS_NODE_ID) nor a rank from its launcher" in worker.stderr
        victim = job.workers[1]
        name = rf'rank {said(victim)["rank"]} \(node id "[^"]+", host {re.escape(HOST)}, pid {victim.pid}\)'
        job.lose(1)
        for words in job.await_all("lost", [0, 2]):
            assert words["error"] == "PEER_LOST" and re.match(name, words["sentence"]), words
        # A new process is not the lost one, and hears so.
        newcomer = job.start(node(), env={**job.env, "MS_ROLE": "MS_WORKER"}, name="newcomer")
        failed_at_once(newcomer, "REJECTED", "one too many", f"pid {victim.pid}")
        for words in job.await_all("waited", [0, 2]):
            assert words["error"] == "TIMEOUT" and re.search(f"awaited: .*{name}", words["sentence"]), words
            assert FORMING_SECONDS - 0.1 <= words["after"] < FORMING_SECONDS + 5, words
        job.let("leave")
        assert [job.workers[rank].wait(LIMIT_SECONDS) for rank in (0, 2)] == [0, 0]
        assert job.scheduler.wait(LIMIT_SECONDS) == 1
        words = said(job.scheduler)
        assert words["error"] == "PEER_LOST" and re.match(name, words["sentence"]), words
    # All have left or are lost for good: the next start on the same recovery path is a new job.
    with Recovering(node(), workers=3, folder=tmp_path, numbered=False) as job:
        job.succeed(timeout=LIMIT_SECONDS)
        assert "is done: a new one begins" in job.scheduler.stderr
