"""Leaving a cluster: in any order, in bounded time, known to the ranks that stay, and without a trace."""

import contextlib
import os
import pathlib
import signal
import socket
import time

import pytest

from cluster import Cluster, Process, reserved_port
from nodes import await_joined, node, said

HOST = socket.gethostname()
SLACK_SECONDS = 2.0
# Nothing has to be waited for but the scheduler's good-bye.
PROMPT_SECONDS = 0.7
FIN_WAIT2 = "05"  # as /proc/net/tcp says it


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_in_any_order_and_nobody_waits_for_those_who_stay(order, tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        hold(f"leave {c.rank}")
        began = time.monotonic()
        c.leave()
        say(left_in=time.monotonic() - began)
    """
    with Cluster(node(lines), workers=4, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        for rank in order:
            (tmp_path / f"leave {rank}").touch()
            assert cluster.workers[rank].wait(timeout=10) == 0
            assert said(cluster.workers[rank])["left_in"] < PROMPT_SECONDS, rank
        assert cluster.scheduler.wait(timeout=10) == 0
        assert said(cluster.scheduler)["done"] is True
        assert all(process.stderr == "" for process in cluster.processes)


NEEDS = {
    "barrier": "c.world.barrier()",
    "allreduce": "c.world.allreduce([1])",
    "allgather": "c.world.allgather(1)",
    "broadcast": "c.world.broadcast(b'x', 1)",
}


@pytest.mark.parametrize("when", ["before the call", "during the call"])
@pytest.mark.parametrize("call", NEEDS)
def test_a_call_that_needs_a_rank_that_has_left_names_it(call, when, tmp_path):
    lines = f"""
        c = join()
        c.world.barrier()
        if c.rank == 1:
            {"hold('leave')" if when == "during the call" else ""}
            c.leave()
            sys.exit(0)
        {"hold('go')" if when == "before the call" else "say(calling=True)"}
        def need():
            {NEEDS[call]}
        say(**fails(need))
        say(failure=c.failure()["status"], ranks=c.failed_ranks(), states=[c.world.member(r).state for r in range(3)])
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        if when == "during the call":
            for rank in (0, 2):
                cluster.workers[rank].wait_for('"calling"', timeout=30)
            (tmp_path / "leave").touch()
        assert cluster.workers[1].wait(timeout=30) == 0
        (tmp_path / "go").touch()
        # To have left is no loss: the job ends well.
        cluster.succeed(timeout=30)
        words = [said(cluster.workers[rank]) for rank in (0, 2)]
        assert [each["states"] for each in words] == [[0, 2, 0]] * 2, "the header's MUSTER_MEMBER_LEFT"
        assert {each["error"] for each in words} == {"PEER_LEFT"}, words
        sentence, = {each["sentence"] for each in words}
        assert sentence.startswith(f'rank 1 (node id "1", host {HOST}, pid {cluster.workers[1].pid})'), sentence
        assert "has left" in sentence and f"{call} #2 on world" in sentence, sentence
        for each in words:
            assert each["after"] < SLACK_SECONDS and each["failure"] == "PEER_LEFT" and each["ranks"] == [], each


def test_leaving_twice_is_leaving_once_and_calls_afterwards_say_so():
    lines = """
        c = join()
        c.world.barrier()
        c.finalize()
        c.finalize()
        say(collective=fails(c.world.barrier), store=fails(c.store_set, "a", b"1"), rank=c.rank)
        c.free()
    """
    with Cluster(node(lines), workers=2) as cluster:
        for worker in cluster.succeed(timeout=30):
            words = said(worker)
            for call in ("collective", "store"):
                assert words[call]["error"] == "STATE" and words[call]["after"] < 1.0, words
                assert "finalize" in words[call]["sentence"] or "left" in words[call]["sentence"], words


def half_closed(pid):
    """How many of a process's connections have said all that they will, and still listen."""
    own = {os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == FIN_WAIT2 and f"socket:[{row[9]}]" in own for row in rows)


def test_the_word_goes_over_the_links_which_stay_half_closed_until_the_scheduler_has_said_goodbye(tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        say(met=True)
        hold(f"go {c.rank}")
        if c.rank == 0:
            say(told=fails(c.world.barrier))
            hold("leave")
        c.leave()
    """
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 60}
    with Cluster(node(lines), workers=2, env=env) as cluster:
        stays, leaves = cluster.workers
        for worker in cluster.workers:
            worker.wait_for("met", 30)
        cluster.scheduler.signal(signal.SIGSTOP)
        (tmp_path / "go 1").touch()
        deadline = time.monotonic() + 10
        while not half_closed(leaves.pid):
            assert leaves.returncode is None and time.monotonic() < deadline
            time.sleep(0.001)
        (tmp_path / "go 0").touch()
        stays.wait_for("told", 30)  # by the link: the scheduler says nothing
        assert said(stays)["told"]["error"] == "PEER_LEFT" and "rank 1" in said(stays)["told"]["sentence"]
        assert leaves.returncode is None
        cluster.scheduler.signal(signal.SIGCONT)
        assert leaves.wait(timeout=30) == 0 and leaves.stderr == ""
        (tmp_path / "leave").touch()
        cluster.succeed(timeout=30)


def test_the_last_result_reaches_a_slow_peer_though_the_others_have_left(tmp_path):
    """What was sent before leaving is delivered: a peer that is late still gets its part of the collective, from processes that
    have ended by then."""
    lines = """
        c = join()
        c.world.barrier()
        if c.rank == 2:
            hold("go")
        data = c.world.broadcast(b"abcd" * 1024 if c.rank == 0 else bytes(4096))
        say(right=data == b"abcd" * 1024)
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        for worker in cluster.workers[:2]:
            assert worker.wait(timeout=30) == 0
        (tmp_path / "go").touch()
        for worker in cluster.succeed(timeout=30):
            assert said(worker)["right"] is True


def test_one_that_hosts_the_scheduler_leaves_last(tmp_path):
    """While rank 0 leaves, the scheduler in its process goes on for rank 1, which still waits for a value."""
    lines = """
        c = join()
        c.world.barrier()
        if c.rank == 1:
            hold("go")
            say(told=fails(c.store_get, "nobody sets this", 700)["error"])
        say(leaving=True)
        c.leave()
    """
    with reserved_port() as port:
        places = [
            {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port - 2, "HOLD_FOLDER": tmp_path}
            for rank in range(2)
        ]
        with Process(node(lines), places[0]) as first, Process(node(lines), places[1]) as second:
            await_joined(first, second)
            first.wait_for('"leaving"', timeout=30)
            (tmp_path / "go").touch()
            assert first.wait(timeout=30) == second.wait(timeout=30) == 0
            assert first.stderr == second.stderr == ""
            assert said(second)["told"] == "TIMEOUT"


def test_nothing_is_left_when_the_last_handle_is_freed():
    lines = """
        def state():
            return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")),
                    open(f"/proc/self/task/{os.getpid()}/children").read()]
        def settled():
            # A thread that has ended stands in that list for a moment more.
            deadline = time.monotonic() + 10
            while state() != before and time.monotonic() < deadline:
                time.sleep(0.001)
            return state()
        before = state()
        c = join()
        c.world.allreduce([1])
        c.universe.barrier()
        c.store_set("a", b"1")
        during = state()
        c.leave()
        say(before=before, during=during, after=settled())
    """
    with Cluster(node(lines), workers=3, numbered=False) as cluster:
        for worker in cluster.succeed(timeout=30):
            words = said(worker)
            assert words["after"] == words["before"], words
            assert words["during"][0] > words["before"][0] and words["during"][1] > words["before"][1]
    with Process(node(lines)) as alone:
        assert alone.wait(timeout=30) == 0
        assert said(alone)["after"] == said(alone)["before"]


def test_a_refused_node_leaves_nothing_behind_either():
    lines = """
        def state():
            return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]
        before = state()
        say(**fails(init))
        say(before=before, after=state())
    """
    with Cluster(node(), workers=2, started=1) as cluster:
        settings = {**cluster.env, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": "1", "MS_WORKER_NUM": "7"}
        with Process(node(lines), settings) as refused:
            assert refused.wait(timeout=30) == 0
            assert said(refused)["error"] == "REJECTED"
            assert said(refused)["after"] == said(refused)["before"]
        cluster.start_worker()
        cluster.succeed(timeout=30)


def test_a_process_may_join_one_cluster_after_another():
    """The same processes, twice: nothing of the first cluster gets in the way of the second."""
    lines = """
        for port in os.environ["PORTS"].split():
            c = join({"sched_port": port})
            assert c.world.allreduce([c.rank]) == [1]
            c.leave()
    """
    with Cluster(node(), workers=2, started=0) as first, Cluster(node(), workers=2, started=0) as second:
        ports = f"{first.port} {second.port}"
        for _ in range(2):
            first.start_worker(program=node(lines), env={"PORTS": ports})
        first.succeed(timeout=30)
        second.succeed(timeout=30)


def test_leaving_a_scheduler_that_does_not_answer_ends_in_time(tmp_path):
    patience = 0.7
    lines = """
        c = join()
        c.world.barrier()
        hold("go")
        began = time.monotonic()
        c.leave()
        say(left_in=time.monotonic() - began)
    """
    env = {"MUSTER_FINALIZE_TIMEOUT": patience, "HOLD_FOLDER": tmp_path}
    with Cluster(node(lines), workers=2, env=env) as cluster:
        await_joined(*cluster.workers)
        cluster.scheduler.signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0
            assert said(worker)["left_in"] < patience + SLACK_SECONDS
            assert "warning" in worker.stderr and "scheduler" in worker.stderr


def test_strangers_that_come_at_the_end_hold_up_nothing(tmp_path):
    """They connect, say nothing and stay, one after the other, until nobody listens any more."""
    lines = "c = join(); hold('go'); c.leave()"
    with Cluster(node(lines), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster, contextlib.ExitStack() as held:
        await_joined(*cluster.workers)
        deadline = time.monotonic() + 10
        with contextlib.suppress(ConnectionError):
            while cluster.scheduler.returncode is None and time.monotonic() < deadline:
                held.enter_context(socket.create_connection(("127.0.0.1", cluster.port), timeout=5))
                (tmp_path / "go").touch()
                time.sleep(0.01)
        cluster.succeed(timeout=10)
