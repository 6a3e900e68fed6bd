#!/usr/bin/env python3
"""Unpacks Debian's Python for aarch64, and what it depends on, into a folder: for tests on a simulated processor.

    scripts/fetch_aarch64_python.py FOLDER

It asks apt with lists of its own, and installs nothing: this system goes on without packages for another processor.
"""

import pathlib
import subprocess
import sys
import tempfile

PYTHON = pathlib.Path("usr", "bin", "python3")
TIMEOUT_S = 600


def fetch(folder):
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        root, lists, archives = pathlib.Path(work, "root"), pathlib.Path(work, "lists"), pathlib.Path(work, "archives")
        for each in (root, lists / "partial", archives / "partial"):
            each.mkdir(parents=True)
        options = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "APT::Sandbox::User": "",
            "Dir::State::lists": lists,
            "Dir::State::status": "/dev/null",
            "Dir::Cache::archives": archives,
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
        }
        apt = ["apt-get", "--quiet", "--quiet", *(word for key, value in options.items() for word in ("--option", f"{key}={value}"))]
        subprocess.run([*apt, "update"], check=True, timeout=TIMEOUT_S)
        words = ["--yes", "--download-only", "--no-install-recommends", "python3"]
        subprocess.run([*apt, "install", *words], check=True, timeout=TIMEOUT_S)
        for package in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True, timeout=TIMEOUT_S)
        root.rename(folder)  # whole or not at all


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    wanted = pathlib.Path(sys.argv[1]).resolve()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    if not (wanted / PYTHON).exists():
        if wanted.exists() and any(wanted.iterdir()):
            sys.exit(f"{wanted} has other files in it: expected a folder that is empty, or is not there yet")
        fetch(wanted)
