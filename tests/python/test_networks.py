"""Nodes on hosts that have more than one address, when the network between some of these goes."""

import contextlib
import time

import pytest

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
def two_ranks(hosts, env, lines=LINES):
    settings = {"MS_SCHED_HOST": hosts.address("control", 0), "MS_SCHED_PORT": PORT, "MS_WORKER_NUM": 2, **env}
    with contextlib.ExitStack() as stack:
        def start(host, program, name, **own):
            process = Process(hosts.command(host, program), {**settings, "MUSTER_HOST_ID": f"host {host}", **own}, name)
            return stack.enter_context(process)

        scheduler = start(0, [MUSTER, "scheduler"], "scheduler", MS_ROLE="MS_SCHED")
        own = [",".join(hosts.address(network, rank) for network in ("one", "two")) for rank in range(2)]
        yield scheduler, [
            start(rank, node(lines), f"worker {rank}", MS_ROLE="MS_WORKER", MS_NODE_ID=rank, MS_WORKER_IP=own[rank])
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


SYSTEMS_RETRIES = 15
# Rank 0 begins. `COUNT` is of 8 bytes each: the last one is more than the buffers between two ranks hold.
SILENT = """
    count, limit_ms = int(os.environ["COUNT"]), int(os.environ["LIMIT_MS"])
    c = join()
    waits_in = {
        "collective": lambda: c.world.allreduce_zeros(count),
        "message": lambda: c.world.send(b"x" * 8 * count, 1) if c.rank == 0 else c.world.receive(8 * count, 0),
    }[os.environ["WAITS_IN"]]
    if os.environ["FIRST"] == "used":
        waits_in()
        waits_in()
    say(first=True)
    hold("the network goes")
    c.world.set_timeout(limit_ms)
    say(broken=fails(waits_in))
    say(failure=c.failure())
    c.leave()
"""
LONG_MS, SHORT_MS = 600_000, 3_000
# With a heartbeat time-out of 1 s: of a link that stands a silence of less than 0.9 s is no evidence; a new one is given up after
# 4 s, and no call ends before its time. The other one may have begun a little sooner.
EARLIEST = {("used", LONG_MS): 0.7, ("new", LONG_MS): 3.5, ("new", SHORT_MS): 2.5, ("used", SHORT_MS): 0.7}


@pytest.mark.parametrize("limit_ms", [LONG_MS, SHORT_MS], ids=["early", "at its time-out"])
@pytest.mark.parametrize("first, count", [("new", 1), ("used", 1), ("used", 5_000_000)])
def test_of_two_live_ranks_between_whom_packets_are_lost_a_collective_names_both(first, count, limit_ms, tmp_path):
    names_both("collective", first, count, limit_ms, tmp_path)


@pytest.mark.parametrize("first, count", [("new", 1), ("used", 5_000_000)])
def test_of_two_live_ranks_between_whom_packets_are_lost_a_message_names_both(first, count, tmp_path):
    names_both("message", first, count, LONG_MS, tmp_path)


def names_both(waits_in, first, count, limit_ms, tmp_path):
    """Their link does not come to stand, or falls silent with or without data under way. Both reach the scheduler all the time,
    and the system would try for a quarter of an hour."""
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 1, "FIRST": first, "COUNT": count, "LIMIT_MS": limit_ms,
           "WAITS_IN": waits_in}
    with Hosts("control", "one", "two", retries=SYSTEMS_RETRIES) as hosts:
        hosts.silence("two")
        with two_ranks(hosts, env, SILENT) as (scheduler, workers):
            for worker in workers:
                worker.wait_for('"first"', LIMIT)
            hosts.silence("one")
            (tmp_path / "the network goes").touch()
            for worker in workers:
                worker.wait(LIMIT)
                broken = said(worker)["broken"]
                assert broken["error"] == "LINK", worker.describe()
                assert "cannot reach each other although both live" in broken["sentence"], broken
                assert "rank 0 (" in broken["sentence"] and "rank 1 (" in broken["sentence"], broken
                assert EARLIEST[first, limit_ms] <= broken["after"] < 30, broken


# Rank 0 is in its call, with all buffers full, before the network goes; rank 1 enters then.
FULL = SILENT.replace('    hold("the network goes")', """
    c.world.set_timeout(limit_ms)
    if c.rank == 0:
        say(waits=True)
        say(broken=fails(waits_in))
        c.leave()
        sys.exit()
    hold("the network goes")
""".rstrip())


@pytest.mark.parametrize("senders", [[0], [1], [0, 1]], ids=["towards it", "from it", "both ways"])
@pytest.mark.parametrize("waits_in", ["collective", "message"])
def test_a_link_that_falls_silent_behind_full_buffers_is_found_by_who_comes_to_read(waits_in, senders, tmp_path):
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 1, "FIRST": "used", "COUNT": 5_000_000, "LIMIT_MS": LONG_MS,
           "WAITS_IN": waits_in}
    with Hosts("control", "one", "two", retries=SYSTEMS_RETRIES) as hosts:
        hosts.silence("two")
        with two_ranks(hosts, env, FULL) as (scheduler, workers):
            workers[0].wait_for('"waits"', LIMIT)
            workers[1].wait_for('"first"', LIMIT)
            time.sleep(2.5)  # the buffers are full at once; its system asks ever more seldom whether there is room again
            assert "broken" not in said(workers[0]), "a peer that does not read is not silent"
            hosts.silence("one", senders)
            (tmp_path / "the network goes").touch()
            for worker in workers:
                worker.wait(LIMIT)
                assert said(worker)["broken"]["error"] == "LINK", worker.describe()
            assert said(workers[1])["broken"]["after"] < 15, "not when its peer's system asks again"


@pytest.mark.parametrize("senders", [[0], [1], [0, 1]], ids=["towards it", "from it", "both ways"])
@pytest.mark.parametrize("waits_in", ["collective", "message"])
@pytest.mark.parametrize("recovery", [0, 1])
def test_a_host_that_the_network_cuts_off_from_all_is_lost_in_whichever_direction(recovery, waits_in, senders, tmp_path):
    """Its links fall silent with its connection to the scheduler. A rank that waits on them must not say that both live. It knows
    itself that it hears nobody, and blames nobody else."""
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 1, "FIRST": "used", "COUNT": 5_000_000, "LIMIT_MS": LONG_MS,
           "WAITS_IN": waits_in}
    if recovery:
        env |= {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    with Hosts("control", "one", "two", retries=SYSTEMS_RETRIES) as hosts:
        with two_ranks(hosts, env, SILENT) as (scheduler, workers):
            for worker in workers:
                worker.wait_for('"first"', LIMIT)
            for network in hosts.networks:
                hosts.silence(network, senders)
            (tmp_path / "the network goes").touch()
            workers[0].wait(LIMIT)
            broken = said(workers[0])["broken"]
            assert broken["error"] == "PEER_LOST" and "rank 1 (" in broken["sentence"], workers[0].describe()
            assert "unconfirmed" not in broken["sentence"] and "lost" in broken["sentence"], broken
            workers[1].wait_for('"failure"', LIMIT)
            words = said(workers[1])
            broken, failure = words["broken"], words["failure"]
            says = {"UNREACHABLE": "it seems to be cut off itself"}
            if senders == [1]:
                says["FENCED"] = "was taken for lost by the others"  # it hears, and may be told before it finds out
            assert broken["error"] == failure["status"] and broken["error"] in says and failure["rank"] == 1, words
            assert broken["sentence"].startswith("rank 1 (") and says[broken["error"]] in broken["sentence"], words


# Both have a link for collectives, on which rank 0 does not call again; it stays there until the other one knows.
GIVEN_UP = """
    c = join()
    c.world.barrier()
    say(first=True)
    hold("the network goes")
    if c.rank == 0:
        say(broken=fails(c.world.receive, 8, 1))
        hold("it knows")
    else:
        hold("the network is back")
        say(broken=fails(c.world.barrier))
    c.leave()
"""


@pytest.mark.parametrize("recovery", [0, 1])
def test_a_rank_that_was_given_up_hears_so_once_the_network_is_back(recovery, tmp_path):
    """Without recovery the scheduler has ended by then: a peer tells it, though that one is in no call itself."""
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 1, "MUSTER_FINALIZE_TIMEOUT": 1}
    if recovery:
        env |= {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    with Hosts("control", "one", "two", retries=SYSTEMS_RETRIES) as hosts:
        with two_ranks(hosts, env, GIVEN_UP) as (scheduler, workers):
            for worker in workers:
                worker.wait_for('"first"', LIMIT)
            for network in hosts.networks:
                hosts.silence(network)
            (tmp_path / "the network goes").touch()
            workers[0].wait_for('"broken"', LIMIT)
            for network in hosts.networks:
                hosts.heal(network)
            (tmp_path / "the network is back").touch()
            workers[1].wait_for('"broken"', LIMIT)
            broken = said(workers[1])["broken"]
            # Without recovery it may have said of itself before that it is cut off.
            cut_off = not recovery and broken["error"] == "UNREACHABLE" and "cut off itself" in broken["sentence"]
            assert (broken["error"] == "FENCED" or cut_off) and broken["after"] < LIMIT / 2, broken
            (tmp_path / "it knows").touch()
            assert said(workers[0])["broken"]["error"] == "PEER_LOST"
