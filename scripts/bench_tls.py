#!/usr/bin/env python3
"""What TLS and a job secret cost: an allreduce of 8 B and of 64 MiB on 2 ranks, and the start of 64 processes, in plain TCP, under a
secret, and under TLS, in turns. Prints the medians, and how near TLS comes to what its cipher allows.

That is 1 / (1/plain + 1/seal + 1/open): the bytes that each rank's link carries in a second without TLS, and those that one thread
seals and opens with ring in records of 16 KiB (`benches/records.rs`), all measured in the same turn. With --gigabit also: the
share of the rate of links of 1 Gbit/s between network namespaces, which needs root and iproute2. Needs what `make build` makes.
"""

import argparse
import contextlib
import csv
import io
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

from bench.hosts import Hosts, check_tools, measure
from bench.processes import Failed, run
from bench.programs import MUSTER, OVER_TCP, TREE

RECORDS = TREE / "target" / "release" / "examples" / "records"
LARGE, SMALL = 64 << 20, 8
GIGABIT = 1e9


def settings_of(state, certificates):
    """The environment of a state, without what the caller has set. An empty secret is none. Bytes in memory are never encrypted."""
    return OVER_TCP | {
        "plain": {"MUSTER_JOB_SECRET": ""},
        "secret": {"MUSTER_JOB_SECRET": "of this benchmark"},
        "TLS": {"MUSTER_JOB_SECRET": "", "MUSTER_ENABLE_SSL": "1", "MUSTER_CONFIG_FILE_PATH": certificates / "node" / "tls.json"},
    }[state]


def rows(words, environment):
    return list(csv.DictReader(io.StringIO(run([MUSTER, "bench", *words, "--format", "csv"], 300, environment))))


def turn(state, certificates, options):
    environment = {name: str(value) for name, value in settings_of(state, certificates).items()}
    found = {}
    for row in rows(["allreduce", "--worker_num", "2", "--sizes", f"{SMALL},{LARGE}"], environment):
        found[f"{row['bytes']} B, us"] = float(row["p50_us"])
        found[f"{row['bytes']} B, GB/s"] = float(row["busbw_gb_s"])
        if row["wrong"] != "0":
            raise Failed(f"{state}: {row['wrong']} wrong results")
    (row,) = rows(["bootstrap", "--worker_num", str(options.processes), "--iters", "1"], environment)
    found["start, ms"] = float(row["median_ms"])
    return found


def gigabit(state, certificates):
    """The share of a link's rate that an allreduce uses: of 2 ranks each carries all its bytes, there and back."""
    environment = {name: str(value) for name, value in settings_of(state, certificates).items()}
    with Hosts(2, "1gbit") as hosts:
        (row,) = measure(hosts, ["allreduce", "--sizes", str(LARGE), "--iters", "3"], environment)
    return float(row["busbw_gb_s"]) * 8e9 / GIGABIT


def yardstick():
    words = run([RECORDS], 60).strip().split(",")
    return float(words[1]), float(words[3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--gigabit", action="store_true")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-tls-"))
    states, found, shares = ("plain", "secret", "TLS"), {}, []
    try:
        run(["cargo", "build", "--release", "--quiet", "--example", "records"], 600)
        run([MUSTER, "certs", "new", folder / "certs"], 60)
        for _ in range(options.turns):
            seal, open_ = yardstick()
            this = {state: turn(state, folder / "certs", options) for state in states}
            for state, figures in this.items():
                for name, figure in figures.items():
                    found.setdefault(name, {}).setdefault(state, []).append(figure)
            large = f"{LARGE} B, GB/s"
            bound = 1 / (1 / this["plain"][large] + 1 / seal + 1 / open_)
            shares.append(this["TLS"][large] / bound)
            print(f"seal {seal:.2f} GB/s, open {open_:.2f}, bound {bound:.3f}: TLS reaches {shares[-1]:.0%}", flush=True)
        if options.gigabit:
            check_tools()
            for state in states:
                found.setdefault("share of 1 Gbit/s", {})[state] = [gigabit(state, folder / "certs")]
    except Failed as failure:
        sys.exit(f"bench_tls: {failure}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\nmedians of {options.turns} turns (least to most); load {os.getloadavg()[0]:.1f}\n")
    print(f"| | {' | '.join(states)} |\n| --- |{' --- |' * len(states)}")
    for name, by_state in found.items():
        cells = [f"{statistics.median(by_state[state]):.4g} ({min(by_state[state]):.4g} to {max(by_state[state]):.4g})" for state in states]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nTLS at 64 MiB: {statistics.median(shares):.0%} of what its cipher allows ({min(shares):.0%} to {max(shares):.0%})")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
