"""Strangers on the scheduler's port, while a cluster forms and while it runs, and on a node's port: they cost the cluster
nothing, and each kind of them is mentioned once."""

import contextlib
import pathlib
import random
import socket
import threading
import time

import pytest

import wire
from cluster import EXAMPLES, Cluster
from nodes import listening_ports

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "held_allgather.py"
GREETING_SECONDS = 5  # how long a connection may take to register
CROWD = 400  # more connections than may wait unregistered at a time
MANY = 300  # more strangers than a log has lines for
SLACK_SECONDS = 5  # what a busy machine may add


# What a line about a stranger says, of each kind.
KINDS = [
    "it did not register within",
    "its connection ended before it registered",
    "it sent what is not this protocol",
    "its first message was of kind",
    "it has not introduced itself within",
    "it knows neither this epoch nor its secret",
]


def until_closed(connected, timeout):
    """Reads until the other side closes the connection, in order or by reset, and returns what came before."""
    connected.settimeout(timeout)
    data = b""
    try:
        while True:
            more = connected.recv(65536)
            if not more:
                return data
            data += more
    except ConnectionError:
        return data
    except TimeoutError:
        raise AssertionError(f"a stranger's connection is still open after {timeout} s") from None


def send(data):
    """A stranger that sends `data` and must be put out at once, without an answer."""

    def visit(port):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connected:
            connected.sendall(data)
            began = time.monotonic()
            assert until_closed(connected, GREETING_SECONDS + SLACK_SECONDS) == b""
            assert time.monotonic() - began < GREETING_SECONDS - 1, "it was heard out until its time was up"

    return visit


def port_scan(port):
    for _ in range(20):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def silence(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connected:
        assert until_closed(connected, GREETING_SECONDS + SLACK_SECONDS) == b""


def slow_drip(port):
    """The beginning of a good registration, a byte at a time: the time to register does not begin anew with each."""
    data = wire.frame(wire.REGISTER, wire.register(node_id="drip", workers=3))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connected:
        deadline = time.monotonic() + GREETING_SECONDS + SLACK_SECONDS
        try:
            for byte in data:
                assert time.monotonic() < deadline, "a slow drip is still listened to"
                connected.sendall(bytes([byte]))
                time.sleep(0.1)  # a drip; the deadline above ends it
        except ConnectionError:
            return
    raise AssertionError("a slow drip was heard to its end")


def half_a_frame(port):
    """A good header, and then nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connected:
        connected.sendall(wire.header(wire.REGISTER, 1000) + b"x" * 10)
        assert until_closed(connected, GREETING_SECONDS + SLACK_SECONDS) == b""


STRANGERS = {
    "port scan": port_scan,
    "HTTP request": send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "TLS hello": send(bytes.fromhex("16030100c8010000c40303") + bytes(200)),
    "random bytes": send(b"\0" + random.Random(7).randbytes(5000)),
    "frame beyond the limit": send(wire.header(wire.REGISTER, 65_537)),
    "absurd frame": send(wire.header(wire.REGISTER, 1 << 63)),
    "wrong checksum": send(wire.frame(wire.REGISTER, wire.register())[:-4] + wire.checksum(b"of something else")),
    "unknown message": send(wire.frame(200, b"?")),
    "not a registration": send(wire.frame(wire.HEARTBEAT, wire.heartbeat(1))),
    "cut registration": send(wire.frame(wire.REGISTER, wire.register()[:-3])),
    "half a frame": half_a_frame,
    "slow drip": slow_drip,
    "silence": silence,
}


def visit_all(port):
    """All strangers at once."""
    failed = {}

    def visit(name):
        try:
            STRANGERS[name](port)
        except Exception as error:
            failed[name] = error

    threads = [threading.Thread(target=visit, args=[name]) for name in STRANGERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_strangers_cost_a_forming_and_a_running_cluster_nothing(tmp_path):
    release = tmp_path / "release"
    with Cluster([PROGRAM], workers=3, started=2, env={"HOLD_UNTIL": release}) as cluster:
        visit_all(cluster.port)
        cluster.start_worker()
        for worker in cluster.workers:
            worker.wait_for("joined", timeout=30)
        visit_all(cluster.port)
        release.touch()
        for worker in cluster.succeed(timeout=30):
            assert worker.stdout.splitlines() == ["joined", "[0, 1, 2]"]
        mentioned = [line for line in cluster.scheduler.stderr.splitlines() if "stranger" in line]
        assert len(mentioned) == len({kind(line) for line in mentioned}) <= 5, mentioned


def kind(line):
    """The part of a line that is the same for all of its kind."""
    return next((words for words in KINDS if words in line), line)


def test_strangers_at_a_node_get_no_link_and_cost_it_nothing(tmp_path):
    release = tmp_path / "release"
    with Cluster([PROGRAM], workers=3, env={"HOLD_UNTIL": release}) as cluster:
        for worker in cluster.workers:
            worker.wait_for("joined", timeout=30)
        port, = listening_ports(cluster.workers[1].pid)
        visit_all(port)
        with wire.connect(port) as stranger:
            stranger.send(wire.LINK_HELLO, wire.link_hello(1, 0, 0, 2, 1, bytes(16), b"a guess".ljust(16)))
            assert stranger.receive(timeout=10) == (wire.LINK_REJECT, bytes([wire.LINK_STRANGER]))
            with pytest.raises((EOFError, ConnectionError)):
                stranger.receive(timeout=10)
        release.touch()
        for worker in cluster.succeed(timeout=30):
            assert worker.stdout.splitlines() == ["joined", "[0, 1, 2]"]
        mentioned = [line for line in cluster.workers[1].stderr.splitlines() if "stranger" in line]
        assert len(mentioned) == len({kind(line) for line in mentioned}) <= 4, mentioned
        assert any("it knows neither this epoch nor its secret" in line for line in mentioned), mentioned


@pytest.mark.parametrize("whose", ["scheduler", "node"])
def test_strangers_from_ever_more_addresses_are_mentioned_once_and_counted(whose, tmp_path):
    """A port remembers no stranger: somebody with many addresses can fill neither its memory nor the log."""
    release = tmp_path / "release"
    with Cluster([PROGRAM], workers=2, env={"HOLD_UNTIL": release}) as cluster:
        for worker in cluster.workers:
            worker.wait_for("joined", timeout=30)
        process = cluster.scheduler if whose == "scheduler" else cluster.workers[1]
        port, = listening_ports(process.pid)
        for number in range(MANY):
            source = (f"127.1.{number // 250}.{1 + number % 250}", 0)
            with socket.create_connection(("127.0.0.1", port), timeout=5, source_address=source) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert until_closed(stranger, GREETING_SECONDS) == b""
        release.touch()
        for worker in cluster.succeed(timeout=30):
            assert worker.stdout.splitlines() == ["joined", "[0, 1]"]
        told = [line for line in process.stderr.splitlines() if "stranger" in line]
        assert len(told) == 1 and "127.1.0.1:" in told[0] and 'it begins with "GET "' in told[0], told
        assert f" {MANY - 1} more connections that sent what is not this protocol, the last from 127.1." in process.stderr


def test_a_crowd_of_silent_connections_keeps_nobody_out(tmp_path):
    release = tmp_path / "release"
    env = {"HOLD_UNTIL": release}
    with Cluster([PROGRAM], workers=2, started=1, env=env) as cluster, contextlib.ExitStack() as held:
        address = ("127.0.0.1", cluster.port)
        crowd = [held.enter_context(socket.create_connection(address, timeout=5)) for _ in range(CROWD)]
        cluster.start_worker()
        # Room is made by those that have waited longest, before their time is up; the newest may go on waiting.
        assert until_closed(crowd[0], SLACK_SECONDS) == b""
        cluster.scheduler.wait_for("a stranger connected", SLACK_SECONDS)
        mentioned = [line for line in cluster.scheduler.stderr.splitlines() if "stranger" in line]
        assert len(mentioned) == 1 and "too many connections have not registered" in mentioned[0], mentioned
        crowd[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            crowd[-1].recv(1)
        release.touch()
        cluster.succeed(timeout=30)


@pytest.mark.parametrize("protocol", [(0, 0), (2, 9), (65535, 65535)])
def test_no_common_protocol_version_is_said_in_words_that_name_both(protocol):
    with Cluster([EXAMPLES / "allgather"], workers=2, started=1) as cluster:
        with wire.connect(cluster.port) as newcomer:
            # What follows the range belongs to that version: nobody here can read it.
            low, high = protocol
            newcomer.send(wire.REGISTER, low.to_bytes(2, "little") + high.to_bytes(2, "little") + b"whatever")
            kind, payload = newcomer.receive(timeout=10)
            assert kind == wire.REJECTED
            status, reason = wire.rejected(payload)
            assert status == wire.ERR_REJECTED
            assert f"speaks protocols {low} to {high}, the scheduler speaks 1 to 1:" in reason, reason
        cluster.start_worker()
        cluster.succeed(timeout=30)


def test_the_same_incarnation_registering_again_gets_the_same_answer():
    with Cluster([EXAMPLES / "allgather"], workers=2, started=1) as cluster:
        payload = wire.register(node_id="x", workers=3, incarnation=bytes(16))
        reasons = set()
        for _ in range(2):
            with wire.connect(cluster.port) as newcomer:
                newcomer.send(wire.REGISTER, payload)
                kind, answer = newcomer.receive(timeout=10)
                assert kind == wire.REJECTED
                reasons.add(wire.rejected(answer))
        assert len(reasons) == 1
        (status, reason) = reasons.pop()
        assert status == wire.ERR_REJECTED and "expects 3 workers, this scheduler's job has 2:" in reason, reason
        cluster.start_worker()
        cluster.succeed(timeout=30)
