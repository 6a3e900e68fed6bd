"""What `tap` and `proxy` share: a port that leads each connection on to another port. When it ends, all end."""

import contextlib
import socket
import threading


class Between:
    """A subclass says in `_connected` what becomes of the two ends. `target` is a port, or a function for one that is known later."""

    def __init__(self, target):
        self._target = target if callable(target) else lambda: target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets, self._threads = [self._listener], []
        self.problems = []

    def _connected(self, near, far):
        raise NotImplementedError

    def _start(self, *work):
        thread = threading.Thread(target=self._watch, args=work)
        self._threads.append(thread)
        thread.start()

    def _watch(self, work, *arguments):
        try:
            work(*arguments)
        except OSError:
            pass  # a connection has ended, or the test has ended
        except Exception as problem:
            with self._lock:
                self.problems.append(f"between: {problem!r}")

    def _accept(self):
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._target()))
            except ConnectionError:  # nobody listens there yet
                near.close()
                continue
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [near, far]
            self._connected(near, far)

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, kind=None, *_):
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()
        for each in self._sockets:
            each.close()
        if kind is None:  # else the test has failed already, and it may be for that
            assert not self.problems, self.problems
