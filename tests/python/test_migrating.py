"""docs/migrating.md: our names in it are the header's, and its programs do on four workers what they say."""

import re

import pytest

from cluster import reserved_port
from pages import Page, compiles, paste, prepare
from test_c_api_doc import header

PAGE = Page("docs", "migrating.md")
HALVES, TURNS = PAGE.programs
BUILD_AND_RUN, = PAGE.commands
PATH = "export PATH=$PWD/target/release:$PATH\n"
LIMIT = 120


def runs(folder, name):
    """What four workers print, in order."""
    with reserved_port() as port, paste(PATH + BUILD_AND_RUN.replace("halves", name), folder, port) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        return sorted(re.sub(r"^\[rank \d\] ", "", line) for line in shell.stdout.splitlines())


@pytest.fixture
def folder(tmp_path):
    return prepare(tmp_path, halves=HALVES, turns=TURNS)


def test_our_names_are_those_of_the_header():
    names = set(re.findall(r"\b(?:muster|MUSTER)_\w+", PAGE.text))
    assert len(names) > 80
    assert sorted(names - set(re.findall(r"\b(?:muster|MUSTER)_\w+", header()))) == []


def test_every_row_says_what_becomes_of_a_call():
    rows = [line for line in PAGE.text.splitlines() if line.startswith("| ") and "---" not in line]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(rows) > 100
    assert [row for row in cells if len(row) != 3 or not row[0] or not row[1]] == []
    assert [row for row in cells if row[1] == "none" and not row[2]] == []


def test_halves_add_up_and_messages_come_from_the_left(folder):
    compiles(folder, "halves")
    sums, size = [1, 1, 5, 5], 4
    assert runs(folder, "halves") == [
        f"rank {rank}: my half adds up to {sums[rank]}, that of rank {(rank - 1) % size} to {sums[rank - 1]}" for rank in range(size)
    ]


def test_one_rank_is_first_and_all_wait_for_all(folder):
    compiles(folder, "turns")
    assert runs(folder, "turns") == ["another rank was first"] * 3 + ["one rank was first"]
