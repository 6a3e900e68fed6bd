"""A process dies, stops, or does something else: everyone hears of it soon, and by the true culprit's name."""

import re
import signal
import socket
import time

import pytest

from cluster import Cluster, reserved_port
from nodes import node, said
from proxy import TO_NODE, TO_SCHEDULER, Proxy

HOST = socket.gethostname()
# On one host a death is seen at once; this is what people are promised, on a machine that is busy.
SOON_SECONDS = 2.0
SLACK_SECONDS = 2.0

# Works until something breaks, then tells everything that there is to know.
WORK = """
    c = join()
    def work():
        c.world.barrier()
        say(running=True)
        while True:
            c.world.allreduce([c.rank] * COUNT)
    told = fails(work)
    say(**told, at=time.monotonic())
    say(failure=c.failure(), cluster=c.error(), ranks=c.failed_ranks(), again=fails(c.world.barrier),
        states=[c.world.member(rank).state for rank in range(c.size)])
    LAST
"""


def work(count=100, last="c.leave(); sys.exit(3)"):
    return node(WORK.replace("COUNT", str(count)).replace("LAST", last))


def await_running(workers):
    for worker in workers:
        worker.wait_for('"running"', timeout=30)


def named(worker, rank):
    return f'rank {rank} (node id "{rank}", host {HOST}, pid {worker.pid})'


def all_name(cluster, rank, status="PEER_LOST", since=None, within=SOON_SECONDS, silent=()):
    """Every survivor and the scheduler have failed with one sentence, which names this rank and nobody else."""
    victim = cluster.workers[rank]
    survivors = [worker for worker in cluster.workers if worker is not victim and worker not in silent]
    sentences = {said(process)["sentence"] for process in [*survivors, cluster.scheduler]}
    assert len(sentences) == 1, sentences
    sentence, = sentences
    assert sentence.startswith(named(victim, rank)), sentence
    assert sentence.count("node id") == 1, sentence
    assert cluster.scheduler.returncode == 1 and said(cluster.scheduler)["error"] == status
    for survivor in survivors:
        words = said(survivor)
        assert words["error"] == status, words
        if since is not None:
            assert words["at"] - since < within, f"after {words['at'] - since} s"
    return sentence


@pytest.mark.parametrize("victim", [0, 2, 3])
def test_a_killed_worker_is_named_to_all_by_one_sentence(victim):
    with Cluster(work(), workers=4) as cluster:
        await_running(cluster.workers)
        cluster.workers[victim].kill()
        since = time.monotonic()
        cluster.wait(timeout=30)
        sentence = all_name(cluster, victim, since=since)
        for rank, worker in enumerate(cluster.workers):
            if rank == victim:
                continue
            words = said(worker)
            assert worker.returncode == 3
            failure = words["failure"]
            assert (failure["status"], failure["role"], failure["rank"]) == ("PEER_LOST", 1, victim)
            assert (failure["node_id"], failure["host"]) == (str(victim), HOST)
            assert failure["pid"] == cluster.workers[victim].pid and failure["cause"] in sentence
            assert words["cluster"] == sentence and words["ranks"] == [victim]
            assert words["states"] == [int(other == victim) for other in range(4)]
            # Later calls return the first cause, and at once.
            assert words["again"]["sentence"] == sentence and words["again"]["error"] == "PEER_LOST"
            assert words["again"]["after"] < 1.0


@pytest.mark.parametrize("count", [100, 1 << 20], ids=["short", "8 MiB"])
def test_survivors_that_end_at_once_are_not_taken_for_the_cause(count):
    """They close their links without a word, as soon as they have their error."""
    with Cluster(work(count, last="os._exit(3)"), workers=6) as cluster:
        await_running(cluster.workers)
        cluster.workers[3].kill()
        since = time.monotonic()
        cluster.wait(timeout=30)
        all_name(cluster, 3, since=since, within=SOON_SECONDS + SLACK_SECONDS)


ENDINGS = {
    "exit code 0": "sys.exit(0)",
    "exit code 5": "os._exit(5)",
    "an exception": "raise ValueError",
    "freed without finalize": "c.free(); hold('go')",
    "aborted by the system": "os.abort()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_leaving_without_finalize_is_a_loss(ending, tmp_path):
    lines = f"c = join(); c.world.barrier(); {ENDINGS[ending]}"
    with Cluster(work(), workers=3, started=1, env={"HOLD_FOLDER": tmp_path}) as cluster:
        cluster.start_worker(program=node(lines))
        cluster.start_worker()
        assert cluster.workers[0].wait(timeout=30) == cluster.workers[2].wait(timeout=30) == 3
        assert cluster.scheduler.wait(timeout=30) == 1
        all_name(cluster, 1)
        (tmp_path / "go").touch()
        cluster.wait(timeout=30)


def test_a_death_between_collectives_meets_the_next_call_of_any_kind(tmp_path):
    lines = """
        c = join()
        say(running=True)
        if c.rank == 0:
            told = fails(c.store_get, "never set")
        else:
            hold("go")
            told = fails(c.world.allreduce, [1])
        say(**told)
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_running(cluster.workers)
        cluster.workers[1].kill()
        cluster.scheduler.wait_for("the job is broken: rank 1", timeout=30)
        (tmp_path / "go").touch()
        cluster.wait(timeout=30)
        all_name(cluster, 1)
        for rank, limit in ((0, SOON_SECONDS + SLACK_SECONDS), (2, 1.0)):
            assert said(cluster.workers[rank])["after"] < limit


def test_two_deaths_at_once_are_one_first_cause():
    with Cluster(work(), workers=5) as cluster:
        await_running(cluster.workers)
        for victim in (1, 3):
            cluster.workers[victim].kill()
        cluster.wait(timeout=30)
        first = said(cluster.workers[0])["failure"]["rank"]
        assert first in (1, 3)
        all_name(cluster, first, silent=[cluster.workers[4 - first]])


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


def test_a_stopped_process_is_named_within_the_heartbeat_time_out():
    time_out = 1.0
    with Cluster(work(), workers=4, env={"MS_NODE_TIMEOUT": time_out}) as cluster:
        await_running(cluster.workers)
        stopped = cluster.workers[2]
        stopped.signal(signal.SIGSTOP)
        since = time.monotonic()
        for worker in cluster.workers:
            if worker is not stopped:
                assert worker.wait(timeout=30) == 3
        assert cluster.scheduler.wait(timeout=30) == 1
        all_name(cluster, 2, since=since, within=time_out * 1.2 + SLACK_SECONDS)
        # When it goes on it is told that it has been given up, or finds nobody; it does not hang.
        stopped.signal(signal.SIGCONT)
        assert stopped.wait(timeout=30) == 3


UNTIL_TOLD = """
    c = join()
    say(running=True)
    rounds = 0
    while not c.world.allreduce([int(os.path.exists(os.environ["HOLD_FOLDER"] + "/go"))])[0]:
        rounds += 1
    say(rounds=rounds)
    c.leave()
"""


def test_a_scheduler_that_stands_still_blames_nobody(tmp_path):
    env = {"MS_NODE_TIMEOUT": 0.5, "HOLD_FOLDER": tmp_path}
    with Cluster(node(UNTIL_TOLD), workers=3, env=env) as cluster:
        await_running(cluster.workers)
        cluster.scheduler.signal(signal.SIGSTOP)
        time.sleep(1.5)  # three time-outs: this is the standing still
        cluster.scheduler.signal(signal.SIGCONT)
        time.sleep(0.8)  # long enough to be blamed for what came before
        (tmp_path / "go").touch()
        for worker in cluster.succeed(timeout=30):
            assert said(worker)["rounds"] > 0


@pytest.mark.parametrize("muted", [[TO_SCHEDULER], [TO_NODE], [TO_SCHEDULER, TO_NODE]], ids=["unheard", "unhearing", "both"])
def test_a_node_that_is_unheard_or_unhearing_is_lost(muted):
    """Its connection to the scheduler stays open, but nothing passes; its links to the others work."""
    time_out = 1.0
    env = {"MS_NODE_TIMEOUT": time_out, "MUSTER_FINALIZE_TIMEOUT": 1}
    with Cluster(work(), workers=3, started=2, env=env) as cluster, Proxy(cluster.port) as proxy:
        cut_off = cluster.start_worker(env={"MS_SCHED_PORT": proxy.port})
        await_running(cluster.workers)
        since = time.monotonic()
        for direction in muted:
            proxy.mute(direction)
        for worker in cluster.workers[:2]:
            assert worker.wait(timeout=30) == 3
        assert cluster.scheduler.wait(timeout=30) == 1
        all_name(cluster, 2, since=since, within=time_out * 1.2 + SLACK_SECONDS)
        # Those who were in touch with it have gone by now: it may have heard why from them, or else cannot know, but it ends.
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


def test_when_everything_stands_still_nobody_is_blamed(tmp_path):
    """As when a machine sleeps, or a container is frozen."""
    env = {"MS_NODE_TIMEOUT": 0.5, "HOLD_FOLDER": tmp_path}
    with Cluster(node(UNTIL_TOLD), workers=3, env=env) as cluster:
        await_running(cluster.workers)
        for process in cluster.processes:
            process.signal(signal.SIGSTOP)
        time.sleep(1.5)
        for process in cluster.processes:
            process.signal(signal.SIGCONT)
        time.sleep(0.8)
        (tmp_path / "go").touch()
        cluster.succeed(timeout=30)


LATE = {
    "never used the group": ("hold('go'); c.world.allreduce([1])", 1, "has not used world yet"),
    "is elsewhere": ("c.world.barrier(); hold('go'); c.world.allreduce([1])", 2, "its last was barrier #1"),
}


@pytest.mark.parametrize("where", LATE)
def test_a_time_out_names_who_is_absent_and_where_it_is(where, tmp_path):
    late, sequence, words_for_it = LATE[where]
    rest = "c.world.barrier(); c.world.allreduce([1])" if sequence == 2 else "c.world.allreduce([1])"
    program = "c = join()\ndef calls():\n    {}\nsay(**fails(calls), at=time.monotonic())\nc.leave()"
    env = {"MUSTER_TIMEOUT": 1, "HOLD_FOLDER": tmp_path}
    with Cluster(node(program.format(rest)), workers=3, started=2, env=env) as cluster:
        absent = cluster.start_worker(program=node(program.format(late)))
        for worker in cluster.workers[:2]:
            worker.wait_for('"error"', timeout=30)
        (tmp_path / "go").touch()
        cluster.succeed(timeout=30)
        words = [said(worker) for worker in cluster.workers]
        assert {each["error"] for each in words} == {"TIMEOUT"}, words
        # The late one gets the same first cause: it cannot hang because the others have given up.
        sentence, = {each["sentence"] for each in words}
        assert named(absent, 2) in sentence and words_for_it in sentence, sentence
        assert f"allreduce #{sequence} on world" in sentence and "1 s" in sentence, sentence
        # Whoever entered last is told by the first, and may have waited less.
        assert 1.0 <= max(each["after"] for each in words[:2]) < 1.0 + SLACK_SECONDS, words


def test_who_keeps_others_waiting_is_named_in_a_warning_and_nobody_fails(tmp_path):
    """The warning comes after 10 s, so this test takes as long."""
    lines = "c = join()\nif c.rank == 1: hold('go')\nc.world.barrier()\nc.leave()"
    with Cluster(node(lines), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        warned = cluster.workers[0].wait_for("warning.*waiting for 10 s.*", timeout=30)[0]
        (tmp_path / "go").touch()
        cluster.succeed(timeout=30)
        assert "barrier #1 on world" in warned and named(cluster.workers[1], 1) in warned


MISMATCHES = {
    "kind": ("c.world.barrier()", "c.world.allreduce([1, 2])", ["barrier", "allreduce"]),
    "count": ("c.world.allreduce([1])", "c.world.allreduce([1, 2])", ["count 1,", "count 2,"]),
    "operation": ("c.world.allreduce([1], SUM)", "c.world.allreduce([1], MAX)", ["sum", "max"]),
    "root": ("c.world.broadcast(b'xy', 0)", "c.world.broadcast(b'xy', 1)", ["broadcast(count 2, uint8, root "]),
    "length": ("c.world.broadcast(b'xy', 0)", "c.world.broadcast(b'xyz', 0)", ["count 2,", "count 3,"]),
}


@pytest.mark.parametrize("kind", MISMATCHES)
@pytest.mark.parametrize("workers", [2, 4])
def test_a_mismatch_says_what_each_called(kind, workers):
    most, one, parts = MISMATCHES[kind]
    program = "c = join()\ndef call():\n    {0}\n    {1}\nsay(**fails(call))\nc.leave()"
    # Whoever had returned from the call finds out at its next, which differs from nobody's.
    last = "c.world.barrier()"
    with Cluster(node(program.format(most, last)), workers=workers, started=workers - 1) as cluster:
        cluster.start_worker(program=node(program.format(one, last)))
        cluster.succeed(timeout=30)
        words = [said(worker) for worker in cluster.workers]
        assert {each["error"] for each in words} == {"MISMATCH"}, words
        sentence, = {each["sentence"] for each in words}
        for part in parts:
            assert part in sentence, sentence
        assert f"pid {cluster.workers[-1].pid}" in sentence, sentence
        assert all(each["after"] < 1.0 + SLACK_SECONDS for each in words), words


def test_a_mismatch_is_found_though_no_frames_meet(tmp_path):
    """The root of the one tree has sent and is done; who waits for the root of another tree hears nothing from anybody."""
    lines = "c = join()\nc.world.broadcast(b'xy', 0)\nhold('go')\nsay(**fails(c.world.barrier))\nc.leave()"
    astray = "c = join()\nsay(**fails(c.world.broadcast, b'xy', 1))\nc.leave()"
    with Cluster(node(lines), workers=4, started=3, env={"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 1}) as cluster:
        last = cluster.start_worker(program=node(astray))
        last.wait_for('"error"', timeout=30)
        assert said(last)["after"] < 1.0 + SLACK_SECONDS
        (tmp_path / "go").touch()
        cluster.succeed(timeout=30)
        sentence, = {said(worker)["sentence"] for worker in cluster.workers}
        assert {said(worker)["error"] for worker in cluster.workers} == {"MISMATCH"}
        assert "root 0" in sentence and re.search(r"rank 3\b.* called broadcast\([^)]*root 1\)", sentence), sentence


def test_without_the_scheduler_collectives_go_on_and_leaving_is_bounded(tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        say(running=True)
        hold("killed")
        until = time.monotonic() + 2.5  # several heartbeat time-outs
        rounds = 0
        while c.world.allreduce([int(time.monotonic() < until)])[0] == c.size:
            rounds += 1
        say(rounds=rounds)
        began = time.monotonic()
        c.leave()
        say(left_in=time.monotonic() - began)
    """
    env = {"MS_NODE_TIMEOUT": 0.5, "MUSTER_FINALIZE_TIMEOUT": 1.5, "HOLD_FOLDER": tmp_path}
    with Cluster(node(lines), workers=3, env=env) as cluster:
        await_running(cluster.workers)
        cluster.scheduler.kill()
        cluster.scheduler.wait(timeout=10)
        (tmp_path / "killed").touch()
        for worker in cluster.workers:
            assert worker.wait(timeout=30) == 0, worker.stderr
            words = said(worker)
            assert words["rounds"] > 10 and words["left_in"] < 1.5 + SLACK_SECONDS, words
            away = [line for line in worker.stderr.splitlines() if "the scheduler at" in line and "has been away" in line]
            assert len(away) == 1 and "warning" in away[0] and "collectives go on" in away[0], worker.stderr


def test_the_process_that_hosts_the_scheduler_dies():
    with reserved_port() as port:
        with Cluster(work(), workers=3, started=0, scheduler=False) as cluster:
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
    with Cluster(work(), workers=3, started=2) as cluster:
        victim = cluster.start_worker(program=node(lines))
        await_running(cluster.workers)
        victim.kill()
        since = time.monotonic()
        cluster.wait(timeout=30)
        all_name(cluster, 2, since=since)


def test_a_rank_aborts_the_job_for_all():
    lines = """
        c = join()
        c.world.barrier()
        if c.rank == 1:
            c.abort(42, "loss is NaN")
        say(**fails(c.world.allreduce, [1]), at=time.monotonic())
        c.leave()
    """
    with Cluster(node(lines), workers=3) as cluster:
        cluster.wait(timeout=30)
        sentences = {said(process)["sentence"] for process in [*cluster.workers, cluster.scheduler]}
        assert {said(process)["error"] for process in [*cluster.workers, cluster.scheduler]} == {"ABORTED"}
        sentence, = sentences
        assert sentence.startswith(named(cluster.workers[1], 1)), sentence
        assert "42" in sentence and "loss is NaN" in sentence
        assert cluster.scheduler.returncode == 1


def test_a_loss_leaves_no_thread_descriptor_or_child_behind():
    last = """
    c.free()
    left = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    say(before=before, left=left, children=open(f"/proc/self/task/{os.getpid()}/children").read())
    sys.exit(3)
    """
    lines = 'before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))\n' + WORK.replace("\n    ", "\n")
    lines = lines.replace("COUNT", "100").replace("LAST", last.replace("\n    ", "\n"))
    with Cluster(node(lines), workers=3) as cluster:
        await_running(cluster.workers)
        cluster.workers[1].kill()
        cluster.wait(timeout=30)
        for worker in (cluster.workers[0], cluster.workers[2]):
            words = said(worker)
            assert words["left"] == words["before"] and words["children"] == "", words
