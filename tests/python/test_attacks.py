"""A cluster that forms and one that runs are attacked on all their ports: they form and run, descriptors and memory stay bounded,
and the log has a line for each kind of nuisance and not for each packet."""

import contextlib
import itertools
import os
import pathlib
import re
import resource
import select
import socket
import threading
import time

import pytest

import attacks
import wire
from attacks import attack, connect, each_is_told_once, is_open, many_descriptors, silent
from certificates import Certificates
from cluster import Cluster, Process
from nodes import await_joined, listening_ports, node, said
from recovering import Recovering, lives
from tap import Tap

WORKERS = 4  # two of them come late: one that takes a place before does not make the cluster complete
PART = 20  # of the attacks' number, where they are made once more
MEMORY_MAX = 96 << 20  # what an attack may cost a process, in bytes: 1,024 connections with what they have sent, and sanity

WORKER = """
    c = join()
    say(sum=c.world.allreduce([c.rank]))
    hold("attacked")
    for number in range(20):
        assert c.world.allreduce([1]) == [c.size], number
        group = c.world.split(0, c.rank)
        assert group.allreduce([1]) == [c.size], number
        group.free()
    c.store_set(f"key {c.rank}", b"value")
    c.world.barrier()
    say(values=[c.store_get(f"key {rank}").decode() for rank in range(c.size)])
    c.leave()
"""


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def peak_memory(process):
    """The most that it has ever had resident, in bytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) << 10


def await_few_descriptors(process, most, timeout=40):
    deadline = time.monotonic() + timeout
    while descriptors(process) > most:
        assert time.monotonic() < deadline, f"{process.name} still has {descriptors(process)} descriptors"
        time.sleep(0.05)


def ports_of(processes, timeout=30):
    """The port of each, once it listens: a node does as soon as it has reached its scheduler."""
    deadline = time.monotonic() + timeout
    ports = []
    for process in processes:
        while not (found := listening_ports(process.pid)):
            assert time.monotonic() < deadline, f"{process.name} does not listen"
            time.sleep(0.01)
        ports += found
    return ports


def recorded_registration():
    """What a real worker says first, to a scheduler that only listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": "0", "MS_WORKER_NUM": WORKERS, "MS_SCHED_HOST": "127.0.0.1"}
        with Process(node(), {**env, "MS_SCHED_PORT": listener.getsockname()[1]}) as worker:
            listener.settimeout(30)
            connected, _ = listener.accept()
            with connected:
                connected.settimeout(30)
                kind, payload = wire.Connection(connected).receive(30)
            worker.kill()
    assert kind == wire.REGISTER
    return payload


def replay(port, payload, times=20):
    """A registration that was recorded: it is refused, in words."""
    for _ in range(times):
        with wire.connect(port) as newcomer:
            newcomer.send(wire.REGISTER, payload)
            kind, answer = newcomer.receive(timeout=attacks.SLACK_SECONDS)
            assert kind == wire.REJECTED, kind
            assert wire.rejected(answer)[0] == wire.ERR_REJECTED


def under_the_id_of_a_live_node(port, times=20):
    for number in range(times):
        with wire.connect(port) as newcomer:
            newcomer.send(wire.REGISTER, wire.register(node_id="1", workers=WORKERS, incarnation=number.to_bytes(16, "little")))
            kind, answer = newcomer.receive(timeout=attacks.SLACK_SECONDS)
            assert kind == wire.REJECTED and wire.rejected(answer)[0] == wire.ERR_REJECTED


def registers_and_then_sends_nonsense(port):
    """It takes a place while the cluster forms, and has none any more once it has said what no node says. Later it gets none."""
    with connect(port) as connected, contextlib.suppress(ConnectionError):
        connected.sendall(wire.frame(wire.REGISTER, wire.register(node_id="2", workers=WORKERS, incarnation=b"nonsense".ljust(16))))
        connected.sendall(wire.frame(wire.STORE_PIECE, bytes(60_000)) + b"nonsense" * 100)
        while connected.recv(65536):
            pass


def test_a_cluster_that_forms_and_runs_is_attacked_and_does_both(tmp_path):
    payload = recorded_registration()
    with Cluster(node(WORKER), workers=WORKERS, started=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        ports = [cluster.port, *ports_of(cluster.workers)]
        processes = [cluster.scheduler, *cluster.workers]
        cluster.scheduler.wait_for("listens at|forming since", timeout=30)
        attack(ports)
        under_the_id_of_a_live_node(cluster.port)
        replay(cluster.port, payload)
        registers_and_then_sends_nonsense(cluster.port)
        for _ in range(WORKERS - 2):
            cluster.start_worker()
        await_joined(*cluster.workers)
        for worker in cluster.workers:
            worker.wait_for('"sum"', timeout=30)
        before = {process.name: peak_memory(process) for process in processes}
        attack([cluster.port, *ports_of(cluster.workers)])
        replay(cluster.port, payload)
        under_the_id_of_a_live_node(cluster.port)
        registers_and_then_sends_nonsense(cluster.port)
        for process in processes:
            await_few_descriptors(process, 64)
            assert peak_memory(process) - before[process.name] < MEMORY_MAX, process.name
        (tmp_path / "attacked").touch()
        for worker in cluster.succeed(timeout=60):
            assert said(worker)["sum"] == [sum(range(WORKERS))] and said(worker)["values"] == ["value"] * WORKERS
        for process in processes:
            each_is_told_once(process)


@pytest.mark.parametrize("guard", ["TLS", "a secret"])
def test_a_cluster_behind_a_guard_is_attacked_too(guard, tmp_path):
    """Fewer of the same attacks. Words without TLS, or without a proof, get no further than that."""
    env = Certificates(tmp_path / "files").env() if guard == "TLS" else {"MUSTER_JOB_SECRET": "correct horse battery staple"}
    with Cluster(node(WORKER), workers=2, started=1, env={**env, "HOLD_FOLDER": tmp_path}) as cluster:
        attack([cluster.port, *ports_of(cluster.workers)], PART)
        cluster.start_worker()
        for worker in cluster.workers:
            worker.wait_for('"sum"', timeout=30)
        attack([cluster.port, *ports_of(cluster.workers)], PART)
        processes = [cluster.scheduler, cluster.workers[0]]
        for process in processes:
            await_few_descriptors(process, 64)
        (tmp_path / "attacked").touch()
        for worker in cluster.succeed(timeout=60):
            assert said(worker)["sum"] == [1] and said(worker)["values"] == ["value"] * 2
        for process in processes:
            each_is_told_once(process)


def test_the_secret_of_the_epoch_before_opens_no_link(tmp_path):
    """A real secret, which its members had. The present epoch's secret opens a link, so it is the secret that counts."""
    with Recovering(lives(), workers=2, folder=tmp_path, started=0) as job, Tap(job.port) as tap:
        for _ in range(2):
            job.start_worker({"MS_SCHED_PORT": tap.port})
        job.await_all("stands_1")
        job.lose(1)
        job.await_all("broken_1", [0])
        job.let("recover_1")
        job.start_again(1, {"MS_SCHED_PORT": tap.port})
        job.await_all("stands_2")
        told = {each["epoch"]: each["secret"] for each in map(wire.formed, tap.frames("heard", wire.FORMED))}
        assert set(told) == {1, 2} and told[1] != told[2]
        lives_of_1 = [life for name, life in map(wire.registered, tap.frames("sent", wire.REGISTER)) if name == "1"]
        port, = listening_ports(job.workers[0].pid)

        def answer(epoch, secret):
            """The answer to a hello for the channel of messages, on which there is no link."""
            hello = wire.link_hello(epoch, 0, 1, 1, 0, lives_of_1[-1], secret[:16])
            with wire.connect(port) as connected:
                connected.send(wire.LINK_HELLO, hello)
                return connected.receive(timeout=attacks.SLACK_SECONDS)

        for epoch in (1, 2):
            assert answer(epoch, told[1]) == (wire.LINK_REJECT, bytes([wire.LINK_STRANGER]))
        job.let("end")
        job.succeed(timeout=60)


def test_the_secret_of_the_epoch_opens_a_link(tmp_path):
    """This shows that the test above says everything right except the secret."""
    with Recovering(lives(), workers=2, folder=tmp_path, started=0) as job, Tap(job.port) as tap:
        for _ in range(2):
            job.start_worker({"MS_SCHED_PORT": tap.port})
        job.await_all("stands_1")
        secret = wire.formed(tap.frames("heard", wire.FORMED)[0])["secret"]
        life = dict(map(wire.registered, tap.frames("sent", wire.REGISTER)))["1"]
        with wire.connect(*listening_ports(job.workers[0].pid)) as connected:
            connected.send(wire.LINK_HELLO, wire.link_hello(1, 0, 1, 1, 0, life, secret[:16]))
            kind, payload = connected.receive(timeout=attacks.SLACK_SECONDS)
            assert (kind, payload[:16]) == (wire.LINK_ACCEPT, secret[16:])


ASKS = """
    c = join()
    while not os.path.exists(os.environ["END"]):
        c.store_set("own", b"value")
        assert c.store_get("own") == b"value"
    say(rounds=True)
    c.leave()
"""


def test_a_member_that_asks_the_store_for_more_than_any_limit_gets_nothing_of_it(tmp_path):
    """A key, a value, the total, and the number of open requests. The others' requests go on, and nothing is set aside for it."""
    limits = {"MUSTER_STORE_KEY_LIMIT": 10, "MUSTER_STORE_VALUE_LIMIT": 100_000, "MUSTER_STORE_TOTAL_LIMIT": 1_000_000}
    env = {"END": tmp_path / "end", "MS_NODE_TIMEOUT": 300}
    with Cluster(node(ASKS), workers=2, started=0, env=env, scheduler=False) as cluster:
        cluster.start_scheduler(limits)
        cluster.start_worker()
        with wire.connect(cluster.port) as member:
            member.send(wire.REGISTER, wire.register(node_id="1", workers=2, host=("by-hand", "by-hand")))
            assert member.receive(timeout=30)[0] == wire.FORMED
            before = peak_memory(cluster.scheduler)
            requests = itertools.count(1)

            def ask(operation, key, value_bytes=0, value=b""):
                request = next(requests)
                member.send(wire.STORE_BEGIN, wire.store_begin(request, operation, key, value_bytes=value_bytes))
                for at in range(0, len(value), 50_000):
                    member.send(wire.STORE_PIECE, wire.store_piece(request, value[at:at + 50_000]))
                return request

            def is_refused(request, words):
                """Other requests may be answered before it."""
                while True:
                    kind, payload = member.receive(timeout=30)
                    assert kind == wire.STORE_REPLY, kind
                    answered, status, reason = wire.store_reply(payload)
                    if answered == request:
                        assert status == wire.ERR_LIMIT and words in reason, (status, reason)
                        return

            for _ in range(20):
                is_refused(ask(wire.STORE_SET, b"eleven long", 1, b"x"), "a store key of 11 bytes: the limit is 10")
                for length in (100_001, 2**63, 2**64 - 1):
                    is_refused(ask(wire.STORE_SET, b"key", length, bytes(200_000)), f"a store value of {length} bytes")
            for number in range(10):  # with the keys, and what the worker has set, the last is too much
                last = ask(wire.STORE_SET, b"key %d" % number, 100_000, bytes(100_000))
            is_refused(last, "the limit is 1000000 in total")
            for _ in range(1024):
                ask(wire.STORE_GET, b"never set")
            is_refused(ask(wire.STORE_GET, b"never set"), "this node has 1024 unanswered store requests")
            assert peak_memory(cluster.scheduler) - before < 16 << 20
            (tmp_path / "end").touch()
            cluster.workers[0].wait_for('"rounds"', timeout=30)
            member.send(wire.LEAVE)
            cluster.succeed(timeout=30)


def limited(soft):
    return f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    """


def test_silent_strangers_leave_the_program_its_descriptors_and_its_groups(tmp_path):
    """1,300 at a node whose limit is 1,024: the program opens files, and makes groups, while they are there."""
    lines = limited(1024) + """
        import os
        c = join()
        hold("full")
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
        group = c.world.split(0, c.rank)
        say(opened=len(files), sum=group.allreduce([1]))
        hold("seen")
        c.leave()
    """
    with Cluster(node(lines), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        port, = listening_ports(cluster.workers[0].pid)
        with silent(port, 1300) as those:
            deadline = time.monotonic() + attacks.SLACK_SECONDS
            while sum(map(is_open, those)) > 1000:  # until it has put out those that are too many
                assert time.monotonic() < deadline, "they are all still there"
                time.sleep(0.05)
            (tmp_path / "full").touch()
            for worker in cluster.workers:
                worker.wait_for('"opened": 100', timeout=30)
        (tmp_path / "seen").touch()
        assert [said(worker)["sum"] for worker in cluster.succeed(timeout=30)] == [[2], [2]]


@pytest.mark.parametrize("epoch", [1, 2])
def test_hellos_that_have_closed_are_held_by_nobody(epoch, tmp_path):
    """A node holds hellos while it forms, and those of a coming epoch while it runs; but none of peers that have gone."""
    lines = limited(1024) + """
        c = join()
        hold("gone")
        say(sum=c.world.allreduce([1]))
        c.leave()
    """
    with Cluster(node(lines), workers=2, started=epoch, env={"HOLD_FOLDER": tmp_path}) as cluster:
        if epoch == 2:
            await_joined(*cluster.workers)
        port, = ports_of(cluster.workers[:1])
        hello = wire.frame(wire.LINK_HELLO, wire.link_hello(epoch, 0, 0, 1, 0, bytes(16), b"a guess".ljust(16)))
        for _ in range(1300):
            with connect(port) as connected, contextlib.suppress(ConnectionError):
                connected.sendall(hello)
        await_few_descriptors(cluster.workers[0], 64)
        if epoch == 1:
            cluster.start_worker()
        (tmp_path / "gone").touch()
        assert [said(worker)["sum"] for worker in cluster.succeed(timeout=30)] == [[2], [2]]


def test_a_scheduler_without_a_descriptor_puts_strangers_out_and_lets_nodes_in():
    with Cluster(node(), workers=3, started=2) as cluster:
        ports_of(cluster.workers)
        deadline = time.monotonic() + 30
        while descriptors(cluster.scheduler) < 6:  # until both nodes have reached it
            assert time.monotonic() < deadline
            time.sleep(0.01)
        most = descriptors(cluster.scheduler) + 20
        resource.prlimit(cluster.scheduler.pid, resource.RLIMIT_NOFILE, (most, most))
        with silent(cluster.port, 200):
            cluster.start_worker()
            await_joined(*cluster.workers)
        cluster.succeed(timeout=30)
        assert "panic" not in cluster.scheduler.stderr


@pytest.mark.parametrize("guard", ["none", "TLS"])
def test_refused_connections_that_stay_open_leave_a_scheduler_its_last_descriptors(guard, tmp_path):
    """Each is told why and read for a second more. So many come at once that they would take all descriptors."""
    limit, said_first = 256, wire.frame(wire.REGISTER, wire.register(workers=9)) if guard == "none" else b"GET / HTTP/1.0\r\n\r\n"
    env = Certificates(tmp_path / "files").env() if guard == "TLS" else {}
    with Cluster(node(), workers=2, started=1, env=env) as cluster:
        ports_of(cluster.workers)
        resource.prlimit(cluster.scheduler.pid, resource.RLIMIT_NOFILE, (limit, limit))
        most = 0
        with many_descriptors(), contextlib.ExitStack() as held:
            for _ in range(2 * limit):
                held.enter_context(connect(cluster.port)).sendall(said_first)
                most = max(most, descriptors(cluster.scheduler))
            cluster.start_worker()
            await_joined(*cluster.workers)
        assert most <= limit - limit // 16, most
        cluster.succeed(timeout=30)


def test_a_program_that_lowers_its_limit_below_what_is_open_goes_on():
    lines = """
        import resource
        c = join()
        c.world.allreduce([1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for number in range(20):
            if c.rank == number % 3:
                time.sleep(0.01)  # so that the others sleep, and do not only poll
            assert c.world.allreduce([1]) == [3]
        say(done=True)
        c.leave()
    """
    # With shared memory a later call opens links that the first one did not need.
    with Cluster(node(lines), workers=3, env={"MUSTER_SHM": "off"}) as cluster:
        assert all(said(worker)["done"] for worker in cluster.succeed(timeout=60))


def formed_of_a_cluster_of_one():
    """The bytes of a Formed, as a real scheduler says it to a node of this test's own."""
    with Cluster(node(), workers=1, started=0) as cluster, wire.connect(cluster.port) as own:
        own.send(wire.REGISTER, wire.register(node_id="0"))
        while True:
            kind, payload = own.receive(timeout=30)
            if kind == wire.FORMED:
                return payload


@pytest.mark.parametrize(("told", "workers"), [(2, 1), (1, 2**32 - 1)])
def test_what_a_scheduler_says_of_the_cluster_is_held_against_the_nodes_own_settings(told, workers):
    payload = bytearray(formed_of_a_cluster_of_one())
    assert wire.formed(payload)["worker_num"] == 1
    payload[48:52] = workers.to_bytes(4, "little")
    assert wire.formed(payload)["worker_num"] == workers
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": "0", "MS_WORKER_NUM": told, "MS_SCHED_HOST": "127.0.0.1"}
        with Process(node(), {**env, "MS_SCHED_PORT": listener.getsockname()[1]}) as worker:
            listener.settimeout(30)
            connected, _ = listener.accept()
            with wire.Connection(connected) as scheduler:
                assert scheduler.receive(30)[0] == wire.REGISTER
                scheduler.send(wire.FORMED, bytes(payload))
                assert worker.wait(timeout=30) == 1
            words = said(worker)
            assert words["error"] == "REJECTED", words
            expected = f"the number of workers is {workers}, and this node was told {told} (MS_WORKER_NUM)"
            assert expected in words["sentence"], words


def keeps_coming(port, stop):
    """Silent connections without end: 1,500 at a time, more than the scheduler holds of those that have not registered."""
    while not stop.is_set():
        with contextlib.suppress(OSError), silent(port, 1500):
            pass


def has_come(connected):
    """Whether there is something to read."""
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


def register_by_hand(port, rank, workers):
    own = wire.connect(port, timeout=attacks.SLACK_SECONDS)
    payload = wire.register(node_id=str(rank), workers=workers, incarnation=rank.to_bytes(16, "little"))
    with contextlib.suppress(ConnectionError):  # put out: it shows when it is to hear something
        own.send(wire.REGISTER, payload)
    return own


def test_1024_nodes_of_one_address_form_while_strangers_keep_coming_from_there():
    """A node that is put out among them registers again, as the library does."""
    count = 1024
    nodes = []
    with Cluster(node(), workers=count, started=0, env={"MS_NODE_TIMEOUT": 100}) as cluster, many_descriptors():
        stop = threading.Event()
        flood = threading.Thread(target=keeps_coming, args=(cluster.port, stop))
        flood.start()
        try:
            nodes += [register_by_hand(cluster.port, rank, count) for rank in range(count)]
            waiting, deadline = set(range(count)), time.monotonic() + 120
            while waiting:
                assert time.monotonic() < deadline, f"{len(waiting)} nodes have not joined"
                for rank in list(waiting):
                    if not is_open(nodes[rank].socket):
                        nodes[rank].socket.close()
                        nodes[rank] = register_by_hand(cluster.port, rank, count)
                    elif has_come(nodes[rank].socket):
                        kind, payload = nodes[rank].receive(timeout=attacks.SLACK_SECONDS)
                        assert kind == wire.FORMED, (rank, kind, payload[:100])
                        assert wire.formed(payload)["rank"] == rank
                        waiting.remove(rank)
                time.sleep(0.02)  # the scheduler is to have the processor, too
        finally:
            stop.set()
            flood.join()
            for own in nodes:
                own.socket.close()
