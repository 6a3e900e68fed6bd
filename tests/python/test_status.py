"""`muster status`: what a live scheduler tells of its job, and what is said where none answers."""

import json
import os
import signal
import socket
import subprocess
import threading

import pytest
import wire
from cluster import MUSTER, Cluster, clean_environment, reserved_port
from launch import Launch, until
from nodes import await_joined, listening_ports, node, said

LIMIT = 60
ABSENT = """
c = join()
c.world.barrier()
if c.rank == 2:
    hold("allreduce")
c.world.allreduce([1])
c.leave()
"""
RECOVERING = """
c = join()
if c.restarts == 0:
    c.world.barrier()
    say(stands=True)
    hold("lost")
    if c.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    say(failed=fails(c.world.barrier)["error"])
    c.recover(60_000)
c.world.barrier()
hold("leave")
c.leave()
"""


def status(*words, env=None, timeout=LIMIT):
    """Runs it: exit code and what it wrote."""
    settings = {"env": clean_environment(env), "stdin": subprocess.DEVNULL, "timeout": timeout}
    return subprocess.run([MUSTER, "status", *words], capture_output=True, text=True, **settings)


def told(port, env=None):
    """What the scheduler on this port tells."""
    ended = status("--format=json", "--timeout=30", f"--sched_port={port}", env=env)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def until_told(port, condition, what, env=None):
    last = {}

    def asked():
        last.update(told(port, env))
        return dict(last) if condition(last) else None

    try:
        return until(asked, LIMIT, what)
    except AssertionError:
        print(json.dumps(last, indent=1))
        raise


def await_standing(*processes):
    """All have passed the barrier, so that a loss ends nobody's."""
    for process in processes:
        process.wait_for('"stands"', LIMIT)


def states(answer):
    return {row["rank"]: row["state"] for row in answer["nodes"]}


def no_strangers(scheduler):
    assert "stranger" not in scheduler.stderr


# A live scheduler


def test_a_cluster_that_forms_says_who_is_missing():
    env = {"MUSTER_JOB_ID": "train"}
    with Cluster(node(), workers=3, started=0, env=env) as cluster:
        cluster.start_worker()
        cluster.start_worker({"MS_NODE_ID": 2})
        answer = until_told(cluster.port, lambda answer: len(answer["nodes"]) == 2, "two have come")
        assert (answer["phase"], answer["epoch"], answer["job_id"], answer["failure"]) == ("forming", 0, "train", None)
        assert "2 of 3 workers have come; missing: rank 1; those that came: 2 from host " in answer["words"]
        assert {(row["rank"], row["pid"], row["state"]) for row in answer["nodes"]} == {
            (0, cluster.workers[0].pid, "member"),
            (2, cluster.workers[1].pid, "member"),
        }
        shown = status(env={"MS_SCHED_HOST": "localhost", "MS_SCHED_PORT": cluster.port})
        assert shown.returncode == 0
        assert f'job {answer["job"]} "train": forming: since ' in shown.stdout and "no epoch yet" in shown.stdout
        cluster.start_worker({"MS_NODE_ID": 1})
        cluster.succeed(LIMIT)
        no_strangers(cluster.scheduler)


def test_a_rank_that_is_absent_from_an_allreduce_is_named_while_the_others_wait(tmp_path):
    with Cluster(node(ABSENT), workers=4, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        answer = until_told(cluster.port, lambda answer: answer["groups"] and answer["groups"][0]["inside"] == 3, "waits")
        assert (answer["phase"], answer["words"], answer["epoch"]) == ("running", "4 workers", 1)
        group, = answer["groups"]
        assert (group["group"], group["collective"], group["sequence"], group["absent"]) == ("world", "allreduce", 2, 1)
        member, = group["members"]
        pid = cluster.workers[2].pid
        assert (member["rank"], member["pid"], member["state"]) == (2, pid, "outside")
        assert (member["collective"], member["sequence"]) == ("barrier", 1)
        calls = {row["rank"]: [(call["collective"], call["sequence"]) for call in row["calls"]] for row in answer["nodes"]}
        assert calls == {0: [("allreduce", 2)], 1: [("allreduce", 2)], 2: [], 3: [("allreduce", 2)]}
        later = until_told(cluster.port, lambda later: later["groups"][0]["age_ms"] > group["age_ms"], "time passes")
        assert later["groups"][0]["members"][0]["age_ms"] > member["age_ms"]

        shown = status(f"--sched-port={cluster.port}").stdout
        assert "\nallreduce #2 on world: 3 ranks wait since " in shown
        assert '; rank 2 (node id "2", host ' in shown
        assert f", pid {pid}) never entered it: its last was barrier #1, entered " in shown
        (tmp_path / "allreduce").touch()
        cluster.succeed(LIMIT)
        no_strangers(cluster.scheduler)


def test_a_rank_that_waits_for_a_message_says_so(tmp_path):
    lines = """
        c = join()
        if c.rank == 1:
            c.world.receive(1, 0, tag=7)
        hold("go")
        if c.rank == 0:
            c.world.send(b"a", 1, tag=7)
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        answer = until_told(cluster.port, lambda answer: any(row["messages"] for row in answer["nodes"]), "waits")
        waits = {row["rank"]: row["messages"] for row in answer["nodes"]}
        assert waits[0] == waits[2] == [], waits
        wait, = waits[1]
        assert wait.pop("age_ms") >= 300
        assert wait == {"group": "world", "operation": "recv", "peer": 0, "tag": 7}
        assert "  recv from rank 0, tag 7, on world since " in status(f"--sched-port={cluster.port}").stdout
        (tmp_path / "go").touch()
        cluster.workers[1].wait(LIMIT)
        cluster.succeed(LIMIT)


def test_a_message_whose_time_is_up_says_where_its_peer_is(tmp_path):
    lines = """
        c = join()
        c.world.barrier()
        if c.rank == 0:
            c.world.receive(1, 2, tag=3)
        if c.rank == 1:
            c.world.set_timeout(1500)
            say(waits=fails(c.world.receive, 1, 0, 7), idles=fails(c.world.receive, 1, 2, 7), own=fails(c.world.receive, 1, 1, 7))
        hold("go")
        if c.rank == 2:
            c.world.send(b"a", 0, tag=3)
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        cluster.workers[1].wait_for('"own"', LIMIT)
        (tmp_path / "go").touch()
        told = said(cluster.succeed(LIMIT)[1])
        late = "no such message has come within the 1.5 s that it may take"
        assert f"{late}; rank 0: it waits in recv from rank 2, tag 3, on world since " in told["waits"]["sentence"], told
        assert f"{late}; rank 2: its last was barrier #1, entered " in told["idles"]["sentence"], told
        assert told["own"]["sentence"].endswith(late), told


def test_a_rank_that_is_stopped_does_not_answer(tmp_path):
    lines = """
    c = join()
    hold("go" if c.rank < 2 else "never")
    c.world.allreduce([1])
    """
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 20}  # heartbeats come every 4 s: absent after 8 s without one
    with Cluster(node(lines), workers=3, env=env) as cluster:
        await_joined(*cluster.workers)
        cluster.workers[2].signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        answer = until_told(cluster.port, lambda answer: answer["groups"], "it should have said where it is")
        member, = answer["groups"][0]["members"]
        assert (member["rank"], member["state"]) == (2, "silent")
        assert states(answer) == {0: "member", 1: "member", 2: "member"}, "it is not lost yet"
        heard = {row["rank"]: row["heard_ms"] for row in answer["nodes"]}
        assert heard[2] > 4000 and heard[2] > max(heard[0], heard[1])
        shown = status(f"--sched_port={cluster.port}").stdout
        assert f"pid {cluster.workers[2].pid}) never entered it: it does not answer the scheduler: stopped, or" in shown


def test_a_job_that_is_broken_names_the_first_cause(tmp_path):
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 20}
    with Cluster(node('c = join(); c.world.barrier(); say(stands=True); hold("never")'), workers=3, env=env) as cluster:
        await_standing(*cluster.workers)
        cluster.workers[1].kill()
        answer = until_told(cluster.port, lambda answer: answer["failure"], "the killed one is lost")
        assert states(answer) == {0: "member", 1: "lost", 2: "member"}
        assert (answer["phase"], answer["words"]) == ("broken", "it will not be made whole again")
        failure = answer["failure"]
        assert (failure["status"], failure["culprit"]["rank"]) == ("ERR_PEER_LOST", 1)
        assert failure["culprit"]["pid"] == cluster.workers[1].pid and "its process has ended" in failure["cause"]


def recovery(tmp_path):
    return {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery", "HOLD_FOLDER": tmp_path}


def test_recovery_tells_who_waits_and_who_is_awaited(tmp_path):
    with Cluster(node(RECOVERING), workers=3, env=recovery(tmp_path)) as cluster:
        await_standing(*cluster.workers)
        (tmp_path / "lost").touch()
        recovering = {0: "recovering", 1: "lost", 2: "recovering"}
        answer = until_told(cluster.port, lambda answer: states(answer) == recovering, "survivors wait")
        assert (answer["phase"], answer["epoch"], answer["recovery"], answer["groups"]) == ("recovering", 1, True, [])
        pid = cluster.workers[1].pid
        assert answer["failure"]["culprit"]["pid"] == pid
        assert ": 2 of 3 nodes have called muster_recover; awaited: rank 1 (" in answer["words"]
        shown = status("--sched_port", str(cluster.port)).stdout
        assert f'\nfirst cause: rank 1 (node id "1", host ' in shown and f", pid {pid}) is lost: " in shown

        back = cluster.start_worker({"MS_NODE_ID": 1})
        answer = until_told(cluster.port, lambda answer: answer["epoch"] == 2, "the next epoch")
        assert (answer["phase"], answer["failure"]) == ("running", None)
        assert {row["rank"]: (row["state"], row["restarts"]) for row in answer["nodes"]} == {
            0: ("member", 0),
            1: ("member", 1),
            2: ("member", 0),
        }
        (tmp_path / "leave").touch()
        for process in (cluster.workers[0], cluster.workers[2], back, cluster.scheduler):
            assert process.wait(LIMIT) == 0


def test_a_scheduler_that_was_started_again_tells_of_the_same_job(tmp_path):
    words = ["--worker_num=2", "--master_port=0", "--join", "--max_restarts=3", "--tail_worker_log=none"]
    program = node('c = join(); c.world.barrier(); hold("leave"); c.leave()')
    with Launch(*words, *program, env=recovery(tmp_path)) as launch:
        port = int(launch.wait_for(r"the scheduler is here: \S+ port (\d+)", LIMIT)[1])
        for rank in range(2):
            launch.wait_for_log(f"worker_{rank}.log", '"joined"', LIMIT)
        runtime = {"XDG_RUNTIME_DIR": launch.runtime}
        first = told(port, runtime)
        assert (first["generation"], states(first)) == (1, {0: "member", 1: "member"})
        os.kill(launch.child("the scheduler"), signal.SIGKILL)
        launch.wait_for(r"the scheduler \(pid \d+\) was ended by signal 9", LIMIT)
        again = until_told(port, lambda answer: states(answer) == states(first), "both are attached again", runtime)
        assert (again["job"], again["generation"], again["epoch"]) == (first["job"], 2, 1)
        assert [row["pid"] for row in again["nodes"]] == [row["pid"] for row in first["nodes"]]
        assert again["phase"] == "running"
        (tmp_path / "leave").touch()
        assert launch.wait(LIMIT) == 0


def test_many_nodes_come_in_parts():
    nodes, name = 300, "x" * 240
    with Cluster(node(), workers=nodes + 1, started=0) as cluster:
        connections = []
        try:
            for number in range(nodes):
                connection = wire.connect(cluster.port)
                connections.append(connection)
                registration = wire.register(node_id=f"{name}{number}", host=(name, name), workers=nodes + 1)
                connection.send(wire.REGISTER, registration)
            answer = until_told(cluster.port, lambda answer: len(answer["nodes"]) == nodes, "all have come")
            assert {row["node_id"] for row in answer["nodes"]} == {f"{name}{number}" for number in range(nodes)}
            with wire.connect(cluster.port) as asker:
                asker.send(wire.STATUS_QUERY, wire.status_query())
                kind, part = asker.receive(LIMIT)
                assert kind == wire.STATUS_PART and 32_768 < len(part) <= 65_536
                assert part[-1] == 0, "more follows, but only when it is asked for"
                asker.socket.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    asker.socket.recv(1)
                asker.send(wire.STATUS_QUERY, wire.status_query())
                assert asker.receive(LIMIT)[0] == wire.STATUS_PART
            no_strangers(cluster.scheduler)
        finally:
            for connection in connections:
                connection.socket.close()


@pytest.mark.parametrize("payload", [wire.status_query((7, 9)), wire.status_query((7, 9)) + b"whatever that has"])
def test_an_asker_in_another_protocol_is_told_so(payload):
    with Cluster(node(), workers=2, started=1) as cluster:
        with wire.connect(cluster.port) as asker:
            asker.send(wire.STATUS_QUERY, payload)
            kind, answer = asker.receive(LIMIT)
            assert kind == wire.REJECTED
            status, reason = wire.rejected(answer)
            assert status == wire.ERR_REJECTED
            assert reason.startswith("the process that connects speaks protocol") and "7 to 9" in reason, reason
            with pytest.raises((EOFError, ConnectionError)):
                asker.receive(LIMIT)
        cluster.start_worker()
        cluster.succeed(LIMIT)


# No scheduler


def refused(port, *parts, words=(), env=None):
    ended = status(f"--sched_port={port}", *words, env=env)
    assert (ended.returncode, ended.stdout) == (4, ""), ended
    assert ended.stderr.startswith("muster status: ") and len(ended.stderr.splitlines()) == 1
    for part in (f"127.0.0.1:{port}", *parts):
        assert part in ended.stderr, ended.stderr


def test_where_nothing_listens_the_address_is_named():
    with reserved_port() as port:
        refused(port, "no scheduler answers: ", "refused")


def test_a_host_that_there_is_not():
    ended = status("--sched_host=no-such-host.invalid")
    assert ended.returncode == 4 and "no-such-host.invalid" in ended.stderr


ANSWERS = {
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", 'is not a muster scheduler: not a frame of this protocol: it begins with "HTTP"'),
    "ssh": (b"SSH-2.0-nobody\r\n", 'is not a muster scheduler: not a frame of this protocol: it begins with "SSH-"'),
    "end": (b"", "it is not a muster scheduler, or one of a version that cannot be asked"),
    "another frame": (b"MUST\x02" + bytes(19), "speaks another protocol than this command"),
    "another message": (wire.frame(wire.BYE), "is not a muster scheduler: it answers with a message of kind 9"),
    "unknown message": (wire.frame(200, b"?"), "speaks another protocol than this command"),
    "refusal": (
        wire.frame(wire.REJECTED, (-7).to_bytes(4, "little", signed=True) + wire.text("not in\x1b[2J this one")),
        "gave no status: not in\\u{1b}[2J this one",
    ),
}


@pytest.mark.parametrize("what, secret", [*((what, None) for what in ANSWERS), ("http", "s"), ("ssh", "s")])
def test_something_else_that_listens_is_told_from_a_scheduler(what, secret):
    says, said = ANSWERS[what]
    env = None if secret is None else {"MUSTER_JOB_SECRET": secret}

    def answer(listener):
        connected, _ = listener.accept()
        with connected:
            connected.settimeout(LIMIT)
            while len(question := connected.recv(100, socket.MSG_PEEK)) < 32:
                assert question
            connected.recv(100)
            connected.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        thread = threading.Thread(target=answer, args=[listener])
        thread.start()
        try:
            refused(listener.getsockname()[1], said, words=["--timeout=30"], env=env)
        finally:
            thread.join()


def test_one_that_takes_connections_and_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refused(listener.getsockname()[1], "did not answer within 0.3 s", words=["--timeout=0.3"])


def test_a_nodes_own_port_is_no_schedulers(tmp_path):
    with Cluster(node(ABSENT), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        port, = listening_ports(cluster.workers[1].pid)
        refused(port, "it is not a muster scheduler", words=["--timeout=30"])
        (tmp_path / "allreduce").touch()
        cluster.succeed(LIMIT)


# The command line


@pytest.mark.parametrize(
    "words, env, said",
    [
        (["--sched_prot=1"], {}, "did you mean --sched_port?"),
        (["--format=xml"], {}, '--format is "xml"'),
        (["--timeout=0"], {}, '--timeout is "0"'),
        ([], {"MS_SCHED_PORT": "80x"}, 'MS_SCHED_PORT is "80x"'),
        (["here"], {}, '"here" is not expected'),
    ],
)
def test_a_wrong_command_line_is_explained(words, env, said):
    ended = status(*words, env=env)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr, ended.stderr


def test_help_is_given():
    ended = status("--help")
    assert ended.returncode == 0 and "Exit code: 0 a scheduler has answered" in ended.stdout
    everything = subprocess.run([MUSTER, "--help"], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert "muster status [options]" in everything.stdout


def test_a_reader_that_closes_the_pipe_early_is_no_error(tmp_path):
    with Cluster(node(ABSENT), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as out:
            command = [MUSTER, "status", f"--sched_port={cluster.port}", "--timeout=30"]
            ended = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=clean_environment(), timeout=LIMIT)
        assert (ended.returncode, ended.stderr) == (0, b"")
        (tmp_path / "allreduce").touch()
        cluster.succeed(LIMIT)
