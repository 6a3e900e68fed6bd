"""The launcher and the scheduler whose standard streams take nothing, or are not there; and a slow log callback in Python."""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import termios
import time

import pytest
from cluster import EXAMPLES, MUSTER, Cluster, clean_environment, command_line, thread_states
from launch import Launch, until
from nodes import await_joined, node

JOINED = ("--master_port=0", "--join=True")
PROGRAMS = pathlib.Path(__file__).parent / "programs"
# For ever; what it says would fill a pipe many times over.
TALKS = ["--", "sh", "-c", "while :; do echo 'the same words again and again, as often as there is time'; done"]
LIMIT = 20


@contextlib.contextmanager
def full_pipe():
    """The name of a pipe that takes nothing more."""
    with tempfile.TemporaryDirectory(prefix="muster-full-") as folder:
        path = pathlib.Path(folder) / "pipe"
        os.mkfifo(path)
        end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(end, b"." * 4096)
        try:
            yield path
        finally:
            os.close(end)


def with_streams(redirections):
    """`muster run` with these redirections, as a shell writes them."""
    return ("sh", "-c", f'exec "$@" {redirections}', "sh", MUSTER, "run")


def stream_flags(pid, number):
    text = pathlib.Path(f"/proc/{pid}/fdinfo/{number}").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("flags:")), 8)


def test_a_signal_ends_a_run_whose_standard_output_takes_nothing():
    with full_pipe() as path:
        with Launch("--worker_num=2", *JOINED, *TALKS, command=with_streams(f'1<>"{path}"')) as launch:
            launch.child("worker 1")
            until(lambda: len(launch.log("worker_1.log")) > 1 << 20, LIMIT, "much output")
            flags = stream_flags(launch.pid, 1)
            assert not flags & os.O_NONBLOCK
            launch.signal(signal.SIGTERM)
            assert launch.wait(LIMIT) == 143
            launch.nothing_left()
            assert "bytes of the workers' output were not shown, for nobody took them: the logs have them" in launch.stderr
            assert "stopped by signal 15" in launch.stderr


def test_a_run_that_ends_by_itself_does_not_wait_for_a_reader():
    with full_pipe() as path:
        task = ["--", "sh", "-c", "echo said; exit 7"]
        with Launch("--worker_num=1", *JOINED, *task, command=with_streams(f'1<>"{path}" 2>&1')) as launch:
            assert launch.wait(LIMIT) == 7
            launch.nothing_left(5)


def recovering(tmp_path):
    return {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}


DIES_AGAIN = ("--max_restarts=1000", *JOINED, "--", "sh", "-c", "kill -9 $$")


def test_a_signal_ends_a_run_whose_standard_error_takes_nothing(tmp_path):
    with full_pipe() as path:
        command = with_streams(f'2<>"{path}"')
        with Launch("--worker_num=2", *DIES_AGAIN, command=command, env=recovering(tmp_path)) as launch:
            launch.wait_for_log("worker_1.log", "restart 2 of 1000", LIMIT)
            flags = stream_flags(launch.pid, 2)
            launch.signal(signal.SIGTERM)
            assert launch.wait(LIMIT) == 143
            launch.nothing_left()
            assert not flags & os.O_NONBLOCK


def test_what_was_said_meanwhile_comes_once_somebody_reads(tmp_path):
    with full_pipe() as path:
        command = with_streams(f'2<>"{path}"')
        with Launch("--worker_num=1", *DIES_AGAIN, command=command, env=recovering(tmp_path)) as launch:
            launch.wait_for_log("worker_0.log", "restart 2 of", LIMIT)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            said = b""

            def comes():
                nonlocal said
                with contextlib.suppress(BlockingIOError):
                    said += os.read(reader, 1 << 20)
                return b"restart 2 of" in said

            until(comes, LIMIT, "what was said meanwhile")
            os.close(reader)
            assert b"muster: worker 0 has pid" in said
            launch.signal(signal.SIGTERM)
            assert launch.wait(LIMIT) == 143


@pytest.mark.parametrize("task, code", [("exit 0", 0), ("echo said; exit 3", 3)])
@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", '1>"$OUT" 2>&1 9>&-'], ids=["closed", "broken"])
def test_the_exit_code_is_right_without_streams(streams, task, code, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    # A pipe that had a reader, when it was opened.
    command = ("sh", "-c", f'exec 9<>"$OUT"; exec "$@" {streams}', "sh", MUSTER, "run")
    env = {"OUT": tmp_path / "pipe"}
    for mode in [JOINED, ("--master_port=0",)]:
        with Launch("--worker_num=2", *mode, "--", "sh", "-c", task, command=command, env=env) as launch:
            assert launch.wait(LIMIT) == (code if mode == JOINED else 0)


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", '1>"$OUT" 2>&1 9>&-'], ids=["closed", "broken"])
def test_a_wrong_command_line_gives_its_code_without_streams(streams, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    script = f'exec 9<>"$OUT"; exec "$@" {streams}'
    command = ["sh", "-c", script, "sh", MUSTER, "run", "--worker_num=0", "true"]
    env = clean_environment({"OUT": tmp_path / "pipe"})
    assert subprocess.run(command, env=env, timeout=LIMIT, check=False).returncode == 2


def test_a_cluster_forms_where_the_launcher_has_no_streams():
    command = with_streams("<&- >&- 2>&-")
    with Launch("--worker_num=2", *JOINED, EXAMPLES / "allgather", command=command) as launch:
        assert launch.wait(LIMIT) == 0
        assert launch.log("worker_1.log") == "[[0.], [1.]]\n"


def test_a_scheduler_that_cannot_say_why_it_ends_ends():
    settings = {"MS_SCHED_HOST": "192.0.2.1", "MS_SCHED_PORT": "1024", "MS_WORKER_NUM": "1"}
    with full_pipe() as path, open(path, "r+b", buffering=0) as stream:
        command = [MUSTER, "scheduler"]
        ended = subprocess.run(command, env=clean_environment(settings), stderr=stream, timeout=LIMIT, check=False)
        assert ended.returncode == 4


def stands_still(pid):
    """Whether it waits for something else than an answer from the network."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends
        opened = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        return set(thread_states(pid)) == {"S"} and not any(name.startswith("socket:") for name in opened)
    return False


def read_slowly(command):
    """All that a command writes into a pipe that does not wait. It was full before, and is read only when the command waits."""
    reader, writer = os.pipe()
    size = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    filled = os.write(writer, b"." * size)
    settings = {"stdout": writer, "stderr": subprocess.PIPE, "env": clean_environment()}
    # The pipe is closed before the end is waited for.
    with subprocess.Popen(command, **settings) as process, open(reader, "rb", buffering=0) as stream:
        os.close(writer)
        said = b""
        while True:
            until(lambda: process.poll() is not None or stands_still(process.pid), LIMIT, "the command waits, or has ended")
            piece = stream.read(size)
            if not piece:
                break
            said += piece
        assert process.wait(LIMIT) == 0, process.stderr.read()
    assert filled == size
    return said[filled:]


@pytest.mark.parametrize("output, why", [("/dev/full", "No space left"), (None, "nobody reads it")], ids=["full", "unread"])
def test_process_ids_that_cannot_be_written_are_an_error_and_the_processes_go_on(output, why):
    with full_pipe() as path:
        command = with_streams(f'1<>"{output or path}"')
        with Launch("--worker_num=1", "--master_port=0", "--", "sleep", "600", command=command) as launch:
            assert launch.wait(LIMIT) == 1
            said = f"muster: standard output cannot be written: {why}"
            assert said in launch.stderr and "the processes run all the same, and muster ps lists them" in launch.stderr
            os.kill(launch.child("worker 0"), signal.SIGTERM)


def test_all_of_a_result_goes_into_a_pipe_that_does_not_wait():
    """It takes a result in pieces, and says in between that it takes nothing."""
    words = [MUSTER, "man"]
    page = subprocess.run(words, stdout=subprocess.PIPE, env=clean_environment(), timeout=LIMIT, check=True).stdout
    assert read_slowly(words) == page and len(page) > 1 << 14


def test_all_of_a_schedulers_answer_goes_into_a_pipe_that_does_not_wait(tmp_path):
    with Cluster(node('c = join(); hold("leave"); c.leave()'), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        table = [MUSTER, "ranktable", f"--sched_port={cluster.port}"]
        whole = subprocess.run(table, stdout=subprocess.PIPE, env=clean_environment(), timeout=LIMIT, check=True).stdout
        assert read_slowly(table) == whole
        answer = read_slowly([MUSTER, "status", "--format=json", f"--sched_port={cluster.port}"])
        assert sorted(row["rank"] for row in json.loads(answer)["nodes"]) == [0, 1]
        (tmp_path / "leave").touch()
        cluster.succeed(timeout=LIMIT)


def read_late(words):
    """All that a command writes into a pipe that does not wait, which is full and not read for longer than a voice waits."""
    reader, writer = os.pipe()
    size = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with subprocess.Popen(words, stdout=writer, env=clean_environment()) as process, open(reader, "rb") as stream:
        os.close(writer)
        until(lambda: waiting(reader) == size, LIMIT, "the pipe is full")
        time.sleep(2.5)  # a voice gives up after 2 s
        said = stream.read()
        assert process.wait(LIMIT) == 0
    return said


def test_all_of_a_dry_run_goes_into_a_pipe_that_does_not_wait(tmp_path):
    """It has more lines than a voice keeps for a reader that pauses."""
    words = [MUSTER, "run", "--worker_num=600", "--local_worker_num=600", "--master_port=8118", f"--log_dir={tmp_path}/logs",
             "--sim_level=0", "true"]
    whole = subprocess.run(words, stdout=subprocess.PIPE, env=clean_environment(), timeout=LIMIT, check=True).stdout
    assert read_late(words) == whole and len(whole) > 1 << 17


def test_all_of_a_workers_output_goes_into_a_pipe_that_does_not_wait(tmp_path):
    """The launcher reads it from the worker's log, as long as somebody takes it: a pause of 2 s at the end ends that."""
    words = [MUSTER, "run", "--worker_num=1", "--master_port=0", "--join", f"--log_dir={tmp_path}/logs",
             "sh", "-c", "seq 1 40000; sleep 6"]
    assert read_late(words) == "".join(f"{number}\n" for number in range(1, 40001)).encode()


def waiting(pipe):
    """How many bytes wait in it for a reader."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


def test_a_python_callback_delays_nobody():
    """It and the interpreter's lock are held for three times as long as a node may be silent."""
    env = {"MS_NODE_TIMEOUT": "1"}
    words = command_line([PROGRAMS / "slow_log.py"])
    with Launch("--worker_num=3", *JOINED, "--", *words, env=env) as launch:
        assert launch.wait(120) == 0, launch.stderr
