"""Torch's own cases for its CPU backends, those of torch_cases.txt, pass on muster."""

import subprocess

import fetch_torch
from cluster import TREE, clean_environment
from torches import python

HERE = TREE / "tests" / "python"
NAMES = (HERE / "torch_cases.txt").read_text().split()
TIMEOUT_S = 1800


def test_torchs_own_cases(tmp_path):
    env = clean_environment(fetch_torch.installed(tmp_path))
    command = [python(fetch_torch.VERSIONS[-1]), HERE / "programs" / "torch_cases.py", "3", *NAMES]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("test_"))
    assert told == dict.fromkeys(NAMES, "ok"), done.stderr[-5000:]
