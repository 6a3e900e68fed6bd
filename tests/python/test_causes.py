"""What is told of a cause where the usual teller cannot: without the scheduler the members tell each other, and of several
that go the first counts, though it is found out last."""

import os
import signal
import time

import pytest

import wire
from cluster import Cluster
from nodes import await_joined, node, process_of, said
from proxy import TO_NODE, TO_SCHEDULER, Proxy
from test_breaking import SLACK_SECONDS, SOON_SECONDS, all_name, await_running, named, work

SCHEDULER_GONE = {"MS_NODE_TIMEOUT": 0.5, "MUSTER_FINALIZE_TIMEOUT": 1}


def kill_scheduler(cluster, folder):
    """Once all run; the nodes that hold for it go on when it is gone."""
    await_running(cluster.workers)
    cluster.scheduler.kill()
    cluster.scheduler.wait(timeout=10)
    (folder / "killed").touch()



def killed_with_the_scheduler(cluster, at, folder):
    """The worker at this place, which is killed while there is no scheduler; the others are told to go on."""
    await_running(cluster.workers)
    dead = cluster.workers.pop(at)
    for process in (cluster.scheduler, dead):
        process.kill()
        process.wait(timeout=10)
    (folder / "killed").touch()
    return dead


def test_without_the_scheduler_the_members_tell_each_other_why_a_group_is_given_up(tmp_path):
    """Rank 0 alone has a time limit; the others, one in the call and one that comes later, would wait for half an hour."""
    lines = """
        c = join()
        c.world.barrier()
        say(running=True)
        hold("killed" if c.rank < 2 else "go")
        if c.rank == 0:
            c.world.set_timeout(500)
        def calls():
            c.world.broadcast(b"xy", 2)
            c.world.barrier()
        say(**fails(calls))
        hold("go")
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={**SCHEDULER_GONE, "HOLD_FOLDER": tmp_path}) as cluster:
        kill_scheduler(cluster, tmp_path)
        for worker in cluster.workers[:2]:
            worker.wait_for('"error"', timeout=30)
        (tmp_path / "go").touch()
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0
        assert {said(worker)["error"] for worker in cluster.workers} == {"TIMEOUT"}
        sentence, = {said(worker)["sentence"] for worker in cluster.workers}
        assert "broadcast #2 on world" in sentence and "0.5 s" in sentence, sentence


def test_without_the_scheduler_a_last_word_is_heard_behind_what_nobody_reads_yet(tmp_path):
    """Rank 0 gives up while its frame lies unread before rank 1, which still waits for rank 2, or before rank 2, which comes when
    all that it needs is there: that depends on the algorithm."""
    lines = """
        c = join()
        c.world.allreduce([1])
        say(running=True)
        hold("killed" if c.rank < 2 else "go")
        if c.rank == 0:
            c.world.set_timeout(500)
        say(**fails(lambda: c.world.allreduce([1])))
        hold("go")
        c.leave()
    """
    env = {**SCHEDULER_GONE, "HOLD_FOLDER": tmp_path}
    with Cluster(node(lines), workers=3, env=env) as cluster:
        kill_scheduler(cluster, tmp_path)
        for worker in cluster.workers[:2]:
            worker.wait_for('"error"', timeout=30)
        (tmp_path / "go").touch()
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0
        assert {said(worker)["error"] for worker in cluster.workers} == {"TIMEOUT"}
        sentence, = {said(worker)["sentence"] for worker in cluster.workers}
        assert "allreduce #2 on world" in sentence and "0.5 s" in sentence, sentence


def test_without_the_scheduler_a_death_is_told_to_those_who_have_no_link_to_it(tmp_path):
    """Of five ranks that add up in a tree most never speak to the one that dies."""
    lines = """
        c = join()
        c.world.allreduce([1])
        say(running=True)
        hold("killed")
        say(**fails(lambda: [c.world.allreduce([1]) for _ in range(100)]))
        c.leave()
    """
    with Cluster(node(lines), workers=5, env={**SCHEDULER_GONE, "HOLD_FOLDER": tmp_path}) as cluster:
        dead = killed_with_the_scheduler(cluster, 3, tmp_path)
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0
            words = said(worker)
            assert words["error"] == "PEER_LOST" and words["sentence"].startswith(named(dead, 3)), words
            assert words["after"] < 10, words


def test_without_the_scheduler_and_without_recovery_whoever_is_lost_is_so_for_good(tmp_path):
    """There is nobody who could say that no epoch follows; survivors do not wait for it as long as a cluster may take to form."""
    lines = """
        c = join()
        c.world.allreduce([1])
        say(running=True)
        hold("killed")
        say(**fails(c.world.barrier))
        for name, limit_ms in (("waited", -1), ("again", -1), ("once", 0)):
            say(**{name: fails(c.recover, limit_ms)})
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={**SCHEDULER_GONE, "HOLD_FOLDER": tmp_path}) as cluster:
        dead = killed_with_the_scheduler(cluster, 2, tmp_path)
        for worker in cluster.workers:
            assert worker.wait(timeout=60) == 0
            words = said(worker)
            for recovers in ("waited", "again", "once"):
                assert words[recovers]["error"] == words["error"] == "PEER_LOST", words
                assert words[recovers]["sentence"].startswith(named(dead, 2)), words
                assert words[recovers]["after"] < 10, words


def test_an_abort_after_a_loss_is_not_the_first_cause(tmp_path):
    """Not in a group that nobody has called since the loss either."""
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


def test_without_the_scheduler_one_that_has_left_is_not_taken_for_lost(tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        say(running=True)
        hold("killed")
        if c.rank != 1:
            say(**fails(c.world.barrier))
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={**SCHEDULER_GONE, "HOLD_FOLDER": tmp_path}) as cluster:
        kill_scheduler(cluster, tmp_path)
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0
        for worker in (cluster.workers[0], cluster.workers[2]):
            words = said(worker)
            assert words["error"] == "PEER_LEFT", words
            assert words["sentence"].startswith(named(cluster.workers[1], 1)), words


HANDLED = """
    c = join()
    made = c.world.create(list(range(c.size)))
    say(handled=fails(made.barrier) if c.rank == 0 else fails(made.allreduce, [1]))
    GOES_ON
    say(running=True)
    while c.rank == 2:
        time.sleep(60)
    say(**fails(c.world.barrier), at=time.monotonic())
    c.leave()
    sys.exit(3)
"""


@pytest.mark.parametrize("call", ["c.world.barrier()", "c.world.send(b'x', (c.rank + 1) % c.size)"])
def test_who_is_killed_after_it_has_handled_the_end_of_a_group_is_lost(call):
    """All have called different things on a group that they had made, were told so, and have gone on with the world at once."""
    with Cluster(node(HANDLED.replace("GOES_ON", call)), workers=4) as cluster:
        await_running(cluster.workers)
        assert all(said(worker)["handled"]["error"] == "MISMATCH" for worker in cluster.workers)
        time.sleep(0.3)  # its agent thread has told the scheduler, unless the machine stands still
        cluster.workers[2].kill()
        since = time.monotonic()
        cluster.wait(timeout=30)
        all_name(cluster, 2, since=since, within=SOON_SECONDS + SLACK_SECONDS)


def test_who_dies_after_it_has_missed_another_is_a_consequence():
    """The end of rank 1 reaches the scheduler last: what stands between them keeps the connection open. By then rank 0, which
    could not go on without it, has ended too, and visibly."""
    with Cluster(work(), workers=2, started=0, env={"MS_NODE_TIMEOUT": 1}) as cluster:
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


def test_who_is_back_when_the_scheduler_looks_is_not_lost_whatever_was_said_of_it(tmp_path):
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


def test_a_survivor_that_stays_does_not_keep_the_scheduler(tmp_path):
    env = {"MS_NODE_TIMEOUT": 1, "HOLD_FOLDER": tmp_path}
    with Cluster(work(last="hold('go'); c.leave()"), workers=3, env=env) as cluster:
        await_running(cluster.workers)
        cluster.workers[1].kill()
        assert cluster.scheduler.wait(timeout=30) == 1
        assert cluster.workers[0].returncode is None and cluster.workers[2].returncode is None
        assert said(cluster.scheduler)["sentence"].startswith(named(cluster.workers[1], 1))
        (tmp_path / "go").touch()
        for worker in (cluster.workers[0], cluster.workers[2]):
            assert worker.wait(timeout=30) == 0 and said(worker)["error"] == "PEER_LOST"
