"""Runs the few lines of Python that a test gives as the first argument, with torch at hand. What they `say` goes to standard output."""

import json
import sys

import torch
import torch.distributed as dist


def say(**values):
    print(json.dumps(values), flush=True)


def told(call, *arguments, **named):
    """What a call that must fail raises: its class, those that it is, and its words."""
    try:
        call(*arguments, **named)
    except Exception as error:
        return {"error": type(error).__name__, "kinds": [kind.__name__ for kind in type(error).__mro__], "sentence": str(error)}
    raise AssertionError(f"{call} has not failed")


def begin(**named):
    """Joins, and gives rank and size."""
    dist.init_process_group("muster", **named)
    return dist.get_rank(), dist.get_world_size()


if __name__ == "__main__":
    assert torch.__version__
    exec(compile(sys.argv[1], "<the test's lines>", "exec"))  # noqa: S102
