"""Two launchers for one job, as on two hosts: what they tell the scheduler of their workers' ends, who comes back, and how
it ends when one of the launchers gives up or is killed.

Both are on this host. To the second one the scheduler is elsewhere, for it knows its address by a name, "0x0", that leads
here and is no address of this host; and its workers have a MUSTER_HOST_ID, so that the scheduler looks at none of them.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import time

import pytest

import wire
from cluster import Cluster, stop
from launch import Launch, until
from nodes import await_joined, listening_ports, node, process_of
from test_restarts import HELD, RETURNING, STEPS, SUM

ELSEWHERE = {"MUSTER_HOST_ID": "elsewhere"}
LEADS_HERE = "0x0"
LIMIT = 90
OVER_SECONDS = 10
FIRST, SECOND = (0, 1), (2, 3)  # the ranks of each


@contextlib.contextmanager
def two_hosts(*program, workers, words=(), first=None, second=None):
    """The launcher that has the scheduler, and the other."""
    sizes = [f"--worker_num={workers}", f"--local_worker_num={workers // 2}", "--join", "--tail_worker_log=none"]
    with Launch("--node_rank=0", "--master_port=0", *sizes, *words, *program, env=first) as here:
        port = here.wait_for(r"the scheduler is here: 127\.0\.0\.1 port (\d+)", LIMIT)[1]
        there = ["--node_rank=1", f"--master_addr={LEADS_HERE}", f"--master_port={port}"]
        with Launch(*there, *sizes, *words, *program, env={**ELSEWHERE, **(second or {})}) as other:
            other.wait_for("the scheduler is on another host", LIMIT)
            yield here, other


# What a launcher saw


def accept_queue(port):
    """How many connections a listener has that it has not accepted."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
            return int(words[4].split(":")[1], 16)
    return 0


@pytest.mark.parametrize("end, how", [("kill", "was killed by signal 9"), ("exit", "exited with code 7")])
def test_the_loss_on_another_host_is_told_in_its_launchers_words(end, how, tmp_path):
    """Nobody misses the rank: no link is open. The word is there before the scheduler can look at anything."""
    lines = """
        import threading
        def end():
            hold("exit")
            os._exit(7)
        c = join()
        if c.rank == 1:
            threading.Thread(target=end, daemon=True).start()
        say(**fails(c.store_get, "nobody sets this"))
        c.leave()
    """
    settings = {"MS_NODE_TIMEOUT": 60, "HOLD_FOLDER": tmp_path}
    with two_hosts(*node(lines), workers=2, first=settings, second=settings) as (here, there):
        here.wait_for_log("worker_0.log", '"joined"', LIMIT)
        there.wait_for_log("worker_1.log", '"joined"', LIMIT)
        scheduler, victim = here.child("the scheduler"), there.child("worker 1")
        stop(scheduler)
        os.kill(victim, signal.SIGKILL) if end == "kill" else (tmp_path / "exit").touch()
        there.wait(LIMIT)  # it has said its word, which waits
        os.kill(scheduler, signal.SIGCONT)
        here.wait(LIMIT)
        log = here.log("scheduler.log")
        lost = rf"rank 1 \(node id \"1\", host [^ ]+, pid {victim}\) is lost: its connection ended \(.*\), and it {how} "
        assert re.search(lost + r"\(its launcher\); last heard", log), log
        assert f"{how} (its launcher)" in here.log("worker_0.log")
        no_words_of_strangers(log)


def no_words_of_strangers(log):
    """The launcher may just have begun to ask how the job goes, on another connection, when the scheduler was stopped."""
    strangers = [line for line in log.splitlines() if "stranger" in line]
    assert len(strangers) <= 1 and all("its connection ended before it registered" in line for line in strangers), log


SCRIPT = ["--", "sh", "-c", 'python3 "$0" "$@"; exit $?']
"""The program is the child of what the launcher starts, as it is in most scripts."""


def child_of(pid):
    """The process that a script waits for."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: children.read_text().split(), LIMIT, "the script has a child")
    return int(children.read_text().split()[0])


def test_the_loss_of_a_scripts_child_is_told_in_its_launchers_words(tmp_path):
    """The launcher sees no more of it than the end of the script."""
    lines = "c = join(); say(**fails(c.store_get, 'nobody sets this')); c.leave()"
    with two_hosts(*SCRIPT, *node(lines), workers=2, **dict.fromkeys(["first", "second"], {"MS_NODE_TIMEOUT": 60})) as hosts:
        here, there = hosts
        here.wait_for_log("worker_0.log", '"joined"', LIMIT)
        there.wait_for_log("worker_1.log", '"joined"', LIMIT)
        scheduler, victim = here.child("the scheduler"), child_of(there.child("worker 1"))
        stop(scheduler)
        os.kill(victim, signal.SIGKILL)
        there.wait(LIMIT)  # it has said its word, which waits
        os.kill(scheduler, signal.SIGCONT)
        here.wait(LIMIT)
        log = here.log("scheduler.log")
        said = rf"rank 1 \(.*, pid {victim}\) is lost: .*, and it was run by a process that exited with code 137 \(its launcher\)"
        assert re.search(said, log), log
        no_words_of_strangers(log)


def test_a_word_that_is_not_true_costs_a_living_node_nothing(tmp_path):
    """Somebody who has looked at the process says that it has ended, again and again."""
    lines = "c = join(); hold('go'); c.world.allreduce([1]); c.leave()"
    with Cluster(node(lines), workers=2, started=1, env={"HOLD_FOLDER": tmp_path}) as cluster:
        victims = [cluster.workers[0], cluster.start_worker(env=ELSEWHERE)]
        await_joined(*victims)
        names = os.uname().nodename, pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        keys = "/".join(names), ELSEWHERE["MUSTER_HOST_ID"]
        for _ in range(20):
            for key, victim in zip(keys, victims):
                with wire.connect(cluster.port) as liar:
                    process = process_of(victim.pid)
                    liar.send(wire.CHILD_ENDED, wire.child_ended((names[0], key), process, killed=True, number=9))
                    with pytest.raises((EOFError, ConnectionError)):
                        liar.receive(timeout=10)
        (tmp_path / "go").touch()
        cluster.succeed(timeout=LIMIT)
        assert "stranger" not in cluster.scheduler.stderr


# Restarts


def recoverable(tmp_path, restarts=3, limit_ms=60_000, words=(), plan=None, program=(), env=None):
    """Two launchers of a job whose processes come back."""
    kept = tmp_path / "kept"
    kept.mkdir(exist_ok=True)
    settings = {"KEPT": kept, "LIMIT_MS": limit_ms, "MS_ENABLE_RECOVERY": 1, **(env or {})}
    first, second = ({**settings, "MS_RECOVERY_PATH": tmp_path / name} for name in ("first", "second"))
    command = [*(program or [RETURNING]), str(STEPS), json.dumps(plan or {})]
    words = [f"--max_restarts={restarts}", *words]
    return two_hosts(*command, workers=4, words=words, first=first, second=second)


@contextlib.contextmanager
def recovering(tmp_path, **more):
    """A job that stands at step HELD until `kept/hold` is gone."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "hold").write_text(str(HELD))
    with recoverable(tmp_path, **more) as hosts:
        stand(hosts)
        yield hosts


def logs(hosts):
    return [(launch, f"worker_{rank}.log") for launch, ranks in zip(hosts, (FIRST, SECOND)) for rank in ranks]


def stand(hosts, times=1):
    for launch, log in logs(hosts):
        launch.wait_for_log(log, rf"(?s)(stands at {HELD}\n.*){{{times}}}", LIMIT)


def end_well(hosts, tmp_path):
    (tmp_path / "kept" / "hold").unlink(missing_ok=True)
    for launch in hosts:
        assert launch.wait(LIMIT) == 0, launch.describe()
        launch.nothing_left()
    for launch, log in logs(hosts):
        assert launch.log(log).endswith(SUM)


def await_restart(launch, name):
    return launch.wait_for(rf"muster: {name} \(pid \d+\) .*; restart 1 of 3 has pid (\d+)\n", LIMIT)


def test_a_worker_of_the_second_launcher_comes_back(tmp_path):
    with recovering(tmp_path) as hosts:
        victim = hosts[1].child("worker 3")
        os.kill(victim, signal.SIGKILL)
        await_restart(hosts[1], "worker 3")
        stand(hosts, times=2)
        end_well(hosts, tmp_path)
        assert f"pid {victim}) is lost: " in hosts[0].log("scheduler.log")
        assert "; restart " not in hosts[0].stderr


def test_the_first_launchers_scheduler_comes_back(tmp_path):
    with recovering(tmp_path) as hosts:
        os.kill(hosts[0].child("the scheduler"), signal.SIGKILL)
        await_restart(hosts[0], "the scheduler")
        end_well(hosts, tmp_path)
        assert "; restart " not in hosts[1].stderr


def test_a_scheduler_that_comes_back_hears_who_ended_meanwhile(tmp_path):
    """Otherwise the scheduler would let the node attach again for a heartbeat time-out. The one before has not heard of it."""
    with recovering(tmp_path) as hosts:
        first, second = hosts
        scheduler, victim = first.child("the scheduler"), second.child("worker 2")
        port, = listening_ports(scheduler)
        for pid in (first.pid, scheduler):
            stop(pid)
        os.kill(victim, signal.SIGKILL)
        until(lambda: accept_queue(port) >= 2, LIMIT, "the word and the worker's next life wait")
        os.kill(scheduler, signal.SIGKILL)
        os.kill(first.pid, signal.SIGCONT)
        await_restart(first, "the scheduler")
        stand(hosts, times=2)
        end_well(hosts, tmp_path)
        said = rf"pid {victim}\) is lost: .*, and it was killed by signal 9 \(its launcher\)"
        assert re.search(said, first.log("scheduler.log")), first.log("scheduler.log")


@pytest.mark.parametrize("before_joining", [False, True])
def test_a_worker_of_the_second_launcher_that_leaves_by_mistake_comes_back(before_joining, tmp_path):
    """It ends with 0 without muster_finalize; or, in its second life, before it has joined. Only the scheduler knows that."""
    plan = {"3.0@20": "kill" if before_joining else "exit 0"}
    mistake = 'if [ $RANK_ID = 3 ] && [ -e $KEPT/lives_3.json ] && mkdir $KEPT/once 2>/dev/null; then exit 0; fi; exec python3 "$0" "$@"'
    program = ["--", "sh", "-c", mistake, RETURNING] if before_joining else [RETURNING]
    with recoverable(tmp_path, plan=plan, program=program) as hosts:
        end_well(hosts, tmp_path)
        assert re.search(r"muster: worker 3 \(pid \d+\) exited with code 0; restart \d of 3 has pid", hosts[1].stderr)
        assert hosts[1].stderr.count("; restart ") == 1 + before_joining and "; restart " not in hosts[0].stderr


@pytest.mark.parametrize("gives_up", [0, 1], ids=["with the scheduler", "without"])
def test_a_launcher_that_gives_up_ends_the_job_which_can_go_on_when_it_is_started_once_more(gives_up, tmp_path):
    """Its worker's restarts are used up. The others do not wait for it, though they may for an hour."""
    rank = (FIRST, SECOND)[gives_up][1]
    words = ["--cluster_time_out=30"]
    with recovering(tmp_path, restarts=1, limit_ms=3_600_000, words=words) as hosts:
        os.kill(hosts[gives_up].child(f"worker {rank}"), signal.SIGKILL)
        again = hosts[gives_up].wait_for(rf"muster: worker {rank} .*; restart 1 of 1 has pid (\d+)\n", LIMIT)
        stand(hosts, times=2)
        os.kill(int(again[1]), signal.SIGKILL)
        for launch in hosts:
            launch.wait(LIMIT)
            launch.nothing_left()
        assert hosts[gives_up].returncode == 128 + signal.SIGKILL and hosts[1 - gives_up].returncode == 1
        said = rf"rank {rank} \(.*, pid {again[1]}\)"
        scheduler = hosts[0].log("scheduler.log")
        assert re.search(said + " is not started again, its launcher says", scheduler), scheduler
        survivors = "".join(hosts[1 - gives_up].log(log) for launch, log in logs(hosts) if launch is hosts[1 - gives_up])
        assert len(re.findall(said + " is lost: ", survivors)) >= 2, survivors
    (tmp_path / "kept" / "hold").unlink()
    with recoverable(tmp_path) as hosts:
        end_well(hosts, tmp_path)
        assert re.search(r"joined as rank 0 in epoch 3, restarts \d", hosts[0].log("worker_0.log"))


def test_survivors_that_leave_when_a_place_is_abandoned_leave_this_run_and_not_the_job(tmp_path):
    """A launcher whose scheduler has ended does not start them again either, for nobody would be there."""
    with recovering(tmp_path, restarts=1, limit_ms=3_600_000, env={"LEAVES": 1}) as (here, there):
        os.kill(there.child("worker 3"), signal.SIGKILL)
        again = there.wait_for(r"muster: worker 3 .*; restart 1 of 1 has pid (\d+)\n", LIMIT)
        stand((here, there), times=2)
        os.kill(int(again[1]), signal.SIGKILL)
        for log in ("worker_0.log", "worker_1.log"):
            here.wait_for_log(log, "left after PEER_LOST", LIMIT)
        here.wait_for("exited with code 1: the job is over, and the workers have 10 s to end", LIMIT)
        began = time.monotonic()
        (tmp_path / "kept" / "exit").touch()
        for launch in (here, there):
            launch.wait(LIMIT)
            launch.nothing_left()
        assert here.returncode == 1 and "; restart " not in here.stderr, here.describe()
        assert time.monotonic() - began < OVER_SECONDS / 2, "when the last of them has ended nobody is waited for"
    (tmp_path / "kept" / "hold").unlink()
    with recoverable(tmp_path) as hosts:
        end_well(hosts, tmp_path)
        assert re.search(r"joined as rank 0 in epoch 3, restarts 1\n", hosts[0].log("worker_0.log"))


def test_a_launcher_gives_up_the_child_of_a_script(tmp_path):
    """The scheduler knows another process than the launcher does."""
    program = [*SCRIPT, RETURNING]
    with recovering(tmp_path, restarts=1, limit_ms=3_600_000, program=program) as (here, there):
        os.kill(child_of(there.child("worker 3")), signal.SIGKILL)
        again = there.wait_for(r"muster: worker 3 .*; restart 1 of 1 has pid (\d+)\n", LIMIT)
        stand((here, there), times=2)
        victim = child_of(int(again[1]))
        os.kill(victim, signal.SIGKILL)
        for launch in (here, there):
            launch.wait(LIMIT)
            launch.nothing_left()
        scheduler = here.log("scheduler.log")
        said = rf"rank 3 \(.*, pid {victim}\) is not started again, its launcher says"
        assert re.search(said, scheduler), scheduler


@pytest.mark.parametrize("killed", [0, 1], ids=["with the scheduler", "without"])
def test_a_launcher_that_is_killed_ends_its_workers_and_the_other_fails_in_bounded_time(killed, tmp_path):
    """The survivors wait in muster_recover. Where the scheduler lives they do so in their next lives, too, and in muster_init,
    for as long as each may; where it is gone with its launcher nobody is started again, however often and long that could be."""
    limits = {"restarts": 1, "words": ["--cluster_time_out=10"]} if killed else {"restarts": 50}
    with recovering(tmp_path, limit_ms=2000, **limits) as hosts:
        victim, other = hosts[killed], hosts[1 - killed]
        victim.kill()
        victim.nothing_left(timeout=LIMIT)
        assert other.wait(LIMIT) == 1, other.describe()
        told = re.findall(r"(?m)^muster: (the first failure was on another host: rank [23] |first failure here: |first failure: )", other.stderr)
        assert len(told) == 1 + killed, other.stderr  # of the other host's the scheduler here knows
        other.nothing_left()


def test_workers_that_were_started_as_the_scheduler_went_for_good_end_when_their_time_to_join_is_up(tmp_path):
    """Their launcher saw it before it started them. It then starts them no more."""
    late = 'if [ -e $KEPT/lives_$RANK_ID.json ]; then touch $KEPT/late_$RANK_ID; until [ -e $KEPT/go ]; do sleep 0.05; done; fi; '
    program = ["--", "sh", "-c", late + 'python3 "$0" "$@"; exit $?', RETURNING]
    with recovering(tmp_path, restarts=50, limit_ms=2000, words=["--cluster_time_out=10"], program=program) as (here, there):
        for rank in SECOND:
            os.kill(child_of(there.child(f"worker {rank}")), signal.SIGKILL)
        for rank in SECOND:
            until((tmp_path / "kept" / f"late_{rank}").exists, LIMIT, "its next life is there")
        here.kill()
        here.nothing_left(timeout=LIMIT)
        (tmp_path / "kept" / "go").touch()
        assert there.wait(LIMIT) == 1, there.describe()
        there.nothing_left()
        assert "; no restart: the scheduler's port has refused for 5 s, so the job is over" in there.stderr, there.stderr
        for rank in SECOND:
            log = there.log(f"worker_{rank}.log")
            assert "forming timed out (" in log and "the scheduler at 0x0:" in log and "refused" in log, log


@pytest.mark.parametrize("aborts", [1, 3], ids=["with the scheduler", "without"])
def test_after_an_abort_no_launcher_starts_anybody_again(aborts, tmp_path):
    """Rank 0 does not end by itself, so that the scheduler is there for as long as it may; nor does the other beside the one
    that aborts, which is so the first failure there."""
    lines = f"""
        c = join()
        time.sleep(1)  # after a shorter life a restart has a pause
        if c.rank == {aborts}:
            c.world.barrier()
            c.abort(5, "on purpose")
            os._exit(5)
        say(**fails(lambda: (c.world.barrier(), c.store_get("nobody sets this"))))
        os.environ["HOLD_FOLDER"] = os.environ["KEPT"]
        hold("never") if c.rank in (0, {aborts - 1}) else os._exit(7)
    """
    with recoverable(tmp_path, program=node(lines)) as hosts:
        for launch, ranks in zip(hosts, (FIRST, SECOND)):
            assert launch.wait(LIMIT) == (5 if aborts in ranks else 7), launch.describe()
            assert "; restart " not in launch.stderr, launch.stderr
            assert re.search(r"; no restart: rank \d .* aborted the job with code 5: on purpose\n", launch.stderr), launch.stderr
            launch.nothing_left()


def test_workers_that_end_when_the_scheduler_of_an_aborted_job_has_ended_are_not_started_again(tmp_path):
    """Their launcher finds that its port refuses."""
    lines = """
        c = join()
        time.sleep(1)
        if c.rank == 1:
            c.world.barrier()
            c.abort(5, "on purpose")
        say(**fails(lambda: (c.world.barrier(), c.store_get("nobody sets this"))))
        if c.rank < 2:
            os._exit(5)
        c.free()  # the scheduler waits for them no more
        os.environ["HOLD_FOLDER"] = os.environ["KEPT"]
        hold("go")
        os._exit(7)
    """
    with recoverable(tmp_path, program=node(lines)) as (here, there):
        assert here.wait(LIMIT) == 5, here.describe()
        here.nothing_left()
        (tmp_path / "kept" / "go").touch()
        assert there.wait(LIMIT) == 7, there.describe()
        there.nothing_left()
        assert "; restart " not in here.stderr + there.stderr
        assert "; no restart: the scheduler's port has refused for 5 s, so the job is over" in there.stderr
