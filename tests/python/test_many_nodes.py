"""A cluster of more nodes than are told of all addresses. Two are real, the others made by hand: they join, and do nothing."""

import contextlib
import os
import signal

import pytest
import wire
from cluster import Cluster
from nodes import await_joined, node, said

FULL_TABLE = 1024
# No schedule on world takes from rank 0 to rank 3 at once: they are no power of two apart. So neither is told where the other is.
APART = (0, 3)
LINES = """
    c = join()
    hold("go")
    say(goes=True)
    if c.rank == 0:
        c.world.send(b"to three", 3)
        say(heard=c.world.receive(10, 3).decode())
    else:
        say(heard=c.world.receive(8, 0).decode())
        c.world.send(b"from three", 0)
    c.leave()
"""


@contextlib.contextmanager
def a_crowd_around(cluster, workers, secret=None, **fields):
    """All nodes but those that are apart are here."""
    with contextlib.ExitStack() as here:
        for number in set(range(workers)) - set(APART):
            connection = here.enter_context(wire.connect(cluster.port))
            register = wire.register(node_id=str(number), workers=workers, **fields)
            if secret:
                connection.prove(secret, wire.REGISTER, register)
            else:
                connection.send(wire.REGISTER, register)
        yield


def test_a_list_of_members_that_is_longer_than_what_is_held_before_a_proof_arrives_with_a_secret(tmp_path):
    # What the scheduler says first is a list of 80,000 bytes and more.
    workers, secret = 800, "one of this job"
    env = {"HOLD_FOLDER": tmp_path, "MUSTER_JOB_SECRET": secret, "MS_NODE_TIMEOUT": 300, "MUSTER_TIMEOUT": 60}
    with Cluster(node(LINES), workers=workers, started=0, env=env) as cluster:
        with a_crowd_around(cluster, workers, secret=secret):
            two = [cluster.start_worker({"MS_NODE_ID": number}) for number in APART]
            await_joined(*two)
            (tmp_path / "go").touch()
            for worker in two:
                assert worker.wait(60) == 0, worker.describe()
        assert [said(worker)["heard"] for worker in two] == ["from three", "to three"]


@pytest.mark.parametrize("is_away", [False, True], ids=["here", "away"])
def test_a_node_that_does_not_know_a_peers_address_asks_and_waits_for_the_scheduler(is_away, tmp_path):
    workers = FULL_TABLE + 2
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "kept", "HOLD_FOLDER": tmp_path,
           "MS_NODE_TIMEOUT": 600, "MUSTER_TIMEOUT": 60, "MUSTER_LOG": "info"}
    with Cluster(node(LINES), workers=workers, started=0, env=env, keeps_port=True) as cluster:
        two = [cluster.start_worker({"MS_NODE_ID": number}) for number in APART]
        fields = {"recovery": True, "next_token": os.urandom(32)}
        cluster.scheduler.wait_for("admitted", 30)
        with a_crowd_around(cluster, workers, **fields):
            await_joined(*two)
            if is_away:
                cluster.scheduler.signal(signal.SIGKILL)
                cluster.scheduler.wait(30)
            (tmp_path / "go").touch()
            for worker in two:
                worker.wait_for("goes", 30)
            if is_away:
                cluster.start_scheduler()
            for worker in two:
                assert worker.wait(60) == 0, worker.describe()
        assert [said(worker)["heard"] for worker in two] == ["from three", "to three"]
