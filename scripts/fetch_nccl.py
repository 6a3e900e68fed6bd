#!/usr/bin/env python3
"""Puts the real libnccl.so.2 under target/nccl and prints its path.

The wheel is some 300 MB; only the library is kept.
"""

import glob
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE, VERSION = "nvidia-nccl-cu12", "2.28.9"
MEMBER = "nvidia/nccl/lib/libnccl.so.2"
LIBRARY = pathlib.Path(__file__).resolve().parents[1] / "target" / "nccl" / VERSION / "libnccl.so.2"


def fetch(timeout=300):
    """The library's path; raises OSError, subprocess.SubprocessError or zipfile.BadZipFile when it can't be had."""
    if LIBRARY.exists():
        return LIBRARY
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LIBRARY.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1",
                   "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--dest", folder, f"{PACKAGE}=={VERSION}"]
        subprocess.run(command, check=True, timeout=timeout, capture_output=True, text=True)
        wheel, = glob.glob(os.path.join(folder, "*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            extracted = archive.extract(MEMBER, folder)
        os.replace(extracted, LIBRARY)  # whole or not at all
    return LIBRARY


if __name__ == "__main__":
    print(fetch())
