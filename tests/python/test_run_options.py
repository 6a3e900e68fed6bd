"""The options of `muster run` that msrun has, too: names of logs, a rank table, a dry run; its help; and slips in its words."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess

import pytest
from cluster import MUSTER, clean_environment
from launch import Launch, until
from nodes import listening_ports
from test_rank_table import RANKS, table
from test_run import JOINED, run, shell
from test_run_cluster import WORKER
from test_stalled_output import full_pipe

HOST = socket.gethostname()


@pytest.fixture(params=["muster run", "msrun"])
def command(request, tmp_path):
    """Both names of the launcher."""
    if request.param == "muster run":
        return [MUSTER, "run"]
    (tmp_path / "msrun").symlink_to(MUSTER)
    return [tmp_path / "msrun"]


# Names of logs


def test_logs_have_the_name_that_was_given(command):
    words = ("--worker_num=2", *JOINED, "--worker_log_name=job_{ip}_{hostname}", "--tail_worker_log=1")
    with Launch(*words, *shell("echo rank $RANK_ID"), command=command) as launch:
        assert launch.wait(timeout=30) == 0
        assert [launch.log(f"job_127.0.0.1_{HOST}_{rank}.log") for rank in (0, 1)] == ["rank 0\n", "rank 1\n"]
        assert launch.stdout == "rank 1\n" and not (launch.logs / "worker_0.log").exists()


def test_runs_whose_logs_have_other_names_are_still_two_runs():
    """The scheduler's log has one name. A run of workers alone, of the same job, may be beside it."""
    with Launch("--worker_num=1", *JOINED, *shell("exec sleep 600")) as first:
        first.wait_for("the scheduler is here", timeout=10)
        ended = run("run", f"--log_dir={first.logs}", "--worker_num=1", "--worker_log_name=x", *JOINED, "true")
        assert ended.returncode == 1 and f"launcher {first.pid}" in ended.stderr
        assert not (first.logs / "x_0.log").exists()


# A rank table


def test_a_rank_table_gives_the_ranks(command, tmp_path):
    (tmp_path / "table.json").write_text(json.dumps(table()))
    words = ("--worker_num=4", *JOINED, "--tail_worker_log=0,2", f"--rank_table_file={tmp_path}/table.json")
    # The option beats the variables.
    env = {"RANK_TABLE_FILE": "/no/such/file", "MUSTER_RANK_TABLE_FILE": "/no/such/file"}
    with Launch(*words, WORKER, "leave", env=env, command=command) as launch:
        assert launch.wait(timeout=60) == 0
        assert [launch.log(f"worker_{rank}.log") for rank in range(4)] == [f"rank {rank} of 4\n" for rank in range(4)]
        assert sorted(launch.stdout.splitlines()) == ["[rank 0] rank 0 of 4", "[rank 2] rank 2 of 4"]


def test_a_rank_table_names_logs_and_gives_the_ranks_where_another_host_has_the_scheduler(tmp_path):
    """The first log is then a worker's, and has the lock of all."""
    (tmp_path / "table.json").write_text(json.dumps(table()))
    words = ("--worker_num=4", "--master_addr=192.0.2.1", f"--rank_table_file={tmp_path}/table.json")
    with Launch(*words, *shell("echo device $DEVICE_ID rank [$RANK_ID$MS_NODE_ID$RANK]; exec sleep 600")) as launch:
        assert launch.wait(timeout=30) == 0
        for device, rank in RANKS.items():
            launch.wait_for_log(f"worker_{rank}.log", rf"\Adevice {device} rank \[{rank}{rank}{rank}\]\n\Z")
        ended = run("run", f"--log_dir={launch.logs}", *words, "true")
        assert ended.returncode == 1 and "where another run is alive" in ended.stderr


@pytest.mark.parametrize(
    "content, said",
    [
        (None, "can't be read"),
        ("{", "which is not JSON as expected"),
        (json.dumps(table()), 'which has 4 ranks (devices of all servers), but worker_num is "2"'),
    ],
)
@pytest.mark.parametrize("named_by", ["--rank_table_file", "RANK_TABLE_FILE", "-x RANK_TABLE_FILE", "a dry run's RANK_TABLE_FILE"])
def test_a_rank_table_that_is_not_right_starts_nothing(named_by, content, said, tmp_path):
    path = tmp_path / "table.json"
    if content:
        path.write_text(content)
    name = named_by.split()[-1]
    words = {"--rank_table_file": [f"{name}={path}"], "-x RANK_TABLE_FILE": ["-x", f"{name}={path}"]}.get(named_by, [])
    mode = ["--sim_level=0"] if "dry" in named_by else []
    env = {} if words else {name: path}
    ended = run("run", f"--log_dir={tmp_path}/logs", "--worker_num=2", *JOINED, *words, *mode, "true", env=env)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f'muster: {name} is "{path}", which ' in ended.stderr
    assert said in ended.stderr or content is None, ended.stderr
    assert not (tmp_path / "logs").exists()


# A dry run


def test_what_a_dry_run_shows_can_be_run_by_a_shell_and_forms_the_cluster(tmp_path):
    (tmp_path / "table.json").write_text(json.dumps(table(ranks={"0": "1", "1": "0"})))
    words = ["run", "--worker_num=2", "--master_port=0", f"--log_dir={tmp_path}/new/my logs", "--sim_level=0", "-x", "COLOUR=sky blue",
             f"--rank_table_file={tmp_path}/table.json", "-x", "MUSTER_JOB_SECRET=hush"]
    # What the launcher takes out of its own environment is taken out of the shell's, too.
    env = {"MUSTER_NODE_ID": "contradicts", "RANK_ID": "7", "MUSTER_RANK_TABLE_FILE": "/no/such/file", "PYTHONUNBUFFERED": None}
    ended = run(*words, *shell(f'echo "$COLOUR"; exec python3 {WORKER} leave'), env=env)
    assert (ended.returncode, (tmp_path / "new").exists()) == (0, False), ended.stderr
    assert [line for line in ended.stdout.splitlines() if line.startswith("#")] == ["# the scheduler", "# worker 0", "# worker 1"]
    assert "PYTHONUNBUFFERED=1" in ended.stdout and "hush" not in ended.stdout + ended.stderr
    script = ended.stdout + "wait\n"
    subprocess.run(["sh", "-e"], input=script, text=True, env=clean_environment(env), timeout=60, check=True)
    logs = [(tmp_path / "new" / "my logs" / f"worker_{rank}.log").read_text() for rank in (0, 1)]
    assert logs == ["sky blue\nrank 0 of 2\n", "sky blue\nrank 1 of 2\n"]


@pytest.mark.parametrize("node_rank", [-1, 0, 124])
def test_a_dry_run_of_one_rank_of_a_large_job(node_rank, command, tmp_path):
    words = ["--worker_num=1024", "--local_worker_num=8", "--master_addr=192.0.2.1", "--sim_level", "1", "--sim_rank_id", "999"]
    core = min(os.sched_getaffinity(0))
    words += [f"--node_rank={node_rank}", "--bind_core", json.dumps({"device7": core}), "--log_dir=logs"]
    ended = subprocess.run([*command, *words, "sh", "a b"], env=clean_environment(), cwd=tmp_path, capture_output=True, text=True,
                           timeout=30)
    assert ended.returncode == 0, ended.stderr
    folder, first, *told, last = ended.stdout.splitlines()
    assert (folder, first) == ("mkdir -p -- logs", f"# worker 999, bound to core {core}")
    assert {"RANK_ID=999 \\", "DEVICE_ID=7 \\", "LOCAL_RANK=7 \\", "RANK_SIZE=1024 \\"} <= set(told)
    assert last == f"    taskset -c {core} sh 'a b' > logs/worker_999.log 2>&1 &"
    assert not (tmp_path / "logs").exists()


def test_a_dry_run_says_what_would_be_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = run("run", "--worker_num=1", f"--master_port={port}", "--sim_level=0", "true")
    assert taken.returncode == 1 and "in use" in taken.stderr
    missing = run("run", "--worker_num=1", "--master_port=0", "--sim_level=0", "no-such-program")
    assert missing.returncode == 127


@pytest.mark.parametrize("folder", ["file", "file/logs", "link", "/proc/nope", "/dev/null"])
def test_a_dry_run_and_a_run_refuse_the_same_folder(folder, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for more in ([], ["--sim_level=0"]):
        ended = run("run", "--worker_num=1", *JOINED, *more, f"--log_dir={tmp_path / folder}", "true")
        assert (ended.returncode, ended.stdout) == (1, "") and f'--log_dir is "{tmp_path / folder}", ' in ended.stderr, ended


@pytest.mark.parametrize("directory", ["/proc/nope", "file", "open"])
def test_a_dry_run_and_a_run_refuse_the_same_recovery_directory(directory, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    env = {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": str(tmp_path / directory)}
    for more in (["--sim_level=0"], []):
        ended = run("run", "--worker_num=1", *JOINED, *more, f"--log_dir={tmp_path}/logs", "true", env=env)
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        assert (tmp_path / "logs").exists() == (not more), "a dry run makes nothing"


def test_a_dry_run_and_a_run_refuse_the_same_interpreter(tmp_path):
    (tmp_path / "program").write_text("#!/no/such/interpreter\n")
    (tmp_path / "program").chmod(0o755)
    for more in ([], ["--sim_level=0"]):
        ended = run("run", "--worker_num=1", *JOINED, *more, f"--log_dir={tmp_path}/logs", tmp_path / "program")
        assert (ended.returncode, ended.stdout) == (127, ""), ended
    assert '/program" needs "/no/such/interpreter", which is no program' in ended.stderr


def test_a_dry_run_leaves_the_port_to_others():
    ended = run("run", "--worker_num=1", "--master_port=0", "--sim_level=2", "true")
    port = int(re.search(r"MS_SCHED_PORT=(\d+)", ended.stdout)[1])
    with socket.create_server(("127.0.0.1", port)):
        assert port in listening_ports(os.getpid())


def test_a_dry_run_that_is_led_outlives_the_end_of_all_others():
    """The launcher that leads tells it of that by a signal, at any time after it has heard the port."""
    reads, tells = os.pipe()
    led = [tells, 0, 1, 0, "--worker_num=1", "--master_port=0", "--sim_level=0", "--", "true"]
    with full_pipe() as path:
        takes_nothing = os.open(path, os.O_RDWR)  # so it is still there when the signal comes
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        words = [MUSTER, "host-part", "launch", *map(str, led)]
        with subprocess.Popen(words, env=clean_environment(), stdout=takes_nothing, pass_fds=[tells]) as process:
            os.close(tells)
            assert os.read(reads, 1) == b"P", "it tells its port"
            process.send_signal(signal.SIGUSR1)

            def has_ended():
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, 1 << 16)
                return process.poll() is not None

            until(has_ended, 60, "it ends once its output is read")
            assert process.returncode == 0
        for descriptor in (takes_nothing, reader, reads):
            os.close(descriptor)


# Help and slips


def test_help_has_headings_and_examples_that_are_right(command):
    name = "msrun" if len(command) == 1 else "muster run"
    page = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert page.startswith(f"Usage: {name} ")
    assert [heading for heading in ("Logs and output", "Cores and memory", "Dry run", "Examples") if f"\n\n{heading}:\n" not in page] == []
    examples = re.findall(rf"^  {name} (.*)$", page.partition("Examples:")[2], re.M)
    assert len(examples) > 4
    for words in examples:
        # Each is taken as it stands, and a shell takes its quotes; the programs, and other hosts, are not there.
        line = " ".join(str(word) for word in command) + f" {words}"
        ended = subprocess.run(["sh", "-c", line], env=clean_environment(), capture_output=True, text=True, timeout=30)
        absent = "2 of 2 hosts can't be used" if "-H " in words else "no such"
        assert ended.returncode == (1 if "-H " in words else 127) and absent in ended.stderr, (line, ended.stderr)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--worker-nums=2"], "did you mean --worker_num?"),
        (["--tail_log=0"], "did you mean --tail_worker_log?"),
        (["--log=x"], "there is no option --log; did you mean --log_dir?"),
        (["--sim=0"], "did you mean --sim_level or --sim_rank_id?"),
        (["--gpus=0"], "there is no option --gpus (options of the program come after its name)"),
        (["--sim_rank=0"], "did you mean --sim_rank_id?"),
        (["--join", "yes"], "--join yes"),
        (["--join", "y"], "write --join=True for what it may mean"),
        (["--join=yes"], '--join is "yes"; it must be True or False'),
        (["--tail_worker_log=0,9"], "--tail_worker_log has rank 9; the ranks are 0 to 7"),
        (["--tail_worker_log=0,-1"], "it must be ranks separated by commas, -1 for all, or none"),
        (["--sim_level=high"], '--sim_level is "high"; it must be 0 to 3'),
        (["--sim_rank_id=1"], "but without --sim_level"),
        (["--worker_log_name=../x"], "which has a slash"),
        (["--cluster_time_out", "2000000000"], "it must be a whole number of seconds from 1 to 1000000000, or a negative one for no limit"),
        (["--master_addr", "127.0.0.1:8118"], '--master_addr is "127.0.0.1:8118": expected a host name or an IP address'),
        (["--master_addr=a b"], '--master_addr is "a b": expected a host name or an IP address'),
        (["--worker_log_name=" + "x" * 300], "xx\", which makes a name of 300 bytes; it may have 240"),
        (["--bind_core"], "there is no program to run"),
    ],
)
def test_a_slip_is_answered_with_what_would_be_right(words, said, command, tmp_path):
    program = [] if said == "there is no program to run" else [str(tmp_path / "yes")]
    (tmp_path / "yes").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "yes").chmod(0o755)
    env = clean_environment({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    ended = subprocess.run([*command, f"--log_dir={tmp_path}/logs", "--master_port=0", *words, *program], env=env,
                           capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2 and said in ended.stderr, ended
    assert not (tmp_path / "ran").exists() and not (tmp_path / "logs").exists()


def test_output_that_nobody_will_show_is_a_warning():
    with Launch("--worker_num=1", "--master_port=0", "--tail_worker_log=0", *shell("exec sleep 600")) as launch:
        assert launch.wait(timeout=30) == 0
        assert "--tail_worker_log has no effect without --join" in launch.stderr
        os.kill(launch.child("worker 0"), signal.SIGTERM)
