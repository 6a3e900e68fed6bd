#!/usr/bin/env python3
"""An allreduce over hosts whose links carry 1 Gbit/s: how much of a link does it use?

Four network namespaces stand for the hosts. A pair of virtual interfaces leads from each to a bridge in a fifth, and
`tc tbf` limits what each host sends. One rank of `muster bench allreduce` runs in each, the scheduler beside rank 0.
An allreduce of n ranks must carry 2(n-1)/n of its bytes over each link, there and back; prints the share of the link's
rate that this came to. Headers take 4 to 5 % of what a link carries.

Needs root and iproute2. The namespaces have names of their own and are removed at the end, those of a run that was
killed by the next run.
"""

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from bench.processes import Failed, kill_tree, run
from bench.programs import MUSTER

PREFIX = "muster-gbit-"
NETWORK = "10.213.77"
PORT = 8118  # in a namespace of our own every port is free
TIMEOUT_S = 90


def ip(*words):
    run(["ip", *words], 10)


def remove_namespaces(names):
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=10)


def left_by_the_dead():
    """The namespaces of runs whose process is no more."""
    names = run(["ip", "netns", "list"], 10).split()
    found = (re.fullmatch(rf"{PREFIX}(\d+)-\w+", name) for name in names)
    return [match[0] for match in found if match and not os.path.exists(f"/proc/{match[1]}")]


class Hosts:
    """The namespaces, as a context: `names[i]` is host i, whose address is `address(i)`."""

    def __init__(self, count, rate):
        base = f"{PREFIX}{os.getpid()}-"
        self.rate, self.switch = rate, base + "switch"
        self.names = [f"{base}host{index}" for index in range(count)]

    @staticmethod
    def address(index):
        return f"{NETWORK}.{index + 1}"

    def __enter__(self):
        try:
            remove_namespaces(left_by_the_dead())
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for index, name in enumerate(self.names):
                self.connect(index, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def connect(self, index, name):
        port = f"port{index}"
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.switch)
        ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
        ip("-n", name, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", "128kb",
             "latency", "50ms"], 10)

    def __exit__(self, *_):
        remove_namespaces([*self.names, self.switch])


def start(name, words, settings):
    return subprocess.Popen(["ip", "netns", "exec", name, MUSTER, *words], env={**os.environ, **settings},
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def measure(hosts, size, iterations):
    """The median of the slowest rank, in microseconds."""
    count = len(hosts.names)
    settings = {"MUSTER_SCHED_HOST": hosts.address(0), "MUSTER_SCHED_PORT": str(PORT), "MUSTER_WORKER_NUM": str(count)}
    words = ["bench", "allreduce", "--sizes", str(size), "-n", str(iterations), "-w", "2", "--format", "csv"]
    processes = []
    try:
        processes.append(start(hosts.names[0], ["scheduler"], {**settings, "MUSTER_ROLE": "MS_SCHED"}))
        for index, name in enumerate(hosts.names):
            own = {"MUSTER_ROLE": "MS_WORKER", "MUSTER_NODE_ID": str(index), "MUSTER_WORKER_IP": hosts.address(index)}
            processes.append(start(name, words, {**settings, **own}))
        deadline = time.monotonic() + TIMEOUT_S
        outputs = [process.communicate(timeout=max(0.1, deadline - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired:
        raise Failed(f"the allreduce has not ended after {TIMEOUT_S} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                kill_tree(process)
                process.wait()
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode != 0:
            raise Failed(f"a rank or the scheduler failed with {process.returncode}: {errors.strip()[-300:]}")
    row, = csv.DictReader(outputs[1][0].splitlines())
    return float(row["p50_us"])


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
    parser.add_argument("--rate", type=rate, default="1gbit")
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--format", choices=("text", "csv"), default="text")
    return parser.parse_args()


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces are removed then too
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    try:
        if missing:
            raise Failed(f"{' and '.join(missing)} not found: install iproute2")
        if os.geteuid() != 0:
            raise Failed("only root can make network namespaces")
        with Hosts(options.hosts, options.rate) as hosts:
            us = measure(hosts, options.bytes, options.iterations)
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
