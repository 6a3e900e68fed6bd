"""A process that does not belong to the cluster is told so at once, in a sentence that names both sides; nobody else is harmed."""

import socket

import pytest

import wire
from cluster import Cluster, Process
from launch import until
from nodes import AT_ONCE_SECONDS, await_joined, failed_at_once, node, said

HOST = socket.gethostname()
# Long, so that a refusal cannot be the end of the time for forming.
PATIENT = {"MS_CLUSTER_TIMEOUT": 60, "MUSTER_LOG": "info"}
TALK = "c = join(); say(everyone=c.world.allgather(c.rank)); c.leave()"


class Waiting(Cluster):
    """A cluster of three of which two are there and wait; their pids can stand in what is expected."""

    def __init__(self, env=None, first=({"MS_NODE_ID": "0"}, {"MS_NODE_ID": "1"})):
        super().__init__(node(TALK), workers=3, started=0, numbered=False, env={**PATIENT, **(env or {})})
        self.first = first

    def __enter__(self):
        super().__enter__()
        for count, env in enumerate(self.first, 1):
            self.start_worker(env=env)
            self.scheduler.wait_for(rf"(?s)(?:admitted worker node.*){{{count}}}", timeout=30)
        return self

    def refuses(self, env, *parts, status="REJECTED", role="MS_WORKER"):
        """A newcomer with these settings is refused at once; its sentence has these parts and names it."""
        with Process(node(), {**self.env, "MS_ROLE": role, **env}, "newcomer") as newcomer:
            sentence = failed_at_once(newcomer, status, *parts)
            if status == "REJECTED":
                assert f"pid {newcomer.pid}" in sentence and HOST in sentence, sentence
            return sentence

    def forms_with(self, env):
        """Those that waited were not harmed: with the right one they form."""
        assert all(worker.returncode is None for worker in self.workers)
        self.start_worker(env=env)
        for worker in self.succeed(timeout=30):
            assert said(worker)["everyone"] == [0, 1, 2]


def test_the_node_id_of_another():
    with Waiting() as cluster:
        holder = cluster.workers[1].pid
        cluster.refuses({"MS_NODE_ID": "1"}, 'node id "1"', "already held", f"pid {holder}", "ago", "MS_NODE_ID")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_a_node_id_that_is_a_name():
    with Waiting(first=({"MS_NODE_ID": "a"}, {"MS_NODE_ID": "b"})) as cluster:
        cluster.refuses({"MS_NODE_ID": "b"}, 'node id "b"', f"pid {cluster.workers[1].pid}")
        cluster.forms_with({"MS_NODE_ID": "c"})


def test_the_rank_of_another():
    with Waiting() as cluster:
        cluster.refuses({"RANK_ID": "1"}, "rank 1", "already held", 'node "1"', f"pid {cluster.workers[1].pid}", "ago")
        cluster.refuses({"RANK_ID": "0", "MS_NODE_ID": "third"}, "rank 0", 'node "third"', f"pid {cluster.workers[0].pid}")
        cluster.forms_with({"RANK_ID": "2"})


def test_double_zero_beside_zero():
    with Waiting() as cluster:
        cluster.refuses({"MS_NODE_ID": "00"}, 'node "00"', 'node "0"', f"pid {cluster.workers[0].pid}", "leading zeros")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_zero_beside_double_zero():
    with Waiting(first=({"MS_NODE_ID": "00"}, {"MS_NODE_ID": "1"})) as cluster:
        cluster.refuses({"MS_NODE_ID": "0"}, 'node "00"', 'node "0"', f"pid {cluster.workers[0].pid}", "leading zeros")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_another_number_of_workers_or_servers():
    with Waiting() as cluster:
        cluster.refuses({"MS_NODE_ID": "2", "MS_WORKER_NUM": "5"}, "expects 5 workers", "job has 3:", "MS_WORKER_NUM")
        cluster.refuses({"MS_NODE_ID": "2", "MS_SERVER_NUM": "2"}, "expects 2 servers", "job has 0:", "MS_SERVER_NUM")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_another_job():
    with Waiting({"MUSTER_JOB_ID": "night run"}) as cluster:
        cluster.refuses({"MS_NODE_ID": "2", "MUSTER_JOB_ID": "day run"}, '"day run"', '"night run"', "MUSTER_JOB_ID")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_no_common_protocol_version():
    with Waiting() as cluster:
        with wire.connect(cluster.port) as newcomer:
            newcomer.send(wire.REGISTER, wire.register(protocol=(7, 9), node_id="2", workers=3, version="9.9.9"))
            kind, payload = newcomer.receive(timeout=AT_ONCE_SECONDS)
            assert kind == wire.REJECTED
            status, reason = wire.rejected(payload)
            assert status == wire.ERR_REJECTED
            assert "speaks protocol versions 7 to 9, this scheduler" in reason and "version 1:" in reason, reason
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_a_node_id_and_a_rank_that_contradict_each_other():
    with Waiting() as cluster:
        cluster.refuses({"MS_NODE_ID": "2", "RANK_ID": "1"}, 'MS_NODE_ID is "2"', 'RANK_ID is "1"', status="CONFIG")
        cluster.refuses({"RANK_ID": "3"}, 'RANK_ID is "3"', "MS_WORKER_NUM", '"3"', "0 to 2", status="CONFIG")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_a_server_where_there_are_none():
    with Waiting() as cluster:
        cluster.refuses({"MS_NODE_ID": "s"}, "MS_PSERVER", "MS_SERVER_NUM", '"0"', status="CONFIG", role="MS_PSERVER")
        cluster.forms_with({"MS_NODE_ID": "2"})


def test_one_worker_too_many_while_a_server_is_still_missing():
    with Waiting({"MS_SERVER_NUM": "1"}) as cluster:
        cluster.start_worker(env={"MS_NODE_ID": "2"})
        cluster.scheduler.wait_for('admitted worker node "2"', timeout=30)
        cluster.refuses({"MS_NODE_ID": "x"}, "all its 3 workers", 'node "x"', "one too many")
        cluster.start_server(program=node())
        cluster.succeed(timeout=30)


def test_one_worker_too_many_after_the_cluster_has_formed(tmp_path):
    lines = "c = join(); hold('go'); say(everyone=c.world.allgather(c.rank)); c.leave()"
    with Cluster(node(lines), workers=2, env={**PATIENT, "HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        settings = {**cluster.env, "MS_ROLE": "MS_WORKER"}
        complete = ("the cluster has been complete for", "2 workers", "one too many")
        for node_id, parts in {"2": ('node "2"', *complete), "1": [f"pid {cluster.workers[1].pid}"], None: complete}.items():
            with Process(node(), {**settings, "MS_NODE_ID": node_id}) as newcomer:
                failed_at_once(newcomer, "REJECTED", *parts, f"pid {newcomer.pid}")
        (tmp_path / "go").touch()
        for worker in cluster.succeed(timeout=30):
            assert said(worker)["everyone"] == [0, 1]


def test_five_at_once_for_two_places(tmp_path):
    """Those that come first are in; the surplus ones are refused, and the job runs."""
    lines = "c = join(); hold('go'); c.leave()"
    with Cluster(node(lines), workers=2, started=5, numbered=False, env={**PATIENT, "HOLD_FOLDER": tmp_path}) as cluster:
        until(lambda: sum(worker.returncode == 1 for worker in cluster.workers) == 3, 30, "three are refused")
        (tmp_path / "go").touch()
        words = [said(worker) for worker in cluster.wait(timeout=30)]
        assert sorted(each["rank"] for each in words if "joined" in each) == [0, 1]
        assert sorted(each.get("error", "") for each in words) == ["", "", "REJECTED", "REJECTED", "REJECTED"]
        assert cluster.scheduler.returncode == 0


@pytest.mark.parametrize("held", ["worker", "server"])
def test_workers_and_servers_share_one_space_of_ids_but_not_of_ranks(held):
    env = {**PATIENT, "MS_SERVER_NUM": "1"}
    with Cluster(node(), workers=1, started=0, numbered=False, env=env) as cluster:
        start = {"worker": cluster.start_worker, "server": cluster.start_server}
        start.pop(held)(env={"MS_NODE_ID": "same"})
        cluster.scheduler.wait_for('admitted .* node "same"', timeout=30)
        (other, start_other), = start.items()
        role = {"worker": "MS_WORKER", "server": "MS_PSERVER"}[other]
        with Process(node(), {**cluster.env, "MS_ROLE": role, "MS_NODE_ID": "same"}) as newcomer:
            failed_at_once(newcomer, "REJECTED", held, other, '"same"')
        start_other(env={"RANK_ID": "0"})
        cluster.succeed(timeout=30)
