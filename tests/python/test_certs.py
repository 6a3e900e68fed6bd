"""`muster certs`: OpenSSL takes what it makes, clusters run on it, and what is revoked, or wrong, is refused in clear words."""

import json
import re
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from certificates import Certificates
from cluster import MUSTER, Cluster, clean_environment
from nodes import alone_fails_at_once, node, said

LIMIT = 60
WORK = "c = join(); say(sum=c.world.allreduce([c.rank + 1])); c.leave()"


def run(*words, env=None):
    words = [MUSTER, "certs", *map(str, words)]
    return subprocess.run(words, env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT)


def certs(*words, env=None):
    """What it says."""
    done = run(*words, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(*words, code=1, env=None):
    """Its one complaint."""
    done = run(*words, env=env)
    assert (done.returncode, done.stdout) == (code, ""), done
    return done.stderr


def at_once(commands):
    """What came of these commands, which ran at the same time."""
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(lambda words: run(*words), commands))


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=LIMIT)


def opens(*words):
    done = openssl(*words)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout + done.stderr


def settings(folder):
    """The settings of a process that has a node's folder."""
    word = folder / "password"
    words = {f"MUSTER_{end}_PASSWORD_FILE": word for end in ("SERVER", "CLIENT")} if word.exists() else {}
    return {"MUSTER_ENABLE_SSL": 1, "MUSTER_CONFIG_FILE_PATH": folder / "tls.json", **words}


@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_a_cluster_runs_on_what_is_made(kind, tmp_path):
    text = certs("new", tmp_path / "certs", f"--format={kind}")
    env = settings(tmp_path / "certs" / "node")
    # What it advises to set is what works.
    assert dict(re.findall(r"export (\w+)=(.+)", text)) == {name: str(value) for name, value in env.items()}
    with Cluster(node(WORK), workers=3, env=env) as cluster:
        assert [said(worker)["sum"] for worker in cluster.succeed(timeout=LIMIT)] == [[6]] * 3
        assert not any("warning" in process.stderr for process in cluster.processes)


def test_openssl_takes_certificate_list_and_sealed_file(tmp_path):
    certs("new", tmp_path, "--name", "a", "--node_id", "rank 3", "--days", "30")
    certs("node", tmp_path, "--name", "b", "--format", "p12")
    ca, words = tmp_path / "ca" / "ca.pem", ("-noout", "-text")
    text = opens("x509", "-in", tmp_path / "rank%203" / "node.pem", *words)
    for part in ("URI:muster:node:rank%203", "TLS Web Server Authentication, TLS Web Client Authentication",
                 "prime256v1", "CA:FALSE", "Version: 3"):
        assert part in text, text
    assert "CA:TRUE" in opens("x509", "-in", ca, *words)
    opens("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", ca, tmp_path / "a" / "node.pem")
    opens("verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", ca, tmp_path / "a" / "node.pem")
    assert opens("pkey", "-in", tmp_path / "a" / "node.pem", "-pubout") == opens(
        "x509", "-in", tmp_path / "a" / "node.pem", "-noout", "-pubkey")
    sealed, word = tmp_path / "b" / "node.p12", tmp_path / "b" / "password"
    content = opens("pkcs12", "-in", sealed, "-passin", f"file:{word}", "-nodes")
    assert "BEGIN CERTIFICATE" in content and "BEGIN PRIVATE KEY" in content
    assert "invalid password" in openssl("pkcs12", "-in", sealed, "-passin", "pass:another", "-noout").stderr
    assert "verify OK" in opens("crl", "-in", tmp_path / "a" / "crl.pem", "-CAfile", ca, "-noout")
    certs("revoke", tmp_path, "--name", "a")
    crl = tmp_path / "ca" / "crl.pem"
    assert "verify OK" in opens("crl", "-in", crl, "-CAfile", ca, "-noout")
    check = ("verify", "-crl_check", "-CRLfile", crl, "-CAfile", ca)
    assert "certificate revoked" in openssl(*check, tmp_path / "a" / "node.pem").stderr
    opens(*check, tmp_path / "rank%203" / "node.pem")


def test_only_the_owner_can_read_and_nothing_is_overwritten(tmp_path):
    folder = tmp_path / "certs"
    certs("new", folder)
    for path in [folder, *folder.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "expected a folder without a CA" in fails("new", folder)
    assert "expected another name, or muster certs node --renew" in fails("node", folder, "--name", "node")
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_revoked_node_is_refused_by_others_and_by_itself_until_it_is_renewed(tmp_path):
    folder, old = tmp_path / "certs", tmp_path / "old"
    certs("new", folder, "--name", "good", "--name", "bad")
    shutil.copytree(folder / "bad", old)
    certs("revoke", folder, "--name", "bad")
    alone_fails_at_once(settings(folder / "bad"), "CONFIG", "others will not take: its certificate is revoked")
    with Cluster(node(), workers=1, started=0, env=settings(folder / "good")) as cluster:
        # This one has a list from before.
        worker = cluster.start_worker(settings(old))
        cluster.scheduler.wait_for("its certificate is revoked", LIMIT)
        assert worker.returncode is None and cluster.scheduler.returncode is None
    certs("node", folder, "--name", "bad", "--renew")
    with Cluster(node(WORK), workers=1, started=0, env=settings(folder / "good")) as cluster:
        cluster.start_worker(settings(folder / "bad"))
        assert said(cluster.succeed(timeout=LIMIT)[0])["sum"] == [1]


def serial_of(file):
    return opens("x509", "-in", file, "-noout", "-serial").split("=")[1].strip()


def test_revocations_at_the_same_time_are_all_on_the_list(tmp_path):
    folder, names = tmp_path / "certs", [f"n{number}" for number in range(12)]
    certs("new", folder, "--name", "kept", *(f"--name={name}" for name in names))
    serials = {serial_of(folder / name / "node.pem") for name in names}
    for name in names:
        (folder / name).rename(tmp_path / name)  # as if it were on its own host
    done = at_once([("revoke", folder, f"--name={name}") for name in names])
    assert all(one.returncode == 0 and " is revoked\n" in one.stdout for one in done), done
    for place in ("ca", "kept"):
        text = opens("crl", "-in", folder / place / "crl.pem", "-noout", "-text")
        assert set(re.findall(r"Serial Number: (\w+)", text)) == serials, text
        assert re.search(rf"CRL Number:\s+{1 + len(names)}\n", text), text


def test_one_ca_and_one_folder_come_of_commands_at_the_same_time(tmp_path):
    for words in (("new", tmp_path / "certs"), ("node", tmp_path / "certs", "--name=b")):
        done = at_once([words] * 6)
        assert sorted(one.returncode for one in done) == [0] + [1] * 5, done
        assert all("is there already" in one.stderr for one in done if one.returncode), done
    for name in ("node", "b"):
        opens("verify", "-CAfile", tmp_path / "certs" / "ca" / "ca.pem", tmp_path / "certs" / name / "node.pem")
        assert len(list((tmp_path / "certs" / "ca" / "issued").glob(f"{name}.*"))) == 1


@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_renewing_keeps_the_hosts_of_the_renewal_before(kind, tmp_path):
    certs("new", tmp_path, f"--format={kind}", "--host=first.example")
    words = ("node", tmp_path, "--name=node", "--renew")
    # All of this takes less than a second, or little more, and a certificate's time has whole seconds.
    for number in range(6):
        certs(*words, f"--host=h{number}.example")
        assert f"a certificate for h{number}.example until" in certs(*words)


def test_any_text_is_a_password(tmp_path):
    word = tmp_path / "word"
    word.write_text("\N{KEY} schl\u00fcssel", encoding="utf-8")
    word.chmod(0o600)
    certs("new", tmp_path / "certs", "--format=p12", "--password_file", word)
    opens("pkcs12", "-in", tmp_path / "certs" / "node" / "node.p12", "-passin", f"file:{word}", "-noout")
    assert "private key: belongs" in certs("show", tmp_path / "certs" / "node" / "node.p12", "--password_file", word)
    # Nothing of it lies beside the file, so it must be told again.
    sealed = tmp_path / "certs" / "node" / "node.p12"
    assert "expected --password_file with a file that has it" in fails("node", tmp_path / "certs", "--name=node", "--renew")
    certs("node", tmp_path / "certs", "--name=node", "--renew", "--password_file", word)
    assert "--password_file is not set" in fails("revoke", tmp_path / "certs", "--file", sealed)
    assert "expected --file with it" in fails("revoke", tmp_path / "certs", "--password_file", word, code=2)
    assert " is revoked\n" in certs("revoke", tmp_path / "certs", "--file", sealed, "--password_file", word)


def test_renewing_keeps_the_password_that_lies_beside_a_file(tmp_path):
    certs("new", tmp_path, "--format", "p12")
    folder = tmp_path / "node"
    another = {"MUSTER_CLIENT_PASSWORD": "hunter2", "MUSTER_SERVER_PASSWORD": "hunter2"}
    before = (folder / "node.p12").read_bytes()
    certs("node", tmp_path, "--name", "node", "--renew", env=another)
    assert (folder / "node.p12").read_bytes() != before
    opens("pkcs12", "-in", folder / "node.p12", "-passin", f"file:{folder / 'password'}", "-noout")
    words = ("--name", "node", "--renew", "--password_file", folder / "password")
    assert "expected --renew without --password_file" in fails("node", tmp_path, *words)


def test_show_says_what_a_file_holds(tmp_path):
    certs("new", tmp_path, "--node_id", "rank 3", "--days", "30")
    shown = certs("show", tmp_path / "rank%203" / "node.pem")
    serial = opens("x509", "-in", tmp_path / "rank%203" / "node.pem", "-noout", "-serial").split("=")[1].strip()
    for part in ("node id    rank 3", "ECDSA P-256", "(ends in ", "private key: belongs to the first certificate",
                 serial.lower()):
        assert part in shown, shown
    assert "CA certificate: CN=muster CA " in certs("show", tmp_path / "ca" / "ca.pem")
    certs("revoke", tmp_path, "--node_id", "rank 3")
    shown = certs("show", tmp_path / "rank%203" / "tls.json")
    assert "server_cert_path and client_cert_path: " in shown, shown
    assert f"revoked    {serial.lower()} on " in shown, shown


def test_show_opens_what_openssl_has_sealed(tmp_path):
    files = Certificates(tmp_path / "files", kind="p12")
    for kind in ("p12", "old"):
        shown = certs("show", files.folder / f"client.{kind}", env=files.env())
        assert "certificate: CN=client" in shown and "belongs to the first" in shown, shown
        assert "expected its password" in fails("show", files.folder / f"client.{kind}")


def test_check_judges_as_a_node_does(tmp_path):
    folder = tmp_path / "node"
    certs("new", tmp_path, "--days", "5")
    said_here = certs("check", folder / "tls.json")
    assert "is right: a node starts with it" in said_here and "warning: " in said_here, "it ends soon"
    for wrong in ({"ca_cert_path": "none.pem"}, {"cipher_list": "RC4-SHA"}, {"server_cert_path": "ca.pem"}):
        entries = {"server_cert_path": "node.pem", "client_cert_path": "node.pem", "ca_cert_path": "ca.pem", **wrong}
        (folder / "tls.json").write_text(json.dumps(entries))
        sentence = alone_fails_at_once(settings(folder), "CONFIG", next(iter(wrong)))
        assert sentence in fails("check", folder / "tls.json")


def test_check_tells_a_warning_in_one_line_whatever_the_file_has_in_it(tmp_path):
    certs("new", tmp_path)
    file = tmp_path / "node" / "tls.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "\x1b[31mred\nwarning: more": 1}))
    shown = certs("check", file)
    lines = shown.splitlines()
    assert len(lines) == 2 and lines[1].startswith("warning: ") and "[31mred" in lines[1], shown
    assert "\x1b" not in shown, shown


def test_check_holds_the_node_id_against_the_certificate_where_nodes_do(tmp_path):
    certs("new", tmp_path / "c", "--node_id=7")
    file = tmp_path / "c" / "7" / "tls.json"
    asked = {"MUSTER_VERIFY_NODE_ID": 1, "MUSTER_NODE_ID": 7}
    assert "is right" in certs("check", file, env=asked)
    assert "URI:muster:node:8" in fails("check", file, env={**asked, "MUSTER_NODE_ID": 8})


def test_a_password_that_seals_nothing_is_refused_and_what_was_done_before_a_failure_is_said(tmp_path):
    folder, word = tmp_path / "c", tmp_path / "word"
    word.write_text("secret")
    word.chmod(0o600)
    assert "--format=p12" in fails("new", folder, "--password_file", word, code=2) and not folder.exists()
    told = certs("new", folder, "--node_id=0", "--node_id=1")
    assert "for the node 0, and for each other node its own folder" in told
    assert "has no password" in fails("node", folder, "--node_id=0", "--renew", "--password_file", word)
    failed = run("node", folder, "--node_id=0", "--node_id=2", "--renew")
    assert failed.returncode == 1 and "0: renewed" in failed.stdout and "has neither" in failed.stderr
    assert "CN=" in certs("show", folder / "ca" / "ca.pem", env={"MUSTER_CLIENT_PASSWORD_FILE": tmp_path / "none"})


def test_what_is_wrong_with_a_command_is_said(tmp_path):
    certs("new", tmp_path / "certs")
    assert "there is no action" in fails("make", code=2)
    assert "DIR is missing" in fails("new", code=2)
    assert "--days is \"0\"" in fails("new", tmp_path / "more", "--days", "0", code=2)
    assert "--name is \"../b\"" in fails("node", tmp_path / "certs", "--name", "../b", code=2)
    assert "has no certificate of \"nobody\"" in fails("revoke", tmp_path / "certs", "--name", "nobody")
    assert "can't be read" in fails("node", tmp_path / "none", "--name", "a")
    junk = tmp_path / "junk"
    junk.write_bytes(b"\x00junk")
    assert "is neither PEM, DER, PKCS#12 nor JSON" in fails("show", junk)
    key = tmp_path / "certs" / "ca" / "ca.key"
    key.chmod(0o644)
    assert "any user of this host can read" in fails("node", tmp_path / "certs", "--name", "a")
    key.chmod(0o600)
    other = tmp_path / "other"
    certs("new", other)
    key.write_bytes((other / "ca" / "ca.key").read_bytes())
    assert "has a key that does not belong to its certificate" in fails("node", tmp_path / "certs", "--name", "a")
    curve = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521", "-nodes", "-subj", "/CN=ca", "-days", "9")
    opens("req", *curve, "-addext", "keyUsage=keyCertSign", "-keyout", key, "-out", tmp_path / "certs" / "ca" / "ca.pem")
    key.chmod(0o600)
    assert "has a key (ECDSA P-521) that cannot be used: expected " in fails("node", tmp_path / "certs", "--name", "a")
    words = {"MUSTER_CLIENT_PASSWORD": "hunter1", "MUSTER_SERVER_PASSWORD": "hunter2"}
    sentence = fails("node", other, "--name", "a", "--format", "p12", env=words)
    assert "differ: expected one password" in sentence and "hunter" not in sentence


def test_a_scheduler_shows_a_certificate_for_the_hosts_that_were_named(tmp_path):
    certs("new", tmp_path / "good", "--host", "localhost,127.0.0.1", "--host=::1")
    certs("new", tmp_path / "bad", "--host", "elsewhere.example")
    text = opens("x509", "-in", tmp_path / "good" / "node" / "node.pem", "-noout", "-text")
    assert "DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1" in text, text
    shown = certs("show", tmp_path / "good" / "node" / "node.pem")
    assert all(re.search(rf"host +{host}\n", shown) for host in ("localhost", "127.0.0.1", "::1")), shown
    strict = {"MUSTER_VERIFY_HOST": 1}
    for host in ("localhost", "127.0.0.1"):
        env = {**settings(tmp_path / "good" / "node"), **strict, "MS_SCHED_HOST": host}
        with Cluster(node(WORK), workers=1, env=env) as cluster:
            assert said(cluster.succeed(timeout=LIMIT)[0])["sum"] == [1]
    with Cluster(node(WORK), workers=1, started=0, env={**settings(tmp_path / "bad" / "node"), **strict}) as cluster:
        worker = cluster.start_worker({"MS_CLUSTER_TIMEOUT": 3})
        assert worker.wait(LIMIT) == 1
        told = said(worker)
        assert told["error"] == "SECURITY" and "it is for" in told["sentence"] and "elsewhere.example" in told["sentence"], told
    assert "--host is" in fails("new", tmp_path / "ugly", "--host", "a b", code=2)


def test_a_ca_that_says_so_by_its_key_usage_alone_signs_and_revokes(tmp_path):
    """Such a CA counts in `ca_cert_path`, too."""
    folder = tmp_path / "ca"
    folder.mkdir()
    (tmp_path / "ca.conf").write_text("[req]\ndistinguished_name=name\n[name]\n[own]\nkeyUsage=critical,keyCertSign,cRLSign\n")
    opens("req", "-x509", "-config", tmp_path / "ca.conf", "-extensions", "own", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
          "-nodes", "-keyout", folder / "ca.key", "-out", folder / "ca.pem", "-days", "30", "-subj", "/CN=usage")
    certs("node", tmp_path, "--name", "a")
    opens("verify", "-CAfile", folder / "ca.pem", tmp_path / "a" / "node.pem")
    certs("revoke", tmp_path, "--name", "a")
    check = ("verify", "-crl_check", "-CRLfile", folder / "crl.pem", "-CAfile", folder / "ca.pem")
    assert "certificate revoked" in openssl(*check, tmp_path / "a" / "node.pem").stderr
