"""A node made by hand from docs/protocol.md takes part in a real cluster: the document is enough, and the scheduler and the
other nodes judge a node by what it says, not by whose code it runs."""

import json
import os
import pathlib
import subprocess

import pytest
import wire
from cluster import EXAMPLES, MUSTER, Cluster, clean_environment
from nodes import await_joined, listening_ports, node, said

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


def attaches_again_and_leaves(cluster, connection, formed, me):
    """The connection breaks; the same incarnation gets the same answer, and goes in order."""
    connection.socket.close()
    connection, again = join(cluster.port, instance=formed["instance"], **me)
    assert again == formed
    connection.send(wire.LEAVE)
    assert connection.receive(timeout=10) == (wire.BYE, b"")
    cluster.succeed(timeout=30)


def test_it_joins_beats_comes_back_and_leaves():
    with Cluster([EXAMPLES / "allgather"], workers=1, started=0, env=HERE) as cluster:
        me = {"node_id": "0", "incarnation": bytes(range(16)), "host": ("by-hand", "here"), "process": this_process()}
        connection, formed = join(cluster.port, **me)
        assert (formed["epoch"], formed["index"], formed["rank"], formed["worker_num"]) == (1, 0, 0, 1)
        for sequence in (1, 2):
            connection.send(wire.HEARTBEAT, wire.heartbeat(sequence, echoed=sequence - 1))
            assert connection.receive(timeout=10) == (wire.HEARTBEAT_ECHO, sequence.to_bytes(8, "little"))
        attaches_again_and_leaves(cluster, connection, formed, me)


@pytest.mark.parametrize("offered, taken_up", [(0, 0), (1, 1), (2**64 - 1, 1)])
def test_it_says_what_carries_a_group_where_it_has_offered_to(offered, taken_up):
    with Cluster(node(), workers=1, started=0) as cluster, wire.connect(cluster.port) as connection:
        connection.send(wire.REGISTER, wire.register(node_id="0", process=this_process(), features=offered))
        kind, payload = connection.receive(timeout=20)
        assert kind == wire.FORMED
        # Its only address ends its member, with a device of which nothing is said.
        member = b"\4\x7f\0\0\1\x09\0" + bytes(2)
        assert payload.endswith(member + (taken_up.to_bytes(8, "little") if taken_up else b"")), payload.hex()
        carriers = [(0, 1, "made by hand")] if taken_up else []
        connection.send(wire.HEARTBEAT, wire.heartbeat(1, carriers=carriers))
        assert connection.receive(timeout=10)[0] == wire.HEARTBEAT_ECHO
        asked = [MUSTER, "status", "--format=json", "--timeout=30", f"--sched_port={cluster.port}"]
        answer = json.loads(subprocess.run(asked, env=clean_environment(), capture_output=True, text=True, timeout=60).stdout)
        expected = [{"group": "world", "carrier": "links", "words": "made by hand"}]
        assert answer["carriers"] == (expected if taken_up else [])
        connection.send(wire.LEAVE)
        assert connection.receive(timeout=10) == (wire.BYE, b"")


def test_nobody_takes_its_place_by_its_incarnation_alone(tmp_path):
    """Peers are told that. With recovery it takes the token that it had registered with, too."""
    env = {**HERE, "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path}
    with Cluster([EXAMPLES / "allgather"], workers=1, started=0, env=env) as cluster:
        me = {"node_id": "0", "incarnation": bytes(range(16)), "host": ("by-hand", "here"), "process": this_process()}
        me |= {"recovery": True, "next_token": bytes([7] * 32)}
        connection, formed = join(cluster.port, **me)
        with wire.connect(cluster.port) as thief:
            thief.send(wire.REGISTER, wire.register(instance=formed["instance"], **{**me, "next_token": bytes([8] * 32)}))
            status, reason = wire.rejected(thief.receive(timeout=10)[1])
        assert status == wire.ERR_REJECTED and "without the token" in reason, reason
        connection.send(wire.HEARTBEAT, wire.heartbeat(1))
        assert connection.receive(timeout=10)[0] == wire.HEARTBEAT_ECHO
        attaches_again_and_leaves(cluster, connection, formed, me)


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


CALLS = {
    "a collective": (0, "c.world.broadcast(bytes(4), 1).decode()", lambda epoch: wire.broadcast_of_bytes(epoch, 1, 1, b"word")),
    "a message": (1, "c.world.receive(4, 1).decode()", lambda epoch: wire.eager_bytes(epoch, 1, b"word")),
    "a collective of own elements": (
        0,
        "c.world.broadcast(bytes(4), 1, muster_ctypes.ELEMENT + 2).decode()",
        lambda epoch: wire.broadcast_of_bytes(epoch, 1, 1, b"word", size=2),
    ),
    "a message of own elements": (
        1,
        "c.world.receive(4, 1, dtype=muster_ctypes.ELEMENT + 2).decode()",
        lambda epoch: wire.eager_bytes(epoch, 1, b"word", size=2),
    ),
}


@pytest.mark.parametrize("epoch", [1, 2], ids=["this epoch", "another epoch"])
@pytest.mark.parametrize("kind", CALLS)
def test_what_it_sends_of_another_epoch_is_never_taken_for_one_of_this(kind, epoch, tmp_path):
    """This holds even for a node that knows the secret: a frame says of which epoch it is."""
    channel, call, sends = CALLS[kind]
    ends = f"say(heard={call})" if epoch == 1 else f"say(**fails(lambda: {call}))"
    lines = f"c = join(); hold('go'); {ends}; c.leave()"
    with Cluster(node(lines), workers=2, started=1, env={**HERE, "HOLD_FOLDER": tmp_path}) as cluster:
        incarnation = bytes(range(16))
        connection, formed = join(
            cluster.port, node_id="1", workers=2, host=("by-hand", "here"), process=this_process(), incarnation=incarnation
        )
        worker = cluster.workers[0]
        await_joined(worker)
        (port,) = listening_ports(worker.pid)
        with connection, wire.connect(port) as link:
            link.send(wire.LINK_HELLO, wire.link_hello(1, 0, channel, 1, 0, incarnation, formed["secret"][:16]))
            assert link.receive(timeout=10) == (wire.LINK_ACCEPT, formed["secret"][16:] + bytes(8))
            link.send(wire.KEEP_ALIVE)
            (tmp_path / "go").touch()
            link.socket.sendall(sends(epoch))
            worker.wait_for("heard|error", timeout=30)
            words = said(worker)
            if epoch == 1:
                assert words["heard"] == "word"
            else:
                assert words["error"] == "CORRUPT" and "in epoch 2" in words["sentence"], words
