"""`make bench-peers`: each peer in memory prints medians and means; one that fails, or hangs, costs its cases and not the run; the
run ends in time; pages are what the templates and the figures say."""

import pathlib
import re
import sys
import tempfile
import time

import pytest

from cluster import TREE

sys.path.append(str(TREE / "scripts"))
import fetch_mpi  # noqa: E402
from bench import memory, programs  # noqa: E402
from bench.page import Page  # noqa: E402
from bench.passes import Plan, Run  # noqa: E402
from bench.raw import Raw, Writer  # noqa: E402

TEMPLATES = TREE / "scripts" / "bench"
CASES = [(collective, "", 64) for collective in ("allreduce", "allgather", "broadcast", "reduce_scatter")] + [("barrier", "", 0)]
EXACT = [("allreduce", "bfloat16", 64), ("allreduce", "bfloat16_exact", 64)]
# Many times what a job of two ranks takes on a busy machine.
PATIENCE_S = 100


@pytest.fixture
def folder():
    """One whose name is short: Open MPI has sockets in it."""
    with tempfile.TemporaryDirectory(prefix="peers-", dir="/tmp") as made:
        yield pathlib.Path(made)


@pytest.mark.parametrize("program", [*memory.OURS, *memory.PEERS])
def test_a_program_in_memory_tells_medians_and_means(program, folder):
    programs.check_build()
    if program in memory.OURS:
        programs.build_muster_peer()
    elif not fetch_mpi.is_there(memory.LAUNCHERS[program]):
        pytest.skip(f"{memory.LAUNCHERS[program]} is not installed: make mpi")
    else:
        memory.build([program.partition("_sleep")[0]])
    cases = CASES + (EXACT if program in memory.OURS else [])
    rows, failure = memory.launch(program, 2, cases, folder, 0.002, PATIENCE_S)
    assert failure is None, failure
    assert [(row["collective"], row["algorithm"], int(row["bytes"])) for row in rows] == cases
    for row in rows:
        assert row["ranks"] == "2" and int(row["iterations"]) >= 5, row
        assert 0 < float(row["p50_rank0_us"]) <= float(row["p50_us"]), row
        assert 0 < float(row["mean_rank0_us"]) <= float(row["mean_us"]), row
    assert not list(folder.glob("logs-*")), "logs of a launch are left"


# Prints a line for each case, and has its way with the one of 1024 bytes.
PEER = """#!/bin/sh
echo collective,ranks,bytes,iterations,p50_rank0_us,p50_us,mean_rank0_us,mean_us
for case in "$@"; do
    [ "$case" != allreduce:1024 ] || {way}
    echo "${{case%:*}},2,${{case#*:}},5,1,2,3,4"
done
"""
SOME = [("allreduce", "", size) for size in (8, 1024, 65536)]


def stories(tmp_path, monkeypatch, way, minutes=5):
    """A run whose peer is a script."""
    script = tmp_path / "peer"
    script.write_text(PEER.format(way=way))
    script.chmod(0o755)
    monkeypatch.setattr(memory, "command", lambda program, ranks, folder: ([script], {}))
    run = Run(Plan(quick=True, parts=("memory",)), Writer(tmp_path / "raw.csv", {}), {"mpich"}, minutes)
    run.folder = tmp_path
    return run


def sizes_of(tmp_path, number):
    return [row["bytes"] for row in Raw(tmp_path / "raw.csv").rows if row["pass"] == number]


def test_a_peer_that_fails_costs_the_case_and_not_the_run(tmp_path, monkeypatch):
    run = stories(tmp_path, monkeypatch, "{ echo it broke >&2; exit 3; }")
    run.launch(1, 2, "mpich", "mpich", SOME)
    run.launch(2, 2, "mpich", "mpich", SOME)
    assert sizes_of(tmp_path, 1) == sizes_of(tmp_path, 2) == [8, 65536]
    told, = Raw(tmp_path / "raw.csv").facts["failed"]
    assert told == "pass 1, 2 ranks, mpich: allreduce:1024: mpich -n 2 failed with 3: it broke"
    assert run.failures == 0, "it is not ours"


def test_a_peer_that_hangs_is_ended_and_what_it_had_said_counts(tmp_path, monkeypatch):
    run = stories(tmp_path, monkeypatch, "sleep 600")
    monkeypatch.setattr("bench.passes.LAUNCH_LIMIT_S", 3)
    run.launch(1, 2, "mpich", "mpich", SOME)
    assert sizes_of(tmp_path, 1) == [8]
    told, = Raw(tmp_path / "raw.csv").facts["failed"]
    assert "allreduce:1024" in told and "took more than" in told


def test_no_turn_begins_that_would_end_too_late(tmp_path, monkeypatch):
    run = stories(tmp_path, monkeypatch, "true", minutes=0)
    run.turn(lambda *_: pytest.fail("it began"), 1, 2)
    assert run.left_out == 1
    run.deadline = time.monotonic() + 60
    begun = []

    def turn(number, what):
        begun.append(what)

    run.turn(turn, 1, 2)
    run.longest["turn", 4] = 1000
    run.turn(turn, 1, 4)
    assert begun == [2] and run.left_out == 2


def test_a_run_has_the_parts_and_ranks_that_are_wanted():
    run = Run(Plan(quick=False, parts=("memory", "exact"), ranks=[2, 7]), None, set(), 1)
    assert [(call.__name__, what) for call, what in run.turns(1)] == [("memory", 2), ("memory", 7), ("exact", 2)]
    whole = Run(Plan(quick=False), None, set(), 1)
    assert {what for call, what in whole.turns(1) if call.__name__ == "memory"} == {2, 3, 4, 7, 8}
    assert len(whole.plan.memory_cases(1)) == 25 and len(whole.plan.memory_cases(2)) == 19


def figures(tmp_path):
    raw = Writer(tmp_path / "raw.csv", {"passes": 3})
    programs_us = {"shm_floor": 10, "muster_memory": 12, "openmpi_memory": 30, "mpich": 24, "muster_tcp": 50}
    for number in (1, 2, 3):
        for program, us in programs_us.items():
            row = {"collective": "allreduce", "ranks": 2, "bytes": 65536, "p50_rank0_us": us * number, "mean_rank0_us": us * number * 2}
            raw.rows([row], **{"pass": number, "beside": 2, "program": program, "run": 1})
        for kind, us in (("", 10), ("_exact", 14)):
            row = {"collective": "allreduce", "algorithm": "float32" + kind, "ranks": 2, "bytes": 64 << 20, "p50_us": us * number,
                   "mean_us": us * number}
            raw.rows([row], **{"pass": number, "beside": 2, "program": "exact_memory", "run": 1})
    raw.close()
    return Page(Raw(tmp_path / "raw.csv"))


def test_the_tables_have_ratios_of_one_pass(tmp_path):
    page = figures(tmp_path)
    line = page.made["memory_ratios"].splitlines()[-1]
    assert line.startswith("| allreduce of 64 KiB | 2 | 1.20 (1.20 to 1.20); at most 1.30: met | MPICH: 2.00 (2.00 to 2.00); met | 1.20")
    assert "| 20.0 / 40.0 | 24.0 / 48.0 |" in page.made["memory"]
    assert "| memory | 2 | 64 MiB | float32 | 20.0 / 20.0 | 28.0 / 28.0 | 1.40 (1.40 to 1.40) | 1.40" in page.made["exact"]
    assert "at most 1.5: met" in page.made["exact"]
    assert page.made["expect_memory"].splitlines()[-1] == "| 64 KiB | 24.0 |"
    assert page.made["summary"].startswith("5 of 5 targets")


@pytest.mark.parametrize("template", [TEMPLATES / "performance.in.md", *sorted((TEMPLATES / "measurements").glob("*.in.md"))],
                         ids=lambda path: path.name)
def test_a_page_is_its_template_filled(tmp_path, template):
    folder = TREE / "docs" if template.parent == TEMPLATES else TREE / "docs" / "measurements"
    page = (folder / template.name.replace(".in.md", ".md")).read_text()
    prose = re.split(r"<!-- table: \w+ -->", template.read_text())
    assert re.fullmatch(".+".join(map(re.escape, prose)), page, re.S), f"{template.name} and its page differ: --from-raw makes it"
    assert "<!--" not in figures(tmp_path).fill(template.read_text())
