"""A process dies where ctests/break.c cannot show it: as a server, behind a proxy or on another host, with children that live on. All
hear of it soon, by the true culprit's name; nobody is blamed for standing still; and of several that go the first counts."""

import os
import signal
import socket
import time

import pytest

import wire
from cluster import Cluster, reserved_port
from nodes import await_joined, node, process_of, said
from proxy import TO_NODE, TO_SCHEDULER, Proxy

HOST = socket.gethostname()
# On one host a death is seen at once; this is what people are promised, on a machine that is busy.
SOON_SECONDS = 2.0
SLACK_SECONDS = 2.0

# Works until something breaks, then tells why.
WORK = node("""
    c = join()
    def work():
        c.world.barrier()
        say(running=True)
        while True:
            c.world.allreduce([c.rank] * 100)
    told = fails(work)
    say(**told, at=time.monotonic())
    say(failure=c.failure())
    c.leave()
    sys.exit(3)
""")


def await_running(workers):
    for worker in workers:
        worker.wait_for('"running"', timeout=30)


def named(worker, rank):
    return f'rank {rank} (node id "{rank}", host {HOST}, pid {worker.pid})'


def all_name(cluster, rank, since=None, within=SOON_SECONDS, silent=()):
    """Every survivor and the scheduler have failed with one sentence, which names this rank and nobody else."""
    victim = cluster.workers[rank]
    survivors = [worker for worker in cluster.workers if worker is not victim and worker not in silent]
    sentence, = {said(process)["sentence"] for process in [*survivors, cluster.scheduler]}
    assert sentence.startswith(named(victim, rank)) and sentence.count("node id") == 1, sentence
    assert cluster.scheduler.returncode == 1 and said(cluster.scheduler)["error"] == "PEER_LOST"
    for survivor in survivors:
        words = said(survivor)
        assert words["error"] == "PEER_LOST", words
        if since is not None:
            assert words["at"] - since < within, f"after {words['at'] - since} s"


def test_a_server_that_dies_is_named_as_a_server():
    lines = """
        c = join()
        say(running=True)
        say(**fails(c.universe.barrier) if c.role == "worker" else hold("never"))
        say(failure=c.failure(), ranks=c.failed_ranks())
        c.leave()
    """
    with Cluster(node(lines), workers=2, servers=1, env={"HOLD_FOLDER": "/nonexistent"}) as cluster:
        await_running([*cluster.workers, *cluster.servers])
        server, = cluster.servers
        server.kill()
        cluster.wait(timeout=30)
        for worker in cluster.workers:
            words = said(worker)
            assert words["error"] == "PEER_LOST" and words["sentence"].startswith("server rank 0 "), words
            assert f"pid {server.pid}" in words["sentence"]
            assert (words["failure"]["role"], words["failure"]["rank"], words["ranks"]) == (2, 0, [])


UNTIL_TOLD = """
    c = join()
    say(running=True)
    since = None
    while not c.world.allreduce([int(os.path.exists(os.environ["HOLD_FOLDER"] + "/go"))])[0]:
        if since is None and os.path.exists(os.environ["HOLD_FOLDER"] + "/continued"):
            since = 0
        elif since is not None:
            since += 1
            if since == 1:
                say(went_on=True)
    say(since=since)
    c.leave()
"""


@pytest.mark.parametrize("still", ["scheduler", "all"])
def test_when_the_scheduler_or_everything_stands_still_nobody_is_blamed(still, tmp_path):
    """All stand still as when a machine sleeps, or a container is frozen."""
    env = {"MS_NODE_TIMEOUT": 0.5, "HOLD_FOLDER": tmp_path}
    with Cluster(node(UNTIL_TOLD), workers=3, env=env) as cluster:
        await_running(cluster.workers)
        stopped = [cluster.scheduler] if still == "scheduler" else cluster.processes
        for process in stopped:
            process.signal(signal.SIGSTOP)
        time.sleep(1.5)  # three time-outs: this is the standing still
        for process in stopped:
            process.signal(signal.SIGCONT)
        (tmp_path / "continued").touch()
        time.sleep(0.8)  # long enough to be blamed for what came before
        for worker in cluster.workers:
            worker.wait_for('"went_on"', timeout=30)
        (tmp_path / "go").touch()
        for worker in cluster.succeed(timeout=30):
            assert said(worker)["since"] > 0


@pytest.mark.parametrize("muted", [[TO_SCHEDULER], [TO_NODE], [TO_SCHEDULER, TO_NODE]], ids=["unheard", "unhearing", "both"])
def test_a_node_that_is_unheard_or_unhearing_is_lost(muted):
    """Its connection to the scheduler stays open, but nothing passes; its links to the others work."""
    time_out = 1.0
    env = {"MS_NODE_TIMEOUT": time_out, "MUSTER_FINALIZE_TIMEOUT": 1}
    with Cluster(WORK, workers=3, started=2, env=env) as cluster, Proxy(cluster.port) as proxy:
        cut_off = cluster.start_worker(env={"MS_SCHED_PORT": proxy.port})
        await_running(cluster.workers)
        since = time.monotonic()
        for direction in muted:
            proxy.mute(direction)
        for worker in cluster.workers[:2]:
            assert worker.wait(timeout=30) == 3
        assert cluster.scheduler.wait(timeout=30) == 1
        all_name(cluster, 2, since=since, within=time_out * 1.2 + SLACK_SECONDS)
        # The ranks in touch with it have gone by now. It may have heard the reason from them, or cannot know it; but it ends.
        assert cut_off.wait(timeout=30) == 3
        words = said(cut_off)
        assert words["error"] in ("FENCED", "PEER_LOST", "PEER_LEFT"), words
        assert (words["error"] == "FENCED") == (words["failure"]["rank"] == 2), words


def test_a_node_says_why_it_gives_a_damaged_connection_up(tmp_path):
    lines = """
        c = join()
        say(running=True)
        hold("go")
        say(sum=c.world.allreduce([1]))
        c.leave()
    """
    env = {"MS_NODE_TIMEOUT": 1, "HOLD_FOLDER": tmp_path}
    with Cluster(node(lines), workers=2, started=1, env=env) as cluster, Proxy(cluster.port) as proxy:
        other = cluster.workers[0]
        behind = cluster.start_worker(env={"MS_SCHED_PORT": proxy.port})
        for worker in (other, behind):
            worker.wait_for('"running"', timeout=30)
        proxy.damage(TO_NODE)
        behind.wait_for("the connection to the scheduler is closed, and made anew", timeout=30)
        (tmp_path / "go").touch()
        cluster.succeed(timeout=30)
        assert said(other)["sum"] == said(behind)["sum"] == [2]


def test_a_rank_that_keeps_others_waiting_is_named_in_a_warning_and_nobody_fails(tmp_path):
    """The warning comes after 10 s, so this test takes as long."""
    lines = "c = join()\nif c.rank == 1: hold('go')\nc.world.barrier()\nc.leave()"
    with Cluster(node(lines), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        warned = cluster.workers[0].wait_for("warning.*waiting for 10 s.*", timeout=30)[0]
        (tmp_path / "go").touch()
        cluster.succeed(timeout=30)
        assert "barrier #1 on world" in warned and named(cluster.workers[1], 1) in warned


def test_the_process_that_hosts_the_scheduler_dies():
    with reserved_port() as port:
        with Cluster(WORK, workers=3, started=0, scheduler=False) as cluster:
            for rank in range(3):
                names = ("MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_ROLE", "MS_NODE_ID")
                place = {"RANK": rank, "WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port - 2}
                settings = {"MS_NODE_TIMEOUT": 1, "MUSTER_FINALIZE_TIMEOUT": 1}
                cluster.start_worker(env={**dict.fromkeys(names), **place, **settings})
            await_running(cluster.workers)
            cluster.workers[0].kill()
            since = time.monotonic()
            cluster.wait(timeout=30)
            for worker in cluster.workers[1:]:
                words = said(worker)
                assert words["error"] == "PEER_LOST" and words["sentence"].startswith("rank 0 "), words
                assert f"pid {cluster.workers[0].pid}" in words["sentence"] and "found by the ranks" in words["sentence"], words
                assert words["at"] - since < SOON_SECONDS, words


CHILDREN = {
    "forked": "os.fork() or time.sleep(600)",
    "forked twice": "os.fork() or os.fork() or time.sleep(600)",
    "executed": "import subprocess; subprocess.Popen(['sleep', '600'], close_fds=False)",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_that_lives_on_does_not_hide_a_death(child):
    lines = f"""
        c = join()
        c.world.barrier()
        parent = os.getpid()
        {CHILDREN[child]}
        if os.getpid() == parent:
            say(running=True)
            while True:
                c.world.allreduce([c.rank] * 100)
        time.sleep(600)
    """
    with Cluster(WORK, workers=3, started=2) as cluster:
        victim = cluster.start_worker(program=node(lines))
        await_running(cluster.workers)
        victim.kill()
        since = time.monotonic()
        cluster.wait(timeout=30)
        all_name(cluster, 2, since=since)


def test_an_abort_after_a_loss_is_not_the_first_cause(tmp_path):
    """Not even in a group that nobody has called since the loss."""
    lines = """
        c = join()
        unused = c.world.split(0)
        c.world.barrier()
        say(running=True)
        if c.rank == 2:
            hold("never")
        say(**fails(c.world.barrier))
        hold("lost")
        if c.rank == 0:
            c.abort(5, "enough")
        say(recovers=fails(c.recover))
        say(unused=fails(unused.barrier), failure=c.failure(), store=fails(c.store_set, "k", b"v"))
        c.leave()
    """
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "path", "HOLD_FOLDER": tmp_path}
    with Cluster(node(lines), workers=3, env=env) as cluster:
        await_running(cluster.workers)
        dead = cluster.workers.pop(2)
        dead.kill()
        dead.wait(timeout=10)
        for worker in cluster.workers:
            worker.wait_for('"error"', timeout=30)
        (tmp_path / "lost").touch()
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0
            words = said(worker)
            assert words["recovers"]["error"] == "ABORTED" and "code 5: enough" in words["recovers"]["sentence"], words
            for kept in (words["unused"], words["store"], words):
                assert kept["error"] == "PEER_LOST" and kept["sentence"].startswith(named(dead, 2)), words
            assert (words["failure"]["status"], words["failure"]["rank"]) == ("PEER_LOST", 2), words


HANDLED = """
    c = join()
    made = c.world.create(list(range(c.size)))
    say(handled=fails(made.barrier) if c.rank == 0 else fails(made.allreduce, [1]))
    GOES_ON
    c.store_set(f"{c.rank} has gone on", b"")  # behind what its agent thread has told the scheduler
    say(running=True)
    while c.rank == 2:
        time.sleep(60)
    say(**fails(c.world.barrier), at=time.monotonic())
    c.leave()
    sys.exit(3)
"""


@pytest.mark.parametrize("call", ["c.world.barrier()", "c.world.send(b'x', (c.rank + 1) % c.size)"])
def test_a_rank_that_is_killed_after_it_has_handled_the_end_of_a_group_is_lost(call):
    """All have called different things on a group that they had made, were told so, and have gone on with the world at once."""
    with Cluster(node(HANDLED.replace("GOES_ON", call)), workers=4) as cluster:
        await_running(cluster.workers)
        assert all(said(worker)["handled"]["error"] == "MISMATCH" for worker in cluster.workers)
        cluster.workers[2].kill()
        since = time.monotonic()
        cluster.wait(timeout=30)
        all_name(cluster, 2, since=since, within=SOON_SECONDS + SLACK_SECONDS)


def test_a_death_after_a_missed_peer_is_a_consequence():
    """The end of rank 1 reaches the scheduler last: what stands between them keeps the connection open. By then rank 0, which
    could not go on without it, has ended too, and visibly."""
    with Cluster(WORK, workers=2, started=0, env={"MS_NODE_TIMEOUT": 1}) as cluster:
        with Proxy(cluster.port) as watched, Proxy(cluster.port) as cut_off:
            cluster.start_worker(env={"MS_SCHED_PORT": watched.port})
            cluster.start_worker(env={"MS_SCHED_PORT": cut_off.port, "MUSTER_HOST_ID": "elsewhere"})
            await_running(cluster.workers)
            for direction in (TO_SCHEDULER, TO_NODE):
                cut_off.mute(direction)
            cluster.workers[1].kill()
            watched.wait_for(lambda: watched.count(TO_SCHEDULER, wire.SUSPECT) > 0, timeout=10)
            cluster.workers[0].kill()
            assert cluster.scheduler.wait(timeout=30) == 1
            words = said(cluster.scheduler)
            assert words["error"] == "PEER_LOST" and words["sentence"].startswith(named(cluster.workers[1], 1)), words


def test_a_death_on_another_host_is_told_soon_though_nobody_misses_the_rank():
    """No process that could be looked at, no link that could end: the end of its connection, and that it does not come back."""
    lines = """
        c = join()
        say(running=True)
        say(**fails(c.store_get, "nobody sets this"))
        c.leave()
    """
    with Cluster(node(lines), workers=2, started=1, env={"MS_NODE_TIMEOUT": 60}) as cluster:
        victim = cluster.start_worker(env={"MUSTER_HOST_ID": "elsewhere"})
        await_running(cluster.workers)
        victim.kill()
        survivor = cluster.workers[0]
        assert survivor.wait(timeout=30) == 0 and cluster.scheduler.wait(timeout=30) == 1
        assert said(survivor)["error"] == "PEER_LOST" and said(survivor)["sentence"].startswith(named(victim, 1))


def test_a_node_that_is_back_when_the_scheduler_looks_is_not_lost_whatever_was_said_of_it(tmp_path):
    """Its launcher has said that it has ended, which is not true, and its connection ends: that would be enough. But its next
    connection is there to be read when the scheduler, which stands still shorter than an interval, reads the end of the first."""
    lines = "c = join(); hold('go'); c.world.allreduce([1]); c.leave()"
    elsewhere = {"MUSTER_HOST_ID": "elsewhere"}
    with Cluster(node(lines), workers=2, started=1, env={"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 60}) as cluster:
        with Proxy(cluster.port) as proxy:
            back = cluster.start_worker(env={**elsewhere, "MS_SCHED_PORT": proxy.port})
            await_joined(*cluster.workers)
            heard = proxy.count(TO_SCHEDULER, wire.HEARTBEAT)
            with wire.connect(cluster.port) as launcher:
                host = os.uname().nodename, elsewhere["MUSTER_HOST_ID"]
                launcher.send(wire.CHILD_ENDED, wire.child_ended(host, process_of(back.pid), killed=True, number=9))
                with pytest.raises((EOFError, ConnectionError)):
                    launcher.receive(timeout=30)
            # It is asked for a sign of life; nothing more is due from it for 12 s.
            proxy.wait_for(lambda: proxy.count(TO_SCHEDULER, wire.HEARTBEAT) > heard, timeout=30)
            cluster.scheduler.signal(signal.SIGSTOP)
            proxy.cut()
            proxy.wait_for(lambda: proxy.count(TO_SCHEDULER, wire.REGISTER) == 2, timeout=30)
            cluster.scheduler.signal(signal.SIGCONT)
            (tmp_path / "go").touch()
            cluster.succeed(timeout=60)
