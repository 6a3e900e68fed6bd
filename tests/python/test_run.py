"""`muster run` with plain programs as workers: what they are told, how a run ends, and which process is blamed."""

import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time

import pytest
from cluster import MUSTER, clean_environment, stop, thread_states
from launch import Launch, environment_of, until
from nodes import listening_ports
from optional import IPV6

ONE_PORT = "--master_port=0"
JOINED = (ONE_PORT, "--join=True")
# How long processes have to end after a signal to the launcher.
SIGNAL_GRACE_SECONDS = 5
# A worker's own child that has left its group, and one that hears no request to end.
STUBBORN_FAMILY = "setsid sleep 600 & sh -c 'trap \"\" TERM; while :; do sleep 600; done' & echo ready; wait"


def shell(text):
    return ["--", "sh", "-c", text]


def run(*words, env=None, **more):
    """A command that ends by itself: its exit code and what it wrote."""
    command = [MUSTER, *words]
    settings = {"env": clean_environment(env), "stdin": subprocess.DEVNULL, "timeout": 30, **more}
    return subprocess.run(command, capture_output=True, text=True, **settings)


# What is refused


@pytest.mark.parametrize(
    "words, said",
    [
        (["--worker_num=0", "true"], '--worker_num is "0"; it must be a whole number from 1'),
        (["--worker_num=2", "--local_worker_num=3", "true"], "--local_worker_num is 3; it must be at most"),
        (["--master_port=80x", "true"], '--master_port is "80x"; it must be 0 (the system chooses) or 1024 to 65535'),
        (["--worker_nun=2", "true"], "did you mean --worker_num?"),
        (["--worker_num=2"], "there is no program to run"),
        (["-n", "4", "--worker_num=2", "true"], '-n is "4", but --worker_num is "2"'),
        (["-H", "one:2,two:2", "-n", "5", "true"], "5 workers are more than the 4 that the hosts take: one 2, two 2"),
        (["--join", "yes", "./hello"], "write --join=True for what it may mean, and where it is the program --join=True ./yes"),
        (["--master_addr=192.0.2.1", "--master_port=0", "true"], "192.0.2.1 is not an address of this host"),
    ],
)
def test_a_wrong_command_line_is_explained_and_starts_nothing(words, said, tmp_path):
    ended = run("run", f"--log_dir={tmp_path}/logs", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert not (tmp_path / "logs").exists()


def test_thresholds_that_the_scheduler_cannot_read_are_refused_and_nothing_is_started(tmp_path):
    wrong = {"MUSTER_THRESHOLDS": "barrier_tree_ranks=8,allreduce_tree_bytes=64K"}
    ended = run("run", f"--log_dir={tmp_path}/logs", *JOINED, "true", env=wrong)
    assert ended.returncode == 2
    assert 'MUSTER_THRESHOLDS has "allreduce_tree_bytes=64K" in it: "64K" is not a number of bytes' in ended.stderr
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "no-such.py", "/etc/passwd"])
def test_a_program_that_cannot_be_found_starts_nothing(program, tmp_path):
    ended = run("run", f"--log_dir={tmp_path}/logs", *JOINED, program)
    assert ended.returncode == 127
    assert program in ended.stderr
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("interpreter", ["/no/such/interpreter", "/etc/passwd"])
def test_a_program_whose_interpreter_cannot_run_it_leaves_nothing_behind(interpreter, tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{interpreter}\n")
    program.chmod(0o755)
    with Launch("--worker_num=2", *JOINED, program) as launch:
        assert launch.wait(timeout=20) == 127
        assert "can't start worker 0" in launch.stderr
        launch.nothing_left()


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_port_in_use_is_said_at_once_and_starts_nothing(hosts, tmp_path):
    """By the job's other launcher, it may be, where it has more than one host."""
    words = ["--worker_num=2", f"--local_worker_num={2 // hosts}", f"--log_dir={tmp_path}/logs", "--join=True"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run("run", f"--master_port={port}", *words, "true")
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}" in ended.stderr and "in use" in ended.stderr
    assert ("run the launchers of one job on different hosts" in ended.stderr) == (hosts == 2), ended.stderr
    assert not (tmp_path / "logs").exists()


def test_a_host_name_that_nobody_knows():
    ended = run("run", "--master_addr=no-such-host.invalid", "--join=True", "true")
    assert ended.returncode == 1
    assert "no-such-host.invalid" in ended.stderr


def test_a_log_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    ended = run("run", *JOINED, f"--log_dir={tmp_path}/file/logs", "true")
    assert ended.returncode == 1
    assert "--log_dir" in ended.stderr


def test_a_log_that_is_a_pipe_without_a_reader_is_refused_at_once(tmp_path):
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "worker_0.log")
    ended = run("run", *JOINED, f"--log_dir={tmp_path}/logs", "true")
    assert ended.returncode == 1
    assert "a pipe that nobody reads" in ended.stderr


def test_a_failure_does_not_wait_for_what_a_pipe_as_a_log_has(tmp_path):
    (tmp_path / "logs").mkdir()
    pipe = tmp_path / "logs" / "worker_1.log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ended = run("run", "--worker_num=2", *JOINED, f"--log_dir={tmp_path}/logs", "sh", "-c", "echo said; exit $((RANK_ID * 3))")
    said = os.read(reader, 1000)
    os.close(reader)
    assert ended.returncode == 3 and said == b"said\n", (ended, said)


def test_help_and_version():
    assert "--cluster_time_out" in run("run", "--help").stdout
    assert "MUSTER_SCHED_PORT" in run("scheduler", "--help").stdout
    assert re.fullmatch(r"muster \d+\.\d+\.\d+\n", run("--version").stdout)
    assert run("--help").returncode == 0
    assert run().returncode == 2
    assert run("frobnicate").returncode == 2


# What children are told


def test_what_workers_are_told():
    with Launch("--worker_num=2", "--cluster_time_out=77", *JOINED, "env") as launch:
        assert launch.wait(timeout=20) == 0
        port = re.search(r"MS_SCHED_PORT=(\d+)", launch.log("worker_0.log"))[1]
        assert int(port) >= 1024
        for rank in (0, 1):
            told = dict(line.split("=", 1) for line in launch.log(f"worker_{rank}.log").splitlines() if "=" in line)
            ours = {name: value for name, value in told.items() if re.match("MS_|MUSTER_|RANK|DEVICE|WORLD_|LOCAL_|MASTER_", name)}
            assert re.fullmatch("[0-9a-f]{32}", ours["MUSTER_LAUNCH_ID"])
            assert re.fullmatch("[0-9a-f]{64}", ours["MUSTER_JOB_SECRET"])
            assert ours == {
                "MUSTER_JOB_SECRET": ours["MUSTER_JOB_SECRET"],
                "MUSTER_LAUNCH_ID": ours["MUSTER_LAUNCH_ID"],
                "MS_ROLE": "MS_WORKER",
                "MS_SCHED_HOST": "127.0.0.1",
                "MS_SCHED_PORT": port,
                "MS_WORKER_NUM": "2",
                "MS_CLUSTER_TIMEOUT": "77",
                "MS_NODE_ID": str(rank),
                "RANK_ID": str(rank),
                "RANK_SIZE": "2",
                "DEVICE_ID": str(rank),
                # For torch.
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(int(port) + 2),
            }


def test_mpiruns_options_start_all_workers_here_with_their_variables(tmp_path):
    words = ["-np", "10", "--master_port", "0", "-x", "COLOUR=blue=sky", "-x", "SET", "-x", "UNSET", "--join", "--tail_worker_log=9"]
    script = 'echo "$RANK of $WORLD_SIZE, $LOCAL_WORLD_SIZE here: $COLOUR $SET ${UNSET-none}"'
    ended = run("run", f"--log_dir={tmp_path}", *words, *shell(script), env={"SET": "yes", "UNSET": None})
    assert (ended.returncode, ended.stdout) == (0, "9 of 10, 10 here: blue=sky yes none\n"), ended
    assert "muster: warning: -x UNSET: there is no such variable here, and so the workers get none" in ended.stderr


def test_what_workers_are_told_of_hccl():
    with Launch("--worker_num=2", *JOINED, "env", env={"MS_HCCL_CM_INIT": "1"}) as launch:
        assert launch.wait(timeout=20) == 0
        for rank in (0, 1):
            told = dict(line.split("=", 1) for line in launch.log(f"worker_{rank}.log").splitlines() if "=" in line)
            assert {name: value for name, value in told.items() if name.startswith("CM_")} == {
                "CM_CHIEF_IP": "127.0.0.1",
                "CM_CHIEF_PORT": str(int(told["MS_SCHED_PORT"]) + 1),
                "CM_CHIEF_DEVICE": "0",
                "CM_WORKER_SIZE": "2",
                "CM_WORKER_IP": "127.0.0.1",
            }


def test_hccl_needs_the_port_above():
    with Launch("--worker_num=1", "--master_port=65520", "true", env={"MS_HCCL_CM_INIT": "1"}) as launch:
        assert launch.wait(timeout=20) == 1
        assert '--master_port is "65520"' in launch.stderr and "at most 65519" in launch.stderr


def test_what_would_contradict_the_launcher_is_taken_out():
    contradictions = {
        "MUSTER_ROLE": "MS_SCHED",
        "MUSTER_SCHED_PORT": "1",
        "MUSTER_NODE_ID": "x",
        "MS_NODE_ID": "x",
        "RANK_ID": "7",
        "MS_TOPO_TIMEOUT": "1",
        "MUSTER_SCHED_FD": "3",
        "MUSTER_JOB_ID": "kept",
    }
    words = ("--worker_num=2", "--local_worker_num=1", *JOINED)
    with Launch(*words, *shell("env; sleep 600"), env=contradictions) as launch:
        launch.wait_for_log("worker_0.log", "MUSTER_JOB_ID=kept")
        left = {name for name in contradictions if re.search(rf"^{name}=", launch.log("worker_0.log"), re.M)}
        assert left == {"MUSTER_JOB_ID"}


def test_the_scheduler_inherits_a_listener_and_the_workers_do_not():
    with Launch("--worker_num=1", *JOINED, *shell("ls -l /proc/self/fd; exec sleep 600")) as launch:
        told = environment_of(launch.child("the scheduler"))
        assert told["MS_ROLE"] == "MS_SCHED"
        assert int(told["MUSTER_SCHED_FD"]) > 2
        assert "RANK_ID" not in told and "MS_NODE_ID" not in told
        with socket.create_connection((told["MS_SCHED_HOST"], int(told["MS_SCHED_PORT"])), timeout=10):
            pass
        # The scheduler alone holds it: a port that outlived it would let nodes wait there in vain.
        launch.wait_for("the scheduler is here", timeout=10)
        until(lambda: not listening_ports(launch.pid), 10, "the launcher has let the port go")
        assert listening_ports(launch.child("the scheduler")) == {int(told["MS_SCHED_PORT"])}
        launch.wait_for_log("worker_0.log", r" 2 -> ")
        assert "socket" not in launch.log("worker_0.log")


@pytest.mark.parametrize("address", [pytest.param("::1", marks=IPV6), pytest.param("[::1]", marks=IPV6), "localhost"])
def test_other_names_of_this_host(address):
    task = shell("echo $MS_SCHED_HOST; exec sleep 600")
    with Launch("--worker_num=1", f"--master_addr={address}", *JOINED, *task) as launch:
        launch.wait_for_log("worker_0.log", f"^{address.strip('[]')}$")
        assert environment_of(launch.child("the scheduler"))["MS_ROLE"] == "MS_SCHED"


def test_a_host_without_the_masters_address_starts_workers_only():
    words = ["--worker_num=4", "--local_worker_num=2", "--master_addr=192.0.2.1", "--node_rank=1", "--join"]
    with Launch(*words, *shell("echo $MS_SCHED_HOST $MS_SCHED_PORT $RANK_ID $MS_NODE_ID $DEVICE_ID")) as launch:
        assert launch.wait(timeout=20) == 0
        assert launch.log("worker_2.log") == "192.0.2.1 8118 2 2 0\n"
        assert launch.log("worker_3.log") == "192.0.2.1 8118 3 3 1\n"
        assert not (launch.logs / "scheduler.log").exists()


def test_ranks_that_only_the_scheduler_will_know_are_not_told():
    words = ["--worker_num=4", "--local_worker_num=2", "--master_addr=192.0.2.1", "--join"]
    with Launch(*words, *shell("echo [$RANK_ID$MS_NODE_ID] $DEVICE_ID"), env={"RANK_ID": "9"}) as launch:
        assert launch.wait(timeout=20) == 0
        assert [launch.log(f"worker_{index}.log") for index in (0, 1)] == ["[] 0\n", "[] 1\n"]


def test_it_answers_to_the_name_msrun(tmp_path):
    (tmp_path / "msrun").symlink_to(MUSTER)
    with Launch("--worker_num=1", *JOINED, "echo", "hello", command=[tmp_path / "msrun"]) as launch:
        assert launch.wait(timeout=20) == 0
        assert launch.log("worker_0.log") == "hello\n"


# Ends


def test_workers_that_never_join_end_well_with_a_warning():
    with Launch("--worker_num=2", *JOINED, "true") as launch:
        assert launch.wait(timeout=30) == 0
        warning = "all 2 workers ended with code 0, but no cluster ever formed: a program joins it with muster_init"
        assert launch.stderr.splitlines()[-1] == f"muster: warning: {warning}"
        launch.nothing_left(timeout=10)


def test_a_good_end():
    with Launch("--worker_num=3", *JOINED, "true") as launch:
        assert launch.wait(timeout=20) == 0
        assert launch.stdout == ""
        assert "failure" not in launch.stderr
        launch.nothing_left()


def test_a_launcher_that_was_started_to_hear_of_no_children_hears_of_them(tmp_path):
    deaf = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    for text, code in [("exit 0", 0), ("exit 3", 3)]:
        words = ["run", f"--log_dir={tmp_path}/logs", "--worker_num=2", *JOINED, *shell(text)]
        ended = subprocess.run([sys.executable, "-c", deaf, MUSTER, *words], env=clean_environment(), stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=30)
        assert ended.returncode == code, ended.stderr


def test_the_first_failure_stops_the_rest_and_is_named_first(tmp_path):
    unlucky = "while [ ! -e $GO ]; do sleep 0.01; done; echo 'Error: out of luck'; exit 7"
    task = shell(f"if [ $RANK_ID = 2 ]; then {unlucky}; fi; {STUBBORN_FAMILY}")
    with Launch("--worker_num=3", *JOINED, *task, env={"GO": tmp_path / "go"}) as launch:
        pid = launch.child("worker 2")
        launch.wait_for_log("worker_0.log", "ready")
        launch.wait_for_log("worker_1.log", "ready")
        began = time.monotonic()
        (tmp_path / "go").touch()
        assert launch.wait(timeout=20) == 7
        took = time.monotonic() - began
        launch.nothing_left()
        failures = [line for line in launch.stderr.splitlines() if "exited with" in line or "was ended by" in line]
        assert failures[0].startswith(f"muster: first failure: worker 2 (pid {pid}) exited with code 7")
        assert "    Error: out of luck\n" in launch.stderr
        assert took < SIGNAL_GRACE_SECONDS, "as long as after a signal; that it is a second is in src/bin/muster/run/supervise_test.rs"


def test_the_last_lines_of_the_first_failure_are_told_whatever_looked_like_an_error_before():
    said = "echo error=0.5; for step in 1 2 3 4 5; do echo step $step; done; echo no such data; exit 3"
    with Launch("--worker_num=1", *JOINED, *shell(said)) as launch:
        assert launch.wait(timeout=20) == 3
        told = re.findall(r"(?m)^    (.*)$", launch.stderr)
        assert told == ["error=0.5", "step 4", "step 5", "no such data"], launch.stderr


def test_a_killed_worker_is_named_with_its_signal():
    with Launch("--worker_num=3", *JOINED, *shell(STUBBORN_FAMILY)) as launch:
        pid = launch.child("worker 1")
        launch.wait_for_log("worker_1.log", "ready")
        os.kill(pid, signal.SIGKILL)
        assert launch.wait(timeout=20) == 128 + signal.SIGKILL
        assert f"first failure: worker 1 (pid {pid}) was ended by signal 9 (SIGKILL)" in launch.stderr
        launch.nothing_left()


@pytest.mark.parametrize("at_once, code", [(True, 128 + signal.SIGSEGV), (False, 3)])
def test_of_workers_found_together_the_killed_one_is_the_first_and_otherwise_the_one_found_first(at_once, code, tmp_path):
    """Either the launcher stands still until both have ended, or the second ends once the launcher has told of the first."""
    told = 'until grep -q "says of process" "$(dirname "$(readlink /proc/$$/fd/1)")/scheduler.log"; do sleep 0.01; done'
    text = f"while [ ! -e $GO ]; do sleep 0.01; done; [ $RANK_ID = 0 ] && exit 3; {':' if at_once else told}; kill -SEGV $$"
    with Launch("--worker_num=2", *JOINED, *shell(text), env={"GO": tmp_path / "go", "MUSTER_LOG": "info"}) as launch:
        pids = [launch.child(f"worker {rank}") for rank in range(2)]
        if at_once:
            stop(launch.pid)
        (tmp_path / "go").touch()
        if at_once:
            until(lambda: all("Z" in thread_states(pid) for pid in pids), 20, "both have ended")
            os.kill(launch.pid, signal.SIGCONT)
        assert launch.wait(timeout=20) == code
        assert f"first failure: worker {int(at_once)} (pid {pids[at_once]})" in launch.stderr


def test_a_dead_scheduler_stops_the_workers():
    with Launch("--worker_num=2", *JOINED, *shell(STUBBORN_FAMILY)) as launch:
        pid = launch.child("the scheduler")
        launch.wait_for_log("worker_1.log", "ready")
        os.kill(pid, signal.SIGKILL)
        assert launch.wait(timeout=20) == 128 + signal.SIGKILL
        assert f"first failure: the scheduler (pid {pid})" in launch.stderr
        launch.nothing_left()


@pytest.fixture
def hangs_up():
    """Under nohup, as these tests may be, the launcher would be told to leave a hangup alone."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_what_a_script_started_before_it_became_the_launcher_is_none_of_the_runs(tmp_path):
    # The second worker fails, so all that is the run's is ended.
    # A child of the script has ended by then, and what it had started has become the launcher's.
    lines = f"""
        sleep 600 > out 2>&1 & echo $! > earlier
        sh -c 'sleep 600 > out 2>&1 & echo $! > deeper; until [ -e goes ]; do sleep 0.01; done' > out 2>&1 &
        until [ -s deeper ]; do sleep 0.01; done
        exec {MUSTER} run --worker_num=2 --master_port=0 --join=True --log_dir=logs -- sh -c '
            : > goes
            until [ $(cut -d" " -f4 /proc/$(cat deeper)/stat) = $PPID ]; do sleep 0.01; done
            exit $RANK_ID'
    """
    ended = subprocess.run(["sh", "-c", lines], env=clean_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60,
                           stdin=subprocess.DEVNULL)
    earlier = [int((tmp_path / name).read_text()) for name in ("earlier", "deeper")]
    try:
        assert ended.returncode == 1, ended.stderr
        for pid in earlier:
            assert pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep")
    finally:
        for pid in earlier:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_leaves_nothing_behind(number):
    with Launch("--worker_num=3", *JOINED, *shell("setsid sleep 600 & sleep 600 & echo ready; wait")) as launch:
        for rank in range(3):
            launch.wait_for_log(f"worker_{rank}.log", "ready")
        launch.signal(number)
        assert launch.wait(timeout=20) == 128 + number
        launch.nothing_left()
        assert "first failure" not in launch.stderr


def test_a_second_signal_does_not_wait_for_those_who_do_not_listen():
    with Launch("--worker_num=2", *JOINED, *shell(STUBBORN_FAMILY)) as launch:
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", "ready")
        began = time.monotonic()
        launch.signal(signal.SIGINT)
        launch.signal(signal.SIGTERM)
        assert launch.wait(timeout=20) == 128 + signal.SIGINT
        assert time.monotonic() - began < SIGNAL_GRACE_SECONDS, "those that don't listen have this time after the first"
        launch.nothing_left()


def test_a_process_that_ignores_the_first_signal_is_killed_in_the_end():
    with Launch("--worker_num=1", *JOINED, *shell(STUBBORN_FAMILY)) as launch:
        launch.wait_for_log("worker_0.log", "ready")
        launch.signal(signal.SIGTERM)
        assert launch.wait(timeout=20) == 128 + signal.SIGTERM
        launch.nothing_left()


def test_a_worker_may_clean_up_after_the_users_signal(tmp_path):
    program = tmp_path / "saves.py"
    program.write_text(
        "import signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('ready')\nsignal.sigwait([signal.SIGTERM])\ntime.sleep(1)\nprint('saved')\n"
    )
    with Launch("--worker_num=1", *JOINED, program) as launch:
        launch.wait_for_log("worker_0.log", "ready")
        launch.signal(signal.SIGTERM)
        assert launch.wait(timeout=20) == 128 + signal.SIGTERM
        assert "saved" in launch.log("worker_0.log")


def test_children_die_with_a_launcher_that_is_killed():
    with Launch("--worker_num=2", *JOINED, "sleep", "600") as launch:
        until(lambda: len(launch.descendants()) == 3, 10, "a scheduler and two workers run")
        launch.kill()
        launch.nothing_left(timeout=10)


def test_without_join_the_children_outlive_the_launcher():
    with Launch("--worker_num=2", ONE_PORT, *shell("echo ready; exec sleep 600")) as launch:
        assert launch.wait(timeout=20) == 0
        pids = [int(line) for line in launch.stdout.splitlines()]
        # A process in the middle of its exec shows no environment, by which descendants are known.
        until(lambda: sorted(pids) == sorted(launch.descendants()), 10, "those that were named run, and no others")
        assert len(pids) == 3
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", "ready")
        assert all(os.getpgid(pid) == pid for pid in pids), "each leads a process group of its own"


def test_a_worker_reads_from_a_terminal_that_does_not_control_it(tmp_path):
    words = [MUSTER, "run", "--worker_num=1", *JOINED, f"--log_dir={tmp_path}", "head", "-n1"]
    pid, terminal = pty.fork()  # the child's session has the terminal, as a shell's has
    if pid == 0:
        os.execve(words[0], [str(word) for word in words], clean_environment())
    os.write(terminal, b"typed\n")
    said, until_then = b"", time.monotonic() + 20
    while said.count(b"typed") < 2 and select.select([terminal], [], [], until_then - time.monotonic())[0]:
        try:
            said += os.read(terminal, 4096)
        except OSError:  # nobody has the terminal open any more
            break
    heard = said.count(b"typed") == 2  # the terminal's echo, and what the worker says
    if not heard:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert heard and os.waitstatus_to_exitcode(status) == 0, said


def test_workers_read_the_launchers_input(tmp_path):
    ended = run("run", "--worker_num=1", *JOINED, f"--log_dir={tmp_path}", "cat", stdin=None, input="typed\n")
    assert (ended.returncode, ended.stdout) == (0, "typed\n")
