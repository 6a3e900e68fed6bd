"""The store of real processes: waiting by push, operations that are atomic, limits in words, large values in the background."""

import signal
import time

import pytest

import wire
from cluster import Cluster, Process
from nodes import alone_fails_at_once, await_joined, node, said
from proxy import TO_NODE, TO_SCHEDULER, Proxy

HEARTBEATS = (wire.HEARTBEAT, wire.HEARTBEAT_ECHO)
SLACK_SECONDS = 2.0


def test_a_get_that_waits_5_s_causes_no_traffic_but_heartbeats(tmp_path):
    waits = "c = join(); say(value=c.store_get('late', 60000).decode(), at=time.monotonic()); c.leave()"
    sets = "c = join(); hold('go'); say(set_at=time.monotonic()); c.store_set('late', b'here'); c.leave()"
    with Cluster(node(sets), workers=2, started=0, env={"HOLD_FOLDER": tmp_path}) as cluster:
        with Proxy(cluster.port) as proxy:
            waiter = cluster.start_worker(program=node(waits), env={"MS_SCHED_PORT": proxy.port})
            setter = cluster.start_worker()
            proxy.wait_for(lambda: proxy.count(TO_SCHEDULER, wire.STORE_BEGIN) == 1, timeout=30)
            began = time.monotonic()
            time.sleep(5.0)  # what is tested is what happens meanwhile
            waited = time.monotonic() - began
            during = [frame for frame in proxy.frames() if frame.at > began]
            (tmp_path / "go").touch()
            cluster.succeed(timeout=30)
            # One heartbeat a second, each with its echo, and nothing else.
            assert {frame.kind for frame in during} == set(HEARTBEATS), during
            for direction, kind in ((TO_SCHEDULER, wire.HEARTBEAT), (TO_NODE, wire.HEARTBEAT_ECHO)):
                count = sum((frame.direction, frame.kind) == (direction, kind) for frame in during)
                assert waited - 2 <= count <= waited + 1, (direction, count)
            # In all: asked once, answered once, with one piece.
            assert proxy.count(TO_SCHEDULER, wire.STORE_BEGIN) == 1
            assert proxy.count(TO_NODE, wire.STORE_REPLY) == 1
            assert [frame.length for frame in proxy.frames(None, wire.STORE_PIECE)] == [8 + 4 + len("here")]
            assert proxy.count(None, wire.STORE_CANCEL) == 0
        assert said(waiter)["value"] == "here"
        assert said(waiter)["at"] - said(setter)["set_at"] < SLACK_SECONDS, "it is told at once"


def test_values_of_16_mib_do_not_delay_heartbeats():
    """Over a slow link, on which one value takes several heartbeat intervals: they pass between its pieces."""
    lines = """
        c = join()
        if c.rank == 0:
            value = bytes(range(256)) * (16 * 4096)
            c.store_set("large", value)
            say(same=c.store_get("large") == value, size=len(value))
        c.universe.barrier()
        c.leave()
    """
    with Cluster(node(lines), workers=2, started=0, env={"MS_NODE_TIMEOUT": 2}) as cluster:
        with Proxy(cluster.port, bytes_per_second=8 << 20) as proxy:
            cluster.start_worker(env={"MS_SCHED_PORT": proxy.port})
            cluster.start_worker()
            cluster.succeed(timeout=60)
            assert said(cluster.workers[0]) | {"same": True, "size": 16 << 20} == said(cluster.workers[0])
            for direction, heartbeat in ((TO_SCHEDULER, wire.HEARTBEAT), (TO_NODE, wire.HEARTBEAT_ECHO)):
                frames = proxy.frames(direction)
                pieces = [at for at, frame in enumerate(frames) if frame.kind == wire.STORE_PIECE]
                assert len(pieces) == 256, direction
                between = [frame for frame in frames[pieces[0] : pieces[-1]] if frame.kind == heartbeat]
                assert len(between) >= 3, (direction, len(between))


def test_adds_from_many_processes_lose_nothing():
    lines = """
        c = join()
        c.universe.barrier()
        totals = [c.store_add("count", 1) for _ in range(200)]
        c.universe.barrier()
        say(totals=totals, end=c.store_add("count", 0), text=c.store_get("count").decode())
        c.universe.barrier()
        c.leave()
    """
    with Cluster(node(lines), workers=3, servers=1) as cluster:
        cluster.succeed(timeout=60)
        words = [said(process) for process in [*cluster.workers, *cluster.servers]]
        assert sorted(total for each in words for total in each["totals"]) == list(range(1, 801))
        assert {(each["end"], each["text"]) for each in words} == {(800, "800")}


def test_compare_and_set_lets_one_win_each_round():
    """Everybody counts on from what it has seen, under its own name: no number is given out twice, none is lost."""
    lines = """
        c = join()
        c.world.barrier()
        won, seen = [], b""
        while len(won) < 25:
            mine = f"{int(seen.split()[0]) + 1 if seen else 1} {c.rank}".encode()
            seen = c.store_compare_set("n", seen, mine)
            if seen == mine:
                won.append(int(mine.split()[0]))
        c.world.barrier()
        say(won=won, end=int(c.store_get("n").split()[0]))
        c.world.barrier()
        c.leave()
    """
    with Cluster(node(lines), workers=3) as cluster:
        words = [said(worker) for worker in cluster.succeed(timeout=60)]
        assert sorted(number for each in words for number in each["won"]) == list(range(1, 76))
        assert {each["end"] for each in words} == {75}


def test_waiting_for_several_keys_ends_with_the_last(tmp_path):
    waits = "c = join(); c.store_wait(['a', 'b', 'c'], 60000); say(at=time.monotonic()); c.leave()"
    sets = """
        c = join()
        for key in "bca":
            hold(key)
            say(set_at=time.monotonic())
            c.store_set(key, b"")
            say(**{key: True})
        c.leave()
    """
    with Cluster(node(waits), workers=3, started=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        setter = cluster.start_worker(program=node(sets))
        for key in "bca":
            assert all("at" not in said(worker) for worker in cluster.workers[:2])
            (tmp_path / key).touch()
            setter.wait_for(f'"{key}"', timeout=30)
        cluster.succeed(timeout=30)
        for worker in cluster.workers[:2]:
            assert 0 <= said(worker)["at"] - said(setter)["set_at"] < SLACK_SECONDS


def test_what_is_not_there():
    lines = """
        c = join()
        say(once=fails(c.store_get, "k", 0), waited=fails(c.store_get, "k", 300), keys=fails(c.store_wait, ["j", "k"], 300),
            deleted=c.store_delete("k"))
        c.store_set("k", b"1")
        c.store_set("empty", b"")
        say(gone=[c.store_delete("k"), c.store_delete("k")], again=fails(c.store_get, "k", 0), empty=len(c.store_get("empty")),
            number=fails(c.store_add, "empty", 1))
        c.leave()
    """
    with Process(node(lines)) as alone:
        assert alone.wait(timeout=30) == 0
        words = said(alone)
        assert words["once"]["error"] == "NOT_FOUND" and '"k"' in words["once"]["sentence"]
        assert words["once"]["after"] < 0.3
        for waited, key in (("waited", '"k"'), ("keys", '"j"')):
            assert words[waited]["error"] == "TIMEOUT" and key in words[waited]["sentence"], words
            assert "0.3 s" in words[waited]["sentence"] and 0.3 <= words[waited]["after"] < SLACK_SECONDS, words
        assert words["deleted"] is False and words["gone"] == [True, False] and words["empty"] == 0
        assert words["again"]["error"] == "NOT_FOUND"
        assert words["number"]["error"] == "INVALID" and '"empty"' in words["number"]["sentence"], words


def test_limits_are_named_and_nothing_is_lost_by_meeting_them():
    lines = """
        c = join()
        key = "k" * 4096
        c.store_set(key, b"x")
        say(key=fails(c.store_set, key + "k", b"x"), value=fails(c.store_set, "v", bytes((16 << 20) + 1)),
            none=fails(c.store_set, "", b"x"))
        c.store_set("v", bytes(range(256)))
        say(same=c.store_get("v") == bytes(range(256)), long=c.store_get(key).decode())
        c.leave()
    """
    with Process(node(lines)) as alone:
        assert alone.wait(timeout=30) == 0
        words = said(alone)
        assert words["key"]["error"] == words["value"]["error"] == "LIMIT"
        assert "4097" in words["key"]["sentence"] and "4096" in words["key"]["sentence"], words["key"]
        assert "16777217" in words["value"]["sentence"] and "16777216" in words["value"]["sentence"], words["value"]
        assert "store_key_limit" in words["key"]["sentence"] and "store_value_limit" in words["value"]["sentence"], words
        assert words["none"]["error"] == "INVALID"
        assert words["same"] is True and words["long"] == "x"


def test_limits_are_settings_of_the_scheduler():
    lines = """
        c = join()
        c.store_set("0123456789", bytes(100))
        say(key=fails(c.store_set, "0123456789a", b""), value=fails(c.store_set, "v", bytes(101)))
        for i in range(9):
            c.store_set(f"key {i}", bytes(100))
        say(total=fails(c.store_set, "one more", bytes(100)))
        c.store_delete("key 0")
        c.store_set("one more", bytes(100))
        c.leave()
    """
    limits = {"MUSTER_STORE_KEY_LIMIT": 10, "MUSTER_STORE_VALUE_LIMIT": 100, "MUSTER_STORE_TOTAL_LIMIT": 1070}
    with Cluster(node(lines), workers=1, started=0, scheduler=False) as cluster:
        cluster.start_scheduler(env=limits)
        cluster.start_worker()
        worker, = cluster.succeed(timeout=30)
        words = said(worker)
        for what, parts in {"key": ("11", "10"), "value": ("101", "100"), "total": ("1055", "1070")}.items():
            assert words[what]["error"] == "LIMIT", words[what]
            for part in parts:
                assert part in words[what]["sentence"], words[what]
    bad = {"MUSTER_STORE_VALUE_LIMIT": "16M"}
    alone_fails_at_once(bad, "CONFIG", "MUSTER_STORE_VALUE_LIMIT", '"16M"')


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_without_the_scheduler_the_store_says_so_in_time(fate, tmp_path):
    lines = """
        c = join()
        hold("away")
        say(told=fails(c.store_get, "k", 1500))
        c.leave()
    """
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 0.5, "MUSTER_FINALIZE_TIMEOUT": 0.5}
    with Cluster(node(lines), workers=1, env=env) as cluster:
        await_joined(*cluster.workers)
        cluster.scheduler.signal(fate)
        (tmp_path / "away").touch()
        worker, = cluster.workers
        assert worker.wait(timeout=30) == 0
        told = said(worker)["told"]
        assert told["error"] == "UNREACHABLE" and "scheduler" in told["sentence"] and '"k"' in told["sentence"], told
        assert told["after"] < 1.5 + SLACK_SECONDS


def test_of_a_scheduler_that_is_silent_nobody_hears_which_keys_are_missing(tmp_path):
    lines = """
        c = join()
        hold("silent")
        say(one=fails(c.store_get, "k", 300), several=fails(c.store_wait, ["j", "k"], 300))
        hold("it goes on")
        say(again=fails(c.store_wait, ["j", "k"], 300)["sentence"])
        c.leave()
    """
    # So long a time-out that a scheduler which is stopped for a second does not count as away.
    with Cluster(node(lines), workers=1, env={"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 60}) as cluster:
        await_joined(*cluster.workers)
        cluster.scheduler.signal(signal.SIGSTOP)
        (tmp_path / "silent").touch()
        worker, = cluster.workers
        worker.wait_for('"several"', timeout=30)
        cluster.scheduler.signal(signal.SIGCONT)
        (tmp_path / "it goes on").touch()
        cluster.succeed(timeout=30)
        words = said(worker)
    assert words["one"]["error"] == words["several"]["error"] == "TIMEOUT", words
    assert words["one"]["sentence"].endswith("nobody has set it within 0.3 s, as far as this node has heard"), words
    assert "store wait for 2 keys: the scheduler has not answered within 0.3 s" in words["several"]["sentence"], words
    assert 0.3 <= words["several"]["after"] < 0.55 + SLACK_SECONDS, words
    assert 'nobody has set "j", "k" within 0.3 s' in words["again"], words


def test_a_connection_that_breaks_loses_no_request_and_repeats_none():
    """The link to the scheduler is cut again and again, while requests are under way: each is carried out once."""
    lines = """
        c = join()
        totals = [c.store_add("count", 1) for _ in range(300)]
        say(totals=totals)
        c.leave()
    """
    with Cluster(node(lines), workers=1, started=0, env={"MS_NODE_TIMEOUT": 2}) as cluster:
        with Proxy(cluster.port) as proxy:
            proxy.cut_at(TO_SCHEDULER, wire.STORE_BEGIN, 60, 120, 180)
            worker = cluster.start_worker(env={"MS_SCHED_PORT": proxy.port})
            cluster.succeed(timeout=60)
            assert said(worker)["totals"] == list(range(1, 301))
            assert proxy.count(TO_SCHEDULER, wire.REGISTER) == 4


def test_a_node_that_speaks_by_the_page_of_the_protocol_uses_keys_with_zeros():
    """The second implementation asks for each operation that takes several keys, or none."""
    with Cluster(node("join().leave()"), workers=1, started=0) as cluster, wire.connect(cluster.port) as member:
        member.send(wire.REGISTER, wire.register(node_id="0", workers=1, host=("by-hand", "by-hand")))
        assert member.receive(timeout=30)[0] == wire.FORMED

        def ask(request, operation, *keys, value=b""):
            """Status, number and value of the answer."""
            member.send(wire.STORE_BEGIN, wire.store_begin(request, operation, *keys, value_bytes=len(value)))
            if value:
                member.send(wire.STORE_PIECE, wire.store_piece(request, value))
            kind, payload = member.receive(timeout=30)
            assert kind == wire.STORE_REPLY and wire.store_reply(payload)[0] == request
            number, _, awaited = wire.store_numbers(payload)
            found = b""
            while len(found) < awaited:
                kind, piece = member.receive(timeout=30)
                assert kind == wire.STORE_PIECE and wire.store_bytes(piece)[0] == request
                found += wire.store_bytes(piece)[1]
            return wire.store_reply(payload)[1], number, found

        keys = [b"k\0l", b"k\0m", b"z"]
        assert ask(1, wire.STORE_MULTI_SET, *keys, value=wire.parts(b"one", b"", b"three")) == (0, 0, b"")
        assert ask(2, wire.STORE_APPEND, b"k\0m", value=b"two") == (0, 3, b"")
        assert ask(3, wire.STORE_MULTI_GET, *keys) == (0, 0, wire.parts(b"one", b"two", b"three"))
        assert ask(4, wire.STORE_CHECK, b"k", b"z", b"k\0l") == (0, 0, bytes([0, 1, 1]))
        assert ask(5, wire.STORE_COUNT) == (0, 3, b"")
        assert wire.parts_of(ask(6, wire.STORE_LIST, b"k\0", b"")[2]) == keys[:2]
        assert wire.parts_of(ask(7, wire.STORE_LIST, b"", b"k\0l")[2]) == keys[1:]
        assert ask(8, wire.STORE_TRY_MULTI_GET, b"z", b"none")[0] == wire.ERR_NOT_FOUND
        assert ask(9, wire.STORE_SET, b"", value=b"x")[0] == wire.ERR_INVALID  # no key is empty
        member.send(wire.LEAVE)
        while member.receive(timeout=30)[0] != wire.BYE:
            pass
        assert cluster.scheduler.wait(timeout=30) == 0
