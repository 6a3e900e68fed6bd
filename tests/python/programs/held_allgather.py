"""The all-gather of the rank, held between joining and gathering until the file that HOLD_UNTIL names exists.

Prints "joined" when the cluster is complete, so that a test knows when it runs.
"""

import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import muster_ctypes  # noqa: E402


def main():
    cluster = muster_ctypes.init()
    if cluster is None:
        return
    print("joined", flush=True)
    deadline = time.monotonic() + 120
    while not pathlib.Path(os.environ["HOLD_UNTIL"]).exists():
        if time.monotonic() > deadline:
            sys.exit("held for 120 s")
        time.sleep(0.01)
    print(cluster.world.allgather(cluster.rank), flush=True)
    cluster.leave()


if __name__ == "__main__":
    main()
