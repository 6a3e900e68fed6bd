"""A training whose processes are killed, the scheduler too, ends with the weights of one in which nothing died. This is the
short version of `make chaos`."""

import re

import pytest

from cluster import TREE, Process

CHAOS = TREE / "scripts" / "chaos.py"


def chaos(*words):
    """The lines of the table, one for each kill."""
    with Process([CHAOS, *words]) as process:
        assert process.wait(timeout=150) == 0
        assert re.search(r"the weights \(\d+ bytes, on each of \d+ ranks\) are those of a training in which nothing died",
                         process.stdout)
        return [line for line in process.stdout.splitlines() if re.match(r" *\d+ +\d+  ", line)]


def test_workers_and_the_scheduler_are_killed_and_the_weights_are_the_same():
    # So many checkpoints that a rank writes one half of the time: 300 epochs take 1.3 s, and with a checkpoint every 50 steps
    # a stall of this test's own process was enough to miss all that were left.
    words = ("--epochs", "400", "--interval", "5")
    scheduler, both, save, end = chaos("--plan", "scheduler,both,save,end", "--seed", "1", *words)
    assert "scheduler  " in scheduler
    assert re.search(r"scheduler \+ rank \d ", both)
    assert "while it writes a checkpoint" in save
    # The end is over in milliseconds: a kill may come too late for it.
    seeds = ["2", "3", "4", "5"]
    while "at the end" not in end:
        assert "missed" in end and seeds, end
        end, = chaos("--plan", "end", "--seed", seeds.pop(0), *words)


def test_all_are_killed_at_once_and_one_while_another_is_awaited():
    at_once, first, second, child = chaos("--plan", "all,recover,child", "--epochs", "400", "--seed", "2")
    assert "scheduler + rank 0, 1, 2, 3" in at_once
    assert "in a step" in first and re.search("in muster_recover|in muster_init", second)
    assert "in a step, with a child" in child


def test_the_scheduler_and_a_rank_are_killed_under_tls():
    scheduler, both = chaos("--tls", "--plan", "scheduler,both", "--epochs", "300", "--seed", "3")
    assert "scheduler  " in scheduler
    assert re.search(r"scheduler \+ rank \d ", both)


@pytest.mark.parametrize("words, said", [
    (["--plan", "flood"], "--plan is 'flood'"),
    (["--ranks", "2"], "3 ranks or more"),
])
def test_what_cannot_be_is_said(words, said):
    with Process([CHAOS, *words]) as process:
        assert process.wait(timeout=30) == 2
        assert said in process.stderr
