"""The order of folding in docs/protocol.md is enough to compute what a call gives, over TCP and through memory.

The orders are in programs/folding.py, written anew from the page. The operation is neither commutative nor associative: every other order
gives something else.
"""

import pytest

from cluster import Cluster
from nodes import said
from packaged import packaged

ROOT = 1
MOST = 1 << 30

LINES = """
import numpy as np
from folding import (circulant, equal_parts, halves, halves_from_the_root, inwards, mix, mixed, pairwise, ring, towards_the_root,
                     upward)

def of(rank):
    return np.random.default_rng(rank).integers(0, 1 << 63, COUNT, np.uint64)

def expected(order, size, lengths):
    begin, parts = 0, []
    for block, length in enumerate(lengths):
        parts.append(order([of(rank)[begin:begin + length] for rank in range(size)], mixed, ROOT, block))
        begin += length
    return parts

c = muster.init()
w, rank, size = c.world, c.rank, c.size
equal = equal_parts(COUNT, size)
usual, strict = (c.operation(mix, commutative=each) for each in (True, False))
for op, (of_allreduce, of_reduce, of_scatter) in ((usual, USUAL), (strict, STRICT)):
    for call in range(6):  # the first three of the group go over TCP
        got = w.allreduce(of(rank), op=op)
        assert np.array_equal(got, np.concatenate(expected(of_allreduce, size, equal))), ("allreduce", call, of_allreduce)
        got = w.reduce(of(rank), op=op, root=ROOT)
        assert rank != ROOT or np.array_equal(got, expected(of_reduce, size, [COUNT])[0]), ("reduce", call, of_reduce)
        got = w.reduce_scatterv(of(rank), equal, op=op)
        assert np.array_equal(got, expected(of_scatter, size, equal)[rank]), ("reduce_scatterv", call, of_scatter)
say(ended=True)
c.finalize()
"""

NO_TREE = {"allreduce_tree_ranks": MOST, "allreduce_doubling_bytes": 0}
CASES = {
    "few bytes": (
        {**NO_TREE, "allreduce_gather_bytes": MOST, "reduce_binomial_bytes": MOST, "reduce_scatter_circulant_bytes": MOST},
        "upward, halves_from_the_root, circulant", "upward, halves, upward"),
    "a tree": (
        {"allreduce_tree_ranks": 2, "allreduce_tree_bytes": MOST, "reduce_binomial_bytes": 0, "reduce_scatter_circulant_bytes": 0},
        "halves, towards_the_root, pairwise", "halves, inwards, upward"),
    "many bytes": (
        {**NO_TREE, "allreduce_gather_bytes": 0, "allreduce_halving_bytes": 0, "allreduce_circulant_bytes": MOST,
         "reduce_binomial_bytes": 0, "reduce_scatter_circulant_bytes": 0},
        "circulant, towards_the_root, pairwise", "upward, inwards, upward"),
    "more bytes": (
        {**NO_TREE, "allreduce_gather_bytes": 0, "allreduce_halving_bytes": 0, "allreduce_circulant_bytes": 0,
         "reduce_binomial_bytes": 0, "reduce_scatter_circulant_bytes": 0},
        "ring, towards_the_root, pairwise", "upward, inwards, upward"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [4, 5])
def test_a_call_gives_what_the_page_says(name, size):
    thresholds, usual, strict = CASES[name]
    env = {"MUSTER_THRESHOLDS": ",".join(f"{key}={number}" for key, number in thresholds.items())}
    lines = LINES.replace("COUNT", "1003").replace("ROOT", str(ROOT)).replace("USUAL", f"({usual})").replace("STRICT", f"({strict})")
    with Cluster(packaged(lines), workers=size, env=env) as cluster:
        for worker in cluster.succeed(120):
            assert said(worker)["ended"]
