"""A node made by hand from docs/protocol.md takes part in a real cluster: the document is enough, and the scheduler and the
other nodes judge a node by what it says, not by whose code it runs."""

import os
import pathlib

import wire
from cluster import EXAMPLES, Cluster

HELD = pathlib.Path(__file__).resolve().parent / "programs" / "held_allgather.py"
HERE = {"MUSTER_HOST_ID": "here"}


def this_process():
    """Pid, start time and pid namespace, so that a scheduler on this host can see that we live."""
    stat = pathlib.Path("/proc/self/stat").read_text()
    start_ticks = int(stat.rsplit(")", 1)[1].split()[19])
    return os.getpid(), start_ticks, os.stat("/proc/self/ns/pid").st_ino


def join(port, timeout=20, **fields):
    """Registers over a new connection and waits for Formed."""
    connection = wire.connect(port)
    connection.send(wire.REGISTER, wire.register(**fields))
    kind, payload = connection.receive(timeout)
    assert kind == wire.FORMED, (kind, payload)
    return connection, wire.formed(payload)


def test_it_joins_beats_comes_back_and_leaves():
    with Cluster([EXAMPLES / "allgather"], workers=1, started=0, env=HERE) as cluster:
        me = {"node_id": "0", "incarnation": bytes(range(16)), "host": ("by-hand", "here"), "process": this_process()}
        connection, formed = join(cluster.port, **me)
        assert (formed["epoch"], formed["index"], formed["rank"], formed["worker_num"]) == (1, 0, 0, 1)
        for sequence in (1, 2):
            connection.send(wire.HEARTBEAT, wire.heartbeat(sequence, echoed=sequence - 1))
            assert connection.receive(timeout=10) == (wire.HEARTBEAT_ECHO, sequence.to_bytes(8, "little"))
        connection.socket.close()
        # The connection broke; the same incarnation gets the same answer.
        connection, again = join(cluster.port, instance=formed["instance"], **me)
        assert again == formed
        connection.send(wire.LEAVE)
        assert connection.receive(timeout=10) == (wire.BYE, b"")
        cluster.succeed(timeout=30)


def test_its_suspicion_of_a_live_peer_is_answered_and_its_leaving_is_told(tmp_path):
    release = tmp_path / "release"
    with Cluster([HELD], workers=2, started=1, env={**HERE, "HOLD_UNTIL": release}) as cluster:
        connection, formed = join(
            cluster.port, node_id="1", workers=2, host=("by-hand", "here"), process=this_process()
        )
        assert (formed["index"], formed["local_rank"], formed["local_size"]) == (1, 1, 2)
        cluster.workers[0].wait_for("joined", timeout=20)
        connection.send(wire.SUSPECT, wire.suspect(0, "it is so quiet"), node=1)
        kind, payload = connection.receive(timeout=10)
        assert (kind, payload[:5]) == (wire.PEER_REPORT, bytes([0, 0, 0, 0, 1]))  # peer 0 is alive
        connection.send(wire.LEAVE, node=1)
        assert connection.receive(timeout=10) == (wire.BYE, b"")
        release.touch()
        assert cluster.workers[0].wait(timeout=30) != 0
        assert "left" in cluster.workers[0].stderr


def test_one_of_another_run_of_the_job_is_told_so():
    with Cluster([EXAMPLES / "allgather"], workers=2, started=1) as cluster:
        with wire.connect(cluster.port) as connection:
            connection.send(wire.REGISTER, wire.register(node_id="1", workers=2, instance=bytes(range(16))))
            kind, payload = connection.receive(timeout=10)
            assert kind == wire.REJECTED
            status, reason = wire.rejected(payload)
            assert status == wire.ERR_REJECTED and "belongs to another run of the job (00010203)" in reason, reason
        cluster.start_worker()
        cluster.succeed(timeout=30)


def test_its_end_without_leaving_is_a_loss_that_names_it():
    with Cluster([EXAMPLES / "allgather"], workers=2, started=1) as cluster:
        connection, _ = join(cluster.port, node_id="1", workers=2, host=("by-hand", "elsewhere"))
        connection.socket.close()
        assert cluster.workers[0].wait(timeout=30) != 0
        assert "rank 1" in cluster.workers[0].stderr and "by-hand" in cluster.workers[0].stderr
        assert cluster.scheduler.wait(timeout=30) != 0
