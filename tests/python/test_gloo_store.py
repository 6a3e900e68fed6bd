"""Gloo's contexts are built through muster's store: at the addresses that muster knows, and anew after a loss."""

import re

import pytest

from cluster import Cluster
from example_options import WRONG_LOSSES, WRONG_STEPS, usage_is_told
from launch import Launch
from nodes import node, said
from optional import IPV6, example

RANKS = 4
LOST = 2
DONE = re.compile(r"rank (\d): 20 steps, contexts: (\d), all sums right")


@pytest.fixture(scope="session")
def program():
    return example("gloo_store", "Gloo")


def test_each_rank_is_reached_at_its_own_address(program):
    """All on one host, where Gloo by itself would take what the host's name resolves to."""
    with Cluster([program], workers=3, started=0) as cluster:
        for rank in range(3):
            cluster.start_worker({"MS_WORKER_IP": f"127.0.1.{rank + 2}"})
        for rank, worker in enumerate(cluster.succeed(timeout=60)):
            assert f"rank {rank}: epoch 1: connected at 127.0.1.{rank + 2}\n" in worker.stdout
            assert DONE.search(worker.stdout)


@IPV6
def test_ipv6_addresses_lose_their_brackets(program):
    with Cluster([program], workers=2, env={"MS_WORKER_IP": "::1"}, host="::1") as cluster:
        for worker in cluster.succeed(timeout=60):
            assert "connected at ::1\n" in worker.stdout and DONE.search(worker.stdout)


@pytest.mark.parametrize("words", WRONG_STEPS + WRONG_LOSSES + [("--lose", "1", "init"), ("--lose", "1")])
def test_a_wrong_option_is_refused(program, words):
    usage_is_told(program, words, "[--steps N] [--lose RANK connect|step]")


def test_a_rank_that_there_is_not_cannot_be_lost(program):
    with Cluster([program, "--lose", 2, "step"], workers=2) as cluster:
        workers = cluster.wait(timeout=60)
        assert [worker.returncode for worker in workers] == [1, 1]
        assert any("gloo_store: --lose 2: the ranks are 0 to 1" in worker.stderr for worker in workers)


@pytest.mark.parametrize("where", ["connect", "step"])
def test_after_a_loss_there_is_a_new_context(program, tmp_path, where):
    """Where it is lost while the others connect, all addresses are still in the store; the next epoch has keys of its own."""
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    words = ["--worker_num", RANKS, "--local_worker_num", RANKS, "--master_port", 0, "--join", "True", "--max_restarts", 1]
    with Launch(*words, program, "--lose", LOST, where, env=env) as launch:
        code = launch.wait(timeout=240)
        launch.nothing_left(timeout=10)
        output = launch.stdout + launch.stderr
        assert code == 0, output
        assert sorted(DONE.findall(output)) == [(str(rank), "1" if rank == LOST else "2") for rank in range(RANKS)]
        assert len(re.findall(r"epoch 2: connected", output)) == RANKS


def test_where_gloo_fails_and_no_rank_is_lost_the_job_is_aborted(program, tmp_path):
    """The other rank has no Gloo, so it never connects. Recovery would not help, and would never end."""
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    with Cluster([program], workers=2, started=1, env=env) as cluster:
        other = cluster.start_worker(program=node("c = join(); say(told=fails(c.world.barrier))"))
        first, _ = cluster.wait(timeout=120)
        assert first.returncode == 1 and "gloo_store: Gloo failed, though no rank is lost: " in first.stderr, first.describe()
        assert "Gloo failed, though no rank is lost" in str(said(other)["told"]), other.describe()
