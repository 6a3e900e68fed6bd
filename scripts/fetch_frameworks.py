#!/usr/bin/env python3
"""Provides the libraries with which the examples work: Gloo and UCX as Debian's packages (as root, where there is apt-get),
NVSHMEM's bootstrap plug-in from its wheel, and LightGBM, JAX and XGBoost in a virtual environment. What is not the system's lies
in target/frameworks. Says of each whether it is there, or why not.

    scripts/fetch_frameworks.py [NAME ...]      all of them, if none is named
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import fetch_mpi

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "target" / "frameworks"
# Debian's package, and the header by which it is known.
PACKAGES = {"Gloo": ("libgloo-dev", "gloo/rendezvous/store.h"), "UCX": ("libucx-dev", "ucp/api/ucp.h")}
# The wheel has 280 MB; of these the plug-in is 87 KB, and it alone needs no device.
NVSHMEM_WHEEL = "nvidia-nvshmem-cu12==3.8.0"
NVSHMEM_MEMBER = "nvidia/nvshmem/lib/nvshmem_bootstrap_uid.so.3"
NVSHMEM = FOLDER / "nvshmem" / "nvshmem_bootstrap_uid.so.3"
VENV = FOLDER / "venv"
WHEELS = {
    "LightGBM": ("lightgbm==4.7.0", "numpy==2.4.6", "scipy==1.17.1"),
    "JAX": ("jax==0.10.2", "jaxlib==0.10.2"),
    "XGBoost": ("xgboost-cpu==3.2.0",),
}
NAMES = (*PACKAGES, "NVSHMEM", *WHEELS)
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "--no-cache-dir")


def python(name):
    """The interpreter that has this package; None where it is not installed."""
    return VENV / "bin" / "python" if (VENV / f"has_{name}").exists() else None


def is_there(name):
    if name in PACKAGES:
        header = PACKAGES[name][1]
        return any((pathlib.Path(folder) / header).exists() for folder in ("/usr/include", "/usr/local/include"))
    return NVSHMEM.exists() if name == "NVSHMEM" else python(name) is not None


def provide(name):
    """Why it can't be had; None where it is there."""
    if is_there(name):
        return None
    try:
        if name in PACKAGES:
            fetch_mpi.install(PACKAGES[name][:1])
        elif name == "NVSHMEM":
            fetch_nvshmem()
        else:
            fetch_wheels(name)
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        words = getattr(error, "stderr", None) or str(error)
        return words.strip().splitlines()[-1]
    return None if is_there(name) else "it was installed, but its header is not where a compiler looks"


def fetch_nvshmem():
    NVSHMEM.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        fetch_mpi.run(sys.executable, *PIP, "download", "--no-deps", "--only-binary", ":all:", "--dest", folder, NVSHMEM_WHEEL)
        wheel, = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            os.replace(archive.extract(NVSHMEM_MEMBER, folder), NVSHMEM)  # whole or not at all


def fetch_wheels(name):
    if not VENV.exists():
        fetch_mpi.run(sys.executable, "-m", "venv", VENV)
    fetch_mpi.run(VENV / "bin" / "python", *PIP, "install", "--only-binary", ":all:", *WHEELS[name])
    (VENV / f"has_{name}").touch()


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(NAMES)
    if unknown:
        sys.exit(f"fetch_frameworks.py: there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for framework in sys.argv[1:] or NAMES:
        missing = provide(framework)
        print(f"{framework}: {missing or 'is there'}")
