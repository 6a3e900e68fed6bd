"""The all-gather of the rank, held between joining and gathering until the file that HOLD_UNTIL names exists.

Prints "joined" when the cluster is complete, so that a test knows when it runs.
"""

import ctypes
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "allgather"))

import allgather


def main():
    library = allgather.load_library()
    cluster = ctypes.c_void_p()
    status = library.muster_init(None, ctypes.byref(cluster))
    if status == allgather.MUSTER_SCHEDULER_DONE:
        return
    allgather.check(library, "muster_init", status)
    print("joined", flush=True)
    deadline = time.monotonic() + 120
    while not pathlib.Path(os.environ["HOLD_UNTIL"]).exists():
        if time.monotonic() > deadline:
            sys.exit("held for 120 s")
        time.sleep(0.01)
    mine = (ctypes.c_float * 1)(library.muster_rank(cluster))
    everyone = (ctypes.c_float * library.muster_size(cluster))()
    world = library.muster_world(cluster)
    status = library.muster_allgather(world, mine, everyone, 1, allgather.MUSTER_FLOAT32)
    allgather.check(library, "muster_allgather", status)
    print([int(value) for value in everyone], flush=True)
    allgather.check(library, "muster_finalize", library.muster_finalize(cluster))
    library.muster_cluster_free(cluster)


if __name__ == "__main__":
    main()
