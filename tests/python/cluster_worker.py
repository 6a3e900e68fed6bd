"""A worker for the launcher's tests: all-gathers until its time has come, and rank 1 then breaks it as it is told.

cluster_worker.py leave | kill | stop | abort | exit0 | exit5 | raise | left9 | left0

With left9 and left0 rank 1 leaves in order, and exits with that code. With left9 the others are in no call then.
"""

import os
import signal
import sys

import muster_ctypes

ROUNDS = 200


def break_it(how, cluster):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "abort":
        cluster.abort(7, "bad data")
        # Python's own end may take longer than the launcher gives those that are left. So it tells this process to end.
        signal.pause()
    elif how == "raise":
        raise RuntimeError("my own fault")
    elif how.startswith("left"):
        cluster.leave()
        os._exit(int(how.removeprefix("left")))
    elif how.startswith("exit"):
        os._exit(int(how.removeprefix("exit")))


def main():
    cluster = muster_ctypes.init()
    rank, size = cluster.rank, cluster.size
    print(f"rank {rank} of {size}", flush=True)
    for step in range(ROUNDS):
        if rank == 1 and step == ROUNDS // 2:
            break_it(sys.argv[1], cluster)
        elif sys.argv[1] == "left9" and step == ROUNDS // 2:
            signal.pause()
        cluster.world.allgather(rank)
    cluster.leave()


main()
