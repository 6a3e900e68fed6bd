"""NCCL's unique id reaches every rank whole: with the real library, which needs no GPU for it, and without any."""

import re
import subprocess
import sys
import zipfile

import pytest

from cluster import EXAMPLES, LIBRARY, TREE, Cluster

sys.path.append(str(TREE / "scripts"))
import fetch_nccl  # noqa: E402

PROGRAM = [EXAMPLES / "nccl_unique_id"]
HASH_LINE = re.compile(r"^rank (\d+): hash of the id's 128 bytes: ([0-9a-f]{16})$", re.M)


@pytest.fixture(scope="session")
def nccl():
    """The path of the real libnccl.so.2. Skips where the package registry can't be reached or has no wheel for us."""
    try:
        return fetch_nccl.fetch()
    # The real library is 200 MB from a registry that a machine may not reach; no other stands in for it.
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        words = getattr(error, "stderr", None) or str(error)
        pytest.skip(f"{fetch_nccl.PACKAGE} {fetch_nccl.VERSION} can't be had: {words.strip().splitlines()[-1]}")


def hashes_of_a_run(library, first_line, end="", interface="lo"):
    env = {"LD_LIBRARY_PATH": library.parent, "NCCL_SOCKET_IFNAME": interface}
    with Cluster(PROGRAM, workers=4, env=env) as cluster:
        workers = cluster.succeed(timeout=60)
        first = workers[0].stdout.splitlines()[0]
        assert first.startswith(first_line) and first.endswith(end)
        found = [HASH_LINE.findall(worker.stdout) for worker in workers]
        assert [rank for (rank, _), in found] == ["0", "1", "2", "3"]
        return {value for (_, value), in found}


def test_every_rank_gets_the_id_that_nccl_made(nccl):
    first = hashes_of_a_run(nccl, f"the id comes from NCCL {fetch_nccl.VERSION}")
    second = hashes_of_a_run(nccl, f"the id comes from NCCL {fetch_nccl.VERSION}")
    assert len(first) == len(second) == 1
    assert first != second, "every id is unique"


def test_nccl_that_fails_is_told_and_replaced(nccl):
    assert len(hashes_of_a_run(nccl, "NCCL could not make an id", interface="no-such-interface")) == 1


@pytest.mark.parametrize("library, words", [("/dev/null", "file too short)"), (LIBRARY, "libnccl.so.2 has no ncclGetUniqueId)")])
def test_without_nccl_random_bytes_take_its_place(library, words, tmp_path):
    (tmp_path / "libnccl.so.2").symlink_to(library)
    first, second = (hashes_of_a_run(tmp_path / "libnccl.so.2", "no NCCL here (", words) for _ in range(2))
    assert len(first) == len(second) == 1
    assert first != second
