"""The blocks of docs/tutorial.md, one after another, as a reader pastes them; and the kills that it invites to."""

import os
import re
import signal

import pytest
from cluster import reserved_port
from launch import until
from pages import Page, compiles, paste, prepare

TUTORIAL = Page("docs", "tutorial.md")
PROGRAM, = TUTORIAL.programs
BUILD, ALONE, FOUR, KILLED, SAFE, STATUS, ENCRYPTED = TUTORIAL.commands
SAID_ALONE, SAID_FOUR, SAID_KILLED, SAID_SAFE, SAID_ENCRYPTED = (block.splitlines() for block in TUTORIAL.outputs)
# What `make build` makes is there.
MAKE, PATH = BUILD.splitlines(keepends=True)
LIMIT = 120


@pytest.fixture
def folder(tmp_path):
    return prepare(tmp_path, counter=PROGRAM)


def runs(commands, folder, port):
    with paste(PATH + commands, folder, port) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        return shell.stdout + shell.stderr


def says(text, lines):
    """Each line of the page is there, but for process ids, the host, the step at which a kill came, and the line's end."""
    for line in lines:
        pattern = re.sub(r"pid \d+", r"pid \\d+", re.escape(line).replace("\\ ", " ").replace("myhost", r"\S+"))
        pattern = re.sub(r"rank 0, step \d+", r"rank 0, step \\d+", pattern)
        assert re.search("^" + pattern, text, re.M), (line, text)


def test_the_program_compiles_without_a_warning(folder):
    compiles(folder, "counter", "-D_DEFAULT_SOURCE")


def test_the_blocks_do_what_the_page_says_and_kills_lose_no_step(folder):
    assert MAKE == "make build\n"
    with reserved_port() as port:
        says(runs(ALONE, folder, port), SAID_ALONE)
        says(runs(FOUR, folder, port), SAID_FOUR)
        with paste(PATH + KILLED, folder, port) as job:
            await_step(folder / "state" / "four" / "1", 40, job)
            kill(2, job)
            assert job.wait(LIMIT) == 137, job.describe()
            says(job.stdout + job.stderr, SAID_KILLED)
        with paste(PATH + SAFE, folder, port) as job:
            await_step(folder / "state" / "safe" / "1", 40, job)
            assert ": running: 4 workers\n" in runs(STATUS, folder, port)
            for worker, step in ((2, 80), (0, 400)):
                await_step(folder / "state" / "safe" / "1", step, job)
                victim = kill(worker, job)
                job.wait_for(rf"worker {worker} \(pid {victim}\) was ended by signal 9.*; restart 1 of 3 has pid", LIMIT)
            assert job.wait(LIMIT) == 0, job.describe()
            says(job.stdout + job.stderr, SAID_SAFE)
        says(runs(ENCRYPTED, folder, port), SAID_ENCRYPTED)


@pytest.mark.parametrize("damage, why", [
    (lambda state: (state / "2").unlink(), "it does not have the newest step that all ranks have"),
    (lambda state: (state / "2.new").mkdir(), "it cannot save its state"),
], ids=["gone", "not saved"])
def test_a_state_that_is_gone_or_cannot_be_saved_ends_the_job(folder, damage, why):
    with reserved_port() as port:
        runs(ALONE + FOUR, folder, port)
        damage(folder / "state" / "four")
        with paste(PATH + FOUR.replace("state/four", "state/four 600"), folder, port) as job:
            assert job.wait(LIMIT) == 1, job.describe()
            assert re.search(rf"rank \d: {why}$", job.stdout + job.stderr, re.M), job.describe()


def await_step(path, step, job):
    """Rank 1, which nobody kills, has come so far in this job. (An earlier job's file is gone when this one starts.)"""
    job.wait_for(r"worker 3 has pid", LIMIT)
    until(lambda: path.exists() and int.from_bytes(path.read_bytes()[16:24], "little") >= step, LIMIT, f"step {step}")
    assert job.returncode is None, job.describe()


def kill(worker, job):
    victim = int(job.wait_for(rf"worker {worker} has pid (\d+)", LIMIT)[1])
    os.kill(victim, signal.SIGKILL)
    return victim
