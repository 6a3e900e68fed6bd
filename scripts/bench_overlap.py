#!/usr/bin/env python3
"""Allreduces that go on while the program computes: muster_iallreduce in memory and over TCP, MPI_Iallreduce of Open MPI, and
PyTorch's async_op on Gloo where `make torch` has installed it. In turns; prints the medians as a table.

All are timed in one way, that of the OSU benchmarks: see `muster bench iallreduce --help`. Needs what `make build` makes.
"""

import argparse
import csv
import io
import pathlib
import re
import statistics
import sys
import tempfile

from bench.processes import Failed, run
from bench.programs import BUILT, MPI_ENVIRONMENT, MUSTER, OVER_TCP, PEERS_C, TREE, check_build, install

import fetch_torch

NAMES = ("bytes", "iterations", "blocking", "wait", "compute", "overall", "overlap")
LIMIT_S = 300


def of_muster(ranks, sizes, environment):
    words = [MUSTER, "bench", "iallreduce", "--worker_num", ranks, "--sizes", ",".join(map(str, sizes)), "--format", "csv"]
    rows = csv.DictReader(io.StringIO(run(words, LIMIT_S, environment)))
    return {int(row["bytes"]): {name: float(row.get(f"{name}_us") or row.get(f"{name}_percent") or 0) for name in NAMES[2:]} for row in rows}


def read(text):
    lines = (line for line in text.splitlines() if re.fullmatch(r"[\d.,]+", line))
    rows = [dict(zip(NAMES, map(float, line.split(",")))) for line in lines]
    return {int(row["bytes"]): row for row in rows}


def of_open_mpi(ranks, sizes):
    words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", ranks, BUILT / "overlap_mpi", *sizes]
    return read(run(words, LIMIT_S, MPI_ENVIRONMENT))


def of_torch(python, ranks, sizes):
    with tempfile.TemporaryDirectory() as folder:
        words = [MUSTER, "run", "--worker_num", ranks, "--master_port", "0", "--join", "--log_dir", folder]
        run([*words, python, TREE / "benches" / "overlap" / "torch_gloo.py", *sizes], LIMIT_S)
        return read((pathlib.Path(folder) / "worker_0.log").read_text())


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--turns", type=int, default=5)
    words.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    words.add_argument("--sizes", type=int, nargs="+", default=[8, 1 << 16, 1 << 20, 16 << 20])
    options = words.parse_args()
    check_build()
    install()
    run(["mpicc.openmpi", *PEERS_C, TREE / "benches" / "overlap" / "mpi.c", "-o", BUILT / "overlap_mpi"], 120)
    programs = {
        "muster": lambda ranks: of_muster(ranks, options.sizes, {}),
        "muster, TCP": lambda ranks: of_muster(ranks, options.sizes, OVER_TCP),
        "Open MPI": lambda ranks: of_open_mpi(ranks, options.sizes),
    }
    python = fetch_torch.python(fetch_torch.VERSIONS[-1])
    if python:
        programs["PyTorch on Gloo"] = lambda ranks: of_torch(python, ranks, options.sizes)
    else:
        print("PyTorch is not installed (make torch), and left out", file=sys.stderr)
    print("| ranks | bytes | program | blocking, us | call and wait, us | overall, us | overlap, % |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for ranks in options.ranks:
        found = {name: [] for name in programs}
        for turn in range(options.turns):
            for name in sorted(programs, reverse=turn % 2 == 1):
                found[name].append(programs[name](ranks))
        for size in options.sizes:
            for name, turns in found.items():
                median = {column: statistics.median(turn[size][column] for turn in turns) for column in NAMES[2:]}
                shown = " | ".join(f"{median[column]:.4g}" for column in ("blocking", "wait", "overall", "overlap"))
                print(f"| {ranks} | {size:,} | {name} | {shown} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"bench_overlap: {failed}")
