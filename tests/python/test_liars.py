"""Somebody on the host says what only a launcher knows, made from /proc alone: with a secret or TLS it is not believed, and told."""

import contextlib
import os
import pathlib
import signal
import ssl
import sys

import pytest

import wire
from certificates import Certificates
from launch import Launch
from nodes import node, process_of

LIMIT = 60
WORDS_MAX = 2  # what a log says of one kind: a line and its count
TIMES = 20
WORDS = 3  # that a launcher says of its two workers

LIVES = """
    c = join()
    while True:
        say(epoch=c.epoch)
        try:
            while not c.world.allreduce([int(os.path.exists(os.environ["END"]))], MIN)[0]:
                time.sleep(0.005)
            break
        except MusterError:
            c.recover(60_000)
    c.leave()
"""


def words_of_a_launcher(pids):
    """Says that these have ended, and that nobody is started in their places. All users may read what it takes."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    name = os.uname().nodename
    host, processes = (name, f"{name}/{boot}"), [process_of(pid) for pid in pids]
    yield wire.ABANDONED, wire.abandoned(host, processes)
    for process in processes:
        yield wire.CHILD_ENDED, wire.child_ended(host, process, killed=True, number=9)


def answers(stranger):
    """All that it is told, until it is put out."""
    told = []
    with contextlib.suppress(EOFError, OSError, wire.Malformed):
        while True:
            told.append(stranger.receive(LIMIT))
    return told


def lie(port, pids):
    """What each word is answered with."""
    for kind, payload in words_of_a_launcher(pids):
        with wire.connect(port) as liar:
            liar.send(kind, payload)
            yield answers(liar)


def lie_in_tls(port, pids):
    """Says a word behind a handshake without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for kind, payload in words_of_a_launcher(pids):
        with wire.connect(port) as plain, wire.Connection(context.wrap_socket(plain.socket)) as liar:
            with contextlib.suppress(OSError):  # it was put out already
                liar.send(kind, payload)
            yield answers(liar)


def liars(guard, port, pids):
    """It is refused, in words where it can read them."""
    if guard == "secret":
        all_told = list(lie(port, pids))
        assert len(all_told) == WORDS
        for told in all_told:
            (kind, answer), = told
            assert kind == wire.REJECTED and wire.rejected(answer)[0] == wire.ERR_REJECTED, told
            assert "this job has a secret, and the process that connects shows none" in wire.rejected(answer)[1]
    else:
        told = list(lie(port, pids))
        assert len(told) == WORDS and all(kind == wire.REJECTED for each in told for kind, _ in each), told
        assert list(lie_in_tls(port, pids)) == [[]] * WORDS


def launched(tmp_path, env):
    settings = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery", "END": tmp_path / "end", "MUSTER_LOG": "info", **env}
    words = ["--worker_num=2", "--master_port=0", "--join", "--max_restarts=1"]
    return Launch(*words, sys.executable, *node(LIVES), env=settings)


def stands(launch):
    """The scheduler's port, and the workers' pids, once all have joined."""
    for rank in range(2):
        launch.wait_for_log(f"worker_{rank}.log", '"epoch": 1', LIMIT)
    return int(launch.wait_for(r"the scheduler is here: \S+ port (\d+)", LIMIT)[1]), [launch.child(f"worker {rank}") for rank in range(2)]


@pytest.mark.parametrize("guard, complaint", [
    ("secret", "it shows no job secret, and one is set here"),
    ("TLS", "it does not speak TLS as expected"),
])
def test_a_launchers_word_by_somebody_else_costs_a_job_nothing(guard, complaint, tmp_path):
    """A launcher has one restart left. Before a rank is killed, and after, somebody says that nobody comes in its place."""
    env = {} if guard == "secret" else {**Certificates(tmp_path / "files").env(), "MUSTER_JOB_SECRET": ""}
    with launched(tmp_path, env) as launch:
        port, pids = stands(launch)
        for _ in range(TIMES):
            liars(guard, port, pids)
        words = list(words_of_a_launcher(pids))
        os.kill(pids[1], signal.SIGKILL)
        # Its own launcher says so, too, and is heard.
        launch.wait_for_log("scheduler.log", rf"a launcher at 127\.0\.0\.1:\d+ says of process {pids[1]} on", LIMIT)
        # It may be back already, and its place is what these name, too.
        for _ in range(TIMES):
            for kind, payload in words:
                with wire.connect(port) as liar, contextlib.suppress(OSError):
                    liar.send(kind, payload)
                    assert all(kind == wire.REJECTED for kind, _ in answers(liar))
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", '"epoch": 2', LIMIT)
        (tmp_path / "end").touch()
        assert launch.wait(LIMIT) == 0, launch.describe()
        log = launch.log("scheduler.log")
        told = [line for line in log.splitlines() if complaint in line and "127.0.0.1:" in line]
        assert told and len(told) <= 2 * WORDS_MAX, told
        assert "says that it will not restart these processes" not in log, log


def test_without_either_it_is_heard_and_told_with_its_address(tmp_path):
    """So what the test above sends is what a launcher says, but for the proof."""
    with launched(tmp_path, {"MUSTER_JOB_SECRET": ""}) as launch:
        port, pids = stands(launch)
        assert list(lie(port, pids)) == [[], [], []], "it is not answered"
        launch.wait_for_log("scheduler.log", rf"a launcher at 127\.0\.0\.1:\d+ says that it will not restart these processes .*: {pids[0]}, {pids[1]}", LIMIT)
        (tmp_path / "end").touch()
        assert launch.wait(LIMIT) == 0, launch.describe()
