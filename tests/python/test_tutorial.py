"""The blocks of docs/tutorial.md, one after another, as a reader pastes them; and the kills that it invites to."""

import os
import signal

import pytest
from cluster import reserved_port
from launch import until
from pages import Page, compiles, paste, prepare

TUTORIAL = Page("docs", "tutorial.md")
PROGRAM, = TUTORIAL.programs
BUILD, ALONE, FOUR, SAFE = TUTORIAL.commands
# What `make build` makes is there.
MAKE, PATH = BUILD.splitlines(keepends=True)
LIMIT = 120


@pytest.fixture
def folder(tmp_path):
    return prepare(tmp_path, counter=PROGRAM)


def runs(commands, folder, port):
    with paste(PATH + commands, folder, port) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        return shell.stdout


def test_the_program_compiles_without_a_warning(folder):
    compiles(folder, "counter", "-D_DEFAULT_SOURCE")


def test_the_blocks_do_what_the_page_says_and_kills_lose_no_step(folder):
    assert MAKE == "make build\n"
    with reserved_port() as port:
        assert runs(ALONE, folder, port) == "300 steps on 1 ranks: the sum is 300\n"
        assert "300 steps on 4 ranks: the sum is 3000\n" in runs(FOUR, folder, port)
        with paste(PATH + SAFE, folder, port) as job:
            for worker, step in ((2, 40), (0, 400)):
                victim = int(job.wait_for(rf"worker {worker} has pid (\d+)", LIMIT)[1])
                await_step(folder / "state" / "safe" / "1", step, job)
                os.kill(victim, signal.SIGKILL)
                job.wait_for(rf"worker {worker} \(pid {victim}\) was ended by signal 9.*; restart 1 of 3 has pid", LIMIT)
            assert job.wait(LIMIT) == 0, job.describe()
            assert "3000 steps on 4 ranks: the sum is 30000\n" in job.stdout


def await_step(path, step, job):
    """A rank that nobody kills is so far."""
    until(lambda: path.exists() and int.from_bytes(path.read_bytes()[16:24], "little") >= step, LIMIT, f"step {step}")
    assert job.returncode is None, job.describe()
