#!/usr/bin/env python3
"""Where one algorithm should take over from another: measures both sides of every threshold, in turn.

`muster bench` runs with the setting `thresholds` so that one algorithm is taken at every size, then the other: with all ranks on
this host, and with one rank on each of a few hosts whose links are limited (`bench/hosts.py`, as root). Prints a table for
`scripts/bench/performance.in.md`: microseconds on the slowest rank, the median of the passes, first / second algorithm, and the size
from which on the second was quicker at every size.
"""

import argparse
import csv
import signal
import statistics
import sys

from bench.hosts import Hosts, check_tools, measure
from bench.processes import Failed, run
from bench.programs import MUSTER, OVER_TCP

KIB = 1 << 10
ALWAYS, NEVER = 1 << 40, 0
ONE_WAY = ("broadcast", "gather", "reduce", "scatter")  # who only sends runs ahead: a barrier makes it wait
NO_TREES = {"allreduce_tree_ranks": ALWAYS, "barrier_tree_ranks": ALWAYS}

## The threshold, its collective, the ranks for which it is one, the sizes per rank, how it is set for the first algorithm and for the
## second (it is the last size of the first), and what else must be out of the way.
CASES = [
    ("broadcast_binomial_bytes", "broadcast", (4, 8), [16, 64, 128, 256, 1024, 4096], {}),
    ("allreduce_pair_bytes", "allreduce", (2,), [64, 128, 256, 512], {}),
    ("allreduce_doubling_bytes", "allreduce", (4, 8), [4, 8, 16, 32, 64], {}),
    ("allreduce_gather_bytes", "allreduce", (3, 6), [4, 8, 16, 32], {}),
    ("allreduce_halving_bytes", "allreduce", (4, 8), [4096, 16384, 65536], {}),
    ("allreduce_circulant_bytes", "allreduce", (3, 6), [256, 512, 1024, 4096], {"allreduce_gather_bytes": NEVER}),
    ("allgather_doubling_bytes", "allgather", (4, 8), [32, 64, 128, 256, 512], {"allgather_circulant_bytes": NEVER}),
    ("allgather_bruck_bytes", "allgather", (3, 6), [4, 8, 16, 32], {}),
    ("allgather_circulant_bytes", "allgather", (3, 6), [64, 128, 256, 512], {"allgather_bruck_bytes": NEVER}),
    ("reduce_binomial_bytes", "reduce", (4, 8), [16, 32, 64, 128, 512, 2048], {}),
    ("gather_binomial_bytes", "gather", (4, 8), [0.125, 1, 4, 8, 16, 32, 128], {}),
    ("scatter_binomial_bytes", "scatter", (4, 8), [0.125, 1, 4, 8, 16, 32, 128], {}),
    ("reduce_scatter_circulant_bytes", "reduce_scatter", (4, 8), [4, 8, 16, 64, 256], {}),
    ("alltoall_bruck_bytes", "alltoall", (4, 8), [0.125, 0.5, 1, 2, 8], {}),
]


def times(rows):
    return {int(row["bytes"]): float(row["p50_us"]) for row in rows}


def here(ranks, words, settings):
    words = [MUSTER, "bench", *words, "--worker_num", ranks, "--format", "csv"]
    return list(csv.DictReader(run(words, 90, OVER_TCP | settings).splitlines()))


def sides(threshold, call, sizes, others, ranks, measure_with):
    """The times of both algorithms, by size."""
    words = [call, "--sizes", ",".join(str(int(size * KIB)) for size in sizes), "-c", "0"]
    if call in ONE_WAY:
        words += ["--barrier", "1"]
    found = []
    for value in (ALWAYS, NEVER):
        numbers = {**NO_TREES, **others, threshold: value}
        setting = ",".join(f"{name}={number}" for name, number in numbers.items())
        found.append(times(measure_with(ranks, words, {"MUSTER_THRESHOLDS": setting})))
    return found


def crossing(sizes, first, second):
    """From which size on the second is quicker at all sizes; none where it never is."""
    slower = [index for index, size in enumerate(sizes) if first[size] <= second[size]]
    after = slower[-1] + 1 if slower else 0
    return sizes[after] if after < len(sizes) else None


def words_of(size):
    if size is None:
        return "never"
    return f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def line(name, ranks, passes):
    """A row of the table, from the pairs of each pass."""
    sizes = sorted(passes[0][0])
    first, second = ({size: statistics.median(one[side][size] for one in passes) for size in sizes} for side in (0, 1))
    cells = [f"{words_of(size)}: {first[size]:,.0f} / {second[size]:,.0f}" for size in sizes]
    return f"| `{name}` | {ranks} | {', '.join(cells)} | {words_of(crossing(sizes, first, second))} |"


def table(title, counts, passes, measure_with, only):
    print(f"\n{title}\n\n| threshold | ranks | first / second, us, by bytes per rank | second is quicker from |")
    print("| --- | --- | --- | --- |")
    for name, call, of, sizes, others in CASES:
        for ranks in (ranks for ranks in of if ranks in counts and (not only or name in only)):
            found = [sides(name, call, sizes, others, ranks, measure_with) for _ in range(passes)]
            print(line(name, ranks, found), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rate", default="1gbit", help="what the hosts' links carry (1gbit)")
    parser.add_argument("--where", choices=("here", "hosts", "both"), default="both")
    parser.add_argument("--hosts", type=int, action="append", choices=range(2, 9), metavar="2..8",
                        help="how many hosts; repeatable (2, 3 and 4)")
    parser.add_argument("--only", action="append", choices=[case[0] for case in CASES], help="a threshold; repeatable")
    return parser.parse_args()


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces are removed then too
    try:
        if options.where != "hosts":
            table("On this host:", (2, 4, 6, 8, 3), options.passes, here, options.only)
        if options.where != "here":
            check_tools()

            def over(ranks, words, settings):
                with Hosts(ranks, options.rate) as hosts:
                    return measure(hosts, words, settings)
            table(f"One rank on each host, links of {options.rate}:", options.hosts or (2, 3, 4), options.passes, over, options.only)
    except Failed as failure:
        sys.exit(f"bench_thresholds: {failure}")


if __name__ == "__main__":
    main()
