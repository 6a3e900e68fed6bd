"""Which CMake `make build` takes: the system's where it is new enough, else the one that it installs itself. And what other targets need."""

import os
import subprocess
import sys

import pytest

from cluster import TREE


def system(folder, version, ctest=True):
    """A folder with a cmake of this version."""
    folder.mkdir()
    (folder / "cmake").write_text(f"#!/bin/sh\necho cmake version {version}\necho\necho 'CMake suite maintained by somebody.'\n")
    if ctest:
        (folder / "ctest").write_text("#!/bin/sh\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    return folder


def without_cmake():
    folders = os.environ["PATH"].split(":")
    return [folder for folder in folders if not os.path.exists(os.path.join(folder, "cmake"))]


def plan(folder, target="examples"):
    """What make would do for a target with this folder first in PATH, on a tree in which nothing is installed."""
    environment = {**os.environ, "PATH": ":".join([str(folder), *without_cmake()])}
    words = ["make", "--dry-run", target, f"TARGET={folder}/target"]
    done = subprocess.run(words, cwd=TREE, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["3.22.0", "3.22.1-rc1", "3.31.6", "4.0.3"])
def test_the_systems_cmake_is_taken_and_nothing_is_installed(tmp_path, version):
    folder = system(tmp_path / "bin", version)
    planned = plan(folder)
    assert f"{folder}/cmake -S examples" in planned
    assert "pip" not in planned and "venv" not in planned


@pytest.mark.parametrize("version, ctest", [("3.21.9", True), ("2.8.12", True), ("of its own", True), ("3.31.6", False)])
def test_one_that_is_too_old_or_has_no_ctest_is_passed_by(tmp_path, version, ctest):
    folder = system(tmp_path / "bin", version, ctest)
    planned = plan(folder)
    assert f"{folder}/target/venv/bin/cmake -S examples" in planned
    assert "pip install" in planned and "cmake==" in planned


def test_the_library_alone_needs_no_tool_of_python(tmp_path):
    planned = plan(tmp_path, "library")
    assert "cargo build --release" in planned
    assert "pip" not in planned and "venv" not in planned


def test_the_tests_of_the_packages_can_start():
    """`make test` leaves them out. They take helpers and pages that others change."""
    words = [sys.executable, "-m", "pytest", "-c", TREE / "tests/python/pytest.ini", "-p", "no:cacheprovider", "--collect-only",
             TREE / "tests" / "packages"]
    done = subprocess.run(words, cwd=TREE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


RUNNER = """#!{python}
import os, sys, time
if "--label-regex" in sys.argv:
    sys.exit(0)
open("{folder}/{own}", "w").close()
print("words of {own}", *sys.argv[1:], flush=True)
until = time.monotonic() + 60
while not os.path.exists("{folder}/{other}"):
    if time.monotonic() > until:
        sys.exit("alone")
    time.sleep(0.01)  # looks again: a file is all that two programs of different runners share
sys.exit({code})
"""


@pytest.mark.parametrize("codes", [(0, 0), (8, 0), (0, 1)])
def test_on_four_processors_ctest_runs_beside_pytest_and_each_can_fail(tmp_path, codes):
    """Two programs stand for them. Each waits until the other has begun."""
    words = ["make", "both", "JOBS=4", f"TARGET={tmp_path}/target", "TEST_PACKAGES="]
    words += [f"--assume-old={name}" for name in ("ctests", "clang", "wheel", "storm-worker", "mpi", "gloo")]
    for variable, own, other, code in zip(("CTEST", "PYTHON"), ("ctest", "pytest"), ("pytest", "ctest"), codes):
        program = tmp_path / f"run_{own}"
        program.write_text(RUNNER.format(python=sys.executable, folder=tmp_path, own=own, other=other, code=code))
        program.chmod(0o755)
        words.append(f"{variable}={program}")
    (tmp_path / "target").mkdir()
    done = subprocess.run(words, cwd=TREE, capture_output=True, text=True, timeout=180)
    assert (done.returncode == 0) == (codes == (0, 0)), done.stdout + done.stderr
    assert "words of ctest --test-dir" in done.stdout and "words of pytest -m pytest" in done.stdout
    assert "--parallel 2 " in done.stdout and "--numprocesses 3" in done.stdout
