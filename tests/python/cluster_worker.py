"""A worker for the launcher's tests: all-gathers until its time has come, and rank 1 then breaks it as it is told.

cluster_worker.py leave | kill | exit0 | exit5 | raise
"""

import ctypes
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "allgather"))
from allgather import MUSTER_FLOAT32, check, load_library  # noqa: E402

ROUNDS = 200


def break_it(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "raise":
        raise RuntimeError("my own fault")
    elif how.startswith("exit"):
        os._exit(int(how.removeprefix("exit")))


def main():
    library = load_library()
    cluster = ctypes.c_void_p()
    check(library, "muster_init", library.muster_init(None, ctypes.byref(cluster)))
    rank, size = library.muster_rank(cluster), library.muster_size(cluster)
    print(f"rank {rank} of {size}", flush=True)
    mine, all_of_them = (ctypes.c_float * 1)(rank), (ctypes.c_float * size)()
    for step in range(ROUNDS):
        if rank == 1 and step == ROUNDS // 2:
            break_it(sys.argv[1])
        world = library.muster_world(cluster)
        check(library, "muster_allgather", library.muster_allgather(world, mine, all_of_them, 1, MUSTER_FLOAT32))
    check(library, "muster_finalize", library.muster_finalize(cluster))
    library.muster_cluster_free(cluster)


main()
