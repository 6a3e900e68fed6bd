"""Runs a program with a deadline, and leaves nothing of it behind."""

import os
import pathlib
import re
import signal
import subprocess


# What was killed has let go of its output by then.
KILLED_S = 10


class Failed(Exception):
    """A program could not be run, failed, or took too long; the words say which. `out` is what it had written before, `is_late`
    whether it took too long."""

    def __init__(self, words, out="", is_late=False):
        super().__init__(words)
        self.out, self.is_late = out, is_late


def descendants(pid):
    """All processes that came of this one, by the kernel's list of parents."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError, IndexError):
                pass  # it has ended
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


def kill_tree(process):
    """Kills a process that we started and all that came of it: some launchers give theirs a process group of their own."""
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(words, timeout, environment=None, name=None):
    """What the program writes to standard output; a failure calls it by `name`."""
    words = [str(word) for word in words]
    name = name or " ".join([os.path.basename(words[0]), *words[1:3]])
    try:
        process = subprocess.Popen(words, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Failed(f"{name} cannot be started: {error}") from error
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        try:
            out, _ = process.communicate(timeout=KILLED_S)
        except subprocess.TimeoutExpired as held:  # somebody who is no descendant any more holds its output
            out = (held.stdout or b"").decode(errors="replace")
        raise Failed(f"{name} took more than {timeout:.4g} s", out, is_late=True) from None
    except BaseException:
        kill_tree(process)
        raise
    if process.returncode != 0:
        said = [line.strip() for line in err.splitlines() if re.search("[A-Za-z]", line)] or ["it said nothing"]
        # A launcher ends with words of its own; the program's came first.
        words = said[0] if len(said) < 2 or said[0] == said[-1] else f"{said[0]} ... {said[-1]}"
        raise Failed(f"{name} failed with {process.returncode}: {words}", out)
    return out
