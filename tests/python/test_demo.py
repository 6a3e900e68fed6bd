"""`make demo` is what a newcomer types first: it shows every rank at work, and ends well."""

import re

from cluster import TREE, Process


def test_the_demo_shows_the_progress_of_all_ranks_and_both_all_gathers():
    # The make that runs these tests must not lend its own flags and job server.
    outer = {"MAKEFLAGS": None, "MAKELEVEL": None, "MFLAGS": None}
    with Process(["make", "-C", TREE, "demo"], outer) as demo:
        assert demo.wait(timeout=300) == 0
        training, from_c, from_python = demo.stdout.split("--- all-gather of the rank, ")
        assert len(re.findall(r"epoch: 0, step: 10, loss is \d+\.\d{4}$", training, re.M)) == 4
        hashes = re.findall(r"rank ([0-3]) of 4: .* weights hash: ([0-9a-f]{16})$", training, re.M)
        assert sorted(rank for rank, _ in hashes) == ["0", "1", "2", "3"]
        assert len({value for _, value in hashes}) == 1
        for part in (from_c, from_python):
            assert part.count("[[0.], [1.], [2.], [3.]]\n") == 1
