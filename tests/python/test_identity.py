"""Names in certificates, where settings demand them: a node's certificate carries its node id, and the scheduler's is for its
host."""

import subprocess

import pytest

from certificates import Certificates
from cluster import EXAMPLES, MUSTER, Cluster, clean_environment
from nodes import alone_fails_at_once, failed_at_once, node, said

LIMIT = 60
WORK = "c = join(); say(sum=c.world.allreduce([c.rank + 1])); c.leave()"
IDS = {"MUSTER_VERIFY_NODE_ID": 1}
HOST = {"MUSTER_VERIFY_HOST": 1}


def uri(node_id):
    return f"URI:muster:node:{node_id}"


@pytest.fixture
def files(tmp_path):
    return Certificates(tmp_path / "files")


def test_a_cluster_works_whose_nodes_show_their_own_certificates(files):
    ids = ["b", "a c"]
    with Cluster(node(WORK), workers=2, started=0, env={**files.env(), **IDS}) as cluster:
        for node_id in ids:
            own = files.process(node_id[0], [uri("someone"), uri(node_id.replace(" ", "%20"))])
            cluster.start_worker({**own, "MS_NODE_ID": node_id})
        assert [said(worker)["sum"] for worker in cluster.succeed(timeout=LIMIT)] == [[3], [3]]


def test_one_that_registers_with_anothers_certificate_is_refused(files):
    other, none = files.process("other", [uri("1")]), files.process("none", ["DNS:node"])
    with Cluster(node(WORK), workers=2, started=0, env={**files.env(), **IDS}) as cluster:
        for wrong, has in ((other, 'the node id "1"'), (none, "no node id")):
            worker = cluster.start_worker({**wrong, "MUSTER_VERIFY_NODE_ID": 0, "MS_NODE_ID": "0"})
            sentence = f'node "0" shows a certificate (client_cert_path) with {has}: the scheduler wants the name {uri(0)}'
            assert worker.wait(LIMIT) == 1
            assert said(worker)["error"] == "REJECTED" and sentence in said(worker)["sentence"], said(worker)
        cluster.scheduler.wait_for(f'it registers as node "0" with a certificate that has the node id "1": expected the name '
                                   f"{uri(0)}", LIMIT)
        assert cluster.scheduler.returncode is None


def test_ones_own_certificate_and_settings_are_looked_at_first(files):
    env = {**files.process("other", [uri("1")]), **IDS}
    hint = "muster certs node DIR --node_id=3"
    alone_fails_at_once({**env, "MUSTER_NODE_ID": 3}, "CONFIG", "server_cert_path", 'the node id "1"', uri(3), hint)
    alone_fails_at_once(env, "CONFIG", "MUSTER_VERIFY_NODE_ID is on, but this node has neither a node id (MUSTER_NODE_ID)")
    alone_fails_at_once(IDS, "CONFIG", "MUSTER_VERIFY_NODE_ID is on, but MUSTER_ENABLE_SSL is off")
    alone_fails_at_once(HOST, "CONFIG", "MUSTER_VERIFY_HOST is on, but MUSTER_ENABLE_SSL is off")


WAITS = "c = join(); say(broken=fails(c.world.barrier))"


@pytest.mark.parametrize("end", ["client", "server"])
def test_a_link_to_one_that_shows_anothers_certificate_does_not_come_to_stand(end, files):
    """Only one node demands it, so the other gets as far as the check. The lower index dials."""
    strict, loose = (1, 0) if end == "client" else (0, 1)
    own = {rank: files.process(f"node-{rank}", [uri(rank)]) for rank in (strict, loose)}
    own[loose] = files.process("loose", **{"client": [uri(loose)], "server": [uri(loose)], end: [uri(7)]})
    own[strict] = {**own[strict], **IDS}
    with Cluster(node(WAITS), workers=2, started=0, env=files.env()) as cluster:
        for rank in (0, 1):
            cluster.start_worker(own[rank])
        cluster.wait(LIMIT)
        broken = [said(worker)["broken"] for worker in cluster.workers]
        wrong = f'node "{loose}" shows a certificate with the node id "7": expected the name {uri(loose)}'
        if end == "server":
            assert all(wrong in told["sentence"] for told in broken), broken
            assert f"no link to rank {loose} of world: {wrong}" in cluster.workers[strict].stderr
        else:
            assert "the certificate of this node (client_cert_path) does not carry its node id" in broken[0]["sentence"], broken
            assert f"was turned away from this node's port: {wrong}" in cluster.workers[strict].stderr


def test_the_launcher_and_status_have_no_node_id(files, tmp_path):
    """All processes of one host show one certificate, which carries all their ids."""
    env = {**files.process("host", [uri(0), uri(1)]), **IDS}
    words = ["run", "--worker_num", "2", "--master_port", "0", "--join", "--log_dir", "logs", EXAMPLES / "allgather"]
    run = subprocess.run([MUSTER, *words], cwd=tmp_path, env=clean_environment(env), capture_output=True, text=True,
                         timeout=LIMIT)
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert run.returncode == 0 and logs.count("[[0.], [1.]]") == 2, run.stderr + logs
    with Cluster(node(), workers=2, started=0, env={**files.env(), **IDS}) as cluster:
        told = status(cluster, env)
        assert told.returncode == 0 and "forming" in told.stdout, told.stderr


def status(cluster, env, host="127.0.0.1"):
    words = [MUSTER, "status", f"--sched_host={host}", f"--sched_port={cluster.port}"]
    return subprocess.run(words, env=clean_environment(env), capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("host, name", [("127.0.0.1", "IP:127.0.0.1"), ("localhost", "DNS:localhost")])
def test_the_scheduler_shows_a_certificate_for_its_host(host, name, files):
    right, wrong = files.process("right", [name]), files.process("wrong", ["DNS:elsewhere", "IP:127.0.0.2"])
    with Cluster(node(WORK), workers=1, started=0, env={**right, "MS_SCHED_HOST": host}) as cluster:
        assert status(cluster, {**files.env(), **HOST}, host).returncode == 0
        # Nobody's certificate but the scheduler's has a name.
        cluster.start_worker({**files.env(), **HOST})
        assert said(cluster.succeed(timeout=LIMIT)[0])["sum"] == [1]
    with Cluster(node(WORK), workers=1, started=0, env={**wrong, "MS_SCHED_HOST": host}) as cluster:
        sentence = f'its certificate is not for the host "{host}", as is demanded here (verify_host): it is for '
        worker = cluster.start_worker({**files.env(), **HOST})
        worker.wait_for("as is demanded here", LIMIT)
        assert sentence in worker.stderr, worker.stderr
        cluster.scheduler.wait_for("it does not take our certificate", LIMIT)
        assert sentence in status(cluster, {**files.env(), **HOST}, host).stderr
        assert status(cluster, files.env(), host).returncode == 0, "nobody looks at names there"
