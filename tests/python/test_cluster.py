"""The tests' own footing: deadlines hold, nothing is left running, and a failure shows what every process wrote."""

import os
import time

import pytest

from cluster import Cluster, Process, clean_environment

SLEEPER = ["sh", "-c", "echo started in role $MS_ROLE; echo trouble >&2; sleep 600 & echo child $!; wait"]


def is_running(pid):
    """Whether a process is alive; an orphan that nobody has reaped yet has ended all the same."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid):
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.01)


def test_a_deadline_names_who_is_still_running_and_nothing_stays_behind(capsys):
    with pytest.raises(AssertionError, match=r"still running after 0.1 s: scheduler, worker 0, worker 1"):
        with Cluster(SLEEPER, workers=2) as cluster:
            children = [int(p.wait_for(r"child (\d+)", timeout=10)[1]) for p in cluster.processes]
            cluster.wait(timeout=0.1)
    for pid in children:
        await_end(pid)
    shown = capsys.readouterr().out
    assert shown.count("started in role MS_WORKER") == 2 and shown.count("started in role MS_SCHED") == 1
    assert shown.count("trouble") == 3


def test_each_process_gets_its_settings_and_the_scheduler_the_listener():
    words = 'echo "$MS_ROLE $MS_WORKER_NUM $MS_SERVER_NUM $MS_NODE_ID $MUSTER_SCHED_FD $EXTRA"'
    check = f'{words}; test -z "$MUSTER_SCHED_FD" || test -S /proc/$$/fd/$MUSTER_SCHED_FD'
    with Cluster(["sh", "-c", check], workers=2, servers=1, env={"EXTRA": "x"}) as cluster:
        workers = cluster.succeed(timeout=10)
        assert [worker.stdout for worker in workers] == ["MS_WORKER 2 1 0  x\n", "MS_WORKER 2 1 1  x\n"]
        assert cluster.servers[0].stdout == "MS_PSERVER 2 1   x\n"
        assert cluster.scheduler.stdout.startswith("MS_SCHED 2 1  ")


def test_a_failed_process_is_named():
    with pytest.raises(AssertionError, match="'worker 0': 7"):
        with Cluster(["sh", "-c", "test $MS_ROLE = MS_SCHED || exit 7"]) as cluster:
            cluster.succeed(timeout=10)


def test_waiting_for_a_line_ends_with_the_process():
    with Process(["sh", "-c", "echo one; echo two >&2"]) as process:
        assert process.wait_for("tw.", timeout=10)[0] == "two"
        with pytest.raises(AssertionError, match="ended with 0 and never wrote 'three'"):
            process.wait_for("three", timeout=10)


def test_the_settings_of_an_outer_cluster_do_not_leak_in(monkeypatch):
    for name in ("MS_ROLE", "MUSTER_LOG", "RANK", "OMPI_COMM_WORLD_RANK", "DATA_PATH"):
        monkeypatch.setenv(name, "1")
    environment = clean_environment({"MS_ROLE": "MS_SCHED", "HOME": None})
    assert environment["MS_ROLE"] == "MS_SCHED"
    assert not {"MUSTER_LOG", "RANK", "OMPI_COMM_WORLD_RANK", "DATA_PATH", "HOME"} & environment.keys()
    assert environment["PATH"] == os.environ["PATH"]
