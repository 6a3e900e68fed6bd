"""A few rounds of `make storm`, by fixed seeds, so that the storm itself keeps working; and that it finds what it must: each fault
that is planted in it ends it with the words of the check that is to see it."""

import pytest

from cluster import TREE, Process

STORM = TREE / "scripts" / "storm.py"


def storm(*words):
    """Exit code and output."""
    with Process([STORM, "--seed", "19", *words]) as process:
        code = process.wait(timeout=300)
        return code, process.stdout + process.stderr


@pytest.mark.parametrize("words", [
    ["--mode", "run", "--kinds", "both,launcher,worker", "--blows", "3"],
    ["--mode", "hand", "--kinds", "two,scheduler,stop-worker", "--blows", "3"],
    ["--mode", "plain-hand", "--kinds", "worker"],
])
def test_random_work_under_blows(words):
    code, said = storm("--rounds", "1", *words)
    assert code == 0, said
    assert "1 rounds, " in said and "struck: " in said


PLANTED = {
    "result": "a wrong result of",
    "message": "has come with other contents",
    "add": "it must be from",
    "write": "it must be from",
    "hang": "a planted call, for ",
    "log": "a thread panicked, as planted",
    "orphan": "is left 10 s after the job has ended",
    "exit": "ended with 9, it must be",
    "leak": "with no group but the built-in ones there are",
    "culprit": "somebody is called lost whom nobody struck",
}


@pytest.mark.parametrize("fault, words", PLANTED.items())
def test_a_planted_fault_is_found(fault, words):
    mode, kind = ("plain-hand", "none") if fault in ("exit", "log", "orphan") else ("hand", "worker")
    limit = ["--limit", "6"] if fault == "hang" else []
    code, said = storm("--rounds", "1", "--mode", mode, "--kinds", kind, "--blows", "1", "--plant", fault, *limit)
    assert code == 1 and words in said, said
    assert "scripts/storm.py --seed 19 --round 1 --node_timeout " in said


def test_what_cannot_be_is_said():
    code, said = storm("--kinds", "flood")
    assert code == 2 and "--kinds is 'flood'" in said
