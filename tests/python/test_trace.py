"""MUSTER_TRACE and `muster trace merge`: what ranks have recorded, even a killed one, which was late, and what is refused."""

import json
import os
import re
import signal
import subprocess

import pytest

from cluster import MUSTER, Cluster, Process, clean_environment
from launch import until
from nodes import alone_fails_at_once, await_joined, node
from pages import Page, paste, prepare
from test_status import until_told

LIMIT = 60
PAGE = Page("docs", "tracing.md")
COMMANDS, = PAGE.commands
TABLE, = PAGE.outputs
LATE = """
c = join()
c.world.barrier()
if c.rank == 2:
    hold("late")
c.world.allreduce([1, 2, 3])
c.leave()
"""


def merge(folder, *words):
    settings = {"env": clean_environment(), "stdin": subprocess.DEVNULL, "timeout": LIMIT}
    return subprocess.run([MUSTER, "trace", "merge", folder, *words], capture_output=True, text=True, **settings)


def merged(folder):
    """What the command says, and the events that it wrote."""
    ended = merge(folder)
    assert ended.returncode == 0, ended.stderr
    file, = (path for path in folder.iterdir() if re.fullmatch(r"[0-9a-f]{8}\.json", path.name))
    return ended.stdout, json.loads(file.read_text())


def spans(events, category, name=""):
    """The bars of this kind, by the row in which they lie."""
    return {event["pid"]: event for event in events if event.get("cat") == category and event["name"].startswith(name)}


def test_a_rank_that_is_late_is_told_and_all_times_are_on_one_clock(tmp_path):
    traces = tmp_path / "traces"
    with Cluster(node(LATE), workers=4, env={"HOLD_FOLDER": tmp_path, "MUSTER_TRACE": traces}) as cluster:
        await_joined(*cluster.workers)
        until_told(cluster.port, lambda answer: answer["groups"] and answer["groups"][0]["inside"] == 3, "three wait")
        (tmp_path / "late").touch()
        cluster.succeed(LIMIT)
    said, events = merged(traces)
    calls, waits = spans(events, "collective", "allreduce"), spans(events, "wait", "waits for worker 2")
    assert set(calls) == {0, 1, 2, 3} and set(waits) == {0, 1, 3}
    came = calls[2]["ts"]
    for rank, wait in waits.items():
        about = calls[rank]["args"]
        assert (about["waited_for"], about["rank"], about["sequence"], about["ok"]) == ("worker 2", rank, 2, True)
        assert (about["bytes"], about["count"], about["dtype"], about["op"]) == (24, 3, "int64", "sum")
        assert calls[rank]["ts"] == wait["ts"] and wait["ts"] + wait["dur"] == pytest.approx(came, abs=0.01)
        assert wait["dur"] <= calls[rank]["dur"] + 0.01 and about["called"] <= calls[rank]["ts"] <= came
    assert all(came <= call["ts"] + call["dur"] for call in calls.values()), "nobody has left before the last came"
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {"world"}
    rows = {line.split("  ")[0]: line.split() for line in said.splitlines() if line.startswith("worker ")}
    assert max(rows, key=lambda name: float(rows[name][-2])) == "worker 2"
    names = [path.name.split(".", 1)[1] for path in sorted(traces.glob("*.worker_*"))]
    assert names == [f"worker_{rank}.0.json" for rank in range(4)]


def test_the_file_of_a_rank_that_was_killed_is_taken_as_far_as_it_goes(tmp_path):
    lines = """
        c = join()
        for _ in range(20):
            c.world.barrier()
        hold("killed")
        fails(c.world.barrier)
        c.leave()
    """
    traces = tmp_path / "traces"
    with Cluster(node(lines), workers=2, env={"HOLD_FOLDER": tmp_path, "MUSTER_TRACE": traces}) as cluster:
        def written():
            return sum(path.read_text().count('"name":"barrier"') for path in traces.glob("*.worker_1.0.json"))

        until(lambda: written() == 20, LIMIT, "all are in the file")
        cluster.workers[1].kill()
        file, = traces.glob("*.worker_1.0.json")
        file.write_text(file.read_text()[:-20])  # as if in the middle of a line
        (tmp_path / "killed").touch()
        assert cluster.workers[0].wait(LIMIT) == 0
    said, events = merged(traces)
    rows = [event["pid"] for event in events if event.get("cat") == "collective"]
    assert rows.count(0) >= 20 and rows.count(1) == 19, "the last one is a part; rank 0 may have begun one more"
    assert "worker 1 has not ended in order: it was killed, ended without muster_finalize, could not write its trace, or still runs\n" in said


def test_a_rank_that_is_killed_at_once_is_in_the_table_and_a_file_without_its_head_is_named(tmp_path):
    lines = """
        c = join()
        if c.rank == 1:
            c.store_wait(["0", "2"], 30_000)
            hold("written")
            os.kill(os.getpid(), signal.SIGKILL)
        c.store_set(str(c.rank), b"has joined")
        fails(c.world.barrier)
        c.leave()
    """
    traces = tmp_path / "traces"
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path, "MUSTER_TRACE": traces}) as cluster:
        # A thread writes the first line. On a busy machine it may run later than the call that returned.
        until(lambda: any("\n" in path.read_text()[2:] for path in traces.glob("*.worker_1.0.json")), LIMIT, "the head is in the file")
        (tmp_path / "written").touch()
        assert [worker.wait(LIMIT) for worker in cluster.workers] == [0, -signal.SIGKILL, 0]
    said, _ = merged(traces)
    assert "worker 1 has not ended in order: it was killed, ended without muster_finalize, could not write its trace, or still runs\n" in said and "no whole first line" not in said
    file, = traces.glob("*.worker_1.0.json")
    file.write_text(file.read_text()[:40])  # as if killed in the middle of it
    said, _ = merged(traces)
    assert f"\n{file.name} has no whole first line, so its node is left out: " in said and "worker 1" not in said


def test_another_life_of_a_rank_has_a_file_of_its_own(tmp_path):
    lines = """
        c = join()
        if c.restarts == 0:
            c.world.barrier()
            hold("lost")
            if c.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            fails(c.world.barrier)
            c.recover(60_000)
        c.world.allreduce([1])
        c.leave()
    """
    traces = tmp_path / "traces"
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery", "HOLD_FOLDER": tmp_path, "MUSTER_TRACE": traces}
    with Cluster(node(lines), workers=2, env=env) as cluster:
        await_joined(*cluster.workers)
        (tmp_path / "lost").touch()
        assert cluster.workers[1].wait(LIMIT) == -signal.SIGKILL
        back = cluster.start_worker({"MS_NODE_ID": 1})
        assert (cluster.workers[0].wait(LIMIT), back.wait(LIMIT)) == (0, 0)
    assert {path.name.split(".", 1)[1] for path in traces.glob("*.worker_*")} == {"worker_0.0.json", "worker_1.0.json", "worker_1.1.json"}
    _, events = merged(traces)
    last = [event for event in events if event.get("cat") == "collective" and event["name"] == "allreduce"]
    assert {(event["pid"], event["args"]["epoch"], event["args"]["sequence"]) for event in last} == {(0, 2, 1), (1, 2, 1)}
    first, second = (event["ts"] for event in last)
    assert abs(first - second) <= max(event["dur"] for event in last), "both were in it at one time"
    assert {event["name"] for event in events if event["ph"] == "i"} >= {"epoch 1", "epoch 2"}


def test_clocks_of_two_hosts_are_brought_together_by_their_collectives(tmp_path):
    """The two are on one host and know nothing of it, so that the true distance of their clocks is known here."""
    lines = """
        c = join()
        for _ in range(200):
            c.world.allreduce([1])
        c.leave()
    """
    traces = tmp_path / "traces"
    with Cluster(node(lines), workers=2, started=0, env={"MUSTER_TRACE": traces}) as cluster:
        for rank in range(2):
            cluster.start_worker({"MS_NODE_ID": rank, "MUSTER_HOST_ID": f"host{rank}"})
        cluster.succeed(LIMIT)
    said, events = merged(traces)
    error = int(re.search(r"^2 hosts' clocks agree to (\d+) us$", said, re.M)[1])

    def zero(rank):
        """What the host's clock said when the joined trace's was 0, by this rank's times before and after they were joined."""
        file, = traces.glob(f"*.worker_{rank}.0.json")
        alone = json.loads(file.read_text())
        own = ([event for event in told if event.get("cat") == "collective" and event["pid"] == rank] for told in (alone, events))
        begun, joined = ([event["ts"] for event in told] for told in own)
        assert len(begun) == len(joined) == 200
        return alone[0]["args"]["clock_ns"] / 1000 + begun[0] - joined[0]

    assert abs(zero(0) - zero(1)) <= error + 1


def test_short_calls_of_a_cluster_of_one_are_recorded_too(tmp_path):
    lines = "c = join()\nfor _ in range(3): c.world.allreduce([1, 2])\nc.leave()"
    with Process(node(lines), {"MUSTER_TRACE": tmp_path}) as process:
        assert process.wait(LIMIT) == 0, process.describe()
    _, events = merged(tmp_path)
    assert len([event for event in events if event.get("cat") == "collective" and event["name"].startswith("allreduce")]) == 3


def test_calls_that_come_faster_than_they_are_written_are_counted(tmp_path):
    lines = """
        c = join()
        calls, until = 0, time.monotonic() + 60
        traces = pathlib.Path(os.environ["MUSTER_TRACE"])
        while not any("not recorded" in path.read_text() for path in traces.iterdir()) and time.monotonic() < until:
            for _ in range(30_000):
                c.world.barrier()
            calls += 30_000
        say(calls=calls)
        c.leave()
    """
    with Process(node(lines), {"MUSTER_TRACE": tmp_path}) as process:
        assert process.wait(2 * LIMIT) == 0, process.describe()
        calls = json.loads(process.stdout.splitlines()[-1])["calls"]
    said, events = merged(tmp_path)
    told = re.search(r"worker 0 (\d+) of its collectives were not recorded", said)
    assert told, said
    missing = int(told[1])
    written = len([event for event in events if event.get("cat") == "collective"])
    assert missing > 0 and written + missing == calls


def test_without_the_setting_nothing_is_written(tmp_path):
    with Cluster(node(), workers=1, env={"HOME": tmp_path}) as cluster:
        cluster.succeed(LIMIT)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "traces"
    alone_fails_at_once({"MUSTER_TRACE": folder}, "CONFIG", f'MUSTER_TRACE is "{folder}": expected a folder where files can be made: ')


@pytest.mark.parametrize("words, said", [
    ([], "Usage: muster trace"),
    (["split"], "there is no action"),
    (["merge"], "which folder? expected the one that MUSTER_TRACE named"),
    (["merge", "a", "--outptu=b"], "did you mean --output?"),
])
def test_a_wrong_command_line_is_explained(words, said):
    ended = subprocess.run([MUSTER, "trace", *words], capture_output=True, text=True, timeout=LIMIT)
    assert (ended.returncode, ended.stdout) == (2, "") and said in ended.stderr, ended.stderr


def test_a_trace_is_no_output_and_what_cannot_be_written_leaves_what_was_there(tmp_path):
    with Cluster(node("c = join(); c.world.barrier(); c.leave()"), workers=2, env={"MUSTER_TRACE": tmp_path}) as cluster:
        cluster.succeed(LIMIT)
    first = min(tmp_path.glob("*.worker_*"))
    before = first.read_text()
    ended = merge(tmp_path, "--output", first)
    assert ended.returncode == 1 and "worker 0: expected another file" in ended.stderr, ended
    taken = tmp_path / "taken"
    taken.mkdir()
    ended = merge(tmp_path, "--output", taken)
    assert ended.returncode == 1 and "taken" in ended.stderr, ended
    assert first.read_text() == before and not list(tmp_path.glob("taken.*"))


def test_what_is_no_trace_is_refused_by_name(tmp_path):
    ended = merge(tmp_path)
    assert ended.returncode == 1 and f"{tmp_path} has no trace: a run with MUSTER_TRACE={tmp_path} writes them" in ended.stderr
    (tmp_path / "a.worker_0.0.json").write_text("[\nhello\nworld\n")
    ended = merge(tmp_path)
    assert ended.returncode == 1 and "a.worker_0.0.json: line 2 is no event" in ended.stderr


def test_what_is_no_file_is_refused_by_name_and_nobody_waits_for_it(tmp_path):
    place = tmp_path / "a.worker_0.0.json"
    os.mkfifo(place)
    said = "a.worker_0.0.json: it is no regular file: expected a trace"
    ended = merge(tmp_path)
    assert ended.returncode == 1 and said in ended.stderr, ended
    place.unlink()
    place.symlink_to("/dev/zero")
    ended = merge(tmp_path)
    assert ended.returncode == 1 and said in ended.stderr, ended


def test_the_commands_of_the_page(tmp_path):
    hello, = Page("README.md").programs
    prepare(tmp_path, hello=hello)
    build_all, build, *_ = Page("README.md").commands
    path = build_all.splitlines(keepends=True)[-1]
    with paste(path + build.splitlines(keepends=True)[0] + COMMANDS, tmp_path, 0) as shell:
        assert shell.wait(2 * LIMIT) == 0, shell.describe()
        lines = shell.stdout.splitlines()
    assert [line for line in lines if line.startswith("NODE")] == [TABLE.splitlines()[0]]
    assert [line[:11] for line in lines if line.startswith("worker ")] == [line[:11] for line in TABLE.splitlines()[1:]]
