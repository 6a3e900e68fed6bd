"""A cluster forms from processes that share nothing but variables, in any order, and everyone learns its place."""

import contextlib
import re
import socket
import time

import pytest

from cluster import Cluster, Process
from nodes import await_joined, node, said
from optional import IPV6

TALK = "c = join(); say(everyone=c.world.allgather(c.rank)); c.leave()"
# Needs the test's own time between the starts; what is tested is that nobody minds.
APART_SECONDS = 1.0
ADMITTED = r"admitted (?:worker|server) node"


def places(processes):
    """What each process says of its place: rank, size, local rank, local size."""
    words = [said(process) for process in processes]
    return [(each["rank"], each["size"], each["local_rank"], each["local_size"]) for each in words]


def start_one_by_one(cluster, environments):
    """Starts workers so that they register in this order."""
    for count, env in enumerate(environments, 1):
        cluster.start_worker(env=env)
        # The scheduler logs each admission; the last of them may come too late to be logged before the forming.
        if count < len(environments):
            cluster.scheduler.wait_for(rf"(?s)(?:{ADMITTED}.*){{{count}}}", timeout=30)


@pytest.mark.parametrize("order", ["scheduler first", "scheduler in the middle", "scheduler last"])
def test_scheduler_and_workers_start_in_any_order_with_time_in_between(order):
    before = {"scheduler first": 0, "scheduler in the middle": 1, "scheduler last": 2}[order]
    with Cluster(node(TALK), workers=2, started=0, scheduler=False, keeps_port=True) as cluster:
        for at in range(3):
            if at == before:
                cluster.start_scheduler()
            else:
                cluster.start_worker()
            if at < 2:
                time.sleep(APART_SECONDS)
        workers = cluster.succeed(timeout=30)
        assert [said(worker)["everyone"] for worker in workers] == [[0, 1], [0, 1]]
        assert said(cluster.scheduler)["done"] is True


def test_the_scheduler_serves_until_all_have_left_and_then_is_done(tmp_path):
    lines = "c = join(); hold(f'leave {c.rank}'); c.leave()"
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        for rank in (1, 0, 2):
            assert cluster.scheduler.returncode is None
            (tmp_path / f"leave {rank}").touch()
            assert cluster.workers[rank].wait(timeout=30) == 0
        assert cluster.scheduler.wait(timeout=30) == 0
        assert said(cluster.scheduler)["done"] is True


def test_servers_have_a_rank_space_of_their_own():
    lines = """
        c = join()
        own = c.world if c.role == "worker" else c.servers
        say(own=own.allgather(10 * c.rank), universe=c.universe.rank, all=c.universe.allgather(c.rank),
            outside=(c.servers if c.role == "worker" else c.world).rank,
            members=[[c.universe.member(i).role, c.universe.member(i).rank] for i in range(c.universe.size)])
        c.universe.barrier()
        c.leave()
    """
    with Cluster(node(lines), workers=3, servers=2) as cluster:
        cluster.succeed(timeout=30)
        for rank, worker in enumerate(cluster.workers):
            words = said(worker)
            assert (words["role"], words["rank"], words["size"], words["universe"]) == ("worker", rank, 3, rank)
            assert words["own"] == [0, 10, 20] and words["outside"] < 0
        ranks = set()
        for server in cluster.servers:
            words = said(server)
            ranks.add(words["rank"])
            assert (words["role"], words["size"], words["universe"]) == ("server", 2, 3 + words["rank"])
            assert words["own"] == [0, 10] and words["outside"] < 0
        assert ranks == {0, 1}
        for process in cluster.workers + cluster.servers:
            assert said(process)["all"] == [0, 1, 2, 0, 1]
            assert said(process)["members"] == [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1]]


RANKS = {
    "node ids that are numbers": ([{"MS_NODE_ID": "2"}, {"MS_NODE_ID": "0"}, {"MS_NODE_ID": "1"}], [2, 0, 1]),
    "ranks of a launcher": ([{"RANK_ID": "1"}, {"RANK_ID": "2"}, {"RANK_ID": "0"}], [1, 2, 0]),
    "names in natural order": (
        [{"MS_NODE_ID": "worker_10"}, {"MS_NODE_ID": "worker_2"}, {"MS_NODE_ID": "worker_1"}],
        [2, 1, 0],
    ),
    "a launcher's rank beats a name": ([{"MS_NODE_ID": "a", "RANK_ID": "2"}, {"MS_NODE_ID": "c"}, {"MS_NODE_ID": "b"}], [2, 1, 0]),
    "names take the free ranks": ([{"MS_NODE_ID": "b"}, {"MS_NODE_ID": "1"}, {"MS_NODE_ID": "a"}], [2, 1, 0]),
    "numbers that are no rank are names": ([{"MS_NODE_ID": "30"}, {"MS_NODE_ID": "4"}, {"MS_NODE_ID": "007"}], [2, 0, 1]),
    "nodes without an id come last": ([{}, {"MS_NODE_ID": "z"}, {"MS_NODE_ID": "0"}], [2, 1, 0]),
}


@pytest.mark.parametrize("rule", RANKS)
def test_ranks(rule):
    environments, expected = RANKS[rule]
    with Cluster(node(), workers=3, started=0, numbered=False) as cluster:
        for env in environments:
            cluster.start_worker(env=env)
        assert [said(worker)["rank"] for worker in cluster.succeed(timeout=30)] == expected
        given = [env.get("MS_NODE_ID") for env in environments]
        for worker, node_id in zip(cluster.workers, given):
            assert node_id in (None, said(worker)["node_id"])
        assert len({said(worker)["node_id"] for worker in cluster.workers}) == 3


def test_nodes_without_ids_are_grouped_by_host_in_order_of_registration():
    hosts = ["b", "a", "b", "a", "b"]
    with Cluster(node(), workers=5, started=0, numbered=False, env={"MUSTER_LOG": "info"}) as cluster:
        start_one_by_one(cluster, [{"MUSTER_HOST_ID": host} for host in hosts])
        cluster.succeed(timeout=30)
        assert places(cluster.workers) == [(0, 5, 0, 3), (3, 5, 0, 2), (1, 5, 1, 3), (4, 5, 1, 2), (2, 5, 2, 3)]


def test_local_ranks_count_the_ranks_of_a_host_in_order():
    with Cluster(node(), workers=4, started=0) as cluster:
        for host in ("a", "b", "b", "a"):
            cluster.start_worker(env={"MUSTER_HOST_ID": host})
        cluster.succeed(timeout=30)
        assert places(cluster.workers) == [(0, 4, 0, 2), (1, 4, 0, 2), (2, 4, 1, 2), (3, 4, 1, 2)]


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=IPV6), "localhost"])
def test_the_scheduler_has_an_ipv4_address_an_ipv6_address_or_a_name(host):
    lines = "c = join(); say(everyone=c.world.allgather(c.rank), address=c.world.member(c.rank).address.decode()); c.leave()"
    with Cluster(node(lines), workers=2, host=host, keeps_port=True) as cluster:
        for worker in cluster.succeed(timeout=30):
            assert said(worker)["everyone"] == [0, 1]
            if host != "localhost":
                assert said(worker)["address"].startswith("[::1]:" if host == "::1" else "127.0.0.1:")


def test_without_settings_a_process_is_a_cluster_of_one_where_every_call_works():
    lines = """
        c = join()
        w = c.world
        w.barrier()
        say(sum=w.allreduce([1, 2]), all=w.allgather(7), data=w.broadcast(b"xyz").decode(), universe=c.universe.allgather(3))
        c.store_set("a", b"1")
        say(get=c.store_get("a").decode(), add=c.store_add("n", 5), swap=c.store_compare_set("a", b"1", b"2").decode())
        c.store_wait(["a", "n"])
        say(deleted=[c.store_delete("a"), c.store_delete("a")], epoch=c.epoch, me=w.member(0).pid == os.getpid(),
            none=fails(c.store_get, "a", 0)["error"], servers=c.servers.size)
        c.leave()
    """
    with Process(node(lines)) as alone:
        assert alone.wait(timeout=30) == 0
        words = said(alone)
        assert (words["rank"], words["size"], words["local_rank"], words["local_size"]) == (0, 1, 0, 1)
        assert (words["sum"], words["all"], words["data"], words["universe"]) == ([1, 2], [7], "xyz", [3])
        assert (words["get"], words["add"], words["swap"], words["deleted"]) == ("1", 5, "2", [True, False])
        assert (words["none"], words["servers"], words["me"]) == ("NOT_FOUND", 0, True)
        assert words["epoch"] >= 1 and alone.stderr == ""


@pytest.mark.parametrize("given", ["ranks are known", "ranks are not known"])
def test_one_too_few_all_fail_with_the_same_sentence_that_says_who_is_missing(given):
    limit = 6
    env = {"MS_CLUSTER_TIMEOUT": limit}
    with Cluster(node(), workers=4, started=0, numbered=False, env=env) as cluster:
        for rank in (0, 2, 3):
            cluster.start_worker(env={"MS_NODE_ID": rank if given == "ranks are known" else None})
        cluster.wait(timeout=30)
        words = [said(process) for process in cluster.processes]
        assert {each["error"] for each in words} == {"TIMEOUT"}, words
        assert len({each["sentence"] for each in words}) == 1, words
        sentence = words[0]["sentence"]
        missing = "rank 1" if given == "ranks are known" else "1 worker"
        for part in ("3 of 4 workers", f"missing: {missing}", f"3 from host {socket.gethostname()}"):
            assert part in sentence, sentence
        # The scheduler's time began before that of the workers, which may have started late.
        assert said(cluster.scheduler)["seconds"] >= limit - 2.0, words
        assert all(each["seconds"] < limit + 3.0 for each in words), words
        lines = [line for line in cluster.scheduler.stderr.splitlines() if "forming since " in line]
        since = [int(re.search(r"forming since (\d+)", line)[1]) for line in lines]
        assert since[0] >= 3 and since == sorted(set(since)), "a line a second, from the third, says how far"
        assert "3 of 4 workers" in lines[-1], lines


def test_a_worker_that_was_refused_is_told_of_in_the_sentence_of_all_that_wait():
    with Cluster(node(), workers=3, started=2, env={"MS_CLUSTER_TIMEOUT": 5, "MUSTER_LOG": "info"}) as cluster:
        cluster.scheduler.wait_for(r"(?s)(?:admitted worker node.*){2}", timeout=30)
        with Process(node(), {**cluster.env, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": 2, "MS_WORKER_NUM": 4}) as newcomer:
            assert newcomer.wait(timeout=30) == 1
            why = said(newcomer)["sentence"]
            assert "expects 4 workers" in why, why
        cluster.wait(timeout=30)
        for process in cluster.processes:
            assert said(process)["sentence"].endswith(f"missing: rank 2; those that came: 2 from host {socket.gethostname()}; "
                                                      f"1 was refused: {why}"), said(process)


def test_the_first_whose_time_is_up_ends_forming_for_all():
    with Cluster(node(), workers=3, started=1, env={"MS_CLUSTER_TIMEOUT": 60}) as cluster:
        cluster.start_worker(env={"MS_CLUSTER_TIMEOUT": 1})
        cluster.wait(timeout=30)
        words = [said(process) for process in cluster.processes]
        assert {each["error"] for each in words} == {"TIMEOUT"}, words
        sentence, = {each["sentence"] for each in words}
        assert "2 of 3 workers" in sentence and "missing: rank 2" in sentence, sentence


def test_without_a_scheduler_the_sentence_names_its_address():
    env = {"MS_CLUSTER_TIMEOUT": 1, "MUSTER_SCHED_HOST": "127.0.0.1"}
    with Cluster(node(), workers=1, scheduler=False, keeps_port=True, env=env) as cluster:
        worker, = cluster.wait(timeout=30)
        words = said(worker)
        assert worker.returncode == 1 and words["error"] == "UNREACHABLE", words
        assert f"127.0.0.1:{cluster.port}" in words["sentence"], words
        advice = "; check that the scheduler is started, and that MUSTER_SCHED_HOST and MS_SCHED_PORT lead to it"
        assert "refused" in words["sentence"] and words["sentence"].endswith(advice), words
        assert words["seconds"] >= 0.9, "the time that it was given"


OTHERS = {
    "nothing": (b"", "does not answer as a muster scheduler of this version does", "its connection was dropped after 4.0 s of silence"),
    "HTTP": (b"<!DOCTYPE html>", "is not a muster scheduler", 'not a frame of this protocol: it begins with "<!DO"'),
}


@pytest.mark.parametrize("says", OTHERS)
def test_something_else_that_listens_is_not_taken_for_a_scheduler(says):
    answer, what, why = OTHERS[says]
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as held:
        listener.settimeout(0.1)
        port = listener.getsockname()[1]
        place = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": port, "MS_WORKER_NUM": 1}
        with Process(node(), {**place, "MS_CLUSTER_TIMEOUT": 6.5}) as worker:
            deadline = time.monotonic() + 30
            while worker.returncode is None and time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    connected = held.enter_context(listener.accept()[0])
                    connected.sendall(answer)
            assert worker.wait(timeout=0.1) == 1
            sentence, log = said(worker)["sentence"], worker.stderr
    advice = "check that MS_SCHED_HOST and MS_SCHED_PORT lead to the scheduler"
    assert re.fullmatch(
        rf"the cluster was not complete within 6.5 s \(MS_CLUSTER_TIMEOUT is 6\.5\), and what listens at 127\.0\.0\.1:{port} {what} "
        rf"\(\d+ attempts? in [\d.]+ s\): {re.escape(why)}; {advice}",
        sentence,
    ), sentence
    assert f"still trying: what listens at 127.0.0.1:{port} {what} (" in log


@pytest.mark.parametrize("limits", [{"MS_CLUSTER_TIMEOUT": 0.5}, {"MS_TOPO_TIMEOUT": 0.5, "MS_CLUSTER_TIMEOUT": 60}])
def test_a_scheduler_alone_says_that_nobody_came(limits):
    with Cluster(node(), workers=2, started=0, env=limits) as cluster:
        assert cluster.scheduler.wait(timeout=30) == 1
        words = said(cluster.scheduler)
        assert words["error"] == "TIMEOUT" and "0 of 2 workers" in words["sentence"], words
        assert f"within 500 ms ({next(iter(limits))} is 0.5)" in words["sentence"], words


def test_a_worker_that_dies_while_forming_makes_room_for_its_next_life():
    with Cluster(node(), workers=3, started=1, env={"MUSTER_LOG": "info"}) as cluster:
        first_life = {**cluster.env, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": "1"}
        with Process(node(), first_life) as first:
            cluster.scheduler.wait_for('admitted worker node "1"', timeout=30)
            first.kill()
            cluster.scheduler.wait_for("its place is free", timeout=30)
        cluster.start_worker()
        cluster.start_worker()
        assert [said(worker)["rank"] for worker in cluster.succeed(timeout=30)] == [0, 1, 2]
