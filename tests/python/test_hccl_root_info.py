"""HCCL's root info reaches every rank whole. Against a stub: HCCL is in no package registry, and needs a device."""

import re

from cluster import EXAMPLES, Cluster

PROGRAM = [EXAMPLES / "hccl_root_info"]
STUB = EXAMPLES / "stubs" / "hccl"
RANKS = 4


def test_every_rank_joins_the_communicator(tmp_path):
    with Cluster(PROGRAM, workers=RANKS, env={"LD_LIBRARY_PATH": STUB, "TMPDIR": tmp_path}) as cluster:
        workers = cluster.succeed(timeout=60)
        assert [worker.stdout for worker in workers] == [
            f"rank {rank} of {RANKS}: the root info came whole, and the sum on device {rank} is right\n" for rank in range(RANKS)
        ]
    assert not list(tmp_path.iterdir()), "the root info was not used up"


def test_a_wrong_sum_is_told_with_its_element(tmp_path):
    """The numbers are small: 4 ranks add up to 10 times the rest of 10 by 7. With greater ones the sums of many ranks would be rounded."""
    env = {"LD_LIBRARY_PATH": STUB, "TMPDIR": tmp_path, "HCCL_STUB_WRONG": 10}
    with Cluster(PROGRAM, workers=RANKS, env=env) as cluster:
        workers = cluster.wait(timeout=60)
        assert [worker.returncode for worker in workers] == [1] * RANKS
        assert any("element 10 of the sum is 31, not 30" in worker.stderr for worker in workers)


def test_where_the_root_info_cannot_be_made_all_ranks_end_and_say_why(tmp_path):
    """Like a host on which HCCL finds no network: rank 0 fails, and the others, which wait for its broadcast, are told."""
    with Cluster(PROGRAM, workers=RANKS, env={"LD_LIBRARY_PATH": STUB, "TMPDIR": tmp_path / "not there"}) as cluster:
        workers = cluster.wait(timeout=60)
        assert [worker.returncode for worker in workers] == [1] * RANKS
        assert "rank 0: HcclGetRootInfo(&info) returned 1" in workers[0].stderr
        for worker in workers[1:]:
            assert re.search(r"muster_broadcast: .*HcclGetRootInfo\(&info\) returned 1", worker.stderr)
