"""The secret that `muster run` makes by itself: who finds it, and that others do not."""

import os
import pathlib
import re
import subprocess
import sys

from cluster import MUSTER, Process, clean_environment
from nodes import node

LIMIT = 60
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


def test_status_finds_the_secret_and_others_do_not(tmp_path):
    with a_run(tmp_path, {}) as run:
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
            seen.append(kept.read_text())
            run.signal(15)
            run.wait(LIMIT)
    assert seen[0] == seen[1] != ""


def test_a_folder_of_anothers_is_not_used(tmp_path):
    (tmp_path / "runtime" / "muster").mkdir(parents=True)
    os.chmod(tmp_path / "runtime" / "muster", 0o777)
    with a_run(tmp_path, {}) as run:
        port = port_of(run)
        run.wait_for("the run's secret can't be kept in", LIMIT)
        assert status(port, {"XDG_RUNTIME_DIR": tmp_path / "runtime"}).returncode == 4
        run.signal(15)
        run.wait(LIMIT)
