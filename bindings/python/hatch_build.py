"""Builds the shared library and the command for the wheel, so that they need no newer glibc than the wheel's tag says.

cargo-zigbuild links against the symbols of that glibc. `ARCH` in the environment names another processor than this machine's, for
which rustup must have the standard library. Nothing of the package itself is compiled: the tag says "any Python 3".
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = (2, 28)
TREE = pathlib.Path(__file__).resolve().parents[2]


class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        arch = os.environ.get("ARCH") or platform.machine()
        built = _build(arch)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"
        build_data["force_include"][str(built / "libmuster.so")] = "muster/lib/libmuster.so.1"
        build_data["shared_scripts"][str(built / "muster")] = "muster"
        build_data["shared_scripts"][str(pathlib.Path(self.root) / "msrun")] = "msrun"
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            build_data["extra_metadata"][str(TREE / name)] = name
        build_data["extra_metadata"][str(built / "licences.txt")] = "licences.txt"


def _build(arch):
    """The folder with the library and the command, stripped, for this processor."""
    triple = f"{arch}-unknown-linux-gnu"
    _needs_target(triple)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or TREE / "target") / "wheel_build"
    beside = pathlib.Path(sys.executable).parent  # where cargo-zigbuild and python-zig of this environment are
    environment = {
        # Elsewhere they would lie in a home, which there may not be.
        "ZIG_GLOBAL_CACHE_DIR": str(target / "zig"),
        "CARGO_ZIGBUILD_CACHE_DIR": str(target / "zigbuild"),
        **os.environ,
        "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(target),
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
    }
    words = ["--release", "--locked", "--lib", "--bins", "--target", f"{triple}.{GLIBC[0]}.{GLIBC[1]}"]
    subprocess.run(["cargo", "zigbuild", *words], cwd=TREE, env=environment, check=True)
    built = target / triple / "release"
    licences = subprocess.run([TREE / "scripts" / "licences.sh"], cwd=TREE, check=True, capture_output=True).stdout
    (built / "licences.txt").write_bytes(licences)
    return built


def _needs_target(triple):
    if not shutil.which("cargo"):
        raise SystemExit("muster: the wheel needs a Rust toolchain to build the library: cargo is not there (https://rustup.rs)")
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    if not pathlib.Path(sysroot, "lib", "rustlib", triple, "lib").is_dir():
        raise SystemExit(f"muster: rustc has no standard library for {triple}; `rustup target add {triple}` brings it")
