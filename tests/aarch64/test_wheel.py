"""The wheel for aarch64: unpacked beside Debian's Python for that processor it forms clusters, on a simulated one."""

import subprocess
import sys
import zipfile

import pytest

from cluster import MUSTER, TARGET, VERSION, Cluster, clean_environment
from wheels import GLIBC, OLDER_PARTS, install, needs, wheel_for

SYSTEM = TARGET / "aarch64" / "debian"
SIMULATOR = ["qemu-aarch64", "-L", SYSTEM]
# Forming and a call of each kind. What crosses is larger than a piece of a collective, so that more than one is folded.
PROGRAM = """
import array, platform, sys, muster
assert platform.machine() == "aarch64", platform.machine()
with muster.init() as cluster:
    world, rank, size = cluster.world, cluster.rank, cluster.size
    total = world.allreduce(array.array("f", [rank + 1.0] * 100_000))
    assert set(total) == {size * (size + 1) / 2}, set(total)
    mine = {0: 2.0**60, size - 1: -(2.0**60)}.get(rank, 1.0)
    assert list(world.allreduce(array.array("d", [mine]), op="sum_exact")) == [size - 2.0]
    assert world.allgather_object({"rank": rank}) == [{"rank": each} for each in range(size)]
    world.send(bytes([rank]) * 10, (rank + 1) % size, tag=7)
    got = bytearray(10)
    world.recv(got, (rank - 1) % size, tag=7)
    assert got == bytes([(rank - 1) % size]) * 10, got
    cluster.store.set(f"from {rank}", b"here")
    assert cluster.store.get(f"from {(rank + 1) % size}") == b"here"
    print("rank", rank, "of", size, "is right", flush=True)
"""
# A simulated processor is slow, and machines are shared.
LIMIT_S = 120


@pytest.fixture(scope="module")
def wheel():
    return wheel_for("aarch64")


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """The wheel as pip lays it down, in a folder."""
    folder = tmp_path_factory.mktemp("aarch64")
    install(wheel, "--only-binary=:all:", f"--platform=manylinux_{GLIBC[0]}_{GLIBC[1]}_aarch64", f"--target={folder / 'muster'}")
    (folder / "program.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def program(unpacked):
    return [*SIMULATOR, SYSTEM / "usr" / "bin" / "python3", unpacked / "program.py"]


def expect_right(workers):
    assert [worker.stdout for worker in workers] == [f"rank {rank} of {len(workers)} is right\n" for rank in range(len(workers))]


def test_library_and_command_need_no_newer_glibc_than_the_tag_says(wheel, tmp_path):
    for versions, needed in needs(wheel, tmp_path):
        assert versions and max(versions) <= GLIBC, max(versions)
        assert needed <= {"libc.so.6", "ld-linux-aarch64.so.1", "libgcc_s.so.1", *OLDER_PARTS}, needed


def test_it_says_for_which_processor_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        about, = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Tag: py3-none-manylinux_2_28_aarch64" in archive.read(about).decode()


def test_its_command_runs(unpacked):
    command = unpacked / "muster" / "bin" / "muster"
    said = subprocess.run([*SIMULATOR, command, "--version"], env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_S)
    assert (said.returncode, said.stdout.split()[-1]) == (0, VERSION), said


@pytest.mark.parametrize("shm", ["auto", "off"])
def test_three_workers_and_their_scheduler_compute(unpacked, program, shm):
    environment = {"PYTHONPATH": unpacked / "muster", "MUSTER_SHM": shm}
    with Cluster(program, workers=3, scheduler=[*SIMULATOR, unpacked / "muster" / "bin" / "muster", "scheduler"],
                 env=environment) as cluster:
        expect_right(cluster.succeed(timeout=LIMIT_S))


def test_workers_of_both_processors_form_one_cluster(unpacked, program):
    environment = {"PYTHONPATH": unpacked / "muster", "MUSTER_SHM": "off"}
    here = [sys.executable, "-c", PROGRAM.replace('"aarch64"', '"x86_64"')]
    with Cluster(program, workers=2, started=1, scheduler=[MUSTER, "scheduler"], env=environment) as cluster:
        cluster.start_worker({"PYTHONPATH": TARGET.parent / "bindings" / "python"}, here)
        expect_right(cluster.succeed(timeout=LIMIT_S))
