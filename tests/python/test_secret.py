"""The job's secret: proved on each connection, sent on none, and refused by name where it is another."""

import hashlib
import re
import socket
import subprocess
import threading

import pytest

from certificates import Certificates
from cluster import EXAMPLES, MUSTER, Cluster, clean_environment
from nodes import alone_fails_at_once, failed_at_once, node, one_of_two_dies_and_comes_back, said

LIMIT = 60
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
    word.chmod(0o644)
    alone_fails_at_once({"MUSTER_JOB_SECRET_FILE": word}, "CONFIG", "MUSTER_JOB_SECRET_FILE", "any user of this host")
    alone_fails_at_once({**ENV, "MUSTER_JOB_SECRET_FILE": word}, "CONFIG", "are both set")


@pytest.mark.parametrize("theirs, at_worker, at_scheduler", [
    ("another", "the job's secret is another", "its job secret is another than the one that is set here"),
    (None, "this job has a secret, and the one that asks shows none", "it shows no job secret, and one is set here"),
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


class Tap:
    """A port that passes everything on to the scheduler, and keeps it."""

    def __init__(self, port):
        self.to, self.heard, self.sent = port, b"", []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            number = len(self.sent)
            self.sent.append(b"")
            threading.Thread(target=self.pass_on, args=(near, far, number), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(far, near, None), daemon=True).start()

    def pass_on(self, one, other, number):
        try:
            while data := one.recv(65536):
                self.heard += data
                if number is not None:
                    self.sent[number] += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


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
    with Cluster(node(TAPPED), workers=2, started=0, env={**ENV, **recovery(tmp_path)}) as cluster:
        tap = Tap(cluster.port)
        place = {"MS_SCHED_PORT": tap.port}
        first = cluster.start_worker({**place, "MS_NODE_ID": 0})
        second = cluster.start_worker({**place, "MS_NODE_ID": 1})
        for worker in (first, second):
            worker.wait_for("epoch", LIMIT)
        recording = tap.sent[0]
        kept = b"".join(path.read_bytes() for path in (tmp_path / "recovery").rglob("*") if path.is_file())
        first.kill()
        again = cluster.start_worker({**place, "MS_NODE_ID": 0})
        cluster.scheduler.wait_for("comes back|has come back|is back|waits for", LIMIT)
        assert again.returncode is None and len(recording) > 200
        assert SECRET.encode() not in tap.heard
        pieces = {kept[at:at + 32] for at in range(len(kept) - 31)}
        tokens = [piece for piece in pieces if hashlib.sha256(piece).digest() in tap.heard]
        assert len(tokens) >= 2 and not any(token in tap.heard for token in tokens)
        with socket.create_connection(("127.0.0.1", cluster.port)) as replay:
            replay.sendall(recording)
            replay.settimeout(LIMIT)
            answer = b""
            while data := replay.recv(65536):
                answer += data
        assert b"secret is another" in answer


def test_one_that_died_comes_back(tmp_path):
    one_of_two_dies_and_comes_back(tmp_path / "recovery", ENV, LIMIT)
