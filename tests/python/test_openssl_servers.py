"""OpenSSL in a scheduler's place: what a node and `muster status` agree on with it, which they refuse, and which refuse them."""

import contextlib
import json
import shutil
import subprocess

import pytest

from certificates import Certificates
from cluster import MUSTER, Process, clean_environment, reserved_port
from nodes import node

LIMIT = 60
NEWEST = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"]
OLDER = [f"ECDHE-{key}-{cipher}" for key in ("ECDSA", "RSA")
         for cipher in ("AES256-GCM-SHA384", "AES128-GCM-SHA256", "CHACHA20-POLY1305")]


@pytest.fixture
def files(tmp_path):
    """The server has a key of each kind."""
    files = Certificates(tmp_path / "files")
    files.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "rsa.key", "-out", "rsa.csr", "-subj", "/CN=rsa")
    files.openssl("x509", "-req", "-in", "rsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "200",
                  "-out", "rsa.crt", "-extfile", "node.ext")
    return files


@contextlib.contextmanager
def s_server(folder, *words, cert="server.crt", key="server.key", ca="ca.pem"):
    """The process, and its port. It wants a certificate, and says in a few lines what was agreed on."""
    with contextlib.ExitStack() as held:
        port = held.enter_context(reserved_port())
        command = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", cert, "-key", key, "-CAfile", ca,
                   "-Verify", "3", "-verify_return_error", "-rev", *words]
        server = held.enter_context(Process(command, cwd=folder))
        server.wait_for("ACCEPT", LIMIT)
        yield server, port


def asks(port, env):
    return Process([MUSTER, "status", f"--sched_port={port}", "--timeout=30"], env)


def joins(port, env):
    place = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": port, "MS_WORKER_NUM": 1}
    return Process(node(), {**place, **env})


@pytest.mark.parametrize("who", [asks, joins])
@pytest.mark.parametrize("version, cipher", [("-tls1_2", "ECDHE-ECDSA-AES256-GCM-SHA384"), ("-tls1_3", NEWEST[0])])
def test_each_version_is_spoken_and_a_certificate_shown(version, cipher, who, files):
    with s_server(files.folder, version) as (server, port), who(port, files.env()):
        server.wait_for(f"Ciphersuite: {cipher}", LIMIT)
        server.wait_for("Peer certificate: CN ?= ?client", LIMIT)


@pytest.mark.parametrize("cipher", NEWEST + OLDER)
def test_each_cipher_of_the_list_is_spoken(cipher, files):
    files.configure(cipher_list=cipher)
    key = "rsa" if "-RSA-" in cipher else "server"
    version = "-tls1_3" if cipher in NEWEST else "-tls1_2"
    with s_server(files.folder, version, cert=f"{key}.crt", key=f"{key}.key") as (server, port), asks(port, files.env()):
        server.wait_for(f"Ciphersuite: {cipher}", LIMIT)


def test_where_nothing_is_in_common_that_is_said(files):
    files.configure(cipher_list=NEWEST[1])
    with s_server(files.folder, "-tls1_2") as (_, port), asks(port, files.env()) as question:
        question.wait_for("it has no version of TLS in common with this process", LIMIT)
    files.configure(cipher_list=OLDER[0])
    with s_server(files.folder, "-tls1_1") as (_, port), asks(port, files.env()) as question:
        question.wait_for("it has no version of TLS in common with this process", LIMIT)


@pytest.fixture
def revoked(tmp_path):
    """What `muster certs` has made: `good`, and `bad`, which is revoked. Beside it `unaware` is the same without the news."""
    folder = tmp_path / "certs"

    def certs(*words):
        run = subprocess.run([MUSTER, "certs", *words], env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
        assert run.returncode == 0, run.stderr

    certs("new", folder, "--name", "good", "--name", "bad")
    shutil.copytree(folder / "bad", tmp_path / "unaware")
    certs("revoke", folder, "--name", "bad")
    assert json.loads((folder / "good" / "tls.json").read_text())["crl_path"]
    return folder


def of(folder, name):
    return {"MUSTER_ENABLE_SSL": 1, "MUSTER_CONFIG_FILE_PATH": folder / name / "tls.json"}


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("who", [asks, joins])
def test_a_server_refuses_one_whose_certificate_is_revoked(version, who, revoked):
    own = {"cert": "good/node.pem", "key": "good/node.pem", "ca": "ca/ca.pem"}
    with s_server(revoked, version, "-crl_check", "-CRL", "ca/crl.pem", **own) as (server, port):
        with who(port, of(revoked, "good")):
            server.wait_for("Ciphersuite: ", LIMIT)
        with who(port, of(revoked.parent, "unaware")) as refused:
            server.wait_for("certificate revoked", LIMIT)
            refused.wait_for("it says that our certificate is revoked", LIMIT)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("who", [asks, joins])
def test_a_server_whose_certificate_is_revoked_is_refused(version, who, revoked):
    own = {"cert": "bad/node.pem", "key": "bad/node.pem", "ca": "ca/ca.pem"}
    with s_server(revoked, version, **own) as (server, port), who(port, of(revoked, "good")) as refuses:
        refuses.wait_for("its certificate is revoked", LIMIT)
        server.wait_for("alert certificate revoked", LIMIT)
