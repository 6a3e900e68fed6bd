#!/usr/bin/env python3
"""An allreduce over hosts whose links carry 1 Gbit/s: how much of a link does it use?

Four network namespaces stand for the hosts (`bench/hosts.py`). An allreduce of n hosts must carry 2(n-1)/n of its bytes over
each link, there and back; prints the share of the link's rate that this came to. Headers take 4 to 5 % of what a link
carries. (An exact sum carries more: every addend once, and the sum.) Needs root and iproute2.
"""

import argparse
import re
import signal
import sys

from bench.hosts import Hosts, check_tools, measure
from bench.processes import Failed

def bits_per_second(rate):
    number, unit = re.fullmatch(r"(\d+)([kmg]bit)", rate).groups()
    return int(number) * {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}[unit]


def rate(word):
    if not re.fullmatch(r"[1-9]\d*[kmg]bit", word):
        raise argparse.ArgumentTypeError(f"{word!r}: expected a rate as tc has it, like 1gbit or 500mbit")
    return word


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4, choices=range(2, 9), metavar="2..8")
    parser.add_argument("--ranks", type=int, default=1, help="in each host")
    parser.add_argument("--rate", type=rate, default="1gbit")
    parser.add_argument("--op", default="sum", help="as muster bench has it")
    parser.add_argument("--dtype", default="float32", help="as muster bench has it")
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--format", choices=("text", "csv"), default="text")
    return parser.parse_args()


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces are removed then too
    try:
        check_tools()
        with Hosts(options.hosts, options.rate) as hosts:
            words = ["allreduce", "--sizes", str(options.bytes), "-n", str(options.iterations), "-w", "2",
                     "--op", options.op, "--dtype", options.dtype]
            # In place exact sums would grow from call to call, until they are infinite; the usual figure is that of calls in place.
            words += [] if options.op == "sum" else ["--in_place", "0"]
            row, = measure(hosts, words, ranks=options.ranks)
            us = float(row["p50_us"])
    except Failed as failure:
        sys.exit(f"bench_gigabit: {failure}")
    n = options.hosts
    share = 2 * (n - 1) / n * options.bytes * 8 / bits_per_second(options.rate) / (us / 1e6)
    if options.format == "csv":
        print(f"hosts,bytes,rate,p50_us,share\n{n},{options.bytes},{options.rate},{us:.0f},{share:.4f}")
    else:
        print(f"{n} hosts, links of {options.rate}, allreduce of {options.bytes} bytes: {us / 1e3:.1f} ms, "
              f"{share:.1%} of the links' rate")


if __name__ == "__main__":
    main()
