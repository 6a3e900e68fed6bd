"""The blocks of docs/tutorial.md, one after another, as a reader pastes them; and the kills that it invites to."""

import os
import re
import signal
import subprocess

import pytest
from cluster import TREE, Process, reserved_port
from launch import until

TEXT = (TREE / "docs" / "tutorial.md").read_text()
PROGRAM, = re.findall(r"```c\n(.*?)```", TEXT, re.S)
BUILD, ALONE, FOUR, SAFE = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
STRICT = ["-std=c99", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
LIMIT = 120


@pytest.fixture
def folder(tmp_path):
    for name in ("include", "target"):
        (tmp_path / name).symlink_to(TREE / name)
    (tmp_path / "counter.c").write_text(PROGRAM)
    return tmp_path


def paste(commands, folder, port):
    """A shell that runs them, with a port that nobody else has. What `make build` makes is there."""
    export = "".join(line for line in BUILD.splitlines(True) if line.startswith("export"))
    return Process(["bash", "-euo", "pipefail", "-c", (export + commands).replace("8118", str(port))], name="shell", cwd=folder)


def runs(commands, folder, port):
    with paste(commands, folder, port) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        return shell.stdout


def test_the_program_compiles_without_a_warning(folder):
    subprocess.run(["cc", *STRICT, "-fsyntax-only", "-Iinclude", "counter.c"], cwd=folder, check=True, timeout=LIMIT)


def test_the_blocks_do_what_the_page_says_and_kills_lose_no_step(folder):
    assert BUILD.splitlines()[0] == "make build"
    with reserved_port() as port:
        assert runs(ALONE, folder, port) == "300 steps on 1 ranks: the sum is 300\n"
        assert "300 steps on 4 ranks: the sum is 3000" in runs(FOUR, folder, port)
        with paste(SAFE, folder, port) as job:
            for worker, step in ((2, 40), (0, 80)):
                victim = int(job.wait_for(rf"worker {worker} has pid (\d+)", LIMIT)[1])
                await_step(folder / "state" / "safe" / "1", step, job)
                os.kill(victim, signal.SIGKILL)
                job.wait_for(rf"worker {worker} \(pid {victim}\) was ended by signal 9.*; restart 1 of 3 has pid", LIMIT)
            assert job.wait(LIMIT) == 0, job.describe()
            assert "300 steps on 4 ranks: the sum is 3000" in job.stdout


def await_step(path, step, job):
    """A rank that nobody kills is so far."""
    until(lambda: path.exists() and int.from_bytes(path.read_bytes()[16:24], "little") >= step, LIMIT, f"step {step}")
    assert job.returncode is None, job.describe()
