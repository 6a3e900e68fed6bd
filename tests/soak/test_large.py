"""A large cluster on a small machine."""

from cluster import Cluster
from nodes import node, said

RANKS = 256

LINES = """
    c = join()
    say(sum=c.world.allreduce([c.rank])[0], descriptors=len(os.listdir("/proc/self/fd")))
    c.world.barrier()
    c.leave()
"""


def test_256_processes_form_reduce_and_leave():
    with Cluster(node(LINES), workers=RANKS, env={"MS_CLUSTER_TIMEOUT": "300"}) as cluster:
        cluster.succeed(timeout=500)
        words = [said(worker) for worker in cluster.workers]
    assert [each["rank"] for each in words] == list(range(RANKS))
    assert {each["sum"] for each in words} == {RANKS * (RANKS - 1) / 2}
    # A link to each of log2(256) peers, and not to all: what a process has otherwise is a dozen or two.
    assert max(each["descriptors"] for each in words) < 50, max(each["descriptors"] for each in words)
