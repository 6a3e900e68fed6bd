"""Passwords and private keys are nowhere in the memory of a process that has read them, nor in what it wrote."""

import base64
import os
import re
import secrets
import signal
import sys

import pytest

from certificates import Certificates, s_client
from cluster import Cluster, Process
from launch import Launch, until
from memory import where, writable
from nodes import alone_fails_at_once, listening_ports, node

LIMIT = 60
WAITS = "c = join(); c.world.barrier(); say(up=True); sys.stdin.read(); time.sleep(100)"
WORDS = ("CLIENT_PASSWORD", "SERVER_PASSWORD")


def numbers_of(files, name):
    """The numbers of a key that nobody else may know, as OpenSSL tells them: bytes, the highest first."""
    text = files.openssl("pkey", "-in", f"{name}.key", "-noout", "-text")
    found = re.findall(r"^(?:priv|privateExponent|prime1|prime2|exponent1|exponent2):\n((?: +[0-9a-f:]+\n)+)", text, re.MULTILINE)
    return [bytes.fromhex(re.sub(r"[\s:]", "", number)).lstrip(b"\0") for number in found]


def secrets_of(files, kind):
    """Everything that must not be found, by what it is."""
    found = {}
    for name in ("client", "server"):
        pem = (files.folder / f"{name}.key").read_text()
        lines = re.sub(r"-----.*?-----", "", pem).split()
        found[f"{name}: DER"] = base64.b64decode("".join(lines))
        found |= {f"{name}: PEM, line {at}": line.encode() for at, line in enumerate(lines) if len(line) > 20}
        numbers = numbers_of(files, name)
        assert len(numbers) == (5 if kind == "rsa" else 1)
        for at, number in enumerate(numbers):
            found[f"{name}: number {at}"] = number
            if kind != "rsa":  # ring reckons with the primes themselves, lowest byte first
                found[f"{name}: number {at}, reversed"] = number[::-1]
    if kind not in ("pem", "rsa"):
        found["password"] = files.password.encode()
        found["password, UTF-16"] = files.password.encode("utf-16-be")
    return found


def private_file(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def certificates(tmp_path, kind):
    form = "pem" if kind == "rsa" else kind
    files = Certificates(tmp_path / "files", kind=form, password=secrets.token_hex(16))
    if kind == "rsa":
        files.key = lambda name: ["-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key"]
        files.sign("client")
        files.sign("server")
    return files


@pytest.mark.parametrize("kind, has_secret", [*((kind, True) for kind in ("p12", "old", "sealed", "pem", "rsa")), ("rsa", False)])
def test_nothing_is_left_of_what_files_say(kind, has_secret, tmp_path):
    """Without a job secret, too: making its key overwrites the stack of the thread that has signed before."""
    files = certificates(tmp_path, kind)
    secret = secrets.token_hex(32)
    password = private_file(tmp_path / "password", f"{files.password}\n")
    env = {**files.bare_env(), "MUSTER_LOG": "trace"}
    if has_secret:
        env["MUSTER_JOB_SECRET_FILE"] = private_file(tmp_path / "secret", f"{secret}\n")
    if kind not in ("pem", "rsa"):
        env |= {f"MUSTER_{word}_FILE": password for word in WORDS}
    hidden = {**secrets_of(files, kind), "job secret": secret.encode()}
    with Cluster(node(WAITS), workers=2, env=env) as cluster:
        for worker in cluster.workers:
            worker.wait_for('"up"', LIMIT)
        for process in cluster.processes:
            not_in_memory(process.pid, hidden)
            in_no_core_dump(process.pid, primes_of(files) if kind == "rsa" else {})
            written = (process.stdout + process.stderr).encode()
            assert not [what for what, word in hidden.items() if word in written]


def in_no_core_dump(pid, primes):
    """ring reckons with the primes, lowest byte first: they are there, in pages that no core dump has."""
    memory = writable(pid)
    for what, prime in primes.items():
        places = where(memory, prime)
        assert places and all("dd" in place.flags for place in places), (pid, what, [(place.name, place.flags) for place in places])


def primes_of(files):
    """The prime numbers of the certificates' RSA keys, as ring has them in memory."""
    return {f"{name}: prime {at}": numbers_of(files, name)[at][::-1] for name in ("client", "server") for at in (1, 2)}


def not_in_memory(pid, hidden):
    memory = writable(pid)
    assert where(memory, b"MUSTER_CONFIG_FILE_PATH"), "the memory can be read"
    found = {what: [part.name for part in where(memory, word)] for what, word in hidden.items()}
    assert not any(found.values()), (pid, {what: names for what, names in found.items() if names})


@pytest.mark.parametrize("kind", ["p12", "sealed", "rsa"])
def test_nothing_is_left_of_files_that_are_renewed_while_a_process_goes_on(kind, tmp_path):
    """Nothing is left of the old files, nor of the new ones, which have another password."""
    files = certificates(tmp_path, kind)
    password = private_file(tmp_path / "password", f"{files.password}\n")
    env = {**files.bare_env(), "MUSTER_LOG": "trace"}
    if kind != "rsa":
        env |= {f"MUSTER_{word}_FILE": password for word in WORDS}
    hidden = {f"old {what}": word for what, word in secrets_of(files, kind).items()}
    old = primes_of(files) if kind == "rsa" else {}  # connections that stand keep what they began with
    with Cluster(node(WAITS), workers=2, env=env) as cluster:
        for worker in cluster.workers:
            worker.wait_for('"up"', LIMIT)
        files.password = secrets.token_hex(16)
        for name in ("client", "server"):
            files.sign(name, name="renewed")
        private_file(password, f"{files.password}\n")
        hidden |= secrets_of(files, kind)
        for process in cluster.processes:
            port, = listening_ports(process.pid)
            own = ("-tls1_2", "-cert", "client.crt", "-key", "client.key")
            until(lambda port=port: re.search("subject=CN ?= ?renewed", s_client(files, port, *own)), LIMIT, "it has read them again")
        for process in cluster.processes:
            not_in_memory(process.pid, hidden)
            in_no_core_dump(process.pid, old | (primes_of(files) if kind == "rsa" else {}))
            written = (process.stdout + process.stderr).encode()
            assert not [what for what, word in hidden.items() if word in written]


def test_nothing_is_left_in_a_launcher_and_in_what_it_has_started(tmp_path):
    """The launcher has spoken to the scheduler by then: of a worker that was killed, whose next life is there."""
    files = certificates(tmp_path, "p12")
    password = private_file(tmp_path / "password", f"{files.password}\n")
    secret = secrets.token_hex(32)
    env = {**files.bare_env(), **{f"MUSTER_{word}_FILE": password for word in WORDS}, "MUSTER_LOG": "trace",
           "MUSTER_JOB_SECRET_FILE": private_file(tmp_path / "secret", f"{secret}\n"),
           "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    hidden = {**secrets_of(files, "p12"), "job secret": secret.encode()}
    words = ["--worker_num=2", "--master_port=0", "--join", "--max_restarts=1"]
    with Launch(*words, sys.executable, *node(WAITS), env=env) as launch:
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", '"up"', LIMIT)
        os.kill(launch.child("worker 1"), signal.SIGKILL)
        launch.wait_for_log("scheduler.log", "is back, ", LIMIT)
        launch.wait_for_log("scheduler.log", "a launcher at .* says of process", LIMIT)
        pids = [launch.pid, launch.child("the scheduler"), launch.child("worker 0")]
        for pid in pids:
            not_in_memory(pid, hidden)
        written = launch.describe().encode()
        assert not [what for what, word in hidden.items() if word in written]


def test_what_came_by_a_descriptor_is_there_once_and_in_no_core_dump(tmp_path):
    files = certificates(tmp_path, "p12")
    password = private_file(tmp_path / "password", files.password)
    env = {**files.bare_env(), **{f"MUSTER_{word}_FILE": password for word in WORDS}}
    with Cluster(node(WAITS), workers=1, started=0, env=env) as cluster, by_descriptor(files.password) as number:
        own = {f"MUSTER_{word}_FILE": None for word in WORDS} | {f"MUSTER_{word}_FD": number for word in WORDS}
        settings = {**cluster.env, **own, "MS_ROLE": "MS_WORKER", "MUSTER_LOG": "trace"}
        with Process(node(WAITS), settings, "worker", [number]) as worker:
            worker.wait_for('"up"', LIMIT)
            memory = writable(worker.pid)
            hidden = secrets_of(files, "p12")
            places = where(memory, hidden.pop("password"))
            assert len(places) == 1 and "dd" in places[0].flags, [(place.name, place.flags) for place in places]
            assert not [what for what, word in hidden.items() if where(memory, word)]
            assert files.password not in worker.stdout + worker.stderr
            assert not os.path.exists(f"/proc/{worker.pid}/fd/{number}"), "it is closed"


class by_descriptor:
    """The number of a descriptor from which this can be read, to its end."""

    def __init__(self, text):
        self.number, writer = os.pipe()
        os.write(writer, text.encode())
        os.close(writer)

    def __enter__(self):
        return self.number

    def __exit__(self, *_):
        os.close(self.number)


def test_a_job_secret_comes_by_a_descriptor_too():
    secret = secrets.token_hex(32)
    with Cluster(node(WAITS), workers=1, started=0, env={"MUSTER_JOB_SECRET": secret}) as cluster, by_descriptor(secret) as number:
        settings = {**cluster.env, "MUSTER_JOB_SECRET": None, "MUSTER_JOB_SECRET_FD": number, "MS_ROLE": "MS_WORKER"}
        with Process(node(WAITS), settings, "worker", [number]) as worker:
            worker.wait_for('"up"', LIMIT)
            places = where(writable(worker.pid), secret.encode())
            assert len(places) == 1 and "dd" in places[0].flags, [(place.name, place.flags) for place in places]


@pytest.mark.parametrize("value, why", [
    ("x", 'MUSTER_CLIENT_PASSWORD_FD is "x": expected a whole number from 3 to 2147483647'),
    ("2", 'MUSTER_CLIENT_PASSWORD_FD is "2": expected a whole number from 3 to 2147483647'),
    ("999", 'MUSTER_CLIENT_PASSWORD_FD is "999", which is not open: expected a pipe or a file that it inherits'),
])
def test_a_descriptor_that_cannot_be_read_is_told(value, why, tmp_path):
    files = Certificates(tmp_path / "files", kind="p12")
    env = {**files.bare_env(), "MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": 9999, "MS_WORKER_NUM": 1,
           "MUSTER_SERVER_PASSWORD": files.password, "MUSTER_CLIENT_PASSWORD_FD": value}
    alone_fails_at_once(env, "CONFIG", why)
