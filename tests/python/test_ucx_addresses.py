"""UCX's worker addresses are exchanged by an all-gather, and messages go from rank to rank over UCX."""

import re
import signal

import pytest

from cluster import Cluster
from example_options import usage_is_told
from optional import example

RANKS = 4
OVER_TCP = {"UCX_NET_DEVICES": "lo", "UCX_TLS": "self,tcp", "UCX_LOG_LEVEL": "fatal"}
OVER_MEMORY = {**OVER_TCP, "UCX_TLS": "self,tcp,posix"}
DONE = re.compile(r"rank (\d) of 4: (\d+) bytes of addresses, messages of up to 1048576 bytes passed on: all right\n")


@pytest.fixture(scope="session")
def program():
    return example("ucx_addresses", "UCX")


def bytes_of_addresses(cluster):
    found = [DONE.fullmatch(worker.stdout) for worker in cluster.succeed(timeout=120)]
    assert [match[1] for match in found] == [str(rank) for rank in range(RANKS)]
    lengths = {int(match[2]) for match in found}
    assert len(lengths) == 1
    return lengths.pop()


def test_messages_go_around_the_ring(program):
    with Cluster([program], workers=RANKS, env=OVER_TCP) as cluster:
        shorter = bytes_of_addresses(cluster)
    with Cluster([program], workers=RANKS, env=OVER_MEMORY) as cluster:
        longer = bytes_of_addresses(cluster)
    assert shorter < longer


def test_addresses_may_differ_in_length(program):
    """A rank that also offers shared memory has a longer address."""
    with Cluster([program], workers=RANKS, started=0, env=OVER_TCP) as cluster:
        for rank in range(RANKS):
            cluster.start_worker(OVER_MEMORY if rank == 1 else {})
        assert bytes_of_addresses(cluster) % RANKS != 0


@pytest.mark.parametrize("words", [("--lose",), ("--lose", "abc"), ("--lose", "1x"), ("--lose", ""), ("--lose", "-1"), ("2",)])
def test_a_wrong_option_is_refused(program, words):
    usage_is_told(program, words, "[--lose RANK]")


def test_a_rank_that_there_is_not_cannot_be_lost(program):
    with Cluster([program, "--lose", 2], workers=2, env=OVER_TCP) as cluster:
        workers = cluster.wait(timeout=60)
        assert [worker.returncode for worker in workers] == [1, 1]
        assert any(f"ucx_addresses: rank {rank}: --lose 2: the ranks are 0 to 1" in workers[rank].stderr for rank in range(2))


def test_a_wait_for_a_lost_rank_ends_with_its_name(program):
    with Cluster([program, "--lose", 2], workers=RANKS, env=OVER_TCP) as cluster:
        workers = cluster.wait(timeout=120)
        assert workers[2].returncode == -signal.SIGKILL
        for rank in (0, 1, 3):
            assert workers[rank].returncode == 1
            assert re.search(rf'rank {rank}: \w+: rank 2 \(node id "2", .* is lost', workers[rank].stderr)
