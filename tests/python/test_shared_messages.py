"""Messages between ranks of a host go through memory that the two share: where they can, where one can't, and what becomes of them
when a rank dies, stops, or writes nonsense there."""

import signal

import pytest

from certificates import Certificates
from cluster import Cluster
from nodes import node, said

LIMIT = 60
# Every rank sends to every other, short and long.
EXCHANGE = """
    def segments():
        return pathlib.Path("/proc/self/maps").read_text().count("/memfd:muster")

    c = join()
    if {limited}:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
    for length in (0, 8, 5000, 70_000, 3_000_000):
        for first in range(c.size):
            for second in range(first + 1, c.size):
                if c.rank in (first, second):
                    other = first + second - c.rank
                    turns = [lambda: c.world.send(bytes([c.rank]) * length, other), lambda: c.world.receive(length, other)]
                    got = [turn() for turn in (turns if c.rank == first else turns[::-1])]
                    assert bytes([other]) * length in got, (length, other)
    say(segments=segments())
    c.world.barrier()
    c.leave()
    say(after=segments())
"""


def lines_about(worker, *words):
    return [line for line in worker.stderr.splitlines() if all(word in line for word in words)]


@pytest.mark.parametrize("shm, segments", [("auto", 1), ("require", 1), ("off", 0)])
def test_two_ranks_of_a_host_share_memory_unless_it_is_off(shm, segments):
    with Cluster(node(EXCHANGE.format(limited=False)), workers=2, env={"MUSTER_SHM": shm, "MUSTER_LOG": "debug"}) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert (said(worker)["segments"], said(worker)["after"]) == (segments, 0)
            lines = lines_about(worker, "what goes to rank", "goes through memory: two rings of 512 KiB")
            assert len(lines) == segments, worker.stderr


def test_ranks_of_other_hosts_are_talked_to_over_tcp():
    """Ranks 0 and 1 are on one host, 2 and 3 on another."""
    with Cluster(node(EXCHANGE.format(limited=False)), workers=4, started=0, env={"MUSTER_LOG": "debug"}) as cluster:
        for rank in range(4):
            cluster.start_worker({"MUSTER_HOST_ID": f"host {rank // 2}", "MS_NODE_ID": rank})
        for worker in cluster.succeed(timeout=LIMIT):
            assert (said(worker)["segments"], said(worker)["after"]) == (1, 0)
            assert len(lines_about(worker, "what goes to rank")) == 1, worker.stderr


def test_the_memory_of_many_ranks_is_bounded():
    with Cluster(node(EXCHANGE.format(limited=False)), workers=16, env={"MUSTER_LOG": "debug"}) as cluster:
        for worker in cluster.succeed(timeout=2 * LIMIT):
            assert said(worker)["segments"] == 15
            assert len(lines_about(worker, "goes through memory: two rings of 128 KiB")) == 15


def test_under_tls_too(tmp_path):
    files = Certificates(tmp_path / "files")
    with Cluster(node(EXCHANGE.format(limited=False)), workers=3, env={**files.env(), "MUSTER_LOG": "debug"}) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["segments"] == 2
            assert len(lines_about(worker, "goes through memory: two rings")) == 2


@pytest.mark.parametrize("limited", ["c.rank == 0", "c.rank == 1", "True"])
def test_where_one_cannot_messages_go_over_the_connection(limited):
    """A process that may make no file so long: it cannot make memory, but can map what another has made."""
    with Cluster(node(EXCHANGE.format(limited=limited)), workers=2, env={"MUSTER_LOG": "debug"}) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            told = lines_about(worker, "what goes to rank")
            assert len(told) == 1
            if "not through memory" in told[0]:
                assert said(worker)["segments"] == 0
                assert "can't: the memory cannot be made: File too large" in told[0]
            else:
                assert limited != "True", told


REQUIRED = """
    import resource
    c = join()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
    if c.rank == 0:
        say(**fails(c.world.receive, 8, 1))
    else:
        say(**fails(lambda: [c.world.send(b"12345678", 0), c.world.receive(8, 0)]))
    c.leave()
"""


def test_where_memory_is_required_and_cannot_be_had_a_message_is_unsupported():
    with Cluster(node(REQUIRED), workers=2, env={"MUSTER_SHM": "require"}) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            words = said(worker)
            assert words["error"] == "UNSUPPORTED", words
            for part in ("memory can't be shared with rank", 'which shm "require" asks for', "the memory cannot be made: File too large"):
                assert part in words["sentence"], words["sentence"]


# Rank 1 says that it is ready, and dies or stops as the test likes.
LOST = """
    c = join()
    c.world.set_timeout({timeout})
    if c.rank == 0:
        c.world.send(b"1" * {length}, 1)
        assert c.world.receive(3, 1) == b"yes"
        say(ready=True)
        say(**fails(c.world.{call}))
    else:
        c.world.receive({length}, 0)
        c.world.send(b"yes", 0)
        say(ready=True)
        time.sleep(120)  # it is killed or stopped before: the test waits for what rank 0 says of that, not for this
    c.leave()
"""


CALLS = pytest.mark.parametrize("call", ["receive, 8, 1", "send, b'1' * (1 << 26), 1"], ids=["receive", "send"])


def ready(cluster):
    """Ranks 0 and 1, once they have talked to each other."""
    for worker in cluster.workers:
        worker.wait_for('"ready"', LIMIT)
    return sorted(cluster.workers, key=lambda worker: said(worker)["rank"])


@CALLS
@pytest.mark.parametrize("scheduler", [True, False], ids=["with", "without"])
def test_one_that_dies_is_named(call, scheduler):
    """Without a scheduler the end of the link is all that there is."""
    program = node(LOST.format(timeout=60_000, length=100_000, call=call))
    with Cluster(program, workers=2, env={"MS_NODE_TIMEOUT": 30}) as cluster:
        first, second = ready(cluster)
        if not scheduler:
            cluster.scheduler.signal(signal.SIGKILL)
        second.signal(signal.SIGKILL)
        first.wait_for('"sentence"', LIMIT)
        words = said(first)
        assert words["error"] == "PEER_LOST" and "rank 1" in words["sentence"], words
        assert words["after"] < 20, words


@CALLS
def test_one_that_is_stopped_is_named_when_time_is_up(call):
    program = node(LOST.format(timeout=3000, length=100_000, call=call))
    with Cluster(program, workers=2, env={"MS_NODE_TIMEOUT": 60}) as cluster:
        first, second = ready(cluster)
        second.signal(signal.SIGSTOP)
        first.wait_for('"sentence"', LIMIT)
        words = said(first)
        second.signal(signal.SIGCONT)
        assert words["error"] == "TIMEOUT" and "rank 1" in words["sentence"], words


# Rank 1 writes nonsense all over the memory that it shares, while messages and collectives go on.
NONSENSE = """
    import ctypes, random
    c = join()
    c.world.set_timeout(4000)
    x = bytes(range(256)) * 40
    def both():
        if c.rank == 0:
            c.world.send(x, 1)
            return c.world.receive(len(x), 1)
        got = c.world.receive(len(x), 0)
        c.world.send(x, 0)
        return got
    for _ in range(8):
        assert both() == x
        {collective}
    chance = random.Random({seed})
    for turn in range(200):
        if c.rank == 1:
            for line in open("/proc/self/maps"):
                if "/memfd:muster" in line:
                    start, end = (int(place, 16) for place in line.split()[0].split("-"))
                    for _ in range(3):
                        at = start + chance.randrange({within}) // 8 * 8
                        if at + 8 <= end:
                            ctypes.memmove(at, chance.randbytes(8), 8)
        try:
            both()
            {collective}
        except MusterError as error:
            say(error=error.status, sentence=error.sentence, turn=turn)
            break
    say(survived=True)
    c.leave()
"""


# Rank 1 writes nonsense into the rings all the time, from a thread of its own. What it gets is right, or it is an error.
CHECKED = """
    c = join()
    c.world.set_timeout(4000)
    if c.rank == 1:
        import contextlib, random, threading
        chance, is_over = random.Random({seed}), threading.Event()

        def write_nonsense():
            # The library may let go of the memory at any time: then this fails, and a store would be a fault.
            memory = open("/proc/self/mem", "r+b", buffering=0)
            while not is_over.wait(0.0005):
                for line in open("/proc/self/maps"):
                    if "/memfd:muster" in line:
                        start, end = (int(place, 16) for place in line.split()[0].split("-"))
                        with contextlib.suppress(OSError):
                            for _ in range(50):
                                memory.seek(start + chance.randrange(end - start - 8))
                                memory.write(chance.randbytes(8))

        c.world.send(b"x", 0)
        threading.Thread(target=write_nonsense, daemon=True).start()
    else:
        c.world.receive(1, 1)
    try:
        for turn in range(100_000):
            x = bytes([turn % 251]) * (10 if turn % 2 else 300_000)
            if c.rank == 0:
                c.world.send(x, 1)
            elif c.world.receive(len(x), 0) != x:
                say(wrong=turn)
                break
    except MusterError as error:
        say(error=error.status, sentence=error.sentence, turn=turn)
    if c.rank == 1:
        is_over.set()
    c.leave()
"""


def test_with_checksums_of_all_nonsense_in_a_ring_is_an_error_and_no_wrong_message():
    sentences = []
    for seed in range(4):
        with Cluster(node(CHECKED.format(seed=seed)), workers=2, env={"MUSTER_CHECKSUMS": "all"}) as cluster:
            for worker in cluster.workers:
                assert worker.wait(LIMIT) == 0, worker.describe()
                assert said(worker).get("wrong") is None and said(worker)["error"], worker.describe()
                sentences.append(said(worker)["sentence"])
    assert any("checksum" in sentence for sentence in sentences), sentences


@pytest.mark.parametrize("within", [768, 4096 + 3000, 1 << 19], ids=["words", "first bytes", "anywhere"])
@pytest.mark.parametrize("collective", ["pass", "c.world.allreduce([1] * 100)"], ids=["messages", "both"])
def test_nonsense_in_the_memory_hurts_nobody_but_the_result(within, collective):
    """It may end the group with an error, or change what comes; it ends no process."""
    ends = set()
    for seed in range(4):
        program = node(NONSENSE.format(seed=seed, within=within, collective=collective))
        with Cluster(program, workers=2) as cluster:
            for worker in cluster.workers:
                assert worker.wait(LIMIT) == 0, worker.describe()
                assert said(worker)["survived"]
                ends.add(said(worker).get("error"))
    assert ends <= {None, "CORRUPT", "TIMEOUT", "MISMATCH", "PEER_LOST", "LIMIT", "MEMORY"}, ends
    assert within != 768 or "CORRUPT" in ends, "words that cannot be are seen"
