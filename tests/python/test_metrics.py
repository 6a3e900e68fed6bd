"""`muster status --format prometheus`, `--watch` and `--output`: what Prometheus' own parser reads of a live job, and when it ends."""

import json
import os
import pty
import re
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster import MUSTER, TREE, Cluster, Process, clean_environment, reserved_port
from launch import until
from nodes import await_joined, node
from pages import Page, paste
from test_status import await_standing, status, until_told

LIMIT = 60
ODD = 'a "b" \\ c'
STATUS, FILE = Page("docs", "monitoring.md").commands
SERVED = """
c = join()
if c.role == "worker":
    c.world.barrier()
if c.rank == 2 or c.role == "server":
    hold("allreduce")
if c.role == "worker":
    c.world.allreduce([1])
c.leave()
"""
HOLDS = 'c = join(); c.world.barrier(); say(stands=True); hold("leave"); c.leave()'


def read(text):
    """Each metric's samples by its name: labels and value. Each name is told of once, and each sample too."""
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    keys = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
    assert len(set(keys)) == len(keys)
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    told = {}
    for sample in samples:
        told.setdefault(sample.name, []).append((sample.labels, sample.value))
    return told


def metrics(port):
    ended = status("--format=prometheus", "--timeout=30", f"--sched_port={port}")
    assert ended.returncode == 0, ended.stderr
    return read(ended.stdout)


def value(told, name, **labels):
    found, = (number for has, number in told[name] if labels.items() <= has.items())
    return found


def test_what_prometheus_reads_of_a_job_in_which_one_is_awaited(tmp_path):
    with Cluster(node(SERVED), workers=3, servers=1, env={"HOLD_FOLDER": tmp_path, "MUSTER_JOB_ID": ODD}) as cluster:
        await_joined(*cluster.workers)
        until_told(cluster.port, lambda answer: answer["groups"] and answer["groups"][0]["inside"] == 2, "waits")
        told = metrics(cluster.port)
        assert value(told, "muster_scheduler_up") == value(told, "muster_job_info", job_id=ODD) == 1
        assert {has["phase"]: number for has, number in told["muster_job_phase"] if number} == {"running": 1}
        assert value(told, "muster_nodes", role="worker", state="member") == 3
        assert value(told, "muster_nodes", role="server", state="member") == 1
        assert value(told, "muster_node_info", rank="2", role="worker", pid=str(cluster.workers[2].pid)) == 1
        assert value(told, "muster_node_restarts_total", rank="0", role="worker") == 0
        waits = {"group": "world", "collective": "allreduce"}
        assert value(told, "muster_group_waiting_members", **waits) == 2
        assert value(told, "muster_group_absent_members", **waits) == 1
        assert value(told, "muster_group_absent_seconds", rank="2", state="outside", group="world") > 0
        assert {has["rank"] for has, _ in told["muster_node_collective_seconds"] if has["role"] == "worker"} == {"0", "1"}
        assert "muster_job_failure_info" not in told and value(told, "muster_job_failed") == 0
        page = (TREE / "docs" / "monitoring.md").read_text()
        assert sorted(set(told) - set(re.findall(r"`(muster_\w+)`", page))) == []
        (tmp_path / "allreduce").touch()
        for process in (*cluster.workers, cluster.scheduler):
            process.wait(LIMIT)


def test_nodes_without_a_rank_and_with_odd_names_are_told_apart():
    with Cluster(node(), workers=3, started=0, numbered=False) as cluster:
        for name in (ODD, "other"):
            cluster.start_worker({"MS_NODE_ID": name})
        until_told(cluster.port, lambda answer: len(answer["nodes"]) == 2, "two have come")
        told = metrics(cluster.port)
        assert {has["node_id"] for has, _ in told["muster_node_info"]} == {ODD, "other"}
        assert {has["phase"]: number for has, number in told["muster_job_phase"] if number} == {"forming": 1}


def test_a_broken_job_names_its_first_cause(tmp_path):
    env = {"HOLD_FOLDER": tmp_path, "MS_NODE_TIMEOUT": 20}
    with Cluster(node(HOLDS), workers=3, env=env) as cluster:
        await_standing(*cluster.workers)
        cluster.workers[1].kill()
        until_told(cluster.port, lambda answer: answer["failure"], "the killed one is lost")
        told = metrics(cluster.port)
        assert value(told, "muster_job_failed") == value(told, "muster_job_failure_info", status="ERR_PEER_LOST", rank="1") == 1
        assert value(told, "muster_nodes", role="worker", state="lost") == 1


def test_where_nobody_answers_that_is_what_is_told():
    with reserved_port() as port:
        ended = status("--format=prometheus", f"--sched_port={port}")
        assert (ended.returncode, read(ended.stdout)) == (4, {"muster_scheduler_up": [({}, 0.0)]})
        assert "no scheduler answers" in ended.stderr


def watching(port, *words):
    return Process([MUSTER, "status", f"--sched_port={port}", "--timeout=30", *words], name="watch")


def test_a_watch_asks_again_and_ends_with_its_job(tmp_path):
    with Cluster(node(HOLDS), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_standing(*cluster.workers)
        with watching(cluster.port, "--watch=0.05", "--format=json") as watch:
            until(lambda: watch.stdout.count("\n") >= 3, LIMIT, "three answers")
            (tmp_path / "leave").touch()
            cluster.succeed(LIMIT)
            assert watch.wait(LIMIT) == 0
            answers = [json.loads(line) for line in watch.stdout.splitlines()]
            assert answers[0]["age_ms"] < answers[1]["age_ms"] < answers[2]["age_ms"]
            assert "muster status: the job has ended, or its scheduler: " in watch.stderr


def test_a_file_is_whole_whenever_it_is_read_and_tells_of_the_end(tmp_path):
    file = tmp_path / "muster.prom"
    with Cluster(node(HOLDS), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_standing(*cluster.workers)
        with watching(cluster.port, "--watch=0.01", "--format=prometheus", f"--output={file}") as watch:
            until(file.exists, LIMIT, "a file")
            ages = {value(read(file.read_text()), "muster_scheduler_uptime_seconds")}
            until(lambda: ages.add(value(read(file.read_text()), "muster_scheduler_uptime_seconds")) or len(ages) > 5, LIMIT, "new ones")
            (tmp_path / "leave").touch()
            cluster.succeed(LIMIT)
            assert watch.wait(LIMIT) == 0
        assert read(file.read_text()) == {"muster_scheduler_up": [({}, 0.0)]}
        assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["muster.prom"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with Cluster(node(HOLDS), workers=1, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_standing(*cluster.workers)
        ended = status(f"--sched_port={cluster.port}", f"--output={tmp_path}/no/file")
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith(f"muster status: --output {tmp_path}/no/file: No such file"), ended.stderr
        (tmp_path / "leave").touch()
        cluster.succeed(LIMIT)


def test_a_terminal_shows_the_newest_answer_only(tmp_path):
    with Cluster(node(HOLDS), workers=1, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_standing(*cluster.workers)
        terminal, its_end = pty.openpty()
        words = [MUSTER, "status", f"--sched_port={cluster.port}", "--timeout=30", "--watch=0.05"]
        with subprocess.Popen(words, stdout=its_end, stderr=subprocess.DEVNULL, env=clean_environment()) as watch:
            os.close(its_end)
            shown = b""
            while shown.count(b"\x1b[H\x1b[2Jjob ") < 3:
                shown += os.read(terminal, 4096)
            watch.kill()
        os.close(terminal)
        (tmp_path / "leave").touch()
        cluster.succeed(LIMIT)


def test_the_commands_of_the_page(tmp_path):
    with Cluster(node(HOLDS), workers=2, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_standing(*cluster.workers)
        path = f"export PATH={MUSTER.parent}:$PATH\n"
        with paste(path + STATUS, tmp_path, cluster.port) as shell:
            assert shell.wait(LIMIT) == 0, shell.describe()
            assert ": running: 2 workers\n" in shell.stdout and "muster_scheduler_up 1\n" in shell.stdout
        file = FILE.replace("15", "0.05").replace("/var/lib/node_exporter", str(tmp_path))  # whose name may have a 15
        with paste(path + file, tmp_path, cluster.port) as shell:
            until((tmp_path / "muster.prom").exists, LIMIT, "a file")
            (tmp_path / "leave").touch()
            cluster.succeed(LIMIT)
            assert shell.wait(LIMIT) == 0, shell.describe()
        assert (tmp_path / "muster.prom").read_text().endswith("muster_scheduler_up 0\n")


@pytest.mark.parametrize("words, said", [("--watch=0", '--watch is "0"; it must be seconds from 0.001 to 86400'), ("--watch", "--watch needs a value")])
def test_a_wrong_watch_is_explained(words, said):
    ended = status(*words.split())
    assert (ended.returncode, ended.stdout) == (2, "") and said in ended.stderr
