"""Two hosts that one `muster run` reaches by a program in ssh's place.

    with FarHosts(tmp_path) as hosts, hosts.launch("-H", "host1:2,host2:2", *node(...)) as launch:
        assert launch.wait(60) == 0

As over ssh nothing of the launcher's environment is there on a host: what its processes find they were told (named_hosts.py has the rest).
"""

import re

from cluster import MUSTER
from launch import MARK, Launch
from named_hosts import NAMES, NamedHosts

LIMIT = 90


class FarHosts(NamedHosts):
    def launch(self, *words, env=None, cwd=None, ssh=None):
        """The launcher that leads the others, on the first host. What it starts anywhere has its mark."""
        command = self.command(0, [MUSTER, "run"])
        return Launch(f"--ssh={ssh or self.ssh}", "-x", MARK, *words, env=env, command=command, cwd=cwd)


def lines_by_rank(text):
    """The output of each rank, by what stands before each line."""
    found = {}
    for rank, line in re.findall(r"^\[rank (\d+)\] (.*)$", text, re.M):
        found.setdefault(int(rank), []).append(line)
    return found


def plain(text):
    """What the workers wrote, without what stands before each line."""
    return re.sub(r"^\[(rank|local) \d+\] ", "", text, flags=re.M)


def children_of(launch, host):
    """The pid of each worker that this host's launcher has told of."""
    told = rf"^\[{NAMES[host]}\] muster: worker (\d+) has pid (\d+)"
    return {int(rank): int(pid) for rank, pid in re.findall(told, launch.stderr, re.M)}
