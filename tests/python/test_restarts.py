"""`muster run --max_restarts`: which processes are started again, how often, and what becomes of the job."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from certificates import Certificates
from cluster import MUSTER, clean_environment
from launch import Launch, environment_of, until
from nodes import listening_ports, node

PROGRAMS = pathlib.Path(__file__).with_name("programs")
RETURNING = PROGRAMS / "returning.py"
CLUSTER_WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")
WORKERS = 4
STEPS = 60
HELD = 30
SUM = f"sum {STEPS * (STEPS + 1) // 2 * WORKERS * (WORKERS + 1) // 2}\n"
LIMIT = 90


class Job(Launch):
    """A launch with restarts and recovery. Its workers stand at step HELD while it is held."""

    def __init__(self, tmp_path, *program, restarts=3, words=(), hold=False, env=None, muster=MUSTER):
        self.kept, self.recovery = tmp_path / "kept", tmp_path / "recovery"
        self.kept.mkdir()
        if hold:
            (self.kept / "hold").write_text(str(HELD))
        settings = {"KEPT": self.kept, "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": self.recovery, **(env or {})}
        options = ["--master_port=0", "--join", f"--max_restarts={restarts}", "--tail_worker_log=none", *words]
        super().__init__(f"--worker_num={WORKERS}", *options, *program, env=settings, command=(muster, "run"))

    def stand(self, times=1):
        """All stand at the step, each for the n-th time."""
        for rank in range(WORKERS):
            said = rf"(?s)(stands at {HELD}\n.*){{{times}}}"
            self.wait_for_log(f"worker_{rank}.log", said, LIMIT)

    def release(self):
        (self.kept / "hold").unlink()

    def ends_well(self):
        assert self.wait(LIMIT) == 0, self.describe()
        for rank in range(WORKERS):
            assert self.log(f"worker_{rank}.log").endswith(SUM)
        assert "first failure" not in self.stderr
        self.nothing_left()

    def restarts(self, name):
        """The new pid and the words of each of its restarts."""
        said = rf"muster: {name} \(pid \d+\) (.*); restart (\d+ of \d+) has pid (\d+)\n"
        return re.findall(said, self.stderr)

    def await_restart(self, name, number=1):
        return int(until(lambda: self.restarts(name)[number - 1 :], LIMIT, f"restart {number} of {name}")[0][2])


def returning(plan=None):
    return [RETURNING, str(STEPS), json.dumps(plan or {})]


def shell(text):
    return ["--", "sh", "-c", text]


def once(text, rank=None):
    """Shell commands that a worker runs in its first life only; every worker, or this one."""
    this = "" if rank is None else f"[ $RANK_ID = {rank} ] && "
    return f"if {this}mkdir $KEPT/once_$RANK_ID 2>/dev/null; then {text}; fi"


# Restarts


@pytest.mark.parametrize(
    "names",
    [
        ["worker 1"],
        ["the scheduler"],
        ["the scheduler", "worker 0"],
        ["worker 3", "the scheduler"],
        ["the scheduler", *(f"worker {rank}" for rank in range(WORKERS))],
    ],
    ids=["worker", "scheduler", "scheduler and worker", "worker and scheduler", "all"],
)
def test_a_killed_process_comes_back_and_the_job_ends_well(names, tmp_path):
    with Job(tmp_path, *returning(), hold=True) as job:
        job.stand()
        port = listening_ports(job.child("the scheduler"))
        assert len(port) == 1 and listening_ports(job.pid) == port, "it stays the run's own while nobody serves on it"
        for pid in [job.child(name) for name in names]:
            os.kill(pid, signal.SIGKILL)
        pids = {name: job.await_restart(name) for name in names}
        if "the scheduler" in names:
            until(lambda: listening_ports(pids["the scheduler"]) == port, LIMIT, "the same port")
            assert "MUSTER_SCHED_FD" in environment_of(pids["the scheduler"])
        if names != ["the scheduler"]:
            job.stand(times=2)
        job.release()
        job.ends_well()
        for name in names:
            assert [said[:2] for said in job.restarts(name)] == [("was ended by signal 9 (SIGKILL)", "1 of 3")]
        assert job.stderr.count("; restart ") == len(names)
        for rank in range(WORKERS):
            assert ("restarts 1\n" in job.log(f"worker_{rank}.log")) == (f"worker {rank}" in names)


def test_the_scheduler_that_came_back_admits_those_who_come_back_after_it(tmp_path):
    with Job(tmp_path, *returning(), hold=True) as job:
        job.stand()
        os.kill(job.child("the scheduler"), signal.SIGKILL)
        os.kill(job.await_restart("the scheduler"), signal.SIGKILL)
        job.await_restart("the scheduler", 2)
        os.kill(job.child("worker 2"), signal.SIGKILL)
        job.stand(times=2)
        job.release()
        job.ends_well()


def test_the_scheduler_comes_back_though_the_program_was_replaced(tmp_path):
    muster = tmp_path / "muster"
    shutil.copy(MUSTER, muster)
    with Job(tmp_path, *returning(), hold=True, muster=muster) as job:
        job.stand()
        muster.unlink()  # as a package's upgrade does, which then puts another there
        os.kill(job.child("the scheduler"), signal.SIGKILL)
        job.await_restart("the scheduler")
        job.release()
        job.ends_well()


@pytest.mark.parametrize("how, said", [("kill", "signal 9"), ("exit 7", "exited with code 7"), ("fork", "signal 9")])
def test_however_a_worker_fails_it_comes_back_and_its_log_goes_on(how, said, tmp_path):
    """Also when a child that it forked lives on, in which the log is open: that child ends with it."""
    with Job(tmp_path, *returning({"1.0@20": how, "1.1@40": how})) as job:
        job.ends_well()
        lines = job.log("worker_1.log").splitlines()
        lives = [index for index, line in enumerate(lines) if line.startswith("--- muster: ")]
        assert [lines[index + 1] for index in lives] == ["life 1", "life 2"] and lines[0] == "life 0"
        for number, index in enumerate(lives, 1):
            assert said in lines[index] and lines[index].endswith(f"restart {number} of 3")
        assert "muster: " not in job.log("worker_0.log")


def test_what_a_lost_worker_left_outside_its_group_keeps_nobody_waiting(tmp_path):
    leaves = "setsid sh -c 'touch $KEPT/left; exec sleep 600' & until [ -e $KEPT/left ]; do sleep 0.01; done"
    with Job(tmp_path, *shell(f"{once(leaves + '; kill -9 $$', 1)}; echo well")) as job:
        assert job.wait(LIMIT) == 0
        assert job.log("worker_1.log").endswith("restart 1 of 3\nwell\n")
        assert len(job.descendants()) == 1, "it may go on, as after any run that ends well"


def test_a_program_that_knows_nothing_of_recovery_is_started_again_as_a_whole(tmp_path):
    """Its survivors end when one is lost. Each has restarts of its own, so all come back, and do better."""
    program = once('exec python3 "$0" kill') + '; exec python3 "$0" leave'
    with Job(tmp_path, *shell(program), CLUSTER_WORKER, restarts=1) as job:
        assert job.wait(LIMIT) == 0, job.describe()
        assert len(job.restarts(r"worker \d")) == WORKERS


def test_a_half_line_is_ended_before_the_next_life_writes(tmp_path):
    with Job(tmp_path, *shell(f"{once('printf half; exit 4')}; echo whole"), restarts=1) as job:
        assert job.wait(LIMIT) == 0
        ended = f"worker 0 (pid {job.child('worker 0')}) exited with code 4"
        assert job.log("worker_0.log") == f"half\n--- muster: {ended}; restart 1 of 1\nwhole\n"


def test_the_next_life_is_told_the_same(tmp_path):
    told = 'env | grep -vE "^_=" | sort'
    own = re.compile("^MUSTER_LAUNCH_ID=.*$", re.MULTILINE)
    with Job(tmp_path, *shell(f"{told}; {once('kill -9 $$')}"), restarts=1) as job:
        assert job.wait(LIMIT) == 0
        for rank in range(WORKERS):
            first, second = re.split("--- muster: .*\n", job.log(f"worker_{rank}.log"))
            assert "MS_NODE_ID" in first and own.sub("", second) == own.sub("", first)
            assert own.search(first)[0] != own.search(second)[0]


@pytest.mark.parametrize("runner", [[], shell('python3 "$0" "$@"; exit $?')], ids=["the worker itself", "a script's child"])
def test_a_worker_that_leaves_by_mistake_comes_back(runner, tmp_path):
    """It ends with 0 without muster_finalize, and the others wait for it. Of a script's child the launcher knows the rank only."""
    with Job(tmp_path, *runner, *returning({"1.0@20": "exit 0"})) as job:
        job.ends_well()
        assert job.restarts("worker 1")[0][:2] == ("exited with code 0", "1 of 3")


def test_one_that_is_lost_when_all_others_have_left(tmp_path):
    with Job(tmp_path, *returning({"3.0@end": "kill"})) as job:
        assert job.wait(LIMIT) == 0, job.describe()
        assert job.log("worker_3.log").endswith("life 1\nall is done\n")
        assert "exited with code 1: the job is over, and the workers have 10 s to end" in job.stderr


# When it ends all the same


def test_restarts_that_are_used_up_end_the_run(tmp_path):
    with Job(tmp_path, *returning({"1.0@20": "exit 7", "1.1@40": "exit 8"}), restarts=1) as job:
        assert job.wait(LIMIT) == 8
        pid = job.restarts("worker 1")[0][2]
        assert f"muster: first failure: worker 1 (pid {pid}) exited with code 8 after 1 restart, log " in job.stderr
        assert not job.restarts("worker [023]")
        job.nothing_left()


def test_a_worker_that_leaves_by_mistake_and_cannot_come_back_is_to_blame_with_code_1_whatever_the_others_exit_with():
    lines = """
        c = join()
        if c.rank == 1:
            c.world.barrier()
            os._exit(0)
        say(**fails(lambda: (c.world.barrier(), c.world.barrier())))
        os._exit(8)
    """
    with Launch("--worker_num=2", "--master_port=0", "--join", *node(lines)) as launch:
        assert launch.wait(LIMIT) == 1, launch.describe()
        first, other = (launch.child(f"worker {rank}") for rank in (1, 0))
        told = rf"muster: first failure: worker 1 \(pid {first}\) exited with code 0, .*\n    it ended with code 0, without leaving the cluster \(muster_finalize\)\n"
        assert re.search(told, launch.stderr), launch.stderr
        assert f"muster: then worker 0 (pid {other}) exited with code 8" in launch.stderr
        launch.nothing_left()


def test_a_scheduler_that_is_killed_too_often_ends_the_run(tmp_path):
    with Job(tmp_path, *returning(), restarts=1, hold=True) as job:
        job.stand()
        os.kill(job.child("the scheduler"), signal.SIGKILL)
        pid = job.await_restart("the scheduler")
        until(lambda: not listening_ports(job.pid), LIMIT, "the last one has the port alone")
        os.kill(pid, signal.SIGKILL)
        assert job.wait(LIMIT) == 128 + signal.SIGKILL
        assert f"first failure: the scheduler (pid {pid}) was ended by signal 9 (SIGKILL) after 1 restart" in job.stderr
        job.nothing_left()


def test_a_program_that_always_fails_fails_so_often_and_no_more(tmp_path):
    with Job(tmp_path, *shell('if [ $RANK_ID = 2 ]; then echo life; exit 3; fi; exec sleep 600'), restarts=3) as job:
        assert job.wait(LIMIT) == 3
        assert re.sub("--- muster: .*; ", "", job.log("worker_2.log")) == (
            "life\nrestart 1 of 3\nlife\nrestart 2 of 3\nlife\nrestart 3 of 3\nlife\n"
        )
        assert "exited with code 3 after 3 restarts, log " in job.stderr
        job.nothing_left()


def test_an_abort_ends_the_run(tmp_path):
    with Job(tmp_path, *returning({"2.0@20": "abort 9"}), restarts=100) as job:
        assert job.wait(LIMIT) == 9
        pid = job.child("worker 2")
        assert f"muster: first failure: worker 2 (pid {pid}) exited with code 9, log " in job.stderr
        assert re.search(rf"the scheduler says: rank 2 \(.*pid {pid}\) aborted the job with code 9", job.stderr)
        job.nothing_left()


def test_an_abort_is_no_success_though_all_exit_with_0(tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        if c.rank == 2:
            c.abort(5, "on purpose")
        else:
            say(**fails(lambda: (c.world.barrier(), c.world.barrier())))
        os._exit(0)
    """
    with Job(tmp_path, *node(lines), restarts=1) as job:
        assert job.wait(LIMIT) == 5, job.describe()
        pid = job.child("worker 2")
        assert f"muster: first failure: worker 2 (pid {pid}) exited with code 0, log " in job.stderr
        assert "it aborted the job (muster_abort), and ended with code 0" in job.stderr
        job.nothing_left()


def test_one_that_fails_when_all_have_left_is_not_waited_for(tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        c.leave()
        os._exit(9 if os.environ["MS_NODE_ID"] == "1" else 0)
    """
    with Job(tmp_path, *node(lines), restarts=1, words=["--cluster_time_out=600"]) as job:
        assert job.wait(LIMIT) == 9, job.describe()
        assert "muster: first failure: worker 1 " in job.stderr
        job.nothing_left()


@pytest.mark.parametrize("last", ["os._exit(7)", "hold('never')"], ids=["who end at once", "who do not end"])
def test_after_an_abort_nobody_is_started_again_whatever_the_survivors_do(last, tmp_path):
    """A life of a second: after a shorter one a restart has a pause, in which the others may have ended."""
    lines = f"""
        c = join()
        time.sleep(1)
        if c.rank == 2:
            c.world.barrier()
            c.abort(5, "on purpose")
            os._exit(5)
        say(**fails(lambda: (c.world.barrier(), c.store_get("nobody sets this"))))
        {last}
    """
    with Job(tmp_path, *node(lines), env={"HOLD_FOLDER": tmp_path}) as job:
        assert job.wait(LIMIT) == 5, job.describe()
        pid = job.child("worker 2")
        assert f"muster: first failure: worker 2 (pid {pid}) exited with code 5, log " in job.stderr
        assert "; restart " not in job.stderr, job.stderr
        if last != "os._exit(7)":
            assert f"worker 2 (pid {pid}) exited with code 5; no restart: rank 2 " in job.stderr
        job.nothing_left()


def test_forming_that_takes_too_long_is_not_tried_again(tmp_path):
    late = 'if [ $RANK_ID = 2 ]; then exec sleep 600; fi; exec python3 "$0" "$@"'
    words = ["--cluster_time_out=5"]
    with Job(tmp_path, "--", "sh", "-c", late, *returning(), restarts=100, words=words) as job:
        assert job.wait(LIMIT) == 124
        assert "first failure: the scheduler" in job.stderr and "missing: rank 2" in job.stderr
        job.nothing_left()


def test_the_users_signal_ends_it_in_the_middle_of_restarts(tmp_path):
    with Job(tmp_path, *shell("echo life; exit 1"), restarts=1000) as job:
        job.await_restart("worker 0", 3)
        job.signal(signal.SIGTERM)
        assert job.wait(LIMIT) == 128 + signal.SIGTERM
        job.nothing_left()


# A start that fails


def test_a_program_that_is_gone_is_tried_so_often_and_the_summary_tells_how_the_worker_had_ended_and_why_it_stays_away(tmp_path):
    program = tmp_path / "program"
    all_run = "touch $KEPT/$RANK_ID; while [ $(ls $KEPT | wc -l) -lt 4 ]; do sleep 0.01; done"
    program.write_text(f'#!/bin/sh\n{all_run}\nif [ $RANK_ID = 1 ]; then rm "$0"; kill -9 $$; fi\nexec sleep 600\n')
    program.chmod(0o755)
    with Job(tmp_path, program, restarts=2) as job:
        assert job.wait(LIMIT) == 128 + signal.SIGKILL
        ended = f"worker 1 (pid {job.child('worker 1')}) was ended by signal 9 (SIGKILL)"
        for number in (1, 2):
            assert f"muster: {ended}; restart {number} of 2 failed: " in job.stderr
        assert re.search(rf"first failure: {re.escape(ended)}, .*\n    it could not be started again: .*No such file", job.stderr)
        assert "exited with code" not in job.log("worker_1.log")
        job.nothing_left()


def test_a_scheduler_whose_start_fails_once_is_started_again(tmp_path):
    with Job(tmp_path, *returning(), restarts=1000, hold=True) as job:
        job.stand()
        away = job.logs.with_name(f"{job.logs.name}-away")
        job.logs.rename(away)
        try:
            os.kill(job.child("the scheduler"), signal.SIGKILL)
            job.wait_for(r"the scheduler \(pid \d+\) was ended by signal 9 \(SIGKILL\); restart 2 of 1000 failed: ", LIMIT)
        finally:
            away.rename(job.logs)
        job.await_restart("the scheduler")
        job.release()
        job.ends_well()


# What is refused


@pytest.mark.parametrize(
    "words, env, said",
    [
        (["--max_restarts=1"], {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": "rec"}, "but without --join nobody stays"),
        (["--max_restarts=-1", "--join"], {}, '--max_restarts is "-1"; it must be how often'),
        (["--max_restarts=1", "--join"], {}, "without recovery no process finds its place again: set MS_"),
        (["--max_restarts=1", "--join"], {"MS_ENABLE_RECOVERY": 1}, "but MS_RECOVERY_PATH is not set"),
        (["--join"], {"MS_ENABLE_RECOVERY": 1}, "but MS_RECOVERY_PATH is not set"),
        (["--join"], {"MUSTER_ENABLE_RECOVERY": "yes"}, 'MUSTER_ENABLE_RECOVERY is "yes"'),
        (
            ["--max_restarts=1", "--join", "--local_worker_num=1"],
            {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": "rec"},
            "give --node_rank, too",
        ),
    ],
)
def test_restarts_that_could_not_work_are_refused_at_once(words, env, said, tmp_path):
    command = [MUSTER, "run", "--worker_num=2", "--master_port=0", f"--log_dir={tmp_path}/logs", *words, "env"]
    settings = {"env": clean_environment(env), "cwd": tmp_path, "timeout": 30}
    ended = subprocess.run(command, capture_output=True, text=True, **settings)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert not list(tmp_path.iterdir())


def test_files_of_tls_that_were_renewed_serve_the_launcher_too(tmp_path):
    """It has shown its first certificate before; by the second death that one is revoked."""
    files = Certificates(tmp_path / "files")
    files.list("crl.pem")
    files.configure(crl_path="crl.pem")
    with Job(tmp_path, *returning(), hold=True, env={**files.env(), "MUSTER_LOG": "info"}) as job:
        job.stand()
        first = job.child("worker 1")
        os.kill(first, signal.SIGKILL)
        second = job.await_restart("worker 1")
        job.stand(times=2)
        assert "a launcher at" in job.log("scheduler.log"), job.log("scheduler.log")
        old = (files.folder / "client.crt").rename(files.folder / "old.crt")
        for name in ("server", "client"):
            files.sign(name)
        files.list("crl.pem", old.name)
        time.sleep(3)  # what is younger than 2 s waits for a second look, at the next connection
        os.kill(second, signal.SIGKILL)
        job.await_restart("worker 1", 2)
        job.stand(times=3)
        said = f"says of process {second} on "
        assert said in job.log("scheduler.log") and "revoked" not in job.log("scheduler.log"), job.log("scheduler.log")
        assert job.warnings() == []
        job.release()
        job.ends_well()
