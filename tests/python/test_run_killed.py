"""A launcher with --join that is killed, with no time to do anything: all that came of its run ends, too."""

import os
import pathlib
import signal

import pytest
from cluster import MUSTER
from launch import Launch, environment_of, until

JOINED = ("--worker_num=2", "--master_port=0", "--join=True")
# Children of a worker: in its group without an environment, in a group of its own that hears nothing, and one whose parent has ended.
FAMILY = (
    "env -i sleep 600 & echo has $!; trap '' TERM; setsid sh -c 'echo has $$; while :; do sleep 600; done' & "
    "(setsid sh -c 'echo has $$; exec sleep 600' &); sleep 600 & echo has $!; wait"
)


def shell(text):
    return ["--", "sh", "-c", text]


def family(launch, rank):
    """The four processes that a worker has started."""
    def found():
        return [int(line.split()[1]) for line in launch.log(f"worker_{rank}.log").splitlines() if line.startswith("has ")]

    until(lambda: len(found()) == 4, 20, "a worker has started four processes")
    return found()


def runs(pid):
    """Whether it has not ended; a zombie has."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def keepers(launch):
    children = pathlib.Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"--keeper" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize("whom", ["the launcher", "its process group"])
def test_children_of_children_end_with_a_launcher_that_is_killed(whom):
    with Launch(*JOINED, *shell(FAMILY)) as launch:
        pids = [*family(launch, 0), *family(launch, 1), launch.child("worker 0"), launch.child("the scheduler")]
        keeper, = keepers(launch)
        assert all(runs(pid) for pid in [*pids, keeper])
        kill = os.kill if whom == "the launcher" else os.killpg
        kill(launch.pid, signal.SIGKILL)
        assert launch.wait(timeout=20) == -signal.SIGKILL
        until(lambda: not [pid for pid in [*pids, keeper] if runs(pid)], 20, "all have ended, the keeper last")
        launch.nothing_left()


def test_a_run_within_a_run_ends_with_the_outer_launcher(tmp_path):
    inner = f'exec {MUSTER} run --log_dir="$INNER" --worker_num=1 --master_port=0 --join -- sh -c "env -i sleep 600 & echo has \\$!; wait"'
    task = shell(f"if [ $RANK_ID = 0 ]; then {inner}; fi; exec sleep 600")
    with Launch(*JOINED, *task, env={"INNER": tmp_path}) as launch:
        launch.wait_for_log("worker_0.log", r"has \d+")
        worker, other = launch.child("worker 0"), launch.child("worker 1")
        pid = int(launch.wait_for_log("worker_0.log", r"has (\d+)")[1])
        assert runs(pid) and runs(other) and environment_of(worker)["INNER"] == str(tmp_path)
        launch.kill()
        launch.wait(timeout=20)
        until(lambda: not [one for one in (pid, worker, other) if runs(one)], 20, "the inner run has ended, too")


def test_the_next_life_is_kept_too(tmp_path):
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path, "ONCE": tmp_path / "once"}
    task = shell(f'if [ $RANK_ID = 0 ] && [ ! -e "$ONCE" ]; then touch "$ONCE"; exit 3; fi; {FAMILY}')
    with Launch("--max_restarts=1", *JOINED, *task, env=env) as launch:
        launch.wait_for("restart 1 of 1 has pid", 20)
        pids = [*family(launch, 0), *family(launch, 1)]
        launch.kill()
        launch.wait(timeout=20)
        until(lambda: not [pid for pid in pids if runs(pid)], 20, "all have ended")


def test_a_keeper_that_is_killed_ends_nothing(tmp_path):
    with Launch(*JOINED, *shell('while [ ! -e "$GO" ]; do sleep 0.02; done'), env={"GO": tmp_path / "go"}) as launch:
        launch.wait_for("the scheduler is here", 20)
        keeper, = keepers(launch)
        os.kill(keeper, signal.SIGKILL)
        until(lambda: not runs(keeper), 20, "it has ended")
        (tmp_path / "go").touch()
        assert launch.wait(timeout=20) == 0


def test_what_a_job_that_ended_well_has_left_behind_goes_on():
    with Launch(*JOINED, *shell("setsid sleep 600 & echo done")) as launch:
        assert launch.wait(timeout=20) == 0
        assert len(launch.descendants()) == 2
