"""Runs a program on a terminal of its own, which controls it, as a shell's does: what it shows there, and what is typed."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from cluster import clean_environment


class Terminal:
    """A program on a terminal of so many columns. As a context it is killed at the end."""

    def __init__(self, words, env=None, columns=200):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            # The size is there before the program asks for it.
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            environment = clean_environment({"TERM": "xterm", "NO_COLOR": None, **(env or {})})
            os.execve(str(words[0]), [str(word) for word in words], environment)
        self.said = ""
        self.returncode = None

    def type(self, text):
        os.write(self.end, text)

    def wait_for(self, pattern, timeout=30):
        """Waits until it has shown this, and returns the match."""
        until = time.monotonic() + timeout
        while not (match := re.search(pattern, self.said)):
            assert self.hears(until - time.monotonic()), f"never showed {pattern!r}: {self.said!r}"
        return match

    def wait(self, timeout=30):
        """Waits for its end and returns the exit code."""
        until = time.monotonic() + timeout
        while self.hears(until - time.monotonic()):
            pass
        assert time.monotonic() < until, f"pid {self.pid} still runs after {timeout} s: {self.said!r}"
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def hears(self, patience):
        """More of what it shows; false when that is over, or the time."""
        if not select.select([self.end], [], [], max(patience, 0))[0]:
            return False
        with contextlib.suppress(OSError):  # nobody has the terminal open any more
            if more := os.read(self.end, 65536):
                self.said += more.decode(errors="replace")
                return True
        return False

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(f"--- on the terminal:\n{self.said}")
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.end)
