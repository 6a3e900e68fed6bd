"""Ranks from an HCCL rank table: which process finds which entry, and what is said of a wrong table."""

import json
import pathlib
import subprocess

import jsonschema
import pytest

from cluster import MUSTER, Cluster, Process, clean_environment
from launch import Launch
from nodes import JOIN_AND_LEAVE, alone_fails_at_once, await_joined, node, said
from test_run_cluster import WORKER as RUN_WORKER

SCHEMA = json.loads((pathlib.Path(__file__).parent / "rank_table.schema.json").read_text())
# Device 3 has rank 0.
RANKS = {"0": "2", "1": "1", "2": "3", "3": "0"}


def table(server_id="127.0.0.1", ranks=RANKS, **changes):
    device = [{"device_id": device, "device_ip": f"192.1.27.{device}", "rank_id": rank} for device, rank in ranks.items()]
    server = {"server_id": server_id, "device": device, "host_nic_ip": "reserve"}
    return {"version": "1.0", "server_count": "1", "server_list": [server], "status": "completed", **changes}


@pytest.fixture
def write(tmp_path):
    def write_table(content):
        path = tmp_path / "table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write_table


def test_workers_take_their_ranks_by_device(write):
    env = {"RANK_TABLE_FILE": write(table())}
    with Cluster(node(), workers=4, started=0, numbered=False, env=env) as cluster:
        devices = {device: cluster.start_worker({"DEVICE_ID": device}) for device in RANKS}
        cluster.succeed(timeout=30)
        assert {device: str(said(worker)["rank"]) for device, worker in devices.items()} == RANKS


def test_workers_of_the_launcher_take_their_ranks_by_device(write):
    words = ("--worker_num=4", "--master_port=0", "--join=True", "--tail_worker_log=none")
    with Launch(*words, RUN_WORKER, "leave", env={"RANK_TABLE_FILE": write(table())}) as launch:
        assert launch.wait(timeout=60) == 0
        # The launcher reads the table, too, and names the logs.
        assert [launch.log(f"worker_{rank}.log") for rank in range(4)] == [f"rank {rank} of 4\n" for rank in range(4)]


@pytest.mark.parametrize("devices", ["4567", "0124"])
def test_logs_are_named_by_index_where_workers_tell_their_devices_themselves(devices, write):
    ranks = {device: str(3 - index) for index, device in enumerate(devices)}
    path = write(table(ranks=ranks))
    task = ["--", "sh", "-c", f'set -- {" ".join(devices)}; shift $DEVICE_ID; DEVICE_ID=$1 exec python3 {RUN_WORKER} leave']
    words = ("--worker_num=4", "--master_port=0", "--join=True", "--tail_worker_log=0,2", f"--rank_table_file={path}")
    with Launch(*words, *task) as launch:
        assert launch.wait(timeout=60) == 0
        assert [launch.log(f"worker_{index}.log") for index in range(4)] == [f"rank {3 - index} of 4\n" for index in range(4)]
        assert sorted(launch.stdout.splitlines()) == ["[local 0] rank 3 of 4", "[local 2] rank 1 of 4"]


def worker(path, **changes):
    settings = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "8118", "MS_WORKER_NUM": "4"}
    return {**settings, "RANK_TABLE_FILE": path, **changes}


def test_a_rank_that_contradicts_the_table(write):
    path = write(table())
    for name in ("RANK_ID", "MS_NODE_ID"):
        env = worker(path, **{name: "2", "DEVICE_ID": "3"})
        entry = 'server_list[0].device[0] with device_id "0"'
        alone_fails_at_once(env, "CONFIG", "RANK_TABLE_FILE", path, f'rank_id "2", which is that of {name}', entry, 'DEVICE_ID is "3"')


def test_a_host_and_a_device_that_are_not_in_the_table(write):
    path = write(table(server_id="203.0.113.7"))
    alone_fails_at_once(worker(path, DEVICE_ID="0"), "CONFIG", "no server", '"203.0.113.7" (server_list[0])')
    path = write(table())
    alone_fails_at_once(worker(path, DEVICE_ID="4"), "CONFIG", 'no device_id "4"', '"0", "1", "2", "3"')
    alone_fails_at_once(worker(path), "CONFIG", "neither RANK_ID nor DEVICE_ID is set")


IRREGULAR = {
    "no json": ("rank 0\n", ["is not JSON", "line 1"]),
    "not finished": (table(status="initializing"), ['status "initializing"', 'expected "completed"']),
    "another version": (table(version="1.2"), ['version "1.2"', 'expected "1.0"']),
    "another count": (table(server_count="2"), ['server_count "2"', 'expected "1"']),
    "a rank twice": (table(ranks={**RANKS, "2": "2"}), ['server_list[0].device[2].rank_id "2"', "server_list[0].device[0]"]),
    "a rank too high": (table(ranks={**RANKS, "2": "4"}), ['server_list[0].device[2].rank_id "4"', "from 0 to 3"]),
    "a rank in words": (table(ranks={**RANKS, "2": "two"}), ['server_list[0].device[2].rank_id "two"', "whole number"]),
    "too few": (table(ranks={"0": "0"}), ["has 1 ranks", 'MS_WORKER_NUM is "4"']),
}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("role", ["MS_WORKER", "MS_SCHED"])
def test_an_irregularity_names_file_and_entry(kind, role, write):
    content, parts = IRREGULAR[kind]
    path = write(content)
    env = worker(path, MS_ROLE=role, DEVICE_ID="0", RANK_ID="0")
    alone_fails_at_once(env, "CONFIG", f'RANK_TABLE_FILE is "{path}"', "expected", *parts)


def test_a_table_that_is_not_there():
    for path, why in (("/nowhere/table.json", "can't be read"), ("/tmp", "is no file")):
        alone_fails_at_once(worker(path, RANK_ID="0"), "CONFIG", f'RANK_TABLE_FILE is "{path}"', why)


def test_a_table_for_one_is_for_a_process_alone(write):
    with Process(node(JOIN_AND_LEAVE), {"RANK_TABLE_FILE": write(table(ranks={"0": "0"}))}) as alone:
        assert alone.wait(timeout=30) == 0 and alone.stderr == ""
    alone_fails_at_once({"RANK_TABLE_FILE": write(table())}, "CONFIG", "has 4 ranks", "cluster of one", "MS_ROLE")


@pytest.mark.parametrize("workers, chief", [(1, 3), (2, 0)])
def test_all_name_the_same_chief_of_hccls_cluster_manager(workers, chief):
    lines = "c = join(); say(chief=c.hccl_cm().chief_device); c.leave()"
    with Cluster(node(lines), workers=workers, started=0, env={"MS_SERVER_NUM": 1}) as cluster:
        for _ in range(workers):
            cluster.start_worker({"DEVICE_ID": 3})
        cluster.start_server({"DEVICE_ID": 5})
        cluster.succeed(timeout=30)
        assert [said(node)["chief"] for node in cluster.workers + cluster.servers] == [chief] * (workers + 1)


# Says its rank table, its rank and its device.
TABLE = node("c = join(); say(table=c.rank_table(), rank=c.rank, device=os.environ.get('DEVICE_ID')); c.leave()")


def test_a_formed_cluster_writes_a_table_that_gives_the_same_ranks(write):
    devices = ["6", "1", "0", "4"]
    with Cluster(TABLE, workers=4, servers=1, started=0, numbered=False) as cluster:
        for at, device in enumerate(devices):
            host = {"MUSTER_HOST_ID": "left" if at < 2 else "right"}
            ip = {"MUSTER_DEVICE_IP": "192.1.27.6"} if device == "6" else {}
            cluster.start_worker({"DEVICE_ID": device, **host, **ip})
        cluster.succeed(timeout=30)
        first = [said(node) for node in cluster.workers + cluster.servers]
    assert len({one["table"] for one in first}) == 1, "every node, servers included, writes the same"
    written = json.loads(first[0]["table"])
    ranks = {one["device"]: str(one["rank"]) for one in first if one["device"]}
    entries = [device for server in written["server_list"] for device in server["device"]]
    assert {entry["device_id"]: entry["rank_id"] for entry in entries} == ranks
    assert [entry.get("device_ip") for entry in entries if entry["device_id"] == "6"] == ["192.1.27.6"]
    assert all("device_ip" not in entry for entry in entries if entry["device_id"] != "6")
    assert (written["version"], written["status"], written["server_count"]) == ("1.0", "completed", "2")
    assert len({server["server_id"] for server in written["server_list"]}) == 2

    # The same ranks in a second run, started in another order, on what the table says.
    env = {"RANK_TABLE_FILE": write(first[0]["table"])}
    with Cluster(TABLE, workers=4, started=0, numbered=False, env=env) as cluster:
        again = {device: cluster.start_worker({"DEVICE_ID": device, "RANK_ID": ranks[device]}) for device in sorted(devices)}
        cluster.succeed(timeout=30)
        assert {device: str(said(worker)["rank"]) for device, worker in again.items()} == ranks


def test_a_table_of_one_host_needs_no_rank_id(write):
    with Cluster(TABLE, workers=2, started=0, numbered=False) as cluster:
        workers = [cluster.start_worker({"DEVICE_ID": device}) for device in ("3", "2")]
        cluster.succeed(timeout=30)
        first = [said(worker) for worker in workers]
    env = {"RANK_TABLE_FILE": write(first[0]["table"])}
    with Cluster(TABLE, workers=2, started=0, numbered=False, env=env) as cluster:
        workers = [cluster.start_worker({"DEVICE_ID": device}) for device in ("2", "3")]
        cluster.succeed(timeout=30)
        assert [said(worker)["rank"] for worker in workers] == [first[1]["rank"], first[0]["rank"]]


def test_workers_of_one_device_have_no_table():
    body = node("c = join(); say(**fails(c.rank_table)); c.leave()")
    with Cluster(body, workers=2, env={"DEVICE_ID": "3"}) as cluster:
        cluster.succeed(timeout=30)
        for worker in cluster.workers:
            words = said(worker)["sentence"]
            assert "ranks 0" in words and "device 3 of host" in words and "DEVICE_ID" in words


def test_several_device_addresses(write):
    alone_fails_at_once(worker(write(table()), MUSTER_DEVICE_IP="10.0.0.1,10.0.0.2"), "CONFIG",
                         'MUSTER_DEVICE_IP is "10.0.0.1,10.0.0.2": expected an IP address (not of multicast')


def fits_the_schema(text):
    """What HCCL is told must be right to the letter; the file as a program reads it."""
    content = json.loads(text)
    checks = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(SCHEMA, format_checker=checks).validate(content)
    return content


def ranktable(port, *words):
    """`muster ranktable`: its exit code and what it wrote."""
    return subprocess.run([MUSTER, "ranktable", f"--sched_port={port}", "--timeout=30", *words], capture_output=True, text=True,
                          env=clean_environment(), timeout=60)


HELD_TABLE = node("c = join(); say(table=c.rank_table(), rank=c.rank); hold('end'); c.leave()")


def test_the_command_writes_the_table_of_a_formed_cluster_and_the_library_reads_it(tmp_path):
    """The table of two hosts, with a server, and one worker without DEVICE_ID; before that it says why there is none."""
    file = tmp_path / "table.json"
    env = {"HOLD_FOLDER": tmp_path}
    devices = ["6", "1", None, "4"]
    with Cluster(HELD_TABLE, workers=4, servers=1, started=0, numbered=False, env=env) as cluster:
        refused = ranktable(cluster.port, "--output", file)
        assert (refused.returncode, refused.stdout, file.exists()) == (1, "", False)
        assert "no rank table can be made: the job at 127.0.0.1:" in refused.stderr and "is forming (since " in refused.stderr
        for at, device in enumerate(devices):
            ip = {"MUSTER_DEVICE_IP": "192.1.27.6"} if device == "6" else {}
            cluster.start_worker({"DEVICE_ID": device, "MUSTER_HOST_ID": "left" if at < 2 else "right", **ip})
        await_joined(*cluster.workers, *cluster.servers)
        printed, wrote = ranktable(cluster.port), ranktable(cluster.port, "--output", file)
        assert (printed.returncode, wrote.returncode, printed.stderr + wrote.stderr, wrote.stdout) == (0, 0, "", "")
        (tmp_path / "end").touch()
        cluster.succeed(timeout=30)
        calls = [said(worker)["table"] for worker in cluster.workers]
        ranks = {device: said(worker)["rank"] for device, worker in zip(devices, cluster.workers)}
    assert printed.stdout == file.read_text() == calls[0] + "\n", "as the call gives it to every worker"
    content = fits_the_schema(file.read_text())
    assert content["server_count"] == "2"
    with Cluster(HELD_TABLE, workers=4, started=0, numbered=False, env={"RANK_TABLE_FILE": file, **env}) as cluster:
        for device, rank in ranks.items():
            cluster.start_worker({"DEVICE_ID": device, "RANK_ID": rank, "MUSTER_HOST_ID": "left" if device in ("6", "1") else "right"}
                                 if device else {"RANK_ID": rank, "MUSTER_HOST_ID": "right"})
        cluster.succeed(timeout=30)
        assert [said(worker)["rank"] for worker in cluster.workers] == list(ranks.values())


def test_the_schema_refuses_what_hccl_would_refuse():
    for wrong in (table(status="initializing"), table(server_count=1), table(ranks={"0": 0}), table(server_list=[])):
        with pytest.raises(jsonschema.ValidationError):
            fits_the_schema(json.dumps(wrong))
    fits_the_schema(json.dumps(table()))


def test_two_workers_of_one_device_and_no_scheduler_are_told(tmp_path):
    with Cluster(node("c = join(); hold('end')"), workers=2, env={"DEVICE_ID": "3", "HOLD_FOLDER": tmp_path}) as cluster:
        await_joined(*cluster.workers)
        told = ranktable(cluster.port)
        assert told.returncode == 1 and "both work with device 3 of host " in told.stderr, told
        port = cluster.port
    told = ranktable(port)
    assert told.returncode == 4 and "no scheduler answers" in told.stderr, told
    told = ranktable(port, "--ouput=x")
    assert told.returncode == 2 and "did you mean --output?" in told.stderr, told
