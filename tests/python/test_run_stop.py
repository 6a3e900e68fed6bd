"""`muster ps` and `muster stop`, and logs that an older run has left behind, or still writes."""

import os
import re
import signal
import socket
import subprocess

import pytest
from cluster import MUSTER, clean_environment, stop
from launch import Launch, until
from test_hosts import LEADS_HERE
from test_run_killed import runs

ONE_PORT = "--master_port=0"
TWO = ("--worker_num=2", ONE_PORT)
# It says when it is asked to end, and has a child of its own in another session that writes elsewhere.
ASKED = 'setsid sleep 600 >/dev/null 2>&1 & trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.05; done'


def shell(text):
    return ["--", "sh", "-c", text]


def muster(*words):
    return subprocess.run([MUSTER, *words], env=clean_environment(), capture_output=True, text=True, timeout=60)


def without_join(task, ready="ready"):
    """A run of two workers whose launcher has ended."""
    launch = Launch(*TWO, *shell(task))
    try:
        assert launch.wait(timeout=20) == 0
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", ready)
    except BaseException:
        launch.close()
        raise
    return launch


def test_ps_shows_each_run_its_logs_and_the_processes_that_came_of_it():
    with without_join(ASKED) as launch:
        scheduler, first, second = (int(line) for line in launch.stdout.splitlines())
        for words in (["ps"], ["ps", f"--log_dir={launch.logs}"]):
            ended = muster(*words)
            assert (ended.returncode, ended.stderr) == (0, "")
            block = re.search(rf"(?m)^{launch.logs}: launcher {launch.pid} on {socket.gethostname()}, scheduler's port \d+, .*\n((?:  .*\n)+)",
                              ended.stdout)
            rows = [line.split(maxsplit=1) for line in block[1].splitlines()]
            assert rows[0] == ["LOG", "PROCESSES         FOR"]
            assert [row[0] for row in rows[1:]] == ["scheduler.log", "worker_0.log", "worker_1.log", "others"]
            for (_, processes), pid in zip(rows[1:], (scheduler, first, second)):
                assert re.match(rf"{pid}\b.* \d+ s$", processes), rows
            assert len(rows[4][1].split(", ")) == 2, "what each has started, and that writes elsewhere"
        os.kill(second, signal.SIGKILL)
        until(lambda: not runs(second), 10, "one has ended")
        until(lambda: re.search(r"worker_1\.log +ended\n", muster("ps", f"--log_dir={launch.logs}").stdout), 20, "that is shown")


def test_ps_of_a_folder_without_a_run(tmp_path):
    ended = muster("ps", f"--log_dir={tmp_path}")
    assert (ended.returncode, ended.stdout) == (0, "no run lives here\n")
    ended = muster("ps", f"--log_dir={tmp_path}/none")
    assert ended.returncode == 1 and f'--log_dir is "{tmp_path}/none", which can\'t be read' in ended.stderr


def test_stop_asks_first_and_leaves_nothing_of_the_run_and_nothing_else_is_touched():
    with without_join(ASKED) as other, without_join(ASKED) as launch:
        stop(int(launch.stdout.splitlines()[1]))  # one stands still
        ended = muster("stop", f"--log_dir={launch.logs}", "--grace=20")
        assert ended.returncode == 0, ended.stderr
        launch.nothing_left()
        assert all(launch.log(f"worker_{rank}.log").splitlines()[-1] == "asked" for rank in range(2))
        assert "killed" not in ended.stderr and ended.stderr.endswith(f'the run in "{launch.logs}" has ended\n')
        assert len(other.descendants()) >= 5
        again = muster("stop", f"--log_dir={launch.logs}")
        assert again.returncode == 1 and f'no run lives in "{launch.logs}"' in again.stderr


def test_a_scheduler_that_is_left_alone_is_asked_and_named():
    with Launch("--worker_num=1", ONE_PORT, "true") as launch:
        assert launch.wait(timeout=20) == 0
        scheduler, worker = (int(line) for line in launch.stdout.splitlines())
        until(lambda: not runs(worker), 20, "the worker has ended")
        ended = muster("stop", f"--log_dir={launch.logs}")
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.splitlines()[0] == f"muster stop: asked to end: {scheduler}"
        launch.nothing_left()


@pytest.mark.parametrize("grace", ["0", "0.3"])
def test_workers_that_do_not_hear_are_killed_after_the_grace_and_only_then_is_the_scheduler_asked(grace):
    with without_join("trap '' TERM; env -i sleep 600 & echo ready; while :; do sleep 0.05; done") as launch:
        scheduler, *workers = launch.stdout.split()
        ended = muster("stop", f"--log_dir={launch.logs}", f"--grace={grace}")
        assert ended.returncode == 0, ended.stderr
        said = re.findall(r"(?m)^muster stop: (.*): ([\d, ]+)$", ended.stderr)
        # A fourth line would say that the scheduler was killed: it has a second, and the machine may be busy.
        assert [words for words, _ in said[:3]] == ["asked to end", "killed, for they had not ended", "asked to end"], ended.stderr
        asked, killed, last = (set(pids.split(", ")) for _, pids in said[:3])
        assert set(workers) <= asked and set(workers) <= killed and scheduler not in asked | killed, ended.stderr
        assert last == {scheduler}
        launch.nothing_left()


def test_a_run_with_join_is_ended_by_its_launcher():
    with Launch(*TWO, "--join", *shell(ASKED)) as launch:
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", "ready")
        assert "started with --join" in muster("ps", f"--log_dir={launch.logs}").stdout
        assert muster("stop", f"--log_dir={launch.logs}").returncode == 0
        assert launch.wait(timeout=20) == 128 + signal.SIGTERM
        launch.nothing_left()


@pytest.mark.parametrize("grace", ["soon", "-1", "1e9"])
def test_a_grace_that_is_none(grace, tmp_path):
    ended = muster("stop", f"--log_dir={tmp_path}", f"--grace={grace}")
    assert ended.returncode == 2 and f'--grace is "{grace}"; it must be seconds from 0 to 86400' in ended.stderr


# What is left of an older run


def test_what_an_older_run_left_behind_does_not_write_into_the_logs_of_the_next(tmp_path):
    task = shell('(while [ ! -e "$GO" ]; do sleep 0.02; done; echo of the older run; touch "$GO.done") & echo first')
    env = {"GO": tmp_path / "go"}
    with Launch("--worker_num=1", ONE_PORT, "--join", *task, env=env) as launch:
        assert launch.wait(timeout=30) == 0
        second = ["run", "--worker_num=1", ONE_PORT, "--join", f"--log_dir={launch.logs}"]
        lets_it_write = 'touch "$0"; while [ ! -e "$0.done" ]; do sleep 0.02; done; echo second'
        assert muster(*second, *shell(lets_it_write), tmp_path / "go").stdout == "second\n"
        assert launch.log("worker_0.log") == "second\n"


def test_logs_of_an_older_run_that_this_one_has_not_are_left_alone_and_named():
    with Launch("--worker_num=4", ONE_PORT, "--join", *shell("echo $RANK_ID")) as launch:
        assert launch.wait(timeout=30) == 0
        assert "of an older run" not in launch.stderr
        again = muster("run", "--worker_num=2", ONE_PORT, "--join", f"--log_dir={launch.logs}", "true")
        assert again.returncode == 0
        assert "muster: worker_2.log and 1 more in the folder of the logs are of an older run\n" in again.stderr
        assert [launch.log(f"worker_{rank}.log") for rank in range(4)] == ["", "", "2\n", "3\n"]


# A folder that launchers on several hosts share


def part(node_rank, port, folder, *task, host):
    """One launcher of a run of two hosts, on a host of that name."""
    sizes = ["--worker_num=2", "--local_worker_num=1", f"--node_rank={node_rank}", f"--master_port={port}", "--join"]
    where = "127.0.0.1" if node_rank == 0 else LEADS_HERE
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ("unshare", "--uts", *as_root, "sh", "-c", 'hostname "$0"; exec "$@"', host, MUSTER, "run")
    return Launch(*sizes, f"--master_addr={where}", f"--log_dir={folder}", *task, command=command)


def test_launchers_of_one_run_share_a_folder_and_a_second_run_is_refused_by_the_name_of_the_host(tmp_path):
    task = shell("echo $RANK_ID; exec sleep 600")
    with part(0, 0, tmp_path, *task, host="left") as left:
        port = left.wait_for(r"the scheduler is here: 127\.0\.0\.1 port (\d+)", 20)[1]
        with part(1, port, tmp_path, *task, host="right") as right:
            right.wait_for("the scheduler is on another host", 20)
            for rank in range(2):
                until((tmp_path / f"worker_{rank}.log").read_text, 20, "each has its log")
            shown = muster("ps", f"--log_dir={tmp_path}").stdout
            for host, launch in (("left", left), ("right", right)):
                assert re.search(rf"launcher {launch.pid} on {host}, .*\n  its processes are on host {host}\n", shown), shown
            with part(1, port, tmp_path, *task, host="third") as same:
                assert same.wait(timeout=20) == 1
                assert f"launcher {right.pid} on right" in same.stderr and "need --node_rank" in same.stderr, same.stderr
            refused = muster("run", "--worker_num=1", ONE_PORT, "--join", f"--log_dir={tmp_path}", "true")
            assert refused.returncode == 1 and f"launcher {left.pid} on left" in refused.stderr, refused.stderr
            ended = muster("stop", f"--log_dir={tmp_path}")
            assert ended.returncode == 1
            assert "a part of the run is on host left" in ended.stderr and "a part of the run is on host right" in ended.stderr
            assert left.returncode is None and right.returncode is None
        assert [(tmp_path / f"worker_{rank}.log").read_text() for rank in range(2)] == ["0\n", "1\n"]
