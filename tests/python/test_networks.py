"""Nodes on hosts that have more than one address, when the network between some of these goes."""

import contextlib

from cluster import MUSTER, Process
from networks import Hosts
from nodes import await_joined, node, said

LIMIT = 60
PORT = 8118  # of a network of the test's own

# `over()` are the peers' addresses to which this node has a link that stands.
LINES = """
    def over():
        rows = [line.split() for line in pathlib.Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
        peers = {row[2].split(":")[0] for row in rows if row[3] == "01"}
        return sorted(".".join(str(byte) for byte in reversed(bytes.fromhex(peer))) for peer in peers)

    c = join()
    c.world.allreduce([c.rank])
    say(first=over())
    hold("the network goes")
    say(broken=fails(c.world.allreduce, [c.rank]))
    c.recover(60_000)
    say(sum=c.world.allreduce([c.rank + 1]), epoch=c.epoch, lost=c.failed_ranks(), second=over())
    c.world.barrier()
    c.leave()
"""


@contextlib.contextmanager
def two_ranks(hosts, env):
    settings = {"MS_SCHED_HOST": hosts.address("control", 0), "MS_SCHED_PORT": PORT, "MS_WORKER_NUM": 2, **env}
    with contextlib.ExitStack() as stack:
        def start(host, program, name, **own):
            process = Process(hosts.command(host, program), {**settings, "MUSTER_HOST_ID": f"host {host}", **own}, name)
            return stack.enter_context(process)

        scheduler = start(0, [MUSTER, "scheduler"], "scheduler", MS_ROLE="MS_SCHED")
        own = [",".join(hosts.address(network, rank) for network in ("one", "two")) for rank in range(2)]
        yield scheduler, [
            start(rank, node(LINES), f"worker {rank}", MS_ROLE="MS_WORKER", MS_NODE_ID=rank, MS_WORKER_IP=own[rank])
            for rank in range(2)
        ]


def test_recovery_connects_two_live_ranks_over_another_address(tmp_path):
    """Only the first network is there when they connect, and only the second one when they recover. Both live, and reach the
    scheduler all the time."""
    with Hosts("control", "one", "two") as hosts:
        hosts.down("two")
        with two_ranks(hosts, {"HOLD_FOLDER": tmp_path}) as (scheduler, workers):
            await_joined(*workers)
            for worker in workers:
                worker.wait_for('"first"', LIMIT)
            hosts.down("one")
            hosts.up("two")
            (tmp_path / "the network goes").touch()
            for worker in workers:
                assert worker.wait(LIMIT) == 0, worker.describe()
            assert scheduler.wait(LIMIT) == 0, scheduler.describe()
            for rank, worker in enumerate(workers):
                words, other = said(worker), 1 - rank
                assert hosts.address("one", other) in words["first"] and hosts.address("two", other) not in words["first"]
                assert words["broken"]["error"] == "LINK", words
                assert "rank 0" in words["broken"]["sentence"] and "rank 1" in words["broken"]["sentence"], words
                assert (words["sum"], words["epoch"], words["lost"]) == ([3], 2, [])
                assert hosts.address("two", other) in words["second"] and hosts.address("one", other) not in words["second"]
