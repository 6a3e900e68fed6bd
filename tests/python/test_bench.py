"""`muster bench`: every collective is timed and found right, in each format, and a wrong command line is told."""

import csv
import json
import os
import pathlib
import signal
import subprocess

import pytest

from cluster import MUSTER, Process
from launch import Launch
from recovering import Recovering, lives

COLLECTIVES = ["allgather", "allreduce", "alltoall", "barrier", "broadcast", "gather", "reduce", "reduce_scatter",
               "scatter", "sendrecv"]
# On 3 ranks: all data of the operation by its size, and the share of it that a rank's link carries at least.
BANDWIDTHS = {"allgather": (3, 2 / 3), "allreduce": (1, 4 / 3), "alltoall": (3, 2 / 3), "barrier": (0, 0),
              "broadcast": (1, 1), "gather": (3, 2 / 3), "reduce": (1, 1), "reduce_scatter": (3, 2 / 3),
              "scatter": (3, 2 / 3), "sendrecv": (1, 1)}
TINY = ["--worker_num", "3", "--iters", "3", "--warmup", "1"]
SIZES = [8, 1024]


def bench(*words):
    """What it writes to standard output when all goes well."""
    with Process([MUSTER, "bench", *words]) as process:
        assert process.wait(timeout=60) == 0, process.stderr
        assert process.stderr == ""
        return process.stdout


def test_a_secret_that_one_process_alone_can_read_is_refused():
    with Process([MUSTER, "bench", "barrier", *TINY], {"MUSTER_JOB_SECRET_FD": 3}) as process:
        assert process.wait(timeout=60) == 2, process.describe()
        assert 'MUSTER_JOB_SECRET_FD is "3", which one process alone can read: expected MUSTER_JOB_SECRET_FILE under muster bench' in process.stderr


def sizes_of(collective):
    return [0] if collective == "barrier" else SIZES


def words_for(collective, form):
    sizes = [] if collective == "barrier" else ["--sizes", ",".join(map(str, SIZES))]
    return [collective, *TINY, *sizes, "--format", form]


def bandwidths_fit(row):
    """The rates follow from the size and the time beside them, as nccl-tests counts."""
    whole, link = BANDWIDTHS[row["collective"]]
    us = float(row["p50_us"])
    algorithm, bus = float(row["algbw_gb_s"]), float(row["busbw_gb_s"])
    rounded = {"rel": 0.01 / us, "abs": 0.0001}
    assert algorithm == pytest.approx(whole * int(row["bytes"]) / us / 1000, **rounded), row
    assert bus == pytest.approx(link * whole * int(row["bytes"]) / us / 1000, **rounded), row


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_timed_and_nothing_is_wrong(collective):
    rows = list(csv.DictReader(bench(*words_for(collective, "csv")).splitlines()))
    assert [int(row["bytes"]) for row in rows] == sizes_of(collective)
    for row in rows:
        assert row["collective"] == collective and int(row["ranks"]) == 3 and int(row["iterations"]) == 3, row
        assert row["wrong"] == "0", row
        assert int(row["count"]) * 4 == int(row["bytes"]) and row["dtype"] == "float32", row
        assert 0 < float(row["p50_us"]) <= float(row["p95_us"]), row
        assert 0 < float(row["p50_rank0_us"]) <= float(row["p50_us"]), row
        bandwidths_fit(row)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_json_has_the_same_rows(collective):
    found = json.loads(bench(*words_for(collective, "json")))
    assert (found["collective"], found["ranks"]) == (collective, 3)
    assert [row["bytes"] for row in found["rows"]] == sizes_of(collective)
    assert all(row["wrong"] == 0 and row["p50_us"] > 0 for row in found["rows"]), found


def test_text_is_the_table_for_people():
    lines = bench("allreduce", *TINY, "--sizes", "8,1K").splitlines()
    titles = next(line for line in lines if "busbw" in line)
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert titles.lstrip("#").split()[:6] == ["size", "count", "type", "op", "root", "iters"]
    assert [row[:6] for row in rows] == [["8", "2", "float32", "sum", "none", "3"],
                                         ["1024", "256", "float32", "sum", "none", "3"]]
    assert [row[-1] for row in rows] == ["0", "0"]


@pytest.mark.parametrize("words", [["--root", "round"], ["--root", "2"], ["--dtype", "int64", "--sizes", "64"]])
def test_a_broadcast_from_any_root(words):
    rows = list(csv.DictReader(bench("broadcast", *TINY, "--sizes", "128", *words, "--format", "csv").splitlines()))
    assert [row["wrong"] for row in rows] == ["0"]
    assert rows[0]["root"] == (words[1] if words[0] == "--root" else "0")


@pytest.mark.parametrize("op", ["sum", "min", "max", "avg"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8"])
def test_a_reduction_of_each_type_out_of_place(dtype, op):
    words = ["--dtype", dtype, "--op", op, "--in_place", "0", "--sizes", "64", "--format", "csv"]
    row, = csv.DictReader(bench("allreduce", *TINY, *words).splitlines())
    assert (row["dtype"], row["op"], row["wrong"]) == (dtype, op, "0")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_an_exact_sum_of_each_float_type(dtype):
    words = ["--dtype", dtype, "--op", "sum_exact", "--in_place", "0", "--sizes", "64", "--format", "csv"]
    row, = csv.DictReader(bench("allreduce", *TINY, *words).splitlines())
    assert (row["dtype"], row["op"], row["wrong"]) == (dtype, "sum_exact", "0")


def test_without_the_check_nothing_is_said_to_be_right():
    words = ["allreduce", *TINY, "--check", "0", "--sizes", "8", "--format"]
    row, = csv.DictReader(bench(*words, "csv").splitlines())
    assert row["wrong"] == ""
    assert json.loads(bench(*words, "json"))["rows"][0]["wrong"] is None


@pytest.mark.parametrize("form", ["text", "csv", "json"])
def test_one_rank_has_no_bandwidth_and_is_told_so(form):
    words = ["allreduce", "--sizes", "8,1K", "--iters", "3", "--format", form]
    with Process([MUSTER, "bench", *words]) as process:
        assert process.wait(timeout=60) == 0, process.stderr
        said, = process.stderr.splitlines()
        assert "one rank: nothing is moved" in said and "--worker_num" in said
        out = process.stdout
    if form == "json":
        rows = json.loads(out)["rows"]
    elif form == "csv":
        rows = list(csv.DictReader(out.splitlines()))
    else:
        rows = [dict(zip(["algbw_gb_s", "busbw_gb_s"], line.split()[8:10])) for line in out.splitlines() if line[0] != "#"]
    none = {"text": "-", "csv": "", "json": None}[form]
    assert [(row["algbw_gb_s"], row["busbw_gb_s"]) for row in rows] == [(none, none)] * 2


WRONG = {
    "no collective": ([], ["which collective"]),
    "a misspelt collective": (["allredcue"], ['"allredcue"', "allreduce", "sendrecv"]),
    "an unknown option": (["allreduce", "--ranks", "3"], ["--ranks", "--help"]),
    "an option without its value": (["allreduce", "--iters"], ["--iters", "value"]),
    "too many ranks": (["allreduce", "--worker_num", "5000"], ["--worker_num", '"5000"', "1 to 1024"]),
    "a size in words": (["allreduce", "--sizes", "8,many"], ["--sizes", '"8,many"', "bytes"]),
    "sizes the wrong way round": (["allreduce", "--begin", "64K", "--end", "8"], ["--begin", "65536", "--end"]),
    "an unknown type": (["allreduce", "--dtype", "float8"], ["--dtype", '"float8"', "float32"]),
    "an exact sum of integers": (["allreduce", "--op", "sum_exact", "--dtype", "int32"], ["sum_exact", "int32", "a float type"]),
    "an unknown format": (["allreduce", "--format", "xml"], ["--format", '"xml"', "text, csv, json"]),
    "a root that is no rank": (["broadcast", "--worker_num", "3", "--root", "3"], ["--root", "3", "0 to 2"]),
    "a start of no processes": (["bootstrap", "--worker_num", "0"], ["--worker_num", '"0"', "1 to 1024"]),
    "an option that is not bootstrap's": (["bootstrap", "--sizes", "8"], ["--sizes", "bench bootstrap"]),
    "a forming of no nodes": (["forming", "--nodes", "0"], ["--nodes", '"0"', "1 to 1048576"]),
    "an option that would change nothing": (["broadcast", "--op", "max"], ["--op", "broadcast", "allreduce"]),
    "an option that is not forming's": (["forming", "--worker_num", "8"], ["--worker_num", "bench forming"]),
    "a value of nothing": (["store", "--size", "0"], ["--size", '"0"', "1 to 1M"]),
    "an option that is not iallreduce's": (["iallreduce", "--root", "1"], ["--root", "bench iallreduce"]),
    "a size of no whole elements": (["iallreduce", "--sizes", "9"], ["size 9", "multiple of 4"]),
    "an option that is not store's": (["store", "--sizes", "8"], ["--sizes", "bench store"]),
    "a forming without an option's value": (["forming", "--nodes"], ["--nodes", "value"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_command_line_is_told_in_one_sentence(kind):
    words, parts = WRONG[kind]
    with Process([MUSTER, "bench", *words]) as process:
        assert process.wait(timeout=30) == 2
        assert process.stdout == ""
        line, = process.stderr.splitlines()
        assert line.startswith("muster bench: ")
        assert [part for part in parts if part not in line] == [], line


HELP = ["--help", "help", "allreduce -h", "allreduce -b 8 --help", "bootstrap --help", "forming --nodes -h", "iallreduce --help",
        "store --help"]


@pytest.mark.parametrize("words", HELP)
def test_help_is_given_wherever_it_is_asked_for(words):
    assert bench(*words.split()).startswith("Usage: muster bench collective"), words


def test_a_size_that_is_no_multiple_of_an_element_fails():
    with Process([MUSTER, "bench", "allreduce", *TINY, "--sizes", "9"]) as process:
        assert process.wait(timeout=60) != 0
        assert "9" in process.stderr and "multiple of 4" in process.stderr


def test_calls_on_the_store_are_timed():
    words = ["store", "--worker_num", "2", "--iters", "3", "--size", "100", "--format"]
    rows = list(csv.DictReader(bench(*words, "csv").splitlines()))
    calls = ["set", "get", "add", "compare_set", "multi_set", "multi_get", "check"]
    assert [row["call"] for row in rows] == calls
    for row in rows:
        assert (row["ranks"], row["bytes"], row["iterations"]) == ("2", "100", "3")
        assert 0 < float(row["p50_us"]) <= float(row["p95_us"]), row
    found = json.loads(bench(*words, "json"))
    assert (found["ranks"], found["bytes"], [row["call"] for row in found["rows"]]) == (2, 100, calls)
    assert "2 ranks" in bench(*words, "text")
    assert "multi_get" in bench("store", "--iters", "3")  # a cluster of one


def test_an_allreduce_that_goes_on_while_the_program_computes_is_timed():
    words = ["iallreduce", *TINY, "--sizes", "8,1024", "--format"]
    rows = list(csv.DictReader(bench(*words, "csv").splitlines()))
    assert [row["bytes"] for row in rows] == ["8", "1024"]
    for row in rows:
        assert (row["call"], row["ranks"], row["dtype"], row["iterations"], row["wrong"]) == ("iallreduce", "3", "float32", "3", "0")
        blocking, wait, compute, overall = (float(row[f"{name}_us"]) for name in ("blocking", "wait", "compute", "overall"))
        assert blocking > 0 and 0 < wait <= compute + 0.01 and compute < overall, row
        overlap = 100 - 100 * (overall - compute) / wait
        assert float(row["overlap_percent"]) == pytest.approx(min(max(overlap, 0), 100), abs=1), row
    found = json.loads(bench(*words, "json"))
    assert (found["call"], found["ranks"], [row["bytes"] for row in found["rows"]]) == ("iallreduce", 3, [8, 1024])
    assert "3 ranks" in bench(*words, "text")
    assert "iallreduce" in bench("iallreduce", "--iters", "3", "--end", "8")  # a cluster of one


def test_the_start_of_a_cluster_is_timed():
    words = ["bootstrap", "--worker_num", "2", "-n", "1", "--format"]
    row, = csv.DictReader(bench(*words, "csv").splitlines())
    assert (row["ranks"], row["iterations"]) == ("2", "1")
    assert 0 < float(row["least_ms"]) == float(row["median_ms"]) == float(row["most_ms"])
    found = json.loads(bench(*words, "json"))
    assert (found["ranks"], found["iterations"]) == (2, 1) and found["median_ms"] > 0
    assert "2 processes" in bench(*words, "text")


def forming(form, *words, nodes=1500):
    return bench("forming", "--nodes", str(nodes), "--format", form, *words)


def test_a_scheduler_alone_gives_many_nodes_their_places():
    row, = csv.DictReader(forming("csv", "--processes", "3").splitlines())
    assert (row["nodes"], row["processes"], row["iterations"]) == ("1500", "3", "1")
    assert 0 < float(row["registered_s"]) <= float(row["formed_s"]), row
    # The rate is that of the time before it was rounded.
    assert int(row["nodes_per_s"]) == pytest.approx(1500 / float(row["formed_s"]), rel=0.01), row
    assert float(row["scheduler_cpu_s"]) > 0 and float(row["left_s"]) > 0, row
    grown = (int(row["formed_kib"]) - int(row["before_kib"])) * 1024 / 1500
    assert float(row["bytes_per_node"]) == pytest.approx(grown, abs=1), row
    found = json.loads(forming("json", "-n", "2", nodes=9))
    assert (found["nodes"], found["processes"], found["iterations"]) == (9, 2, 2) and found["formed_s"] > 0
    text = forming("text", nodes=1)
    assert "1 nodes in 1 processes" in text and "bytes a node" in text


def test_a_scheduler_holds_little_for_a_node():
    row, = csv.DictReader(forming("csv", nodes=4000).splitlines())
    # Some 2.5 KiB; with all places made before the first is sent, or buffers kept, it would be more than this.
    assert 0 < int(row["bytes_per_node"]) < 3 << 10, row


def limited(number, *words, hard=True):
    """Runs it with at most so many descriptors."""
    which = "-n" if hard else "-Sn"
    return ["sh", "-c", f'ulimit {which} {number}; exec "$@"', "sh", MUSTER, "bench", "forming", *words]


def test_a_habit_of_few_descriptors_is_no_limit():
    with Process(limited(48, "--nodes", "200", hard=False)) as process:
        assert process.wait(timeout=60) == 0, process.stderr
        assert process.stderr == "" and "200 nodes" in process.stdout


def test_too_few_descriptors_for_the_nodes_are_told_at_once():
    with Process(limited(231, "--nodes", "200")) as process:
        assert process.wait(timeout=60) == 1
        assert "200 connections need 232 descriptors" in process.stderr, process.stderr
        assert "ulimit -Hn" in process.stderr


def rank_of(pid):
    """The children of the benchmark are its ranks, by the node id that each is given."""
    environment = pathlib.Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    ids = [entry.partition(b"=")[2] for entry in environment if entry.startswith(b"MUSTER_NODE_ID=")]
    return int(ids[0]) if ids else None


def test_a_rank_that_is_killed_is_the_one_that_is_named_and_what_there_is_of_json_can_be_read():
    # The first size is short, and the second one does not end by itself.
    words = ["allreduce", "--worker_num", "3", "--sizes", "8,67108864", "--iters", "20000", "--format", "json"]
    with Process([MUSTER, "bench", *words]) as process:
        process.wait_for('"bytes":8,', timeout=60)
        ranks = pathlib.Path("/proc", str(process.pid), "task", str(process.pid), "children")
        victim, = [pid for pid in map(int, ranks.read_text().split()) if rank_of(pid) == 2]
        os.kill(victim, signal.SIGKILL)
        assert process.wait(timeout=60) == 1
        assert "muster bench: rank 2 ended with signal: 9" in process.stderr
        assert [row["bytes"] for row in json.loads(process.stdout)["rows"]] == [8]


def test_without_a_number_of_ranks_it_is_a_rank_of_the_cluster_around_it():
    words = ["--worker_num", "2", "--local_worker_num", "2", "--master_port", "0", "--join", "True"]
    with Launch(*words, MUSTER, "bench", "barrier", "--iters", "3", "--format", "csv") as launch:
        assert launch.wait(timeout=60) == 0
        row, = csv.DictReader(launch.log("worker_0.log").splitlines())
        assert (row["collective"], row["ranks"], row["wrong"]) == ("barrier", "2", "0")
        assert launch.log("worker_1.log") == ""


@pytest.mark.parametrize("how", ["TLS", "a secret"])
def test_collectives_and_starts_are_timed_under_tls_and_under_a_secret(how, tmp_path):
    """The environment says so, as for any other program; each result is checked."""
    missing = str(tmp_path / "none")
    if how == "TLS":
        subprocess.run([MUSTER, "certs", "new", tmp_path / "certs"], check=True, capture_output=True, timeout=60)
        protected = {"MUSTER_ENABLE_SSL": "1", "MUSTER_CONFIG_FILE_PATH": str(tmp_path / "certs" / "node" / "tls.json")}
        broken = {**protected, "MUSTER_CONFIG_FILE_PATH": missing}
    else:
        protected = {"MUSTER_JOB_SECRET": "of this test"}
        broken = {"MUSTER_JOB_SECRET_FILE": missing}
    for words in (["allreduce", *TINY, "--sizes", "8,300000"], ["bootstrap", "--worker_num", "3", "--iters", "1"]):
        with Process([MUSTER, "bench", *words, "--format", "csv"], env=protected) as process:
            assert process.wait(timeout=60) == 0, process.stderr
            rows = list(csv.DictReader(process.stdout.splitlines()))
        assert rows and all(row.get("wrong", "0") == "0" for row in rows), rows
    # What protects it is not left out: where it is wrong nothing runs.
    with Process([MUSTER, "bench", "allreduce", *TINY, "--sizes", "8"], env=broken) as process:
        assert process.wait(timeout=60) != 0
        assert missing in process.stderr


def contents(folder):
    """The bytes of all files in it, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_job_that_was_interrupted_is_left_alone(tmp_path):
    """Its settings are in the shell's environment. It can go on afterwards, for a benchmark takes nothing of it."""
    with Recovering(lives(), workers=2, folder=tmp_path) as job:
        job.await_all("stands_1")
        job.lose_scheduler()
        job.lose(0, 1)
        interrupted = contents(job.recovery)
        assert "scheduler.journal" in interrupted and "node-1.identity" in interrupted
        table = tmp_path / "no_table.json"
        exported = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": job.recovery, "MS_SERVER_NUM": 1,
                    "MUSTER_SCHED_BIND": "127.0.0.2", "RANK_TABLE_FILE": table, "MUSTER_ADVERTISE": "192.0.2.1:7000"}
        for words in (["barrier", *TINY], ["store", "--worker_num", "2", "--iters", "3"],
                      ["bootstrap", "--worker_num", "2", "--iters", "1"]):
            with Process([MUSTER, "bench", *words, "--format", "csv"], env=exported) as process:
                assert process.wait(timeout=60) == 0, process.stderr
                assert list(csv.DictReader(process.stdout.splitlines())), words
            assert contents(job.recovery) == interrupted, words
