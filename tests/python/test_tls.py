"""TLS on both planes: real certificates, real clusters, and OpenSSL at the other end."""

import os
import re
import signal
import subprocess
import time

import pytest

from certificates import PASSWORD, Certificates, s_client
from cluster import EXAMPLES, MUSTER, Cluster, Process, clean_environment
from nodes import alone_fails_at_once, node, one_of_two_dies_and_comes_back, said

LIMIT = 60
USABLE = [f"ECDHE-{key}-{cipher}" for key in ("ECDSA", "RSA")
          for cipher in ("AES256-GCM-SHA384", "AES128-GCM-SHA256", "CHACHA20-POLY1305")]
WORK = """
    c = join()
    c.world.barrier()
    total = c.world.allreduce([c.rank + 1] * 300_000)
    c.store_set(f"of {c.rank}", b"x" * 200_000)
    other = c.store_get(f"of {(c.rank + 1) % c.size}", 30_000)
    say(sum=total[-1], other=len(other))
    c.leave()
"""


@pytest.mark.parametrize("kind", ["pem", "p12", "old"])
def test_a_cluster_works_with_every_kind_of_file(kind, tmp_path):
    files = Certificates(tmp_path / "files", kind=kind)
    with Cluster(node(WORK), workers=3, env=files.env()) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["sum"] == 6 and said(worker)["other"] == 200_000
        assert not any("warning" in process.stderr for process in cluster.processes)


@pytest.mark.parametrize("kind", ["pem", "p12", "old"])
def test_certificates_may_lead_to_the_ca_through_another(kind, tmp_path):
    """A list of the CA between says that none of them is revoked; then that one is."""
    files = Certificates(tmp_path / "files", kind=kind)
    for name in ("server", "client"):
        files.sign_through(name)
    files.revocations("list.der", ca="between")
    for more in ({}, {"crl_path": "list.der"}):
        files.configure(**more)
        with Cluster(node(WORK), workers=2, env=files.env()) as cluster:
            assert [said(worker)["sum"] for worker in cluster.succeed(timeout=LIMIT)] == [3, 3]
            assert not any("warning" in process.stderr for process in cluster.processes)
    files.revocations("list.der", ca="between", revoke=["client"])
    alone_fails_at_once(files.env(), "CONFIG", "client_cert_path", "its certificate is revoked")
    if kind == "pem":
        files.configure(client_cert_path="client.alone")
        alone_fails_at_once(files.env(), "CONFIG", "client_cert_path", "is not signed by the CA that is trusted here")


# The sample that MindSpore's documentation shows, as it stands there.
PUBLISHED = (
    "ECDHE-R SA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "DHE-RSA-AES128-GCM-SHA256:DHE-DSS-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-DSS-AES256-GCM-SHA384:"
    "DHE-PSK-AES128-GCM-SHA256:DHE-PSK-AES256-GCM-SHA384:DHE-PSK-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:"
    "ECDHE-PSK-CHACHA20-POLY1305:DHE-RSA-AES128-CCM:DHE-RSA-AES256-CCM:DHE-RSA-CHACHA20-POLY1305:DHE-PSK-AES128-CCM:"
    "DHE-PSK-AES256-CCM:ECDHE-ECDSA-AES128-CCM:ECDHE-ECDSA-AES256-CCM:ECDHE-ECDSA-CHACHA20-POLY1305"
)


def test_mindspores_published_list_of_ciphers_works_with_one_warning(tmp_path):
    files = Certificates(tmp_path / "files", kind="p12")
    files.configure(cipher_list=PUBLISHED)
    with Cluster(node(WORK), workers=2, env=files.env()) as cluster:
        assert [said(worker)["sum"] for worker in cluster.succeed(timeout=LIMIT)] == [3, 3]
        for process in cluster.processes:
            warning, = [line for line in process.stderr.splitlines() if "warning" in line]
            told = warning.partition("the cipher_list has names that stand for no usable suite: ")[2].split(", ")
            assert told == [name for name in PUBLISHED.split(":") if name not in USABLE] and told[0] == "ECDHE-R SA-AES128-GCM-SHA256"


def test_the_launcher_and_what_it_asks_speak_tls_too(tmp_path):
    files = Certificates(tmp_path / "files", kind="p12")
    words = ["run", "--worker_num", "2", "--master_port", "0", "--join", "--log_dir", "logs", EXAMPLES / "allgather"]
    environment = clean_environment(files.env())
    run = subprocess.run([MUSTER, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert logs.count("[[0.], [1.]]") == 2 and "stranger" not in logs, logs


def test_status_is_told_over_tls_only(tmp_path):
    files = Certificates(tmp_path / "files")
    with Cluster(node(), workers=2, started=1, env=files.env()) as cluster:
        def status(env):
            words = [MUSTER, "status", f"--sched_port={cluster.port}"]
            return subprocess.run(words, env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT)

        told = status(files.env())
        assert told.returncode == 0 and "forming" in told.stdout, told.stderr
        told = status({})
        assert told.returncode == 4 and "cannot be asked: it speaks TLS, which is off here (enable_ssl)" in told.stderr
    with Cluster(node(), workers=2, started=1) as cluster:
        told = status(files.env())
        assert told.returncode == 4 and "cannot be asked" in told.stderr, told.stderr
        assert "perhaps TLS (enable_ssl) is off there" in told.stderr and "no muster scheduler" not in told.stderr


def refused(cluster, worker, at_worker, at_scheduler):
    """Both say so while they still try."""
    worker.wait_for(re.escape(at_worker), LIMIT)
    cluster.scheduler.wait_for(re.escape(at_scheduler), LIMIT)
    assert worker.returncode is None and cluster.scheduler.returncode is None


def test_one_that_speaks_tls_and_one_that_does_not(tmp_path):
    files = Certificates(tmp_path / "files")
    with Cluster(node(), workers=1, started=0, env=files.env()) as cluster:
        plain = cluster.start_worker({"MUSTER_ENABLE_SSL": 0})
        refused(cluster, plain, "it speaks TLS, which is off here (enable_ssl)", "does not speak TLS as expected")
        plain.wait_for("and this node do not accept each other", LIMIT)
        assert "not a muster scheduler" not in plain.stderr
    with Cluster(node(), workers=1, started=0) as cluster:
        encrypted = cluster.start_worker(files.env())
        refused(cluster, encrypted, "perhaps TLS (enable_ssl) is off there", "it speaks TLS, which is off here (enable_ssl)")


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_a_launcher_whose_cluster_is_not_like_its_own_ends_with_the_reason(is_encrypted, tmp_path):
    """The launcher (0x0 leads here, and is no address of this host: see test_hosts.py) waits for no answer to its own words."""
    with_tls = Certificates(tmp_path / "files").env()
    here, there = (with_tls, {}) if is_encrypted else ({}, with_tls)
    with Cluster(node(), workers=2, started=0, env=there) as cluster:
        words = ["run", "--worker_num=2", "--local_worker_num=1", "--node_rank=1", "--master_addr=0x0",
                 f"--master_port={cluster.port}", "--join", "--cluster_time_out=3", "--log_dir=logs", *node()]
        run = subprocess.run([MUSTER, *words], cwd=tmp_path, env=clean_environment(here), capture_output=True, text=True,
                             timeout=LIMIT)
        assert (tmp_path / "logs").exists(), run
        logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
        off, on = "perhaps TLS (enable_ssl) is off there", "it speaks TLS, which is off here (enable_ssl)"
        assert run.returncode not in (0, 124) and (off if is_encrypted else on) in logs, (run, logs)
        cluster.scheduler.wait_for(re.escape(on if is_encrypted else "does not speak TLS as expected"), LIMIT)
        assert cluster.scheduler.returncode is None


def test_a_certificate_of_another_ca_is_refused_on_both_sides(tmp_path):
    ours, theirs = (Certificates(tmp_path / name, ca=name) for name in ("ours", "theirs"))
    with Cluster(node(), workers=1, started=0, env=ours.env()) as cluster:
        foreign = cluster.start_worker({**theirs.env(), "MS_CLUSTER_TIMEOUT": 3})
        assert foreign.wait(LIMIT) == 1
        at_worker = "and this node do not accept each other"
        assert said(foreign)["error"] == "SECURITY" and at_worker in said(foreign)["sentence"], said(foreign)
        assert "is not signed by the CA that is trusted here (ca_cert_path)" in said(foreign)["sentence"]
    with Cluster(node(), workers=1, started=0, env=ours.env()) as cluster:
        foreign = cluster.start_worker(theirs.env())
        at_worker = "its certificate is not signed by the CA that is trusted here (ca_cert_path)"
        refused(cluster, foreign, at_worker, "it does not trust the CA that has signed our certificate")


def test_what_is_wrong_with_ones_own_files_is_said_before_anything_else(tmp_path):
    files = Certificates(tmp_path / "files", kind="p12")
    wrong = {**files.env(), "MUSTER_CLIENT_PASSWORD": "hunter3"}
    sentence = alone_fails_at_once(wrong, "CONFIG", "client_cert_path", "MUSTER_CLIENT_PASSWORD", "it is wrong")
    assert "hunter" not in sentence
    alone_fails_at_once({"MUSTER_ENABLE_SSL": 1}, "CONFIG", "MUSTER_CONFIG_FILE_PATH is not set")
    word = tmp_path / "word"
    word.write_text(f"{PASSWORD}\n")
    by_file = {**files.env(), "MUSTER_CLIENT_PASSWORD": None, "MUSTER_CLIENT_PASSWORD_FILE": word}
    word.chmod(0o644)
    alone_fails_at_once(by_file, "CONFIG", "MUSTER_CLIENT_PASSWORD_FILE", "any user of this host can read")
    for mode in (0o640, 0o600):  # a group may read it
        word.chmod(mode)
        with Process(node(), by_file) as alone:
            assert alone.wait(timeout=LIMIT) == 0, alone.describe()
    files.configure(client_cert_path="ca.pem")
    alone_fails_at_once(files.env(), "CONFIG", "client_cert_path", "has a CA's certificate, and no key", "ca_cert_path")
    files.configure(ca_cert_path="client.crt")
    alone_fails_at_once(files.env(), "CONFIG", "client.crt\", which has a certificate of \"CN=client\" that is not a CA's")
    files.configure()
    files.sign("client", "-sha256")  # without extensions OpenSSL makes version 1
    alone_fails_at_once(files.env(), "CONFIG", "client_cert_path", "version 1", "-extfile")
    files.sign("client")
    files.configure(cipher_list="RC4-SHA")
    alone_fails_at_once(files.env(), "CONFIG", "cipher_list", "ECDHE-RSA-AES256-GCM-SHA384")


def test_an_old_ca_beside_the_present_one(tmp_path):
    """One that has ended is left out, whatever its key. One of version 1 cannot say that it is a CA's: it counts, with a warning."""
    files = Certificates(tmp_path)
    present = (tmp_path / "ca.pem").read_text()
    (tmp_path / "own.ext").write_text("basicConstraints=critical,CA:TRUE\n")
    for name, bits, days, more in [("ended", "1024", "-1", ["-extfile", "own.ext"]), ("first", "2048", "30", [])]:
        files.openssl("req", "-newkey", f"rsa:{bits}", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        files.openssl("x509", "-req", "-in", f"{name}.csr", "-signkey", f"{name}.key", "-days", days, "-out", f"{name}.pem", *more)
    for name, words in [("ended", "has a CA certificate that has ended on 20"), ("first", '"CN=first" of X.509 version 1, which cannot say')]:
        (tmp_path / "ca.pem").write_text(present + (tmp_path / f"{name}.pem").read_text())
        with Process(node(), files.env()) as alone:
            assert alone.wait(timeout=LIMIT) == 0, alone.describe()
            assert alone.stderr.count(words) == 1, alone.stderr


RIGHT_KEY = ("ECDSA P-256", "openssl req")


@pytest.mark.parametrize("key, kind", [(["rsa:1024"], "RSA, 1024 bits"),
                                       (["ec", "-pkeyopt", "ec_paramgen_curve:secp521r1"], "ECDSA P-521")])
def test_keys_with_which_nobody_signs_are_named(key, kind, tmp_path):
    files = Certificates(tmp_path / "files")
    files.key = lambda name: ["-newkey", *key, "-nodes", "-keyout", f"{name}.key"]
    files.sign("client")
    alone_fails_at_once(files.env(), "CONFIG", "client_cert_path", "a certificate whose key", kind, *RIGHT_KEY)
    files.ca()
    alone_fails_at_once(files.env(), "CONFIG", "ca_cert_path", "has a CA whose key", kind, *RIGHT_KEY, "-x509")


def test_signatures_that_nobody_takes_are_named(tmp_path):
    files = Certificates(tmp_path / "files")
    files.sign("client", "-extfile", "node.ext", "-sha1")
    sentence = alone_fails_at_once(files.env(), "CONFIG", "client_cert_path", "signed with an algorithm that is not accepted")
    assert "openssl x509 -req -sha256" in sentence
    files.sign("client")
    files.configure(crl_path="crl.pem")
    files.list("crl.pem")
    with Process(node(), files.env()) as alone:
        assert alone.wait(timeout=LIMIT) == 0, alone.describe()
    files.list("crl.pem", md="sha1")
    command = "openssl ca -gencrl -md sha256"
    alone_fails_at_once(files.env(), "CONFIG", "crl_path", "signed with an algorithm that is not accepted", command)
    other = Certificates(tmp_path / "other")  # a CA of the same name, with another key
    other.list("crl.pem")
    (files.folder / "crl.pem").write_text((other.folder / "crl.pem").read_text())
    alone_fails_at_once(files.env(), "CONFIG", "crl_path", "is not signed by the CA that it names", command)


def test_openssl_finds_a_server_that_wants_a_certificate(tmp_path):
    files = Certificates(tmp_path / "files")
    own = ["-cert", "client.crt", "-key", "client.key"]
    with Cluster(node(), workers=2, started=0, env=files.env()) as cluster:
        newest = s_client(files, cluster.port, *own)
        assert "New, TLSv1.3" in newest and "Verify return code: 0 (ok)" in newest, newest
        older = s_client(files, cluster.port, "-tls1_2", *own)
        assert "New, TLSv1.2" in older and "Verify return code: 0 (ok)" in older, older
        assert "certificate required" in s_client(files, cluster.port, "-tls1_3", "-ign_eof"), "it shows none"
        assert "alert" in s_client(files, cluster.port, "-tls1_1", *own), "that version is too old"


def test_nodes_speak_the_only_version_that_is_allowed(tmp_path):
    files = Certificates(tmp_path / "files")
    own = ["-cert", "client.crt", "-key", "client.key"]
    for version, right, wrong in (("1.2", "-tls1_2", "-tls1_3"), ("1.3", "-tls1_3", "-tls1_2")):
        env = {**files.env(), "MUSTER_TLS_VERSION": version, "MUSTER_SHM": "off"}  # all calls go over links
        with Cluster(node(WORK), workers=3, started=2, env=env) as cluster:
            assert f"New, TLSv{version}" in s_client(files, cluster.port, right, *own)
            assert "alert protocol version" in s_client(files, cluster.port, wrong, *own)
            status = subprocess.run([MUSTER, "status", f"--sched_port={cluster.port}"], env=clean_environment(env),
                                    capture_output=True, text=True, timeout=LIMIT)
            assert status.returncode == 0 and "forming" in status.stdout, status
            cluster.start_worker({})
            assert [said(worker)["sum"] for worker in cluster.succeed(timeout=LIMIT)] == [6, 6, 6]


def test_nodes_that_have_no_version_in_common_say_so(tmp_path):
    files = Certificates(tmp_path / "files")
    for here, there in (("1.2", "1.3"), ("1.3", "1.2")):
        with Cluster(node(), workers=1, started=0, env={**files.env(), "MUSTER_TLS_VERSION": there}) as cluster:
            worker = cluster.start_worker({"MUSTER_TLS_VERSION": here})
            refused(cluster, worker, "it has no version of TLS", "it has no version of TLS in common with this process (tls_version)")
    files.configure(cipher_list="TLS_AES_128_GCM_SHA256")
    alone_fails_at_once({**files.env(), "MUSTER_TLS_VERSION": "1.2"}, "CONFIG", "can be used under TLS 1.2", "MUSTER_TLS_VERSION",
                         "ECDHE-ECDSA-CHACHA20-POLY1305 or ECDHE-RSA-CHACHA20-POLY1305")
    alone_fails_at_once({**files.env(), "MUSTER_TLS_VERSION": "1.1"}, "CONFIG", "MUSTER_TLS_VERSION", "1.2 or 1.3")


def test_one_that_died_under_the_older_version_comes_back(tmp_path):
    env = {**Certificates(tmp_path / "files").env(), "MUSTER_TLS_VERSION": "1.2"}
    one_of_two_dies_and_comes_back(tmp_path / "recovery", env, LIMIT)


LOSS = """
    c = join()
    c.world.barrier()
    if c.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    say(broken=fails(c.world.allreduce, [1] * 100_000))
"""


def test_a_death_is_noticed_as_soon_and_named(tmp_path):
    files = Certificates(tmp_path / "files")
    with Cluster(node(LOSS), workers=3, env=files.env()) as cluster:
        cluster.wait(timeout=LIMIT)
        assert cluster.workers[1].returncode == -signal.SIGKILL
        for rank in (0, 2):
            broken = said(cluster.workers[rank])["broken"]
            assert broken["error"] == "PEER_LOST" and "rank 1 (" in broken["sentence"], broken
            assert broken["after"] < LIMIT / 4, broken


def test_one_that_died_comes_back(tmp_path):
    one_of_two_dies_and_comes_back(tmp_path / "recovery", Certificates(tmp_path / "files").env(), LIMIT)


def test_renewed_files_serve_new_connections_without_a_restart(tmp_path):
    files = Certificates(tmp_path / "files")
    own = ["-cert", "client.crt", "-key", "client.key"]
    with Cluster(node(), workers=2, started=1, env=files.env()) as cluster:
        def shown():
            return re.search("subject=CN ?= ?(.*)", s_client(files, cluster.port, *own)).group(1)

        assert shown() == "server"
        files.sign("server", name="renewed")
        deadline = time.monotonic() + LIMIT
        while shown() != "renewed":
            assert time.monotonic() < deadline, "the old certificate goes on"
        (files.folder / "server.pem").write_text("nonsense")
        # Each question is a new connection.
        while "what was read from the files before stays in use" not in cluster.scheduler.stderr:
            assert shown() == "renewed"
            assert time.monotonic() < deadline, cluster.scheduler.stderr
        assert cluster.scheduler.stderr.count("what was read from the files before stays in use") == 1
        assert shown() == "renewed"


def test_no_session_is_taken_up_again(tmp_path):
    files = Certificates(tmp_path / "files")
    own = ["-cert", "client.crt", "-key", "client.key"]
    with Cluster(node(), workers=2, started=0, env=files.env()) as cluster:
        for version in ("-tls1_2", "-tls1_3"):
            # Tickets of 1.3 come behind the handshake: then it is listened to the end of the connection, which the scheduler makes.
            listens = ["-ign_eof"] if version == "-tls1_3" else []
            first = s_client(files, cluster.port, version, *own, *listens, "-sess_out", "session.pem")
            assert "Verify return code: 0 (ok)" in first, first
            if listens:
                assert "New Session Ticket" not in first and not (files.folder / "session.pem").exists(), first
            if (files.folder / "session.pem").exists():
                again = s_client(files, cluster.port, version, *own, "-sess_in", "session.pem")
                assert "Reused" not in again, again
            (files.folder / "session.pem").unlink(missing_ok=True)


FORKS = """
    c = join()
    for turn in range(5):
        child = os.fork()
        if child == 0:
            for call in (c.world.barrier, c.finalize):
                fails(call)
            c.free()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        say(sum=c.world.allreduce([1] * 100_000)[0])
    c.leave()
"""


def test_a_forked_child_writes_no_byte_of_its_parents_links(tmp_path):
    files = Certificates(tmp_path / "files")
    env = {**files.env(), "MUSTER_SHM": "off"}  # all its calls go over links
    with Cluster(node(FORKS), workers=2, env=env) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["sum"] == 2
