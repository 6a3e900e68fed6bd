"""`make demo` is what a newcomer types first: it shows that all is well in few lines, and ends with what came of it."""

import re

import pytest

from cluster import TARGET, TREE, Process

WORDS = r"rank {rank} of 4: .* accuracy on 359 held-back images: ([\d.]+) %, weights hash: ([0-9a-f]{{16}})$"
LINES_MAX = 40
# The make that runs these tests must not lend its own flags and job server.
NO_OUTER_MAKE = {"MAKEFLAGS": None, "MAKELEVEL": None, "MFLAGS": None}


# No process starts with these: the demo must set both by itself.
NOBODYS = {"MUSTER_ENABLE_SSL": "nobody's", "MUSTER_CONFIG_FILE_PATH": "nobody's"}


@pytest.mark.parametrize("words", [[], ["TLS=1"]])
def test_the_demo_shows_both_all_gathers_and_ends_with_equal_weights(words):
    with Process(["make", "demo", *words], {**NO_OUTER_MAKE, **(NOBODYS if words else {})}, cwd=TREE) as demo:
        assert demo.wait(timeout=300) == 0
        first, from_c, from_python, training = demo.stdout.split("--- ")
        assert ("all connections are encrypted" in first) == bool(words)
        for part in (from_c, from_python):
            assert part.count("[[0.], [1.], [2.], [3.]]\n") == 1
        assert training.endswith("the weights of the 4 ranks are equal, bit for bit\n")
        losses = re.findall(r"^epoch: (\d+), step: 0, loss is \d+\.\d{4}$", training, re.M)
        assert losses == [str(epoch) for epoch in range(20)]
        assert len((from_c + from_python + training).splitlines()) < LINES_MAX
        logs = [(TARGET / "demo" / "train_digits" / f"worker_{rank}.log").read_text() for rank in range(4)]
        ends = [re.search(WORDS.format(rank=rank), log, re.M) for rank, log in enumerate(logs)]
        assert len({end[2] for end in ends}) == 1
        assert all(float(end[1]) >= 95 for end in ends)
