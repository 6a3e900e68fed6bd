"""Two hosts with a network between them, and names by which they know each other.

    with NamedHosts(tmp_path) as hosts:
        hosts.run(0, ["hostname"])      # host1
        hosts.command(1, program)       # the words that run a program on host2
        hosts.ssh                       # a program that is called as ssh is: ssh [options] host2 command

Each has its own network, host name, and /etc/hosts with both names (networks.py has the rest).
"""

import pathlib
import subprocess

from cluster import clean_environment, command_line
from networks import LIMIT, Hosts

NAMES = ("host1", "host2")
NETWORK = "cluster"

ENTER = """#!/bin/sh
# ssh [options] host command: the command on that host, with nothing of this environment. What no case has is an option.
while [ $# -gt 0 ]; do
    case "$1" in
        {cases}
        *) shift; continue ;;
    esac
    break
done
host=$1
shift
inside='mount --bind {names} /etc/hosts && hostname "$0" && exec env -i PATH="$PATH" HOME="$HOME" sh -c "$1"'
exec nsenter --target="$pid" --net -- unshare --uts --mount sh -c "$inside" "$host" "$*"
"""


class NamedHosts(Hosts):
    def __init__(self, folder):
        super().__init__(NETWORK)
        self.folder = pathlib.Path(folder)
        self.ssh = self.folder / "ssh"
        self._names = self.folder / "hosts"

    @property
    def addresses(self):
        return [self.address(NETWORK, host) for host in range(len(NAMES))]

    def command(self, host, program, contained=False):
        """What runs a program on this host; `contained`: with all that it starts it ends when its own process does."""
        scripted = f"mount --bind {self._names} /etc/hosts && hostname {NAMES[host]} && exec \"$@\""
        ids = ["--pid", "--fork", "--kill-child", "--mount-proc"] if contained else ["--mount"]
        return super().command(host, ["unshare", "--uts", *ids, "sh", "-c", scripted, "sh", *command_line(program)])

    def run(self, host, program, env=None, cwd=None):
        """A program that has ended: its exit code and what it wrote."""
        settings = {"env": clean_environment(env), "timeout": LIMIT, "cwd": cwd}
        return subprocess.run(self.command(host, program), capture_output=True, text=True, **settings)

    def __enter__(self):
        self._names.write_text("127.0.0.1 localhost\n")
        super().__enter__()
        self._names.write_text("127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for at, name in zip(self.addresses, NAMES)))
        cases = "\n        ".join(f"{name}) pid={holder.pid} ;;" for name, holder in zip(NAMES, self.holders))
        self.ssh.write_text(ENTER.format(cases=cases, names=self._names))
        self.ssh.chmod(0o755)
        return self
