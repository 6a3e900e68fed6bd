"""Hosts that this machine plays: network namespaces, each with a link of its own whose rate is limited, and one rank of
`muster bench` in each, or several.

A pair of virtual interfaces leads from each to a bridge in a namespace more, and `tc tbf` limits what each host sends. Needs root and
iproute2. The namespaces have names of their own and are removed at the end, those of a run that was killed by the next run.
"""

import csv
import os
import re
import shutil
import subprocess
import time

from .processes import Failed, kill_tree, run
from .programs import MUSTER

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


def check_tools():
    """Fails where no hosts can be made."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise Failed(f"{' and '.join(missing)} not found: install iproute2")
    if os.geteuid() != 0:
        raise Failed("only root can make network namespaces")


class Hosts:
    """The namespaces, as a context: `names[i]` is host i, whose address is `address(i)`. Without a rate links have no limit."""

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
        if self.rate:
            run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", "128kb",
                 "latency", "50ms"], 10)

    def __exit__(self, *_):
        remove_namespaces([*self.names, self.switch])


def start(name, words, settings):
    return subprocess.Popen(["ip", "netns", "exec", name, MUSTER, *words], env={**os.environ, **settings},
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def measure(hosts, words, settings=None, ranks=1):
    """The rows of `muster bench` with these words, so many ranks in each host and the scheduler beside rank 0."""
    count = len(hosts.names) * ranks
    settings = {**(settings or {}), "MUSTER_SCHED_HOST": hosts.address(0), "MUSTER_SCHED_PORT": str(PORT),
                "MUSTER_WORKER_NUM": str(count)}
    words = ["bench", *words, "--format", "csv"]
    processes = []
    try:
        processes.append(start(hosts.names[0], ["scheduler"], {**settings, "MUSTER_ROLE": "MS_SCHED"}))
        for rank in range(count):
            host = rank // ranks
            own = {"MUSTER_ROLE": "MS_WORKER", "MUSTER_NODE_ID": str(rank), "MUSTER_WORKER_IP": hosts.address(host),
                   "MUSTER_HOST_ID": f"host{host}"}
            processes.append(start(hosts.names[host], words, {**settings, **own}))
        deadline = time.monotonic() + TIMEOUT_S
        outputs = [process.communicate(timeout=max(0.1, deadline - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[1]} over hosts has not ended after {TIMEOUT_S} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                kill_tree(process)
                process.wait()
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode != 0:
            raise Failed(f"a rank or the scheduler failed with {process.returncode}: {errors.strip()[-300:]}")
    return list(csv.DictReader(outputs[1][0].splitlines()))
