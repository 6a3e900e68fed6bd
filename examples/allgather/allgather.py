#!/usr/bin/env python3
"""The smoke test from Python, with nothing but the standard library: all-gather of [[rank]].

Started once with MS_ROLE=MS_SCHED and N times with MS_ROLE=MS_WORKER; on 4 workers each prints
[[0.], [1.], [2.], [3.]]

The library is the one that MUSTER_LIBRARY names, or target/release/libmuster.so of this source tree.
"""

import ctypes
import os
import pathlib
import signal
import sys

MUSTER_OK = 0
MUSTER_SCHEDULER_DONE = 2
MUSTER_FLOAT32 = 10


def load_library():
    """The shared library with the signatures of the calls used here."""
    tree = pathlib.Path(__file__).resolve().parents[2]
    path = os.environ.get("MUSTER_LIBRARY") or tree / "target" / "release" / "libmuster.so"
    library = ctypes.CDLL(str(path))
    handle, floats = ctypes.c_void_p, ctypes.POINTER(ctypes.c_float)
    signatures = {
        "muster_init": (ctypes.c_int32, [handle, ctypes.POINTER(handle)]),
        "muster_finalize": (ctypes.c_int32, [handle]),
        "muster_cluster_free": (None, [handle]),
        "muster_rank": (ctypes.c_int32, [handle]),
        "muster_size": (ctypes.c_int32, [handle]),
        "muster_world": (handle, [handle]),
        "muster_allgather": (ctypes.c_int32, [handle, floats, floats, ctypes.c_size_t, ctypes.c_int32]),
        "muster_last_error": (ctypes.c_char_p, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def check(library, call, status):
    """Ends the program with the library's own sentence when a call failed."""
    if status != MUSTER_OK:
        sys.exit(f"allgather.py: {call}: {library.muster_last_error().decode()}")


def main():
    # Python runs its own handler between its instructions only, and muster_init waits in one of them for all the others.
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # so Ctrl-C ends this process also there
    library = load_library()
    cluster = ctypes.c_void_p()
    status = library.muster_init(None, ctypes.byref(cluster))
    if status == MUSTER_SCHEDULER_DONE:
        return
    check(library, "muster_init", status)

    mine = (ctypes.c_float * 1)(library.muster_rank(cluster))
    everyone = (ctypes.c_float * library.muster_size(cluster))()
    world = library.muster_world(cluster)
    check(library, "muster_allgather", library.muster_allgather(world, mine, everyone, 1, MUSTER_FLOAT32))
    print("[" + ", ".join(f"[{value:.0f}.]" for value in everyone) + "]", flush=True)

    check(library, "muster_finalize", library.muster_finalize(cluster))
    library.muster_cluster_free(cluster)


if __name__ == "__main__":
    main()
