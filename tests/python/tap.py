"""A port that passes everything on to another one, and keeps what has passed, of each connection and each direction.

    with Tap(cluster.port) as tap:
        cluster.start_worker(env={"MS_SCHED_PORT": tap.port})
        ...
        assert SECRET not in tap.all()
        formed = tap.frames("heard", wire.FORMED)[0]

Where it passes on to may be a function, for a port that is known later.
"""

import contextlib
import socket

import wire
from between import Between


class Passed:
    """One connection: what the side that dialled has sent, and what it has heard."""

    def __init__(self):
        self.sent, self.heard = bytearray(), bytearray()


class Tap(Between):
    def __init__(self, target):
        super().__init__(target)
        self.connections = []

    def all(self):
        """Every byte that has passed."""
        return b"\0".join(bytes(way) for passed in list(self.connections) for way in (passed.sent, passed.heard))

    def frames(self, way, *kinds):
        """The payloads of these kinds that have passed whole, in one direction ("sent" or "heard")."""
        frames = (frame for passed in list(self.connections) for frame in whole_frames(getattr(passed, way)))
        return [payload for kind, payload in frames if kind in kinds]

    def _connected(self, near, far):
        passed = Passed()
        with self._lock:
            self.connections.append(passed)
        self._start(self._pass_on, near, far, passed.sent)
        self._start(self._pass_on, far, near, passed.heard)

    @staticmethod
    def _pass_on(one, other, kept):
        while data := one.recv(65536):
            kept += data
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def whole_frames(data):
    """Kind and payload of each frame at the beginning of these bytes, as far as they are frames of the control plane."""
    at, data = 0, bytes(data)

    def read(count):
        nonlocal at
        if at + count > len(data):
            raise EOFError
        at += count
        return data[at - count:at]

    with contextlib.suppress(EOFError, wire.Malformed):
        while True:
            kind, _, payload = wire.read_frame(read)
            yield kind, payload
