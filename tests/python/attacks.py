"""Attacks: what somebody may do who can reach a port and means harm. Each attack is a function of the port.

    for name, attack in ATTACKS.items():
        attack(port)

An attack returns when it is over, and leaves no connection open. `silent` and `hellos` give connections that stay open.
"""

import collections
import contextlib
import random
import re
import resource
import socket
import struct
import threading
import time

import wire

DROPPED = 10_000  # connections that are opened and dropped
SILENT = 1_000  # that stay open and say nothing
SLACK_SECONDS = 20  # what a busy machine may take to put somebody out
REFUSED_MAX = 8  # registrations that are refused, one by one
KINDS_MAX = 16  # kinds of nuisance at one port
HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
WINDOW_SECONDS = 60  # after which a kind is told again
RESET = struct.pack("ii", 1, 0)  # a close that leaves nothing behind in this system
ACCEPTED = wire.header(wire.LINK_ACCEPT, 0)[:6]  # magic, version and kind: how the answer to a hello begins, if it is accepted


@contextlib.contextmanager
def many_descriptors(wanted=8192):
    """Lets this process open more descriptors than is usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(port):
    """A connection that is closed by reset. If the backlog overflows, the kernel tries again after a second."""
    connected = socket.create_connection(("127.0.0.1", port), timeout=SLACK_SECONDS)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return connected


@contextlib.contextmanager
def silent(port, count, said=b""):
    """So many connections that stay open, and have said this much."""
    with many_descriptors(), contextlib.ExitStack() as held:
        those = []
        for _ in range(count):
            one = held.enter_context(connect(port))
            with contextlib.suppress(ConnectionError):  # it was put out already
                one.sendall(said)
            those.append(one)
        yield those


def is_open(connected):
    """Whether the other end has left the connection open."""
    connected.setblocking(False)
    try:
        return connected.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def put_out(data):
    """Says this, and must then be put out."""

    def attack(port):
        with connect(port) as connected, contextlib.suppress(ConnectionError):
            connected.sendall(data)
            while connected.recv(65536):
                pass

    return attack


def dropped(port, count=DROPPED):
    for _ in range(count):
        connect(port).close()


def slow_drip(port):
    """A byte a second, of what would be a registration: it is put out long before the end."""
    began = time.monotonic()
    with connect(port) as connected, contextlib.suppress(ConnectionError):
        for byte in wire.frame(wire.REGISTER, wire.register(node_id="drip")):
            assert time.monotonic() - began < SLACK_SECONDS, "a slow drip is still listened to"
            connected.sendall(bytes([byte]))
            time.sleep(1)


def never_reads(port):
    """Asks how the job is, again and again, and reads no answer."""
    with connect(port) as connected, contextlib.suppress(ConnectionError, TimeoutError):
        connected.settimeout(SLACK_SECONDS)
        question = wire.frame(wire.STATUS_QUERY, wire.status_query())
        for _ in range(20_000):
            connected.sendall(question)


def of_an_old_epoch(port):
    """A link of an epoch that is over, and one that guesses this one's secret: neither is accepted."""
    for epoch in (0, 1):
        hello = wire.link_hello(epoch, 0, 0, 1, 0, bytes(16), b"of another epoch")
        told = b""
        # A node that forms keeps it waiting: it cannot know yet which epoch and which secret will be its own.
        with connect(port) as connected, contextlib.suppress(ConnectionError, TimeoutError):
            connected.settimeout(2)
            connected.sendall(wire.frame(wire.LINK_HELLO, hello))
            while more := connected.recv(65536):
                told += more
        # Under TLS, or with a secret, what it is told is no frame of a link.
        assert not told.startswith(ACCEPTED), f"a link of epoch {epoch} is accepted: {told[:100]}"


ATTACKS = {
    "random bytes": put_out(b"\0" + random.Random(7).randbytes(5000)),
    "HTTP": put_out(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a TLS hello": put_out(bytes.fromhex("16030100c8010000c40303") + bytes(200)),
    "half a frame": put_out(wire.header(wire.REGISTER, 1000) + b"x" * 10),
    "a huge length": put_out(wire.header(wire.REGISTER, 1 << 63)),
    "a bad checksum": put_out(wire.frame(wire.REGISTER, wire.register())[:-4] + wire.checksum(b"of something else")),
    "store requests": put_out(b"".join(wire.frame(wire.STORE_PIECE, bytes(60_000)) for _ in range(50))),
    "a terminal's commands": put_out(b"\x1b[2J\r\x1b]0;owned\x07\xe2\x80\xae"),
    "dropped": dropped,
    "a slow drip": slow_drip,
    "a client that never reads": never_reads,
    "a link of an old epoch": of_an_old_epoch,
}


def attack(ports, part=1):
    """All attacks on all ports, side by side, with a thousand that stay open and say nothing meanwhile. Or a part of their number."""
    failed = {}
    attacks = {**ATTACKS, "dropped": lambda port: dropped(port, DROPPED // part)}

    def run(name, port):
        try:
            attacks[name](port)
        except Exception as error:
            failed[name, port] = error

    with contextlib.ExitStack() as held:
        held.enter_context(many_descriptors())
        for port in ports:
            held.enter_context(silent(port, SILENT // part))
        threads = [threading.Thread(target=run, args=(name, port)) for name in attacks for port in ports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed, failed


def nuisances(process):
    return [line for line in process.stderr.splitlines() if "stranger" in line or " more " in line or "refused:" in line]


def each_is_told_once(process):
    """No kind of nuisance has more than its line and its count, in each minute that the process has lived; each line names an address;
    nothing in it is hidden."""
    windows = 1 + int((time.monotonic() - process.began) / WINDOW_SECONDS)
    lines = nuisances(process)
    assert lines and len(lines) <= 2 * KINDS_MAX * windows, f"{len(lines)} lines: {lines[:50]}"
    assert all("127.0.0.1:" in line for line in lines), lines
    refused = [line for line in lines if "refused:" in line]
    assert len(refused) <= REFUSED_MAX * windows, refused
    lines = [line for line in lines if line not in refused]
    kinds = collections.Counter(re.sub(r"127\.0\.0\.1:\d+|\d+|\".*\"", "_", line) for line in lines)
    assert max(kinds.values()) <= windows, lines
    assert not any(HIDDEN.search(line) for line in process.stderr.splitlines()), lines
