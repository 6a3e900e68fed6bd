"""A worker whose log callback is Python: it takes longer than a node may be silent, and needs the interpreter's lock, which
the main thread also keeps for longer than that while it is in a call."""

import ctypes
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from muster_ctypes import LIBRARY, init  # noqa: E402

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
DEBUG = 4
HOLDS_THE_LOCK = ctypes.PyDLL(LIBRARY._name)  # its calls keep the interpreter's lock

heard = []


@CALLBACK
def slow(level, target, message, ctx):
    heard.append(message)
    time.sleep(3)


def main():
    LIBRARY.muster_set_log_callback.argtypes = [ctypes.c_int32, CALLBACK, ctypes.c_void_p]
    HOLDS_THE_LOCK.muster_barrier.argtypes = [ctypes.c_void_p]
    LIBRARY.muster_set_log_callback(DEBUG, slow, None)
    cluster = init()
    if cluster.world.rank == 0:
        time.sleep(3)  # the others wait for it, and keep the lock meanwhile
    assert HOLDS_THE_LOCK.muster_barrier(cluster.world.handle) == 0
    cluster.world.barrier()
    cluster.finalize()
    LIBRARY.muster_set_log_callback(DEBUG, CALLBACK(0), None)
    said = len(heard)
    cluster.free()
    time.sleep(0.1)
    assert 0 < said == len(heard), heard


if __name__ == "__main__":
    main()
