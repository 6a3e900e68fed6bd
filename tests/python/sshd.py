"""A real sshd on loopback, with keys and settings of its own, for names that are both this host.

    with Sshd(tmp_path) as sshd:
        Launch(f"--ssh={sshd.ssh}", "-H", "one:2,two:2", ...)
"""

import os
import pathlib
import pwd
import subprocess
import sys

import pytest

from cluster import TREE, Process, reserved_port
from launch import until

sys.path.append(str(TREE / "scripts"))
import fetch_launchers  # noqa: E402

LIMIT = 60
PRIVILEGE_SEPARATION = pathlib.Path("/run/sshd")
SERVER = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
# The mark by which a test finds what it has started, for a client that sends it.
AcceptEnv LAUNCH_TEST_MARK
# Its words are the test's to read.
LogLevel INFO
"""
CLIENT = """
# Nobody listens there: only root could.
Host closed
    Port 1
Host one two
    Port {port}
Host one two closed
    HostName 127.0.0.1
    User {user}
    IdentityFile {folder}/client_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking yes
    BatchMode yes
"""


def demand():
    if not fetch_launchers.is_there("OpenSSH"):
        pytest.skip("OpenSSH's server is not installed: make test-launchers")
    if os.geteuid() == 0:
        PRIVILEGE_SEPARATION.mkdir(exist_ok=True)  # a service would have it made


class Sshd:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def _write(self, name, text):
        (self.folder / name).write_text(text.format(folder=self.folder, port=self.port, user=pwd.getpwuid(os.geteuid()).pw_name))

    def _key(self, name):
        words = [fetch_launchers.program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name]
        subprocess.run(words, check=True, timeout=LIMIT)

    @property
    def ssh(self):
        """What runs a command on one of the names."""
        return f"{fetch_launchers.program('ssh')} -F {self.folder}/client"

    def sessions(self):
        """The processes of the connections that it has."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def no_sessions(self):
        until(lambda: not self.sessions(), LIMIT, "all connections have ended")

    def __enter__(self):
        demand()
        self._reservation = reserved_port()
        self.port = self._reservation.__enter__()
        for name in ("host_key", "client_key"):
            self._key(name)
        self._write("server", SERVER)
        self._write("client", CLIENT)
        known = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {known}")
        self.process = Process([fetch_launchers.program("sshd"), "-D", "-e", "-f", self.folder / "server"], name="sshd")
        try:
            self.process.wait_for("Server listening on 127.0.0.1", LIMIT)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.close()
        self._reservation.__exit__(None, None, None)
