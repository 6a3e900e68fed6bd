"""Torch's own cases for its CPU backends pass on muster: those that torch_cases.txt lists as such; and it lists them all."""

import re
import subprocess

import pytest

from cluster import TREE, clean_environment
from torches import fetch_torch, python

HERE = TREE / "tests" / "python"
# The names by section: the part that muster plays, with the number of ranks, or why they are left out.
SECTIONS = {title: names.split() for title, names in re.findall(r"^\[(.*)\]\n((?:test_\w+\n)+)", (HERE / "torch_cases.txt").read_text(), re.M)}
PASSING = [title for title in SECTIONS if not title.startswith("left out: ")]
TIMEOUT_S = 1800


def cases(folder, version, backend, ranks, *names):
    """What the program of the cases says, line by line, and what its ranks have said beside."""
    env = clean_environment(fetch_torch.installed(folder))
    command = [python(version), HERE / "programs" / "torch_cases.py", backend, ranks, *names]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    return [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("test_")], done.stderr


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
@pytest.mark.parametrize("section", PASSING)
def test_torchs_own_cases(tmp_path, section, version):
    told, errors = cases(tmp_path, version, *section.split(), *SECTIONS[section])
    assert dict(told) == dict.fromkeys(SECTIONS[section], "ok"), errors[-5000:]


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_no_case_is_left_out_without_a_reason(tmp_path, version):
    there, errors = cases(tmp_path, version, "gloo", "3")
    listed = sorted(name for names in SECTIONS.values() for name in names)
    assert listed == sorted(name for name, in there), errors[-5000:]


def test_the_page_counts_them():
    page = (TREE / "docs" / "pytorch.md").read_text()
    passing = sum(len(SECTIONS[section]) for section in PASSING)
    counts = [int(number) for number in re.findall(r"^\| (\d+) \| [A-Z]", page, re.M)]
    assert f"the {passing + sum(counts)} of its" in page and f"On each version {passing} run" in page
    assert passing + sum(counts) == sum(map(len, SECTIONS.values()))
