"""Stands between a node and its scheduler, passes everything on, and keeps a record of the frames.

    with Proxy(cluster.port) as proxy:
        cluster.start_worker(env={"MS_SCHED_PORT": proxy.port})
        proxy.wait_for(lambda: proxy.count(TO_SCHEDULER, wire.STORE_BEGIN) == 1, timeout=10)
"""

import contextlib
import dataclasses
import socket
import time

import wire
from between import Between
from launch import until

TO_SCHEDULER, TO_NODE = "to the scheduler", "to the node"
CHUNK = 65536


@dataclasses.dataclass(frozen=True)
class Frame:
    at: float
    direction: str
    kind: int
    length: int


class Proxy(Between):
    """`bytes_per_second` makes it a slow link, in each direction."""

    def __init__(self, scheduler_port, bytes_per_second=None):
        super().__init__(scheduler_port)
        self._pace = bytes_per_second
        self._frames = []
        self._muted = set()
        self._damaged = set()
        self._cuts = []

    def mute(self, direction):
        """From now on nothing passes in this direction, on old and new connections; they stay open."""
        self._muted.add(direction)

    def damage(self, direction):
        """What passes next in this direction has another last byte."""
        self._damaged.add(direction)

    def frames(self, direction=None, *kinds):
        """What has passed so far, in order."""
        with self._lock:
            if self.problems:
                raise AssertionError(self.problems[0])
            frames = list(self._frames)
        return [f for f in frames if direction in (None, f.direction) and (not kinds or f.kind in kinds)]

    def count(self, direction, *kinds):
        return len(self.frames(direction, *kinds))

    def wait_for(self, condition, timeout):
        until(condition, timeout, f"what is waited for; {len(self.frames())} frames have passed")

    def cut(self):
        """Ends the connections that pass through it, in order for both sides; new ones are let through."""
        with self._lock:
            sockets, self._sockets[1:] = self._sockets[1:], []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut_at(self, direction, kind, *counts):
        """Does the same by itself, when so many frames of the kind have passed, and is never late for a fast sender."""
        self._cuts += [(direction, kind, count) for count in counts]

    def _connected(self, near, far):
        self._start(self._pass_on, TO_SCHEDULER, near, far)
        self._start(self._pass_on, TO_NODE, far, near)

    def _pass_on(self, direction, source, sink):
        def read(count):
            data = bytearray()
            while len(data) < count:
                more = source.recv(min(CHUNK, count - len(data)))
                if not more:
                    raise EOFError
                if direction not in self._muted:
                    damage = direction in self._damaged
                    self._damaged.discard(direction)
                    sink.sendall(more[:-1] + bytes([more[-1] ^ 1]) if damage else more)
                if self._pace:
                    time.sleep(len(more) / self._pace)
                data += more
            return bytes(data)

        with contextlib.suppress(EOFError):
            while True:
                kind, _, payload = wire.read_frame(read)
                with self._lock:
                    self._frames.append(Frame(time.monotonic(), direction, kind, len(payload)))
                if (direction, kind, self.count(direction, kind)) in self._cuts:
                    self.cut()
        if direction not in self._muted:
            sink.shutdown(socket.SHUT_WR)
