"""Two hosts with a network between them, and names by which they know each other.

    with NamedHosts(tmp_path) as hosts:
        hosts.run(0, ["hostname"])      # host1
        hosts.command(1, program)       # the words that run a program on host2
        hosts.ssh                       # a program that is called as ssh is: ssh [options] host2 command
        with hosts.own_name("127.0.1.1"):   # host1 takes its own name for that

Each has its own network, host name, and /etc/hosts with both names (networks.py has the rest).
"""

import contextlib
import pathlib
import shlex
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
inside='mount --bind "$2" /etc/hosts && hostname "$0" && exec env -i PATH="$PATH" HOME="$HOME" sh -c "$1"'
exec nsenter --target="$pid" --net -- unshare --uts --mount sh -c "$inside" "$host" "$*" "$names"
"""


class NamedHosts(Hosts):
    def __init__(self, folder):
        super().__init__(NETWORK)
        self.folder = pathlib.Path(folder)
        self.ssh = self.folder / "ssh"
        self._names = [self.folder / f"{name}.hosts" for name in NAMES]

    @property
    def addresses(self):
        return [self.address(NETWORK, host) for host in range(len(NAMES))]

    def command(self, host, program, contained=False):
        """What runs a program on this host; `contained`: with all that it starts it ends when its own process does."""
        scripted = f"mount --bind {shlex.quote(str(self._names[host]))} /etc/hosts && hostname {NAMES[host]} && exec \"$@\""
        ids = ["--pid", "--fork", "--kill-child", "--mount-proc"] if contained else ["--mount"]
        return super().command(host, ["unshare", "--uts", *ids, "sh", "-c", scripted, "sh", *command_line(program)])

    def run(self, host, program, env=None, cwd=None):
        """A program that has ended: its exit code and what it wrote."""
        settings = {"env": clean_environment(env), "timeout": LIMIT, "cwd": cwd}
        return subprocess.run(self.command(host, program), capture_output=True, text=True, **settings)

    @contextlib.contextmanager
    def own_name(self, *addresses):
        """The first host takes its own name for these, the other one knows its address; until the end of the `with`."""
        self._write_names(0, [*((address, NAMES[0]) for address in addresses), (self.addresses[1], NAMES[1])])
        try:
            yield
        finally:
            self._write_names(0, zip(self.addresses, NAMES))

    def _write_names(self, host, lines):
        # The file is the same one for what runs already.
        self._names[host].write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in lines))

    def __enter__(self):
        for host in range(len(NAMES)):
            self._write_names(host, [])
        super().__enter__()
        for host in range(len(NAMES)):
            self._write_names(host, zip(self.addresses, NAMES))
        each = zip(NAMES, self.holders, self._names)
        cases = "\n        ".join(f"{name}) pid={holder.pid} names={shlex.quote(str(names))} ;;" for name, holder, names in each)
        self.ssh.write_text(ENTER.format(cases=cases))
        self.ssh.chmod(0o755)
        return self
