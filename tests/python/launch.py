"""Runs the launcher for a test, and finds every process that came of it.

Each launch gets a mark in its environment. Every process that descends from it carries the mark, wherever it has gone,
so a test can ask whether anything is left without knowing a pid.
"""

import os
import pathlib
import re
import shutil
import tempfile
import time
import uuid

from cluster import MUSTER, Process

MARK = "LAUNCH_TEST_MARK"
POLL_SECONDS = 0.01


def until(condition, timeout, what):
    """Waits until the condition holds and returns what it returned."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {timeout} s still not: {what}"
        time.sleep(POLL_SECONDS)


def environment_of(pid):
    """The environment that a process was started with; empty when it has ended."""
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return dict(word.decode(errors="replace").split("=", 1) for word in words if b"=" in word)


class Launch(Process):
    """`muster run` with these words. Its folder has the logs in `logs`, unless the words say otherwise. Its secret lies in the folder
    `runtime`, not among those of the user's own runs; where `env` names another folder, there."""

    def __init__(self, *words, env=None, command=(MUSTER, "run"), cwd=None):
        self.mark = uuid.uuid4().hex
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="muster-logs-"))
        self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="muster-runtime-"))
        words = [*command, f"--log_dir={self.logs}", *words]
        super().__init__(words, {MARK: self.mark, "XDG_RUNTIME_DIR": self.runtime, **(env or {})}, "launcher", cwd=cwd)

    def descendants(self):
        """All processes that came of this launch and still run, without the launcher."""
        pids = (int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if pid != self.pid and environment_of(pid).get(MARK) == self.mark]

    def nothing_left(self, timeout=0.0):
        until(lambda: not self.descendants(), timeout, f"nothing left of {self.descendants()}")

    def child(self, name, timeout=30):
        """The pid of "the scheduler" or "worker 2", as the launcher says it."""
        return int(self.wait_for(rf"muster: {name} has pid (\d+)", timeout)[1])

    def log(self, name):
        path = self.logs / name
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_log(self, name, pattern, timeout=30):
        return until(lambda: re.search(pattern, self.log(name)), timeout, f"{pattern!r} in {name}: {self.log(name)!r}")

    def warnings(self):
        """What it warns of, except that the machine of the test is small."""
        lines = [line for line in self.stderr.splitlines() if "muster: warning: " in line]
        return [line for line in lines if " workers outnumber the " not in line and "this container's quota is " not in line]

    def describe(self):
        logs = [f"{path.name}:\n{path.read_text(errors='replace').rstrip()}" for path in sorted(self.logs.glob("*"))]
        return "\n".join([super().describe(), *logs])

    def close(self):
        self.popen.kill()
        self.popen.wait()
        # Descendants may start others while they are being killed.
        while pids := self.descendants():
            for pid in pids:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            time.sleep(POLL_SECONDS)
        for path in self.logs.glob("*"):
            path.unlink()
        self.logs.rmdir()
        shutil.rmtree(self.runtime)
        super().close()
