"""Two hosts with networks between them, each of which the test can take away.

    with Hosts("one", "two") as hosts:
        hosts.down("two")
        Process(hosts.command(0, [MUSTER, "scheduler"]), {"MS_SCHED_HOST": hosts.address("one", 0), ...})

Each host is a network namespace with one interface for each network. A connection whose network is gone ends after a few
attempts to send, not after a quarter of an hour, unless `retries` says otherwise. On a network that is silent every packet is
lost, and nobody is told. Where a machine allows no such namespace, or no such networks, the test is skipped, with what the
machine said; where CI is set it fails. Once the hosts stand, a line that fails is a failure everywhere.
"""

import os
import subprocess

import pytest

from cluster import Process, command_line
from launch import until

LIMIT = 30
COUNT = 2
# How often the kernel sends again before it gives a connection up.
RETRIES = 3


def not_tested(why):
    """Ends a test that this machine can't do. Where CI is set all that a test needs is to be there."""
    words = f"NOT TESTED: {why}"
    # Network namespaces need root and iproute2, which a developer's machine may not give; where CI is set it must.
    return pytest.fail(words) if os.environ.get("CI") else pytest.skip(words)


class Hosts:
    def __init__(self, *networks, retries=RETRIES):
        self.networks = networks
        self.retries = retries
        self.holders = []
        self.stand = False

    @staticmethod
    def _as_user():
        return [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]

    def command(self, host, program):
        """What runs a program on this host."""
        holder = self.holders[host].pid
        return ["nsenter", f"--target={holder}", "--net", *self._as_user(), "--", *command_line(program)]

    def address(self, network, host):
        return f"10.77.{self.networks.index(network)}.{host + 1}"

    def down(self, network):
        self._set(network, "down")

    def up(self, network):
        self._set(network, "up")

    def silence(self, network, senders=range(COUNT)):
        """Whatever these hosts send goes to an interface that is not there."""
        for host in senders:
            wrong = f"{self.address(network, 1 - host)} lladdr 02:00:00:00:00:99"
            self.sh(host, f"ip neighbour replace {wrong} dev net{self.networks.index(network)} nud permanent")

    def heal(self, network):
        """Nothing is lost any more."""
        for host in range(COUNT):
            self.sh(host, f"ip neighbour del {self.address(network, 1 - host)} dev net{self.networks.index(network)}")

    def _set(self, network, state):
        for host in range(COUNT):
            self.sh(host, f"ip link set net{self.networks.index(network)} {state}")

    def sh(self, host, line, may_lack=False):
        """Runs a line of the shell on this host. `may_lack`: for something that a kernel may lack."""
        done = subprocess.run(self.command(host, ["sh", "-ec", line]), capture_output=True, text=True, timeout=LIMIT)
        # A kernel may lack what the networks are made of (veth): then there is nothing to test on.
        if done.returncode != 0 and (may_lack or not self.stand):
            not_tested(f"this machine does not do {line!r}: {done.stderr.strip()}")
        assert done.returncode == 0, f"{line!r} on host {host}: {done.stderr.strip()}"

    def _add_host(self):
        unshare = ["unshare", "--net", "sh", "-c", "echo stands && exec sleep 600"]
        if self.holders:
            unshare = self.command(0, unshare)
        elif os.geteuid() != 0:
            unshare.insert(1, "--map-root-user")
        holder = Process(unshare, name="a host")
        self.holders.append(holder)
        until(lambda: holder.returncode is not None or "stands" in holder.stdout, LIMIT, "a network namespace")
        # A container may forbid network namespaces, and hosts of their own can't be had without.
        if holder.returncode is not None:
            not_tested(f"this machine allows no network namespace: {holder.stderr.strip()}")

    def __enter__(self):
        try:
            for _ in range(COUNT):
                self._add_host()
            for number in range(len(self.networks)):
                other = self.holders[1].pid
                self.sh(0, f"ip link add net{number} type veth peer name net{number} netns {other}")
            for host in range(COUNT):
                self.sh(host, f"echo {self.retries} > /proc/sys/net/ipv4/tcp_retries2 && ip link set lo up")
                for number, network in enumerate(self.networks):
                    self.sh(host, f"ip address add {self.address(network, host)}/24 dev net{number}")
            for network in self.networks:
                self.up(network)
            self.stand = True
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.close()
