"""`muster run` while the cluster forms, what it shows on a terminal, and workers that never join."""

import pathlib
import re
import signal
import socket
import subprocess

import pytest
from cluster import MUSTER, clean_environment, command_line, stop
from launch import Launch, until
from nodes import node
from terminal import Terminal

WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")
WORDS = ("--worker_num=3", "--master_port=0", "--join=True")
HOST = re.escape(socket.gethostname())
# Rank 2 comes when it is let, and all stay until they may go.
LATE = ["--", *command_line(node("""
    if os.environ["RANK_ID"] == "2":
        hold("go")
    c = join()
    print("hello from", c.rank, flush=True)
    hold("end")
    c.leave()
"""))]
FAR = rf"forming since [\d.]+ m?s: 2 of 3 workers have come; missing: rank 2; those that came: 2 from host {HOST}"


def test_a_terminal_shows_how_far_forming_is_and_then_each_ranks_output_in_its_colour(tmp_path):
    words = [MUSTER, "run", *WORDS, f"--log_dir={tmp_path}/logs", *LATE]
    with Terminal(words, env={"HOLD_FOLDER": tmp_path}) as terminal:
        terminal.wait_for(rf"\r\x1b\[Kmuster: {FAR}")
        seen = len(terminal.said)
        terminal.wait_for(rf"(?s).{{{seen}}}.*\r\x1b\[Kmuster: {FAR}")  # it goes on
        (tmp_path / "go").touch()
        terminal.wait_for(r"\r\x1b\[Kmuster: the cluster has formed\r\n")
        (tmp_path / "end").touch()
        assert terminal.wait() == 0
        colours = [re.search(rf"\x1b\[(\d+)m\[rank {rank}\]\x1b\[0m hello from {rank}\r\n", terminal.said) for rank in range(3)]
        assert len({colour[1] for colour in colours}) == 3


def test_a_row_of_a_narrow_terminal_is_cut(tmp_path):
    words = [MUSTER, "run", *WORDS, f"--log_dir={tmp_path}/logs", *LATE]
    with Terminal(words, env={"HOLD_FOLDER": tmp_path, "NO_COLOR": "1"}, columns=40) as terminal:
        row = terminal.wait_for(r"\r\x1b\[K(forming, [^\r]*)\r")[1]
        assert len(row) < 40 and row.endswith(".."), row
        (tmp_path / "go").touch()
        (tmp_path / "end").touch()
        assert terminal.wait() == 0
        assert "[rank 1] hello from 1" in terminal.said and "\x1b[3" not in terminal.said


def test_a_row_of_80_columns_has_room_for_the_hosts(tmp_path):
    words = [MUSTER, "run", *WORDS, f"--log_dir={tmp_path}/logs", *LATE]
    with Terminal(words, env={"HOLD_FOLDER": tmp_path}, columns=80) as terminal:
        row = terminal.wait_for(r"\r\x1b\[K(forming, [^\r]* from host [^\r]*)\r")[1]
        assert len(row) < 80 and re.search(r"\d of 3 workers, missing ranks? .*; (here|those that came:) \d from host ", row), row
        (tmp_path / "go").touch()
        (tmp_path / "end").touch()
        assert terminal.wait() == 0


def test_output_that_passes_through_another_program_meets_no_row(tmp_path):
    """It may come to the same terminal, and would end up behind what stands there."""
    script = f'{MUSTER} run {" ".join(WORDS)} --log_dir={tmp_path}/logs -- sh -c "sleep 2.5; echo said" | cat'
    with Terminal(["/bin/sh", "-c", script]) as terminal:
        assert terminal.wait() == 0
        assert terminal.said.count(" said\r\n") == 3 and "\r\x1b" not in terminal.said and "forming" not in terminal.said


def test_in_the_background_the_row_is_left_to_what_is_typed_there(tmp_path):
    run = f"{MUSTER} run {' '.join(WORDS)} --log_dir={tmp_path}/logs -- sh -c 'sleep 2.5; echo said'"
    with Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], env={"PS1": "$ "}) as terminal:
        terminal.type(f"set +o emacs; {run} & wait; exit 7\n".encode())
        assert terminal.wait() == 7
        assert terminal.said.count(" said\r\n") == 3 and "muster: forming" not in terminal.said


def test_elsewhere_there_are_plain_lines(tmp_path):
    with Launch(*WORDS, *LATE, env={"HOLD_FOLDER": tmp_path}) as launch:
        launch.wait_for(rf"(?m)^muster: {FAR}$", timeout=60)
        (tmp_path / "go").touch()
        launch.wait_for("muster: the cluster has formed\n", timeout=60)
        (tmp_path / "end").touch()
        assert launch.wait(timeout=30) == 0
        assert not re.search(r"[\r\x1b]", launch.stdout + launch.stderr)
        assert "[rank 1] hello from 1\n" in launch.stdout


@pytest.mark.parametrize("code, helper", [(0, ""), (0, "(setsid sleep 600 &); "), (3, "")])
def test_one_that_ends_without_joining_is_told_of_at_once_and_ends_the_wait_of_the_others(code, helper, tmp_path):
    """It ends once the scheduler has said that the two others wait: of one that ends before anybody waits that is not said. What the
    others have left in the background does not join in its place."""
    waits = 'while [ ! -e "$GO" ]; do sleep 0.02; done'
    task = ["--", "sh", "-c", f'if [ $RANK_ID = 1 ]; then {waits}; exit {code}; fi; {helper}exec python3 "$0" leave', WORKER]
    with Launch(*WORDS, *task, env={"GO": tmp_path / "go"}) as launch:
        launch.wait_for(r"the scheduler is here: \S+ port (\d+)", timeout=30)
        port = re.search(r"the scheduler is here: \S+ port (\d+)", launch.stderr)[1]
        asks = command_line([MUSTER, "status", f"--sched_port={port}"])
        # The launcher made a secret, which muster status finds.
        settings = {"env": clean_environment({"XDG_RUNTIME_DIR": launch.runtime}), "capture_output": True, "text": True, "timeout": 30}
        until(lambda: "2 of 3 workers have come" in subprocess.run(asks, **settings).stdout, 60, "two wait")
        (tmp_path / "go").touch()
        assert launch.wait(timeout=30) == max(code, 1), "long before the 600 s for forming are up"
        pid = launch.child("worker 1")
        said = rf"muster: worker 1 \(pid {pid}\) exited with code {code} without joining the cluster, for which (1 other waits|2 others wait)\n"
        assert re.search(said, launch.stderr), launch.stderr
        first = re.search(rf"muster: first failure: worker 1 \(pid {pid}\) exited with code {code}, .*, on host {HOST}\n(.*)\n", launch.stderr)
        assert first[1] == "    it ended without joining the cluster (muster_init), for which others waited"
        launch.nothing_left()


def test_what_a_script_has_left_behind_may_join_in_its_place():
    behind = 'if [ $RANK_ID = 1 ]; then sleep 1.5; exec python3 "$0" leave; fi'
    task = ["--", "sh", "-c", f'({behind}) & [ $RANK_ID = 1 ] || exec python3 "$0" leave', WORKER]
    with Launch(*WORDS, *task) as launch:
        assert launch.wait(timeout=60) == 0
        assert "without joining" not in launch.stderr
        assert launch.log("worker_0.log") == "rank 0 of 3\n"


def test_plain_programs_that_end_one_after_another_wait_for_nobody(tmp_path):
    task = ["--", "sh", "-c", 'if [ $RANK_ID != 0 ]; then exit 0; fi; while [ ! -e "$GO" ]; do sleep 0.02; done']
    with Launch(*WORDS, *task, env={"GO": tmp_path / "go"}) as launch:
        # The scheduler is asked about those that have ended: it was, when its answer had time to be heard twice.
        launch.wait_for_log("scheduler.log", r"(?s)forming since 3.*forming since 4", timeout=60)
        (tmp_path / "go").touch()
        assert launch.wait(timeout=30) == 0
        assert "without joining" not in launch.stderr


# Signals


@pytest.mark.parametrize("listens", [True, False])
def test_ctrl_c_asks_first_and_kills_after_the_grace_that_help_names(listens, tmp_path):
    assert "What has not ended 5 s later is killed" in " ".join(subprocess.check_output([MUSTER, "run", "--help"], text=True).split())
    trap = "trap 'echo asked; exit 0' TERM" if listens else "trap '' TERM"
    task = ["--", "sh", "-c", f"{trap}; echo ready; while :; do sleep 0.05; done"]
    with Terminal([MUSTER, "run", *WORDS, f"--log_dir={tmp_path}", *task]) as terminal:
        for rank in range(3):
            terminal.wait_for(rf"\[rank {rank}\]\S* ready")
        pid = terminal.wait_for(r"worker 1 has pid (\d+)")[1]
        scheduler = terminal.wait_for(r"the scheduler has pid (\d+)")[1]
        terminal.type(b"\x03")
        terminal.wait_for(r"signal 2 \(SIGINT\): all processes are asked to end, and killed after 5 s; a second signal kills")
        assert terminal.wait() == 128 + signal.SIGINT
        assert ("killed, for they had not ended: worker 0" in terminal.said) == (not listens), terminal.said
        assert listens or f"worker 1 (pid {pid}), worker 2" in terminal.said, terminal.said
        assert listens or f", the scheduler (pid {scheduler})\r\n" in terminal.said, terminal.said
        assert terminal.said.count("asked\r\n") == (3 if listens else 0)
        assert terminal.said.rstrip().endswith("stopped by signal 2 (SIGINT); all processes have ended")


def test_what_a_worker_has_left_behind_is_killed_after_the_grace_and_named():
    """The worker itself ends when it is asked. One of those that it has started is in its process group, and one in a session of its
    own."""
    deaf = "sh -c 'trap \"\" TERM; echo deaf $$; while :; do sleep 0.05; done' &"
    with Launch("--worker_num=1", *WORDS[1:], "--", "sh", "-c", f"{deaf} setsid {deaf} wait") as launch:
        launch.wait_for_log("worker_0.log", r"(?s)deaf.*deaf \d+\n")
        pids = re.findall(r"deaf (\d+)\n", launch.log("worker_0.log"))
        launch.signal(signal.SIGTERM)
        assert launch.wait(timeout=30) == 128 + signal.SIGTERM
        named = [rf"a process of worker 0 \(pid {pid}\)" for pid in pids]
        said = rf"muster: killed, for they had not ended: ({', '.join(named)}|{', '.join(named[::-1])})(, the scheduler .*)?\n"
        assert re.search(said, launch.stderr), launch.stderr
        launch.nothing_left()


def test_a_worker_that_is_stopped_hears_that_it_is_asked_to_end():
    task = ["--", "sh", "-c", "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]
    with Launch(*WORDS, *task) as launch:
        for rank in range(3):
            launch.wait_for_log(f"worker_{rank}.log", "ready")
        stop(launch.child("worker 1"))
        launch.signal(signal.SIGTERM)
        assert launch.wait(timeout=30) == 128 + signal.SIGTERM
        assert launch.log("worker_1.log").splitlines()[-1] == "asked"
        assert "killed, for they had not ended" not in launch.stderr
        launch.nothing_left()


def test_a_worker_that_is_stopped_does_not_hold_up_the_end_after_a_failure(tmp_path):
    task = ["--", "sh", "-c", "echo ready; if [ $RANK_ID = 2 ]; then while [ ! -e \"$GO\" ]; do sleep 0.02; done; exit 5; fi; exec sleep 600"]
    with Launch(*WORDS, *task, env={"GO": tmp_path / "go"}) as launch:
        for rank in range(3):
            launch.wait_for_log(f"worker_{rank}.log", "ready")
        stop(launch.child("worker 1"))
        stop(launch.child("the scheduler"))
        (tmp_path / "go").touch()
        assert launch.wait(timeout=20) == 5
        assert "first failure: worker 2" in launch.stderr
        launch.nothing_left()
