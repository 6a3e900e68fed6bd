#!/usr/bin/env python3
"""How large a build is, how long it takes to load, to start 64 processes and to reduce; beside another build, in turns.

bench_build.py [--beside FOLDER] [--turns 7]. FOLDER is another tree's target/release. Of each figure the median is printed, with the
least and the most. Processor time tells two builds apart where other programs disturb the clock: it is that of all ranks, by call.
Needs what `make build` makes.
"""

import argparse
import contextlib
import csv
import io
import os
import pathlib
import resource
import statistics
import subprocess
import sys

from bench.processes import Failed, run
from bench.programs import BUILT, OPTIMIZED, TREE

SIZES = {8: 30000, 64 << 10: 6000, 16 << 20: 80}
RANKS = (2, 4)
LOADS = 21


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stripped(path, to):
    subprocess.run(["strip", "--strip-unneeded", "-o", to, path], check=True)
    return to.stat().st_size


def rows(muster, words):
    return list(csv.DictReader(io.StringIO(run([muster, "bench", *words, "--format", "csv"], 600))))


def allreduce(muster, ranks, size, calls):
    """The processor seconds of a run, and its row."""
    before = processor_seconds()
    found = rows(muster, ["allreduce", "--worker_num", str(ranks), "--sizes", str(size), "--iters", str(calls), "-c", "0"])
    return processor_seconds() - before, found


def turn(folder, load, processes):
    found = {}
    library, command = folder / "libmuster.so", folder / "muster"
    loads = [[int(word) / 1e3 for word in run([load, library], 60).split()] for _ in range(LOADS)]
    for what, figures in zip(("load, us", "load, processor us"), zip(*loads)):
        found[what] = statistics.median(figures)
    (row,) = rows(command, ["bootstrap", "--worker_num", str(processes), "--iters", "1"])
    found[f"start of {processes}, ms"] = float(row["median_ms"])
    for ranks in RANKS:
        for size, calls in SIZES.items():
            # What the start and the calls before the first that counts take is the same with one call.
            used, (row,) = allreduce(command, ranks, size, calls)
            rest, _ = allreduce(command, ranks, size, 1)
            found[f"allreduce of {size} B, {ranks} ranks, us"] = float(row["p50_us"])
            found[f"allreduce of {size} B, {ranks} ranks, processor us"] = (used - rest) * 1e6 / (calls - 1)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--processes", type=int, default=64)
    options = parser.parse_args()
    builds = {"this": TREE / "target" / "release", **({"beside": options.beside} if options.beside else {})}
    BUILT.mkdir(parents=True, exist_ok=True)
    load, found = BUILT / "load", {}
    try:
        subprocess.run(["gcc", *OPTIMIZED, TREE / "benches" / "load.c", "-ldl", "-o", load], check=True)
        for name, folder in builds.items():
            for what in ("libmuster.so", "muster"):
                found.setdefault(f"{what}, stripped, bytes", {})[name] = [stripped(folder / what, BUILT / "stripped")]
        for _ in range(options.turns):
            for name, folder in builds.items():
                for what, figure in turn(folder, load, options.processes).items():
                    found.setdefault(what, {}).setdefault(name, []).append(figure)
    except (Failed, subprocess.CalledProcessError) as failure:
        sys.exit(f"bench_build: {failure}")
    print(f"medians of {options.turns} turns (least to most); load {os.getloadavg()[0]:.1f}\n")
    print(f"| | {' | '.join(builds)} |\n| --- |{' --- |' * len(builds)}")
    for what, by_build in found.items():
        cells = [f"{statistics.median(by_build[name]):.7g} ({min(by_build[name]):.7g} to {max(by_build[name]):.7g})" for name in builds]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
