"""Runs the few lines of Python that a test gives as the only argument, as a process of a cluster.

The lines have `join()` and everything of `muster_ctypes` at hand. What they `say` goes to standard output, a JSON object
a line. A call that fails and is not caught is said too, and ends the process with exit code 1.
"""

import json
import os
import pathlib
import signal  # noqa: F401, for the lines
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import muster_ctypes  # noqa: E402
from muster_ctypes import *  # noqa: E402, F403

HOLD_SECONDS = 120


def say(**values):
    print(json.dumps(values), flush=True)


def join(settings=None, environment=True):
    """The cluster, once it is complete; ends the process where it was the scheduler."""
    began = time.monotonic()
    try:
        cluster = muster_ctypes.init(settings, environment)
    finally:
        say(seconds=time.monotonic() - began)
    if cluster is None:
        say(done=True)
        sys.exit(0)
    names = ("role", "rank", "size", "local_rank", "local_size", "node_id")
    say(joined=True, **{name: getattr(cluster, name) for name in names})
    return cluster


def hold(name):
    """Waits for the test to release these nodes."""
    path = pathlib.Path(os.environ["HOLD_FOLDER"], name)
    deadline = time.monotonic() + HOLD_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit(f"held at {name} for {HOLD_SECONDS} s")
        time.sleep(0.005)


def fails(call, *arguments):
    """What a call that must fail fails with, and how long it took."""
    began = time.monotonic()
    try:
        call(*arguments)
    except MusterError as error:  # noqa: F405
        return {"error": error.status, "sentence": error.sentence, "after": time.monotonic() - began}
    raise AssertionError(f"{call.__name__}{arguments} has not failed")


if __name__ == "__main__":
    try:
        exec(compile(sys.argv[1], "<the test's lines>", "exec"))  # noqa: S102
    except MusterError as error:  # noqa: F405
        say(error=error.status, sentence=error.sentence)
        sys.exit(1)
