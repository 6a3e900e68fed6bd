"""With recovery: what a lost node must bring to come back, and how soon it may; which nodes are awaited. What C can show is in
ctests/returns.c and ctests/fenced.c. One test takes 30 s; the others run meanwhile."""

import re
import signal
import socket
import time

import pytest

from cluster import Process
from nodes import failed_at_once, node, said
from recovering import LIMIT_SECONDS, Recovering, lives

WITHOUT_TOKEN_SECONDS = 30
NODE_TIMEOUT = 4.0
HOST = socket.gethostname()
# A life that is there, and joins when it is let: how long a process takes to start is no matter then.
HELD = {"HOLD_FIRST": "come"}


class Waiting:
    """A job of which two ranks come back without a token: of one the identity file is gone, of the other it is damaged."""

    def __init__(self, folder):
        self.job = Recovering(lives(lost={1: 2}), workers=4, folder=folder)

    def lose(self):
        job = self.job
        job.await_all("stands_1")
        self.since = time.monotonic()
        job.lose(1, 2)
        job.await_all("broken_1", [0, 3])
        job.identity(1).unlink()
        damaged = bytearray(job.identity(2).read_bytes())
        damaged[-1] ^= 1
        job.identity(2).write_bytes(damaged)
        job.start_again(1)
        # It does not begin to wait, nor does it write over the file.
        path = str(job.identity(2))
        failed_at_once(job.start_again(2), "JOURNAL", path, "is damaged", "remove it to go on", "30 s after its loss")
        assert job.identity(2).read_bytes() == damaged
        job.identity(2).unlink()
        job.start_again(2)
        job.let("recover_1")


@pytest.fixture(scope="module", autouse=True)
def waiting(tmp_path_factory):
    """Waits while the other tests run."""
    waiting = Waiting(tmp_path_factory.mktemp("waiting"))
    with waiting.job:
        waiting.lose()
        yield waiting


def test_one_that_comes_while_its_last_life_may_still_live_is_let_in_after_the_heartbeat_time_out(tmp_path):
    env = {"MS_NODE_TIMEOUT": NODE_TIMEOUT, "MUSTER_LOG": "info"}
    with Recovering(lives(), workers=3, folder=tmp_path, env=env) as job:
        job.await_all("stands_1")
        job.let("recover_1")
        old, new = job.workers[1], job.start_again(1, HELD)
        new.wait_for('"here"', LIMIT_SECONDS)
        old.signal(signal.SIGSTOP)
        job.let("come")
        job.scheduler.wait_for(rf"\(pid {new.pid}\) comes back, but rank 1 .*, pid {old.pid}\) may still live: it is asked", 30)
        assert "is lost" not in job.scheduler.stderr, "nobody had noticed"
        assert [place["restarts"] for place in job.await_all("stands_2")] == [0, 1, 0]
        lost = said(job.workers[0])["broken_1"]
        assert f"pid {old.pid}) is lost: nothing was heard from it for" in lost["sentence"], lost
        assert said(new)["seconds"] > NODE_TIMEOUT / 2, "that life had its time"
        assert said(new)["seconds"] < WITHOUT_TOKEN_SECONDS / 2
        old.signal(signal.SIGCONT)
        assert old.wait(LIMIT_SECONDS) == 1
        assert said(old)["error"] == said(old)["broken_1"]["error"] == "FENCED"
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)


def test_while_forming_too_the_last_life_is_asked(tmp_path):
    env = {"MS_NODE_TIMEOUT": NODE_TIMEOUT, "MUSTER_LOG": "info"}
    with Recovering(lives(), workers=3, started=1, folder=tmp_path, env=env) as job:
        old = job.start_worker()
        job.scheduler.wait_for('admitted worker node "1"', LIMIT_SECONDS)
        with Process(job.program, {**job.env, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": 1}, "a second one") as second:
            failed_at_once(second, "REJECTED", "rank 1", f"pid {old.pid}), which lives", "has just answered")
        new = job.start_again(1, HELD)
        new.wait_for('"here"', LIMIT_SECONDS)
        old.signal(signal.SIGSTOP)
        job.let("come")
        job.scheduler.wait_for(rf"\(pid {new.pid}\) comes back, but .*, pid {old.pid}\) may still live: it is asked", LIMIT_SECONDS)
        job.scheduler.wait_for(rf"\(pid {old.pid}\) is gone before the cluster was complete: nothing was heard", LIMIT_SECONDS)
        job.start_worker()
        job.let("end")
        assert [place["restarts"] for place in job.await_all("stands_1")] == [0, 0, 0]
        assert NODE_TIMEOUT / 2 < said(new)["seconds"] < WITHOUT_TOKEN_SECONDS / 2
        job.succeed(timeout=LIMIT_SECONDS)


def test_one_that_comes_back_on_another_host_counts_there(tmp_path):
    with Recovering(lives(), workers=3, folder=tmp_path) as job:
        assert [place["local"] for place in job.await_all("stands_1")] == [[0, 3], [1, 3], [2, 3]]
        job.lose(1)
        job.let("recover_1")
        job.start_again(1, env={"MUSTER_HOST_ID": "elsewhere"})
        assert [place["local"] for place in job.await_all("stands_2")] == [[0, 2], [0, 1], [1, 2]]
        # And back again; its loss is noticed although the scheduler cannot look at its process.
        job.lose(1)
        job.let("recover_2")
        job.start_again(1)
        places = job.await_all("stands_3")
        assert [place["local"] for place in places] == [[0, 3], [1, 3], [2, 3]]
        assert [place["restarts"] for place in places] == [0, 2, 0]
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)


LEAVES = """
    c = join()
    c.world.barrier()
    say(stands=True)
    if c.rank == 1:
        hold("never")
    say(lost=fails(c.world.barrier))
    hold(f"leave_{c.rank}")
    c.leave()
"""


def test_one_that_comes_back_to_others_of_whom_one_has_left_hears_so(tmp_path):
    with Recovering(node(LEAVES), workers=3, folder=tmp_path, env={"MS_NODE_TIMEOUT": 20}) as job:
        job.await_all("stands")
        job.lose(1)
        job.await_all("lost", [0, 2])
        job.let("leave_0")
        assert job.workers[0].wait(LIMIT_SECONDS) == 0
        failed_at_once(job.start_again(1), "PEER_LEFT", "cannot come back", 'rank 0 (node id "0"', "has left the cluster")
        job.let("leave_2")
        assert job.workers[2].wait(LIMIT_SECONDS) == 0 and job.scheduler.wait(LIMIT_SECONDS) == 1


LATE = """
    c = join()
    c.world.barrier()
    say(stands=True)
    if c.rank == 0:
        hold("leave")
        c.leave()
        sys.exit(0)
    hold("recover")
    say(recover=fails(lambda: c.recover(60_000)))
    c.leave()
"""


def test_a_survivor_that_asks_when_the_scheduler_has_ended_hears_that_one_has_left(tmp_path):
    with Recovering(node(LATE), workers=3, folder=tmp_path, env={"MS_NODE_TIMEOUT": NODE_TIMEOUT}) as job:
        job.await_all("stands")
        job.let("leave")
        assert job.workers[0].wait(LIMIT_SECONDS) == 0
        job.lose(2)
        assert job.scheduler.wait(LIMIT_SECONDS) == 1
        job.let("recover")
        told, = job.await_all("recover", [1])
        assert told["error"] == "PEER_LEFT" and 'rank 0 (node id "0"' in told["sentence"], told
        assert told["after"] < NODE_TIMEOUT, "nobody else is asked"
        assert job.workers[1].wait(LIMIT_SECONDS) == 0


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


def test_without_a_token_one_is_let_in_30_seconds_after_the_loss_and_says_so(waiting):
    job = waiting.job
    places = job.await_all("stands_2")
    assert [place["restarts"] for place in places] == [0, 1, 1, 0]
    for rank in (1, 2):
        new = job.workers[rank]
        took = said(new)["stands_2"]["at"] - waiting.since
        assert took >= WITHOUT_TOKEN_SECONDS, took
        warned = [line for line in new.stderr.splitlines() if "not yet: " in line]
        assert len(warned) == 1 and f'does not have the token of rank {rank} (node id "{rank}"' in warned[0], new.stderr
        assert "so it may join 30 s after that node's loss, which is in 2" in warned[0], warned
        assert "still trying" not in new.stderr and "was lost" not in new.stderr, new.stderr
        assert job.identity(rank).stat().st_mode & 0o777 == 0o600
    job.let("end")
    job.succeed(timeout=LIMIT_SECONDS)
