"""NVSHMEM's unique id reaches every rank whole: its own bootstrap plug-in, which needs no device, starts with it."""

from cluster import EXAMPLES, Cluster
from optional import folder_of_nvshmem

PROGRAM = [EXAMPLES / "nvshmem_unique_id"]
RANKS = 4


def test_the_bootstrap_starts_with_the_id():
    env = {"LD_LIBRARY_PATH": folder_of_nvshmem(), "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo"}
    with Cluster(PROGRAM, workers=RANKS, env=env) as cluster:
        words = [worker.stdout for worker in cluster.succeed(timeout=120)]
        assert words == [f"rank {rank} of 4: PE {rank} of 4 of NVSHMEM's bootstrap: all right\n" for rank in range(RANKS)]


def test_without_nvshmem_all_ranks_end_and_say_why(tmp_path):
    (tmp_path / "nvshmem_bootstrap_uid.so.3").symlink_to("/dev/null")
    with Cluster(PROGRAM, workers=2, env={"LD_LIBRARY_PATH": tmp_path}) as cluster:
        for worker in cluster.wait(timeout=60):
            assert worker.returncode == 1 and "no NVSHMEM here: " in worker.stderr
