"""Nobody is called lost who only waits for a processor."""

import os

from cluster import Cluster
from nodes import node, said

MINUTES = float(os.environ.get("MUSTER_SOAK_MINUTES", 10))
OVERSUBSCRIBED = 4

LINES = f"""
    c = join()
    end = time.monotonic() + {60 * MINUTES}
    steps, over = 0, 0
    while not over:
        busy = time.monotonic() + 0.05
        while time.monotonic() < busy:
            pass
        over = c.world.allreduce([int(c.rank == 0 and time.monotonic() >= end)])[0]
        steps += 1
    say(steps=steps, epoch=c.epoch)
    c.leave()
"""


def test_nobody_is_lost_while_processors_are_oversubscribed_fourfold():
    ranks = OVERSUBSCRIBED * os.cpu_count()
    with Cluster(node(LINES), workers=ranks, env={"MS_NODE_TIMEOUT": "2"}) as cluster:
        cluster.succeed(timeout=60 * MINUTES + 120)
        words = [said(worker) for worker in cluster.workers]
    assert {each["epoch"] for each in words} == {1}
    assert min(each["steps"] for each in words) > 60 * MINUTES
