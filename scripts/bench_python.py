#!/usr/bin/env python3
"""What a call from Python costs more than the same call from C: an allreduce of 8 bytes, of muster and of mpi4py on Open MPI.

    make bench-python

Each process runs the same allreduce in a loop of Python and in a loop of C (benches/python/loop.c), in turns, on the same group. With
one rank nobody waits, and the processor time of the thread counts: the difference is what Python adds. With two ranks the time on
the clock counts. Medians of the rounds.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
BUILT = TREE / "target" / "benches"
MUSTER = TREE / "target" / "release" / "muster"
TIMEOUT_S = 300
CLOCKS = {"thread": (time.CLOCK_THREAD_CPUTIME_ID, time.thread_time_ns), "wall": (time.CLOCK_MONOTONIC, time.monotonic_ns)}


def build():
    BUILT.mkdir(parents=True, exist_ok=True)
    words = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", str(TREE / "benches" / "python" / "loop.c")]
    library = ["-L", str(TREE / "target" / "release"), "-lmuster"]  # the package has loaded it before
    subprocess.run(["cc", *words, "-I", str(TREE / "include"), *library, "-o", str(BUILT / "loop_muster.so")], check=True)
    if shutil.which("mpicc.openmpi"):
        subprocess.run(["mpicc.openmpi", "-DWITH_MPI", *words, "-o", str(BUILT / "loop_mpi.so")], check=True)


def c_loop(name):
    loop = ctypes.CDLL(str(BUILT / name)).loop
    loop.argtypes, loop.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32], ctypes.c_int64
    return loop


def rounds_of(options, call, in_c):
    """Nanoseconds a call, of each round: from C and from Python."""
    clock, now = CLOCKS[options.clock]
    found = {"c": [], "python": []}
    for _ in range(options.rounds):
        found["c"].append(in_c(options.calls, clock) / options.calls)
        began = now()
        for _ in range(options.calls):
            call()
        found["python"].append((now() - began) / options.calls)
    return found


def work_muster(options):
    import numpy as np

    sys.path.insert(0, str(TREE / "bindings" / "python"))
    import muster

    with muster.init() as cluster:
        world, data = cluster.world, np.zeros(2, np.float32)
        loop = c_loop("loop_muster.so")
        address = data.ctypes.data
        found = rounds_of(options, lambda: world.allreduce(data), lambda calls, clock: loop(world._handle, address, calls, clock))
        if cluster.rank == 0:
            return {**found, "stages": stages(options, world, data) if cluster.size == 1 else {}}


def stages(options, world, data):
    """Nanoseconds of each thing that the call does, one after another, each without the others."""
    from muster._library import SIGNATURES
    from muster._memory import NUMBERS, Place

    nothing = ctypes.CDLL(str(BUILT / "loop_muster.so")).nothing
    nothing.restype, nothing.argtypes = SIGNATURES["allreduce"]
    view, place, handle = memoryview(data), Place.from_buffer(data), world._handle
    parts = {
        "loop and an empty lambda": lambda: None,
        "memoryview(x): type, length, and whether it is contiguous": lambda: memoryview(data),
        "its address (ctypes' from_buffer)": lambda: Place.from_buffer(view),
        "its type and count": lambda: (view.nbytes // view.itemsize, NUMBERS[view.format]),
        "ctypes: six arguments, the interpreter's lock, a C function that does nothing":
            lambda: nothing(handle, place, place, 2, 10, 0),
    }
    times = {}
    for name, part in parts.items():
        found = []
        for _ in range(options.rounds):
            began = time.thread_time_ns()
            for _ in range(options.calls):
                part()
            found.append((time.thread_time_ns() - began) / options.calls)
        times[name] = statistics.median(found)
    empty = times.pop("loop and an empty lambda")
    return {name: round(value - empty) for name, value in times.items()}


def work_mpi4py(options):
    import numpy as np
    from mpi4py import MPI

    world, data = MPI.COMM_WORLD, np.zeros(2, np.float32)
    loop = c_loop("loop_mpi.so")
    handle, address = MPI._addressof(world), data.ctypes.data
    call = world.Allreduce
    found = rounds_of(options, lambda: call(MPI.IN_PLACE, data), lambda calls, clock: loop(handle, address, calls, clock))
    return found if world.rank == 0 else None


def run(options, who, ranks):
    """The medians of one measurement, or None where it cannot be made here."""
    clock = "thread" if ranks == 1 else "wall"
    words = [sys.executable, __file__, "--worker", who, "--clock", clock, "--calls", str(options.calls), "--rounds", str(options.rounds)]
    out = BUILT / f"python_{who}_{ranks}.json"
    out.unlink(missing_ok=True)
    environment = {**os.environ, "BENCH_OUT": str(out), "MPI4PY_MPIABI": "openmpi"}  # MPICH may be there, too
    if who == "muster":
        launcher = [str(MUSTER), "run", "--worker_num", str(ranks), "--local_worker_num", str(ranks), "--master_port", "0", "--join", "True",
                    "--log_dir", str(BUILT / "python_logs")]
    else:
        launcher = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    try:
        subprocess.run([*launcher, *words], env=environment, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{who} with {ranks} ranks: not measured: {error}", file=sys.stderr)
        return None
    return json.loads(out.read_text())


def table(results):
    yield "| 8 B allreduce | ranks | from C, us | from Python, us | Python adds, us |"
    yield "| --- | --- | --- | --- | --- |"
    for (who, ranks), found in results.items():
        if found:
            c, python = (statistics.median(found[side]) / 1000 for side in ("c", "python"))
            yield f"| {who} | {ranks} | {c:.2f} | {python:.2f} | {python - c:.2f} |"
    alone = results.get(("muster", 1))
    if alone:
        yield ""
        yield "| where it goes, in muster | ns |"
        yield "| --- | --- |"
        for name, value in alone["stages"].items():
            yield f"| {name} | {value} |"
        rest = statistics.median(alone["python"]) - statistics.median(alone["c"]) - sum(alone["stages"].values())
        yield f"| the rest: the method, the operation's name, whether a signal came | {rest:.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--limit", type=float, help="fail where muster's Python adds more than so many microseconds to a call alone")
    parser.add_argument("--worker", choices=["muster", "mpi4py"], help=argparse.SUPPRESS)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        found = work_muster(options) if options.worker == "muster" else work_mpi4py(options)
        if found:
            pathlib.Path(os.environ["BENCH_OUT"]).write_text(json.dumps(found))
        return 0
    build()
    results = {(who, ranks): run(options, who, ranks) for ranks in (1, 2) for who in ("muster", "mpi4py")}
    print("\n".join(table(results)))
    alone = results["muster", 1]
    if not alone:
        return 1
    added = (statistics.median(alone["python"]) - statistics.median(alone["c"])) / 1000
    return int(options.limit is not None and added > options.limit)


if __name__ == "__main__":
    sys.exit(main())
