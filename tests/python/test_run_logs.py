"""What `muster run` shows of its workers, and the folder of their logs: what each stream has, and that no two runs share it."""

import os
import re
import signal
import socket
import stat
import subprocess

import pytest
from cluster import MUSTER, clean_environment
from launch import Launch, until
from test_run import JOINED, ONE_PORT, run, shell


def test_logs_begin_anew_and_have_both_streams():
    with Launch("--worker_num=1", *JOINED, *shell("echo out; echo err >&2")) as launch:
        assert launch.wait(timeout=20) == 0
        again = [MUSTER, "run", "--worker_num=1", *JOINED, f"--log_dir={launch.logs}", *shell("echo new; echo err >&2")]
        subprocess.run(again, env=clean_environment(), check=True, capture_output=True, timeout=20)
        assert launch.log("worker_0.log") == "new\nerr\n"
        assert launch.log("scheduler.log") == ""


def test_others_may_read_logs_at_most_whatever_the_umask(tmp_path):
    logs = tmp_path / "new" / "logs"
    assert run("run", f"--log_dir={logs}", "--worker_num=2", *JOINED, "true", umask=0).returncode == 0
    files = sorted(logs.iterdir())
    assert {"scheduler.log", "worker_0.log", "worker_1.log"} <= {path.name for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}, files
    assert {stat.S_IMODE(path.stat().st_mode) for path in (logs, logs.parent)} == {0o755}


def second_run(folder, *words):
    return run("run", "--worker_num=1", *JOINED, f"--log_dir={folder}", *words)


def test_a_second_run_in_the_folder_of_a_live_one_is_refused_and_touches_nothing():
    with Launch("--worker_num=1", *JOINED, *shell("echo first; exec sleep 600")) as launch:
        launch.wait_for("first", timeout=20)
        refused = second_run(launch.logs, "echo", "second")
        assert refused.returncode == 1
        for part in [f"launcher {launch.pid} on {socket.gethostname()}", "worker_0.log", "give this one another --log_dir"]:
            assert part in refused.stderr
        dry = second_run(launch.logs, "--sim_level=0", "true")
        assert (dry.returncode, dry.stdout) == (1, "") and "another run is alive" in dry.stderr, "a dry run says so, too"
        assert launch.log("worker_0.log") == "first\n"
        # Killed, it leaves nothing that is in the way.
        launch.kill()
        launch.popen.wait()
        assert second_run(launch.logs, "echo", "second").stdout == "second\n"
        assert launch.log("worker_0.log") == "second\n"
        assert "second" not in launch.stdout


def test_without_join_the_children_keep_their_folder_until_the_last_has_ended():
    with Launch("--worker_num=1", ONE_PORT, "sleep", "600") as launch:
        assert launch.wait(timeout=20) == 0
        scheduler, worker = (int(line) for line in launch.stdout.splitlines())
        os.kill(scheduler, signal.SIGKILL)
        until(lambda: launch.descendants() == [worker], 10, "only the worker is left")
        refused = second_run(launch.logs, "true")
        assert refused.returncode == 1 and f"alive in {worker}" in refused.stderr
        os.kill(worker, signal.SIGKILL)
        launch.nothing_left(timeout=10)
        assert second_run(launch.logs, "echo", "second").stdout == "second\n"


def test_what_a_run_that_ended_well_has_left_behind_is_no_run():
    with Launch("--worker_num=1", *JOINED, *shell("setsid sleep 600 & echo first")) as launch:
        assert launch.wait(timeout=30) == 0
        assert launch.descendants() != []
        assert second_run(launch.logs, "echo", "second").stdout == "second\n"


def test_python_files_run_under_python3_unbuffered(tmp_path):
    program = tmp_path / "a.py"
    # It only has to be there: it is killed with its test.
    program.write_text("import sys, time\nprint(sys.argv[1:])\nwhile True:\n    time.sleep(600)\n")
    with Launch("--worker_num=1", *JOINED, program, "--join", "x") as launch:
        launch.wait_for_log("worker_0.log", re.escape("['--join', 'x']"))


def test_the_only_worker_shown_is_passed_on_as_it_is():
    task = shell("printf \"prompt $RANK_ID> \"; exec sleep 600")
    with Launch("--worker_num=2", "--tail_worker_log=1", *JOINED, *task) as launch:
        launch.wait_for("prompt 1> ", timeout=10)
        launch.signal(signal.SIGTERM)
        launch.wait(timeout=20)
        assert launch.stdout == "prompt 1> "


@pytest.mark.parametrize(
    "words, shown", [([], {0, 1, 2}), (["--tail_worker_log=0,2"], {0, 2}), (["--tail_worker_log=none"], set())]
)
def test_several_workers_are_shown_in_whole_lines(words, shown):
    """Each writes its lines in small pieces; none may end up within another's."""
    text = "for i in $(seq 200); do printf \"line $i \"; printf \"of $RANK_ID\"; echo; done; printf end"
    with Launch("--worker_num=3", *words, *JOINED, *shell(text)) as launch:
        assert launch.wait(timeout=30) == 0
        lines = launch.stdout.splitlines()
        for rank in shown:
            mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
            expected = [*(f"line {i} of {rank}" for i in range(1, 201)), "end"]
            assert mine == [f"[rank {rank}] {line}" for line in expected]
        assert len(lines) == 201 * len(shown)


def test_output_is_shown_while_it_comes():
    with Launch("--worker_num=2", *JOINED, *shell("echo step $RANK_ID; exec sleep 600")) as launch:
        launch.wait_for(r"\[rank 0\] step 0", timeout=10)
        launch.wait_for(r"\[rank 1\] step 1", timeout=10)


def test_a_reader_who_has_gone_away_does_not_end_the_run(tmp_path):
    task = shell("seq 100000; echo done >&2; exit 6")
    command = [MUSTER, "run", "--worker_num=1", *JOINED, f"--log_dir={tmp_path}", *task]
    process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.close()
    assert process.wait(timeout=30) == 6
    assert (tmp_path / "worker_0.log").read_text().endswith("100000\ndone\n")


def test_a_reader_who_does_not_read_holds_up_nobody(tmp_path):
    """The workers are stopped in time; only what is still to be shown waits, and a signal ends that too."""
    task = shell("seq 1000000; if [ $RANK_ID = 1 ]; then echo $$ > pid; exec sleep 600; fi;"
                 "while [ ! -s pid ]; do sleep 0.01; done; exit 6")
    command = [MUSTER, "run", "--worker_num=2", *JOINED, f"--log_dir={tmp_path}", *task]
    process = subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    with process:
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 20, "the worker's pid"))
        until(lambda: not os.path.exists(f"/proc/{pid}"), 20, "the other worker is stopped")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 6
