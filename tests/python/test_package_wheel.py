"""The wheel: installed into an empty environment it starts 4 workers, and it runs where glibc is old."""

import os
import platform
import subprocess
import sys
import zipfile

import pytest

from cluster import VERSION, clean_environment
from wheels import GLIBC, OLDER_PARTS, install, needs, wheel_for

HELLO = """
import muster
from array import array
with muster.init() as cluster:
    print(muster.__file__, [float(rank) for rank in cluster.world.allgather(array("f", [cluster.rank]))], flush=True)
"""
TIMEOUT_S = 120
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# pip's scripts name their interpreter by its path, which may have a space.
VENV = "an environment"


@pytest.fixture(scope="module")
def wheel():
    return wheel_for(platform.machine())


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment of Python with nothing in it but the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", folder / VENV], check=True, timeout=TIMEOUT_S)
    python = folder / VENV / "bin" / "python"
    install(wheel, python=python)
    return folder


def run(environment, *words, **named):
    path = f"{environment / VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(words, env=clean_environment({"PATH": path, "PYTHONPATH": None}), cwd=environment, text=True, check=True,
                          capture_output=True, timeout=TIMEOUT_S, **named).stdout


@pytest.mark.parametrize("command", [["muster", "run"], ["msrun"]])
def test_it_starts_four_workers_from_an_empty_environment(environment, command):
    (environment / "hello.py").write_text(HELLO)
    words = ["--worker_num=4", "--local_worker_num=4", "--master_port=0", "--join=True", "--log_dir=logs", "--cluster_time_out=60"]
    run(environment, *command, *words, "hello.py")
    for rank in range(4):
        line = (environment / "logs" / f"worker_{rank}.log").read_text()
        assert line.endswith("[0.0, 1.0, 2.0, 3.0]\n") and line.startswith(str(environment)), line


def test_the_commands_and_the_library_are_the_wheels(environment):
    assert run(environment, "muster", "--version").split()[-1] == VERSION
    path = run(environment, "python", "-c", "import muster._library as library; print(library.PATH)").strip()
    assert path.startswith(str(environment)) and path.endswith("muster/lib/libmuster.so.1")
    assert run(environment, "python", "-c", "import muster; print(muster.__version__)").strip() == VERSION


def test_library_and_command_need_no_newer_glibc_than_the_tag_says(wheel, tmp_path):
    for versions, needed in needs(wheel, tmp_path):
        assert versions and max(versions) <= GLIBC, max(versions)
        assert needed <= {"libc.so.6", *LOADERS, "libgcc_s.so.1", *OLDER_PARTS}, needed


def test_it_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        words = {name.rpartition("/")[2]: name for name in archive.namelist()}
        assert f"Tag: py3-none-manylinux_2_28_{platform.machine()}" in archive.read(words["WHEEL"]).decode()
        metadata = archive.read(words["METADATA"]).decode()
        needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
        assert "Requires-Python: >=3.9" in metadata and needed == ["Requires-Dist: matplotlib>=3.6; extra == 'plot'"]
        assert {"py.typed", "LICENSE-MIT", "LICENSE-APACHE", "licences.txt"} <= set(words)


def test_the_package_alone_finds_its_library_and_takes_no_other_one(wheel, tmp_path):
    """As with `pip install --target`. What cannot be loaded is told, for another library may have another version."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    words = [sys.executable, "-c", "import muster._library as library; print(library.PATH)"]
    settings = {"cwd": tmp_path, "env": clean_environment({"PYTHONPATH": str(tmp_path)}), "capture_output": True, "text": True}
    library = tmp_path / "muster" / "lib" / "libmuster.so.1"
    assert subprocess.run(words, timeout=TIMEOUT_S, **settings).stdout.strip() == str(library)
    nearer = words[2].replace("print(library.PATH)", "library.__file__ = '/muster/_library.py'; print(library._place())")
    ended = subprocess.run([*words[:2], nearer], timeout=TIMEOUT_S, **settings)
    assert ended.stdout.strip() == "libmuster.so.1", ended.stderr  # what lies below the root has few folders above it
    (tmp_path / "prefix" / "include").mkdir(parents=True)
    (tmp_path / "prefix" / "include" / "muster.h").touch()  # as `make install` leaves it, which is no source tree
    beside = nearer.replace("/muster/_library.py", f"{tmp_path}/prefix/lib/python3/muster/_library.py")
    assert subprocess.run([*words[:2], beside], timeout=TIMEOUT_S, **settings).stdout.strip() == "libmuster.so.1"
    library.write_bytes(b"cut")
    ended = subprocess.run(words, timeout=TIMEOUT_S, **settings)
    assert ended.returncode == 1 and f"ImportError: {library} could not be loaded: " in ended.stderr, ended.stderr
