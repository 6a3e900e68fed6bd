"""The out-of-band all-gather, which drives its plain functions in every order that such an interface allows."""

import pytest

from cluster import EXAMPLES, Cluster, Process

PROGRAM = [EXAMPLES / "oob_allgather"]


def line(rank, size):
    # Rank 0 has started and tested three before anybody else started: none of them may have been done, or have waited.
    early = 3 if rank == 0 and size > 1 else 0
    return (
        f"rank {rank} of {size}: one after another, 6 in flight, {early} tested before the others had started: all right\n"
    )


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_every_order(workers):
    with Cluster(PROGRAM, workers=workers) as cluster:
        for rank, worker in enumerate(cluster.succeed(timeout=60)):
            assert worker.stdout == line(rank, workers)


def test_alone_without_any_setting():
    with Process(PROGRAM) as alone:
        assert alone.wait(timeout=30) == 0
        assert alone.stdout == line(0, 1)
