"""Ranks in a memory cgroup that has little left: they take no more than there is, and none is killed for it."""

import contextlib
import os
import pathlib
import re
import subprocess
import uuid

import pytest

from cluster import MUSTER, clean_environment

LIMIT = 60
MIB = 1 << 20
RANKS = 8
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Cgroup:
    """A memory cgroup of the test's own, of either version."""

    def __init__(self):
        one = CGROUPS / "memory"
        is_one = (one / "memory.limit_in_bytes").exists()
        self.limit, self.most = ("memory.limit_in_bytes", "memory.max_usage_in_bytes") if is_one else ("memory.max", "memory.peak")
        self.path = (one if is_one else CGROUPS) / f"muster-test-{uuid.uuid4().hex}"
        try:
            self.path.mkdir()
            if not is_one:  # what runs in it is charged only if the group above hands memory on
                (CGROUPS / "cgroup.subtree_control").write_text("+memory")
            (self.path / self.limit).write_text(str(1 << 30))
        except OSError as error:  # a container seldom may; nothing else could stand in for the kernel's killer
            with contextlib.suppress(OSError):
                self.path.rmdir()
            pytest.skip(f"this test makes no memory cgroup here: {error}")

    def run(self, words, env):
        """Runs a command in it, and gives what it wrote; it has ended with 0."""

        def enter():
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

        done = subprocess.run(
            words, env=clean_environment(env), preexec_fn=enter, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def close(self):
        self.path.rmdir()


@pytest.fixture
def cgroup():
    group = Cgroup()
    yield group
    group.close()


def carriers(cgroup, shm):
    """How the group's calls were carried, as each rank's debug log says it."""
    words = [MUSTER, "bench", "allreduce", f"--worker_num={RANKS}", "--sizes=8,65536", "--iters=20"]
    log = cgroup.run(words, {"MUSTER_SHM": shm, "MUSTER_LOG": "debug"})
    return re.findall(r"world: (memory|links) \((.*)\)$", log, re.MULTILINE)


def test_ranks_take_no_more_memory_than_their_cgroup_has_left(cgroup):
    # The kernel kills in a group that goes beyond its limit, and says nothing before.
    assert carriers(cgroup, "off") == [("links", "the scheduler's setting shm is off")] * RANKS
    most = int((cgroup.path / cgroup.most).read_text())
    taken = []
    for more in (1, 4, 16, 256):
        limit = most + more * MIB
        (cgroup.path / cgroup.limit).write_text(str(limit))
        told = carriers(cgroup, "auto")
        assert len(told) == RANKS and len(set(told)) == 1, f"all ranks choose alike: {told}"
        carrier, words = told[0]
        taken.append(float(re.search(r", ([\d.]+) MiB$", words)[1]) if carrier == "memory" else 0.0)
        assert taken[-1] * MIB <= limit / 4, f"a quarter of what is left, at most: {told[0]}, {more} MiB"
    assert taken == sorted(taken) and taken[0] < taken[-1], f"less where there is less: {taken}"
