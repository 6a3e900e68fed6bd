"""One in the middle, where a job has a secret and no TLS. It leads connections to another job with the same secret. It changes the first
messages of connections, and makes their checksums right again.

The same is done without a secret, wherever something comes of it: then the changed message is taken. So it is the proof that tells.
"""

import contextlib
import re
import socket
import subprocess

import pytest

import wire
from cluster import MUSTER, Cluster, clean_environment, reserved_port
from launch import until
from nodes import await_joined, failed_at_once, listening_ports, node, said
from proxy import Proxy
from tap import Tap

LIMIT = 60
SECRET = "correct horse battery staple"
ENV = {"MUSTER_JOB_SECRET": SECRET}
REFUSAL = "the job's secret is another than that of the process that connects"
COMPLAINT = "its job secret is another than the one that is set here"
ANOTHER_RUN = "belongs to another run of the job"
OF_ANOTHER_JOB = "it is the scheduler of another job or of another epoch"


class Relay(Proxy):
    """Leads each connection to the port `to`, which may change. What opens a connection goes on frame by frame: the payload of a kind goes
    through its function in `changes`, and gets right checksums. The rest goes on as it is."""

    def __init__(self, to, secret=SECRET):
        super().__init__(lambda: self.to)
        self.to, self.changes, self.changed = to, {}, set()
        self._opened, self._opening = [], 3 if secret else 1  # nonce, first message, proof

    def opened(self, kind):
        """The payloads of this kind that have opened a connection, as they came."""
        with self._lock:
            assert not self.problems, self.problems
            return [payload for each, payload in self._opened if each == kind]

    def lead_to(self, port):
        """From now on. What stands is cut."""
        self.to = port
        self.cut()

    def _pass_on(self, direction, source, sink):
        def read(count):
            data = b""
            while len(data) < count:
                more = source.recv(count - len(data))
                if not more:
                    raise EOFError
                data += more
            return data

        with contextlib.suppress(EOFError):
            for _ in range(self._opening):
                kind, index, payload = wire.read_frame(read)
                sent = self.changes.get(kind, bytes)(payload)
                with self._lock:
                    self._opened.append((kind, payload))
                    self.changed |= {kind} if sent != payload else set()
                sink.sendall(wire.frame(kind, sent, index))
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def job(name):
    """A job id, as a registration has it."""
    return wire.option(wire.text(name))


def speaks_more(payload):
    """The highest protocol, of a registration or a question, is 2: both sides speak 1 all the same."""
    assert payload[:4] == bytes([1, 0, 1, 0])
    return payload[:2] + bytes([2, 0]) + payload[4:]


def offers_nothing(payload):
    """A registration's features."""
    assert payload[4:12] == bytes([1]) + bytes(7)
    return payload[:4] + bytes(8) + payload[12:]


def no_features(payload):
    """A last field: of Formed, Hello and Accept."""
    assert payload[-8:] == bytes([1]) + bytes(7)
    return payload[:-8] + bytes(8)


def no_features_at_all(payload):
    return no_features(payload)[:-8]


def status(port, env):
    words = [MUSTER, "status", f"--sched_port={port}"]
    return subprocess.run(words, env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT)


SECRET_OR_NONE = pytest.mark.parametrize("secret", [SECRET, None], ids=["secret", "none"])


@pytest.mark.parametrize("renamed, secret", [(False, SECRET), (True, SECRET), (True, None)], ids=["as it is", "renamed", "renamed, no secret"])
def test_a_node_that_is_led_to_another_jobs_scheduler_is_refused_by_the_job_id(renamed, secret):
    """One that makes the id the other job's changes what is proved."""
    ours, theirs = ({"MUSTER_JOB_SECRET": secret, "MUSTER_JOB_ID": name} for name in ("ours", "theirs"))
    with Cluster(node(), workers=1, started=0, env=ours) as cluster, Cluster(node(), workers=1, started=0, env=theirs) as other:
        with Relay(other.port, secret) as relay:
            if renamed:
                relay.changes = {wire.REGISTER: lambda payload: payload.replace(job("ours"), job("theirs"))}
            worker = cluster.start_worker({"MS_SCHED_PORT": relay.port})
            if not secret:
                assert worker.wait(LIMIT) == 0 and other.scheduler.wait(LIMIT) == 0 and relay.changed == {wire.REGISTER}
                return
            reason = REFUSAL if renamed else 'belongs to job "ours", this scheduler to job "theirs"'
            failed_at_once(worker, "REJECTED", reason)
            other.scheduler.wait_for(re.escape(COMPLAINT if renamed else reason), LIMIT)
            assert relay.changed == ({wire.REGISTER} if renamed else set())
        for each in (cluster, other):  # nobody has taken the place
            each.start_worker()
        other.succeed(timeout=LIMIT)
        assert cluster.scheduler.wait(LIMIT) == 0 and cluster.workers[1].wait(LIMIT) == 0


def test_without_a_job_id_it_is_taken_and_status_is_told_of_another_job_also_with_one():
    """The page says so: jobs are to have different secrets. Here it shows that the tests above lead nodes where one would take them."""
    with Cluster(node(), workers=1, started=0, env=ENV) as cluster, Cluster(node(), workers=1, started=0, env=ENV) as other:
        with Relay(other.port) as relay:
            told = status(relay.port, {**ENV, "MUSTER_JOB_ID": "ours"})
            assert told.returncode == 0 and "forming" in told.stdout, told.stderr
            relay.changes = {wire.STATUS_QUERY: speaks_more}
            told = status(relay.port, ENV)
            assert told.returncode == 4 and REFUSAL in told.stderr and relay.changed == {wire.STATUS_QUERY}, told
            worker = cluster.start_worker({"MS_SCHED_PORT": relay.port})
            assert worker.wait(LIMIT) == 0 and said(worker)["joined"]
            assert other.scheduler.wait(LIMIT) == 0 and cluster.scheduler.returncode is None


MEMBER = """
    c = join()
    c.store_set("here", b"kept")
    hold("back")
    say(kept=c.store_get("here", 30_000).decode(), lost=c.failed_ranks(), epoch=c.epoch)
    c.leave()
"""


@SECRET_OR_NONE
def test_a_member_that_is_led_to_another_jobs_scheduler_is_refused_and_comes_back_to_its_own(secret, tmp_path):
    """That job has room for it, and the same settings. A member shows its job instance. To take that out is to change what is proved.
    Without a secret the other scheduler is deceived so, but not the member: it is told of another instance than its own."""
    env = {"MUSTER_JOB_SECRET": secret, "HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": LIMIT}  # so that it is not lost meanwhile
    with Cluster(node(MEMBER), workers=1, started=0, env=env) as cluster, Cluster(node(), workers=1, started=0, env=env) as other:
        with Relay(cluster.port, secret) as relay:
            member = cluster.start_worker({"MS_SCHED_PORT": relay.port})
            await_joined(member)
            own = wire.option(wire.formed(relay.opened(wire.FORMED)[0])["instance"])
            relay.lead_to(other.port)
            other.scheduler.wait_for(ANOTHER_RUN, LIMIT)
            member.wait_for(f"it is not this job's scheduler: .*{ANOTHER_RUN}", LIMIT)
            relay.changes = {wire.REGISTER: lambda payload: payload.replace(own, wire.option(None))}
            if secret:
                other.scheduler.wait_for(re.escape(COMPLAINT), LIMIT)
            member.wait_for(re.escape(f"it is not this job's scheduler: {REFUSAL}" if secret else OF_ANOTHER_JOB), LIMIT)
            first, *later = (own in payload for payload in relay.opened(wire.REGISTER))
            assert not first and len(later) >= 2 and all(later) and relay.changed == {wire.REGISTER}
            relay.changes = {}
            relay.lead_to(cluster.port)
            (tmp_path / "back").touch()
            cluster.succeed(timeout=LIMIT)
            words = said(member)
            assert (words["kept"], words["lost"], words["epoch"]) == ("kept", [], 1), words
        if secret:  # its place is free
            other.start_worker()
            other.succeed(timeout=LIMIT)


def test_a_proof_is_taken_only_where_its_challenge_came_from():
    """A node gets the challenge of another job's scheduler, and both schedulers get its proof. Nothing else differs."""
    with Cluster(node(), workers=1, started=0, env=ENV) as cluster, Cluster(node(), workers=1, started=0, env=ENV) as other:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            cluster.start_worker({"MS_SCHED_PORT": listener.getsockname()[1]})
            listener.settimeout(LIMIT)
            near = wire.Connection(listener.accept()[0])
            with near, wire.connect(cluster.port) as own, wire.connect(other.port) as elsewhere:
                ask = near.receive(LIMIT)
                for scheduler in (own, elsewhere):
                    scheduler.send(*ask)
                challenges = [scheduler.receive(LIMIT) for scheduler in (own, elsewhere)]
                near.send(*challenges[1])
                said_by_node = [near.receive(LIMIT) for _ in range(2)]
                assert [kind for kind, _ in said_by_node] == [wire.REGISTER, wire.PROOF]
                for scheduler in (own, elsewhere):
                    scheduler.socket.sendall(b"".join(wire.frame(*each) for each in said_by_node))
                kind, payload = own.receive(LIMIT)
                assert kind == wire.REJECTED and wire.rejected(payload)[1].startswith(REFUSAL)
                assert elsewhere.receive(LIMIT)[0] == wire.FORMED


HELD = """
    c = join()
    hold("work")
    say(sum=c.world.allreduce([c.rank + 1]))
    c.leave()
"""


def relayed(held, cluster, secret):
    """Starts a worker whose peers dial it through a relay. The relay leads to the worker's own port."""
    port = held.enter_context(reserved_port())
    relay = held.enter_context(Relay(port, secret))
    place = {"MUSTER_ADVERTISE": f"127.0.0.1:{relay.port}", "MUSTER_PORT_RANGE": f"{port}-{port}"}
    cluster.start_worker({"MS_WORKER_IP": "127.0.0.1", **place})
    return relay


@pytest.mark.parametrize("marked", [False, True])
def test_a_link_that_is_led_to_another_jobs_rank_is_refused(marked, tmp_path):
    """To the one of the same rank, in the same epoch, which has no such link yet. `marked`: the hello gets that job's mark, which its own
    links show."""
    folders = [tmp_path / name for name in ("ours", "theirs")]
    with contextlib.ExitStack() as held:
        ours, theirs = (held.enter_context(Cluster(node(HELD), workers=2, started=0, env={**ENV, "HOLD_FOLDER": folder})) for folder in folders)
        relays = [relayed(held, ours, SECRET) for _ in range(2)]
        with Tap(theirs.port) as control:
            for _ in range(2):
                theirs.start_worker({"MS_SCHED_PORT": control.port})
            await_joined(*ours.workers, *theirs.workers)
            instance = wire.formed(control.frames("heard", wire.FORMED)[0])["instance"]
            mark = wire.epoch_secret(SECRET, instance, 1)[:16]
            for relay, peer in zip(relays, theirs.workers):
                relay.to, = listening_ports(peer.pid)
                if marked:
                    relay.changes = {wire.LINK_HELLO: lambda payload: payload[:-24] + mark + payload[-8:]}
            for folder in folders:
                folder.mkdir()
            (folders[0] / "work").touch()
            for worker in ours.workers:
                assert worker.wait(LIMIT) == 1
                words = said(worker)
                assert words["error"] == "LINK" and "it refused the link: Stranger" in words["sentence"], words
            why = COMPLAINT if marked else "it knows neither this epoch nor its secret, or looks for another node"
            complaint = re.compile(rf"a stranger at 127\.0\.0\.1:\d+ was turned away from this node's port: {re.escape(why)}")
            until(lambda: any(complaint.search(peer.stderr) for peer in theirs.workers), LIMIT, complaint.pattern)
            assert all(relay.changed <= {wire.LINK_HELLO} for relay in relays)
            assert any(relay.changed for relay in relays) == marked
            (folders[1] / "work").touch()
            assert [said(worker)["sum"] for worker in theirs.succeed(timeout=LIMIT)] == [[3], [3]]


@SECRET_OR_NONE
@pytest.mark.parametrize("change", [speaks_more, offers_nothing])
def test_a_registration_whose_protocol_or_features_were_changed_is_refused(change, secret):
    with Cluster(node(), workers=1, started=0, env={"MUSTER_JOB_SECRET": secret}) as cluster, Relay(cluster.port, secret) as relay:
        relay.changes = {wire.REGISTER: change}
        worker = cluster.start_worker({"MS_SCHED_PORT": relay.port})
        if secret:
            failed_at_once(worker, "REJECTED", REFUSAL)
            cluster.scheduler.wait_for(re.escape(COMPLAINT), LIMIT)
            assert relay.changed == {wire.REGISTER}
            relay.changes = {}
            worker = cluster.start_worker({"MS_SCHED_PORT": relay.port, "MS_NODE_ID": 0})
        assert worker.wait(LIMIT) == 0 and said(worker)["joined"] and cluster.scheduler.wait(LIMIT) == 0
        assert relay.changed == {wire.REGISTER}


@SECRET_OR_NONE
def test_a_schedulers_answer_whose_features_were_taken_out_is_not_believed(secret):
    with Cluster(node(), workers=1, started=0, env={"MUSTER_JOB_SECRET": secret}) as cluster, Relay(cluster.port, secret) as relay:
        relay.changes = {wire.FORMED: no_features_at_all}
        worker = cluster.start_worker({"MS_SCHED_PORT": relay.port})
        if secret:
            worker.wait_for(re.escape(COMPLAINT), LIMIT)
            assert "joined" not in worker.stdout and relay.changed == {wire.FORMED}
            relay.changes = {}
        cluster.succeed(timeout=LIMIT)
        assert said(worker)["joined"] and relay.changed == {wire.FORMED}


MESSAGE = """
    c = join()
    if c.rank == 0:
        c.world.send(b"from 0", 1)
        assert c.world.receive(6, 1) == b"from 1"
    else:
        c.world.send(b"from 1", 0)
        assert c.world.receive(6, 0) == b"from 0"
    say(heard=True)
    c.leave()
"""


@pytest.mark.parametrize("changed, secret", [
    (wire.LINK_HELLO, SECRET),
    (wire.LINK_HELLO, None),
    (wire.LINK_ACCEPT, SECRET),
    (None, SECRET),
], ids=["hello", "hello, no secret", "accept", "nothing"])
def test_a_link_whose_features_were_taken_out_is_refused(changed, secret):
    """The bit is that of memory, which is offered for messages. Without a secret an Accept that lacks it ends the link, too: the two ends
    then go on differently."""
    with contextlib.ExitStack() as held:
        cluster = held.enter_context(Cluster(node(MESSAGE), workers=2, started=0, env={"MUSTER_JOB_SECRET": secret}))
        relays = []
        for _ in range(2):
            relays.append(relayed(held, cluster, secret))
            relays[-1].changes = {changed: no_features}
        cluster.wait(LIMIT)
        assert any(relay.opened(wire.LINK_HELLO) for relay in relays)
        assert set.union(*(relay.changed for relay in relays)) == ({changed} if changed else set())
        words = [said(worker) for worker in cluster.workers]
        if secret and changed:
            assert all(each["error"] == "LINK" and "cannot reach each other although both live" in each["sentence"] for each in words), words
            told = "".join(worker.stderr for worker in cluster.workers) if changed == wire.LINK_HELLO else words[0]["sentence"]
            assert COMPLAINT in told and SECRET not in told, told
        else:
            assert all(each["heard"] for each in words), words
