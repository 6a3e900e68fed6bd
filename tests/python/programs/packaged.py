"""Runs the few lines of Python that a test gives as the only argument, with the package `muster` at hand.

What the lines `say` goes to standard output, a JSON object a line. The scheduler runs the same lines: `muster.init` never returns there.
"""

import json
import os
import pathlib
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, os.environ.get("PACKAGE_FOLDER") or str(TREE / "bindings" / "python"))

import muster  # noqa: E402


def say(**values):
    print(json.dumps(values), flush=True)


def told(call, *arguments, **named):
    """What a call that must fail raises."""
    began = time.monotonic()
    try:
        call(*arguments, **named)
    except muster.MusterError as error:
        words = {"error": type(error).__name__, "status": error.status.name, "sentence": str(error), "rank": error.rank}
        return {**words, "node_id": error.node_id, "cause": error.cause, "after": time.monotonic() - began}
    raise AssertionError(f"{call} has not failed")


if __name__ == "__main__":
    exec(compile(sys.argv[1], "<the test's lines>", "exec"))  # noqa: S102
