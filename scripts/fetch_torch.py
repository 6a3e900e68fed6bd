#!/usr/bin/env python3
"""Provides PyTorch for the tests of muster.torch: each version in a virtual environment of its own, target/torch-<version>, and
an old one as Debian's package (as root, where there is apt-get). PyPI's torch needs its CUDA packages merely to be imported, so each
version takes about 5 GB. Says of each whether it is there, or why not.

    scripts/fetch_torch.py [VERSION ...]      all of them, if none is named
"""

import pathlib
import re
import subprocess
import sys

import fetch_mpi

BINDINGS = pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"
TARGET = pathlib.Path(__file__).resolve().parents[1] / "target"
VERSIONS = ("2.14.1", "2.15.0")
# With what torch's own tests need.
WHEELS = ("numpy==2.4.6", "expecttest==0.3.0")
DEBIAN = "debian"
DEBIANS_PYTHON = pathlib.Path("/usr/bin/python3")
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "--no-cache-dir")


def python(version):
    """The interpreter that has this version; None where it is not installed."""
    if version == DEBIAN:
        return DEBIANS_PYTHON if pathlib.Path("/usr/lib/python3/dist-packages/torch/__init__.py").exists() else None
    folder = TARGET / f"torch-{version}"
    return folder / "bin" / "python" if (folder / "has_torch").exists() else None


def installed(folder):
    """The environment in which the source tree's package is as one that is installed: in `folder` lie its entry points, from
    pyproject.toml, where Python looks for them."""
    metadata = folder / "muster-1.0.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: muster\nVersion: 1.0.0\n")
    project = (BINDINGS / "pyproject.toml").read_text()
    groups = re.findall(r'^\[project\.entry-points\."(.*)"\]\n(\w+) = "(.*)"$', project, re.MULTILINE)
    assert groups, "pyproject.toml has no entry points"
    (metadata / "entry_points.txt").write_text("".join(f"[{group}]\n{name} = {value}\n" for group, name, value in groups))
    return {"PYTHONPATH": f"{folder}:{BINDINGS}", "OMP_NUM_THREADS": 1}


def provide(version):
    """Why it can't be had; None where it is there."""
    if python(version):
        return None
    try:
        if version == DEBIAN:
            fetch_mpi.install(["python3-torch"])
        else:
            folder = TARGET / f"torch-{version}"
            fetch_mpi.run(sys.executable, "-m", "venv", folder)
            words = ["install", "--only-binary", ":all:", f"torch=={version}", *WHEELS]
            fetch_mpi.run(folder / "bin" / "python", *PIP, *words)
            (folder / "has_torch").touch()
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or str(error)
        return words.strip().splitlines()[-1]
    return None if python(version) else "it was installed, but is not where Python looks"


if __name__ == "__main__":
    known = (*VERSIONS, DEBIAN)
    unknown = set(sys.argv[1:]) - set(known)
    if unknown:
        sys.exit(f"fetch_torch.py: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for version in sys.argv[1:] or known:
        missing = provide(version)
        print(f"torch {version}: {missing or 'is there'}")
