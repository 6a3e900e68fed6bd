"""The job's secret: proved on each connection, sent on none, and refused by name where it is another."""

import hashlib
import re
import socket
import subprocess

import pytest

import wire
from attacks import each_is_told_once
from certificates import Certificates
from cluster import EXAMPLES, MUSTER, Cluster, clean_environment, reserved_port
from nodes import alone_fails_at_once, failed_at_once, listening_ports, node, one_of_two_dies_and_comes_back, said
from tap import Tap

LIMIT = 60
FLOOD = 1000
SECRET = "correct horse battery staple"
ENV = {"MUSTER_JOB_SECRET": SECRET}
WORK = """
    c = join()
    c.world.barrier()
    total = c.world.allreduce([c.rank + 1] * 300_000)
    c.store_set(f"of {c.rank}", b"x" * 200_000)
    other = c.store_get(f"of {(c.rank + 1) % c.size}", 30_000)
    say(sum=total[-1], other=len(other))
    c.leave()
"""


@pytest.mark.parametrize("tls", [False, True])
def test_a_cluster_works_with_a_secret(tls, tmp_path):
    env = {**ENV, **(Certificates(tmp_path / "files").env() if tls else {})}
    with Cluster(node(WORK), workers=3, env=env) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["sum"] == 6 and said(worker)["other"] == 200_000
        for process in cluster.processes:
            assert "warning" not in process.stderr and SECRET not in process.stderr


def test_the_secret_may_come_from_a_file(tmp_path):
    word = tmp_path / "word"
    word.write_text(f"{SECRET}\n")
    word.chmod(0o600)
    with Cluster(node(WORK), workers=2, started=1, env=ENV) as cluster:
        cluster.start_worker({"MUSTER_JOB_SECRET": None, "MUSTER_JOB_SECRET_FILE": word})
        cluster.succeed(timeout=LIMIT)
    for nothing in ("", "\n"):  # it would be a secret that everybody has
        word.write_text(nothing)
        alone_fails_at_once({"MUSTER_JOB_SECRET_FILE": word}, "CONFIG", "MUSTER_JOB_SECRET_FILE", "no secret in it")
    word.chmod(0o644)
    alone_fails_at_once({"MUSTER_JOB_SECRET_FILE": word}, "CONFIG", "MUSTER_JOB_SECRET_FILE", "any user of this host")
    alone_fails_at_once({**ENV, "MUSTER_JOB_SECRET_FILE": word}, "CONFIG", "are both set")


@pytest.mark.parametrize("theirs, at_worker, at_scheduler", [
    ("another", "the job's secret is another", "its job secret is another than the one that is set here"),
    (None, "this job has a secret, and the process that connects shows none", "it shows no job secret, and one is set here"),
])
def test_another_secret_and_none_are_refused_by_name(theirs, at_worker, at_scheduler):
    with Cluster(node(), workers=1, started=0, env=ENV) as cluster:
        worker = cluster.start_worker({"MUSTER_JOB_SECRET": theirs})
        failed_at_once(worker, "REJECTED", at_worker, "MUSTER_JOB_SECRET")
        cluster.scheduler.wait_for(re.escape(at_scheduler), LIMIT)
        assert SECRET not in worker.stderr + cluster.scheduler.stderr


def test_a_secret_where_the_scheduler_has_none_is_refused_by_name():
    with Cluster(node(), workers=1, started=0) as cluster:
        worker = cluster.start_worker(ENV)
        failed_at_once(worker, "REJECTED", "proves a job secret, and this scheduler has none", "MUSTER_JOB_SECRET")
        cluster.scheduler.wait_for(re.escape("it proves a job secret, and none is set here (job_secret)"), LIMIT)


def test_status_is_told_to_those_only_that_prove_the_secret():
    with Cluster(node(), workers=2, started=1, env=ENV) as cluster:
        def status(env):
            words = [MUSTER, "status", f"--sched_port={cluster.port}"]
            return subprocess.run(words, env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT)

        told = status(ENV)
        assert told.returncode == 0 and "forming" in told.stdout, told.stderr
        for env in ({}, {"MUSTER_JOB_SECRET": "another"}):
            told = status(env)
            assert told.returncode == 4 and "MUSTER_JOB_SECRET" in told.stderr, told.stderr


def test_the_launcher_hands_the_secret_on(tmp_path):
    words = ["run", "--worker_num", "2", "--master_port", "0", "--join", "--log_dir", "logs", EXAMPLES / "allgather"]
    run = subprocess.run([MUSTER, *words], cwd=tmp_path, env=clean_environment(ENV), capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert logs.count("[[0.], [1.]]") == 2 and SECRET not in logs + run.stderr, logs


def recovery(tmp_path):
    return {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}


TAPPED = """
    c = join()
    c.world.barrier()
    say(sum=c.world.allreduce([c.rank]), epoch=c.epoch)
    time.sleep(60)
"""


def test_neither_the_secret_nor_a_token_crosses_the_wire_and_a_recording_is_of_no_use(tmp_path):
    """All that goes between the nodes and the scheduler is looked at. A node keeps its token on its disk: the 32 bytes whose hash it
    registers with. Its second life shows it."""
    env = {**ENV, **recovery(tmp_path)}
    with Cluster(node(TAPPED), workers=2, started=0, env=env) as cluster, Tap(cluster.port) as tap:
        place = {"MS_SCHED_PORT": tap.port}
        first = cluster.start_worker({**place, "MS_NODE_ID": 0})
        second = cluster.start_worker({**place, "MS_NODE_ID": 1})
        for worker in (first, second):
            worker.wait_for("epoch", LIMIT)
        recording = bytes(tap.connections[0].sent)
        kept = b"".join(path.read_bytes() for path in (tmp_path / "recovery").rglob("*") if path.is_file())
        first.kill()
        again = cluster.start_worker({**place, "MS_NODE_ID": 0})
        cluster.scheduler.wait_for("comes back|has come back|is back|waits for", LIMIT)
        assert again.returncode is None and len(recording) > 200
        heard = tap.all()
        assert SECRET.encode() not in heard
        pieces = {kept[at:at + 32] for at in range(len(kept) - 31)}
        tokens = [piece for piece in pieces if hashlib.sha256(piece).digest() in heard]
        assert len(tokens) >= 2 and not any(token in heard for token in tokens)
        with socket.create_connection(("127.0.0.1", cluster.port)) as replay:
            replay.sendall(recording)
            replay.settimeout(LIMIT)
            answer = b""
            while data := replay.recv(65536):
                answer += data
        assert b"secret is another" in answer


def test_one_that_died_comes_back(tmp_path):
    one_of_two_dies_and_comes_back(tmp_path / "recovery", ENV, LIMIT)


HELD = """
    c = join()
    say(sum=c.world.allreduce([1]))
    hold("visited")
    say(again=c.world.allreduce([1]))
    hold("end")
    c.leave()
"""


def mark_of_epoch(tap, secret=SECRET):
    """What stands in the first epoch's secret's place: one that knows the job's secret makes it from what crosses the wire."""
    formed = [wire.formed(payload) for payload in tap.frames("heard", wire.FORMED)]
    assert formed and {(each["epoch"], each["secret"]) for each in formed} == {(1, bytes(32))}, formed
    return wire.epoch_secret(secret, formed[0]["instance"], 1)


def test_a_node_opens_no_link_to_one_that_does_not_prove_the_secret(tmp_path):
    """All else about its hello is right. With the proof it is let in: so it is the proof that counts."""
    with Cluster(node(HELD), workers=2, started=0, env={**ENV, "HOLD_FOLDER": tmp_path}) as cluster, Tap(cluster.port) as tap:
        for _ in range(2):
            cluster.start_worker({"MS_SCHED_PORT": tap.port})
        for worker in cluster.workers:
            worker.wait_for('"sum"', LIMIT)
        lives = dict(wire.registered(payload) for payload in tap.frames("sent", wire.REGISTER))
        mark = mark_of_epoch(tap)

        def hello(dialler):
            """For the channel of messages, on which no link has been opened yet."""
            return wire.LINK_HELLO, wire.link_hello(1, 0, 1, dialler, 1 - dialler, lives[str(dialler)], mark[:16])

        def is_refused(said_by_stranger):
            with pytest.raises((EOFError, ConnectionError)):
                assert said_by_stranger.receive(LIMIT) == (wire.LINK_REJECT, bytes([wire.LINK_STRANGER]))
                said_by_stranger.receive(LIMIT)

        for target, why in ((0, "it shows no job secret, and one is set here"),
                            (1, "its job secret is another than the one that is set here")):
            worker, (port,) = cluster.workers[target], listening_ports(cluster.workers[target].pid)
            for _ in range(3):
                with wire.connect(port) as stranger:
                    if target == 0:
                        stranger.send(*hello(1))
                    else:
                        stranger.prove("another", *hello(0))
                    is_refused(stranger)
            worker.wait_for(re.escape(why), LIMIT)
            told = [line for line in worker.stderr.splitlines() if "stranger" in line]
            assert len(told) == 1 and "127.0.0.1:" in told[0], told
        (tmp_path / "visited").touch()
        for worker in cluster.workers:
            assert worker.wait_for('"again": (.*)}', LIMIT)[1] == "[2]"
        port, = listening_ports(cluster.workers[0].pid)
        with wire.connect(port) as own:
            is_proved_by = own.prove(SECRET, *hello(1))
            kind, payload = own.receive(LIMIT)
            assert kind == wire.LINK_ACCEPT and payload[:16] == mark[16:]
            proof, right = own.receive(LIMIT)
            assert proof == wire.PROOF and is_proved_by(kind, payload, right)


def test_the_epochs_secret_crosses_no_wire_and_a_recorded_link_is_of_no_use(tmp_path):
    """Both planes are listened to. A link shows halves of what stands in the secret's place; they open no other link."""
    with Cluster(node(HELD), workers=2, started=0, env={**ENV, "HOLD_FOLDER": tmp_path}) as cluster, Tap(cluster.port) as control:
        with reserved_port() as port, Tap(port) as data:
            env = {"MS_WORKER_IP": "127.0.0.1", "MUSTER_ADVERTISE": f"127.0.0.1:{data.port}", "MUSTER_PORT_RANGE": f"{port}-{port}"}
            with reserved_port() as other, Tap(other) as more:
                own = {"MUSTER_ADVERTISE": f"127.0.0.1:{more.port}", "MUSTER_PORT_RANGE": f"{other}-{other}"}
                cluster.start_worker({"MS_SCHED_PORT": control.port, **env})
                cluster.start_worker({"MS_SCHED_PORT": control.port, **env, **own})
                for worker in cluster.workers:
                    worker.wait_for('"sum"', LIMIT)
                mark = mark_of_epoch(control)
                for tap in (control, data, more):
                    assert mark not in tap.all() and SECRET.encode() not in tap.all()
                assert mark[:16] not in control.all() and mark[16:] not in control.all()
                # Where both have dialled, one of the two connections is given up before it says anything.
                links = [(tap, passed) for tap in (data, more) for passed in tap.connections]
                tapped, link = next((tap, passed) for tap, passed in links if mark[:16] in passed.sent)
                with socket.create_connection(("127.0.0.1", port if tapped is data else other)) as replay:
                    replay.sendall(bytes(link.sent))
                    replay.settimeout(LIMIT)
                    with wire.Connection(replay) as connected:
                        assert connected.receive(LIMIT)[0] == wire.PROOF_CHALLENGE
                        with pytest.raises((EOFError, ConnectionError)):
                            assert connected.receive(LIMIT)[0] == wire.LINK_REJECT
                            connected.receive(LIMIT)
                (tmp_path / "visited").touch()
                for worker in cluster.workers:
                    assert worker.wait_for('"again": (.*)}', LIMIT)[1] == "[2]"


def test_a_flood_of_wrong_secrets_is_told_once_at_the_scheduler_and_at_a_node(tmp_path):
    with Cluster(node(HELD), workers=2, env={**ENV, "HOLD_FOLDER": tmp_path}) as cluster:
        for worker in cluster.workers:
            worker.wait_for('"sum"', LIMIT)
        firsts = {
            cluster.scheduler: (wire.REGISTER, wire.register(node_id="1", workers=2)),
            cluster.workers[0]: (wire.LINK_HELLO, wire.link_hello(1, 0, 1, 1, 0, bytes(16), bytes(16))),
        }
        for process, first in firsts.items():
            port, = listening_ports(process.pid)
            for number in range(FLOOD):
                with wire.connect(port) as stranger:
                    stranger.prove(f"guess {number}", *first)
                    assert stranger.receive(LIMIT)[0] in (wire.REJECTED, wire.LINK_REJECT)
        (tmp_path / "visited").touch()
        (tmp_path / "end").touch()
        for worker in cluster.workers:
            assert worker.wait_for('"again": (.*)}', LIMIT)[1] == "[2]"
        for worker in cluster.workers:
            assert worker.wait(LIMIT) == 0
        cluster.scheduler.wait(LIMIT)
        for process in firsts:
            each_is_told_once(process)
            told = len(re.findall("its job secret is another", process.stderr))
            counted = sum(map(int, re.findall(r" (\d+) more connections", process.stderr)))
            assert told + counted == FLOOD, process.stderr
        assert f" {FLOOD - 1} more connections that did not get past TLS or the job secret, " in cluster.workers[0].stderr
