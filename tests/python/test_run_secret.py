"""The secret that `muster run` makes by itself: which processes find it, and that others do not."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from cluster import MUSTER, Cluster, Process, clean_environment, command_line
from launch import until
from nodes import node, said

LIMIT = 60
WORKS = "c = join(); say(ranks=c.world.allgather(c.rank)); c.leave()"
WAITS = "c = join(); say(rank=c.rank); sys.stdout.flush(); time.sleep(60); c.leave()"


def status(port, env):
    words = [MUSTER, "status", f"--sched_port={port}"]
    return subprocess.run(words, env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT)


def a_run(tmp_path, env, *more, workers=2):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    words = ["run", "--join", "--worker_num", str(workers), "--master_port", "0", "--log_dir", "logs", *more]
    return Process([MUSTER, *words, sys.executable, *node(WAITS)], {"XDG_RUNTIME_DIR": runtime, **env}, cwd=tmp_path)


def port_of(run):
    return int(run.wait_for(r"the scheduler is here: \S+ port (\d+)", LIMIT).group(1))


def test_workers_of_a_scheduler_elsewhere_get_none_that_it_cannot_know(tmp_path):
    tells = "import os, sys; sys.stdout.write(f'secret: {os.environ.get(\"MUSTER_JOB_SECRET\")}')"
    elsewhere = ["--master_addr", "192.0.2.1", "--master_port", "1024"]  # an address for documents, of no host
    words = ["run", "--join", "--worker_num", "1", "--log_dir", "logs", *elsewhere, sys.executable, "-c", tells]
    with Process([MUSTER, *words], {"XDG_RUNTIME_DIR": tmp_path}, cwd=tmp_path) as run:
        run.wait(LIMIT)
        assert (tmp_path / "logs" / "worker_0.log").read_text() == "secret: None", run.describe()


@pytest.mark.parametrize("env", [{}, {"MUSTER_JOB_SECRET_FILE": ""}])  # an empty variable counts as unset
def test_status_finds_the_secret_and_others_do_not(env, tmp_path):
    with a_run(tmp_path, env) as run:
        port = port_of(run)
        kept = tmp_path / "runtime" / "muster" / f"secret-{port}"
        secret = kept.read_text().split()[0]
        assert re.fullmatch("[0-9a-f]{64}", secret)
        assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
        told = status(port, {"XDG_RUNTIME_DIR": tmp_path / "runtime"})
        assert told.returncode == 0, told.stderr
        told = status(port, {"XDG_RUNTIME_DIR": tmp_path})
        assert told.returncode == 4 and "MUSTER_JOB_SECRET" in told.stderr
        for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert secret.encode() not in line.read_bytes()
            except OSError:
                pass
        logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
        assert secret not in logs + run.stderr + run.stdout
        run.signal(15)
        run.wait(LIMIT)
    assert not kept.exists()


@pytest.mark.parametrize("recovery", [False, True])
def test_a_worker_started_by_hand_finds_it(recovery, tmp_path):
    """In the place of one that does not join. With recovery it needs no folder of the user's."""
    program = f"[ $RANK_ID = 1 ] && exec sleep {LIMIT}; exec {shlex.join(map(str, command_line(node(WORKS))))}"
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"} if recovery else {}
    words = ["run", "--join", "--worker_num", "2", "--master_port", "0", "--log_dir", "logs", "--tail_worker_log", "0", "--"]
    own = {"XDG_RUNTIME_DIR": tmp_path / ("elsewhere" if recovery else "runtime"), **env}
    (tmp_path / "runtime").mkdir(mode=0o700)
    launch = {"XDG_RUNTIME_DIR": tmp_path / "runtime", **env}
    with Process([MUSTER, *words, "sh", "-c", program], launch, cwd=tmp_path) as run:
        # A name, and not an address, of this host.
        job = {"MS_SCHED_HOST": "LocalHost", "MS_SCHED_PORT": port_of(run), "MS_WORKER_NUM": 2, "MS_ROLE": "MS_WORKER",
               "MS_NODE_ID": 1}
        with Process(node(WORKS), {**job, "XDG_RUNTIME_DIR": tmp_path}) as stranger:
            assert stranger.wait(LIMIT) == 1 and said(stranger)["error"] == "REJECTED", stranger.describe()
        with Process(node(WORKS), {**job, **own}) as worker:
            assert worker.wait(LIMIT) == 0 and said(worker)["ranks"] == [0, 1], worker.describe()
        run.signal(15)
        run.wait(LIMIT)


def test_what_the_launcher_says_of_a_workers_end_is_proved_and_taken(tmp_path):
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery", "MUSTER_LOG": "info"}
    with a_run(tmp_path, env, "--max_restarts", "1") as run:
        pid = int(run.wait_for(r"worker 1 has pid (\d+)", LIMIT).group(1))
        log = tmp_path / "logs" / "scheduler.log"
        until(lambda: "the cluster is complete" in log.read_text(), LIMIT, "a cluster")
        os.kill(pid, 9)
        said = until(lambda: re.search(f"a launcher at .* says of process {pid} on ", log.read_text()), LIMIT, "its word")
        assert "stranger" not in said.string, said.string
        run.signal(15)
        run.wait(LIMIT)


def test_one_that_is_set_or_turned_off_is_left_alone(tmp_path):
    for env, works in (({"MUSTER_JOB_SECRET": ""}, {}), ({"MUSTER_JOB_SECRET": "ours"}, {"MUSTER_JOB_SECRET": "ours"})):
        with a_run(tmp_path, env) as run:
            port = port_of(run)
            assert not (tmp_path / "runtime" / "muster" / f"secret-{port}").exists()
            told = status(port, {"XDG_RUNTIME_DIR": tmp_path / "runtime", **works})
            assert told.returncode == 0, told.stderr
            run.signal(15)
            run.wait(LIMIT)


def test_under_recovery_it_lies_in_the_recovery_directory_and_stays_the_same(tmp_path):
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    seen = []
    for _ in range(2):
        with a_run(tmp_path, env) as run:
            port_of(run)
            kept = tmp_path / "recovery" / "job-secret"
            assert kept.stat().st_mode & 0o777 == 0o600
            assert kept.parent.stat().st_mode & 0o777 == 0o700
            seen.append(kept.read_text())
            run.signal(15)
            run.wait(LIMIT)
    assert seen[0] == seen[1] != ""


def test_a_directory_that_all_may_change_is_refused_before_the_secret_is_put_there(tmp_path):
    recovery = tmp_path / "recovery"
    recovery.mkdir()
    recovery.chmod(0o777)
    with a_run(tmp_path, {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": recovery}) as run:
        assert run.wait(LIMIT) != 0
        assert str(recovery) in run.stderr and "chmod o-w" in run.stderr, run.describe()
    assert list(recovery.iterdir()) == []


def test_nodes_and_status_find_what_lies_in_the_recovery_directory_of_an_earlier_run(tmp_path):
    recovery = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    (tmp_path / "recovery").mkdir(mode=0o700)
    left = tmp_path / "recovery" / "job-secret"
    left.write_text("left by an earlier run\n")
    left.chmod(0o600)
    with Cluster(node(WAITS), workers=1, env=recovery) as cluster:
        cluster.workers[0].wait_for('"rank"', LIMIT)
        assert status(cluster.port, {"XDG_RUNTIME_DIR": tmp_path, **recovery}).returncode == 0
        assert status(cluster.port, {"XDG_RUNTIME_DIR": tmp_path}).returncode == 4


def test_a_runs_end_leaves_the_next_runs_file(tmp_path):
    with a_run(tmp_path, {}) as run:
        port = port_of(run)
        kept = tmp_path / "runtime" / "muster" / f"secret-{port}"
        until(kept.exists, LIMIT, "the run shows its secret")
        kept.write_text("the next run's\n1 1\n")
        run.signal(15)
        run.wait(LIMIT)
    assert kept.read_text() == "the next run's\n1 1\n"


def test_a_scheduler_at_another_address_with_the_same_port_gets_no_proof(tmp_path):
    """The run's scheduler listens at 127.0.0.1 alone."""
    with a_run(tmp_path, {}) as run:
        port = port_of(run)
        until((tmp_path / "runtime" / "muster" / f"secret-{port}").exists, LIMIT, "the run shows its secret")
        env = {"XDG_RUNTIME_DIR": tmp_path / "runtime", "MS_SCHED_HOST": "127.0.0.2", "MS_SCHED_PORT": port, "MS_WORKER_NUM": 1}
        with Process([MUSTER, "scheduler"], {**env, "MS_ROLE": "MS_SCHED"}) as scheduler:
            with Process(node(), {**env, "MS_ROLE": "MS_WORKER"}) as worker:
                assert worker.wait(LIMIT) == 0, worker.describe()
            assert scheduler.wait(LIMIT) == 0, scheduler.describe()
        assert status(port, {"XDG_RUNTIME_DIR": tmp_path / "runtime"}).returncode == 0
        run.signal(15)
        run.wait(LIMIT)


def test_a_folder_of_anothers_is_not_used(tmp_path):
    (tmp_path / "runtime" / "muster").mkdir(parents=True)
    os.chmod(tmp_path / "runtime" / "muster", 0o777)
    with a_run(tmp_path, {}) as run:
        port = port_of(run)
        run.wait_for("the run's secret can't be kept in", LIMIT)
        assert status(port, {"XDG_RUNTIME_DIR": tmp_path / "runtime"}).returncode == 4
        run.signal(15)
        run.wait(LIMIT)
