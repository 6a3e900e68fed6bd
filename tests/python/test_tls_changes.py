"""Certificates are revoked, end and are renewed under a job that works over TLS."""

import shutil
import subprocess
import time

from certificates import Certificates, s_client
from cluster import MUSTER, clean_environment
from launch import until
from nodes import alone_fails_at_once, listening_ports
from recovering import Recovering, lives

LIMIT = 120
REVOKED = "it says that our certificate is revoked"


def certs(*words):
    run = subprocess.run([MUSTER, "certs", *words], env=clean_environment(), capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stderr


class Hosts:
    """Hosts with a folder each, made by `muster certs`."""

    def __init__(self, tmp_path, names):
        self.made, self.of = tmp_path / "certs", tmp_path / "hosts"
        certs("new", self.made, *(word for name in names for word in ("--name", name)))
        for name in names:
            shutil.copytree(self.made / name, self.of / name)
        self.names = names

    def env(self, name):
        return {"MUSTER_ENABLE_SSL": 1, "MUSTER_CONFIG_FILE_PATH": self.of / name / "tls.json"}

    def revoke(self, name):
        """The new list goes to all hosts, but not to that one."""
        certs("revoke", self.made, "--name", name)
        for other in self.names:
            if other != name:
                shutil.copy(self.made / "ca" / "crl.pem", self.of / other / "crl.pem")

    def renew(self, name):
        certs("node", self.made, "--name", name, "--renew")
        shutil.copytree(self.made / name, self.of / name, dirs_exist_ok=True)

    def answer(self, port, name):
        """What OpenSSL is told at this port, with the certificate of this host."""
        own = self.of / name / "node.pem"
        words = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", self.made / "ca" / "ca.pem", "-tls1_2",
                 "-cert", own, "-key", own]
        run = subprocess.run(words, input="", capture_output=True, text=True, timeout=LIMIT)
        return run.stdout + run.stderr


def test_a_certificate_that_is_revoked_while_a_job_works_opens_no_further_connection(tmp_path):
    """Its link to the job stands, as long as it lives. Its next life is refused, until it has another certificate."""
    hosts = Hosts(tmp_path, ["scheduler", "one", "two", "bad"])
    own = [hosts.env(name) for name in ("one", "two", "bad")]
    with Recovering(lives(), workers=3, folder=tmp_path, started=0, env=hosts.env("scheduler")) as job:
        for env in own:
            job.start_worker(env)
        job.await_all("stands_1")
        ports = [job.port, *listening_ports(job.workers[0].pid)]
        assert not any("revoked" in hosts.answer(port, "bad") for port in ports)
        hosts.revoke("bad")
        for port in ports:
            until(lambda port=port: "revoked" in hosts.answer(port, "bad"), LIMIT, "the new list is read")
            assert "Verify return code: 0 (ok)" in hosts.answer(port, "two")
        assert all(worker.returncode is None for worker in job.workers)
        job.lose(2)
        job.await_all("broken_1", [0, 1])
        job.let("recover_1")
        job.await_all("recovers_1", [0, 1])
        refused = job.start_again(2, hosts.env("bad"))
        refused.wait_for(REVOKED, LIMIT)
        job.scheduler.wait_for("its certificate is revoked", LIMIT)
        assert all(worker.returncode is None for worker in job.workers)
        refused.kill()
        hosts.renew("bad")
        job.start_again(2, hosts.env("bad"))
        job.await_all("stands_2")
        job.let("end")
        job.succeed(timeout=LIMIT)


def works_beyond_the_end(job, files):
    """The certificates end, are renewed at their places, and then a rank is lost and comes back."""
    own = ("-tls1_2", "-cert", "client.crt", "-key", "client.key")
    ports = [job.port, *listening_ports(job.workers[0].pid)]
    for port in ports:
        until(lambda port=port: "alert certificate expired" in s_client(files, port, *own), LIMIT, "they have ended")
    alone_fails_at_once({**job.env, "MS_ROLE": "MS_WORKER"}, "CONFIG", "others will not take: its certificate has expired")
    for name in ("server", "client"):
        files.sign(name)
    job.lose(1)
    job.await_all("broken_1", [0])
    job.let("recover_1")
    job.start_again(1)
    job.await_all("stands_2")
    job.let("end")
    job.succeed(timeout=LIMIT)


def test_a_recovery_after_the_end_of_the_certificates_with_which_a_job_began(tmp_path):
    """No process is started for the renewal. Where a job has not formed before their end, another one has longer."""
    for seconds in (6, 30, 120):
        files, folder = Certificates(tmp_path / f"files-{seconds}"), tmp_path / f"job-{seconds}"
        folder.mkdir()
        for name in ("server", "client"):
            files.sign_until(name, seconds)
        with Recovering(lives(), workers=2, folder=folder, env=files.env()) as job:
            end = time.monotonic() + seconds

            def stands():
                return all('"stands_1"' in worker.stdout for worker in job.workers)

            until(lambda: stands() or time.monotonic() > end, LIMIT, "it stands, or is too late")
            if stands():
                return works_beyond_the_end(job, files)
    raise AssertionError("no job has formed before the end of its certificates")
