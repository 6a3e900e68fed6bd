"""A worker for the launcher's tests: all-gathers until its time has come, and rank 1 then breaks it as it is told.

cluster_worker.py leave | kill | exit0 | exit5 | raise
"""

import os
import signal
import sys

import muster_ctypes

ROUNDS = 200


def break_it(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "raise":
        raise RuntimeError("my own fault")
    elif how.startswith("exit"):
        os._exit(int(how.removeprefix("exit")))


def main():
    cluster = muster_ctypes.init()
    rank, size = cluster.rank, cluster.size
    print(f"rank {rank} of {size}", flush=True)
    for step in range(ROUNDS):
        if rank == 1 and step == ROUNDS // 2:
            break_it(sys.argv[1])
        cluster.world.allgather(rank)
    cluster.leave()


main()
