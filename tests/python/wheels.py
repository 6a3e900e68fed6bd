"""The wheels that `make wheel` leaves, and what the programs in them ask of a system."""

import re
import subprocess
import sys
import zipfile

from cluster import TARGET, VERSION

GLIBC = (2, 28)
# What glibc kept in libraries of their own before 2.34.
OLDER_PARTS = {"libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6"}


def wheel_for(processor):
    wheel = TARGET / "wheels" / f"muster-{VERSION}-py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{processor}.whl"
    assert wheel.exists(), f"{wheel} is not built: make wheel ARCH={processor}"
    return wheel


def install(wheel, *words, python=sys.executable, timeout=120):
    """Has pip lay a wheel down, and nothing else."""
    usual = ["--no-index", "--no-deps", "--disable-pip-version-check", "--quiet"]
    subprocess.run([python, "-m", "pip", "install", *usual, *words, str(wheel)], check=True, timeout=timeout)


def needs(wheel, folder):
    """Of library and command: the versions of glibc whose symbols it takes, and the names of the libraries that it loads."""
    with zipfile.ZipFile(wheel) as archive:
        binaries = [name for name in archive.namelist() if name.endswith((".so.1", "scripts/muster"))]
        assert len(binaries) == 2, binaries
        for name in binaries:
            # readelf, unlike objdump, reads what was made for any processor.
            words = ["readelf", "--wide", "--dynamic", "--version-info", archive.extract(name, folder)]
            text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([\d.]+)", text)}
            yield versions, set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
