#!/usr/bin/env python3
"""Provides what `make test-launchers` needs beside MPI: Debian's packages (as root, where there is apt-get). Says of each whether it
is there, or why not.
"""

import os
import shutil
import subprocess

from fetch_mpi import install

# What it is called, the packages that have it, and the programs by which one sees that it is there.
NEEDED = {
    "OpenSSH": (("openssh-server", "openssh-client"), ("sshd", "ssh", "ssh-keygen")),
    "Slurm": (("slurm-wlm", "munge"), ("srun", "sbatch", "slurmctld", "slurmd", "munged")),
    "iproute2": (("iproute2", "util-linux"), ("ip", "nsenter", "unshare")),
}
# Where servers lie, which is on nobody's path but root's.
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def program(name):
    """Its file; None where it is not there."""
    return shutil.which(name, path=SEARCHED)


def is_there(name):
    return all(program(one) for one in NEEDED[name][1])


def provide(name):
    """Why it can't be had; None where it is there."""
    if is_there(name):
        return None
    try:
        install(NEEDED[name][0])
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or str(error)
        return words.strip().splitlines()[-1]
    return None if is_there(name) else f"it was installed, but not all of {', '.join(NEEDED[name][1])} are on the path"


if __name__ == "__main__":
    for needed in NEEDED:
        missing = provide(needed)
        print(f"{needed}: {missing or 'is there'}")
