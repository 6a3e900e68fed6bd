"""`muster run --bind_core` and `--bind_numa`: which cores and memory the processes really have, and warnings of a small host.

How a larger host is shared is the unit tests' (`src/bin/muster/run/binding.rs`): this machine may have one core.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import uuid

import pytest
from cluster import MUSTER
from launch import Launch, until
from test_run import JOINED, run, shell

CORES = sorted(os.sched_getaffinity(0))
NODES = pathlib.Path("/sys/devices/system/node/online")
# What each worker says of itself.
TELL = shell("grep Cpus_allowed_list /proc/self/status; grep -m1 -o ' bind:[0-9,-]*' /proc/self/numa_maps; true")
TWO = ("--worker_num=2", *JOINED)


def listed(text):
    """The numbers in a list as the kernel writes it."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


def cores_of(launch, rank):
    return listed(re.search(r"Cpus_allowed_list:\s*(\S+)", launch.log(f"worker_{rank}.log"))[1])


def affinity(pid):
    return sorted(os.sched_getaffinity(pid))


@pytest.mark.skipif(len(CORES) < 2, reason="a machine of one core has nothing to share")
@pytest.mark.parametrize("words", [["--bind_core"], ["--bind_core=True"], ["--bind-core", "true"]])
def test_workers_share_the_cores_and_none_has_anothers(words):
    with Launch(*TWO, *words, *TELL) as launch:
        assert launch.wait(timeout=30) == 0
        shares = [cores_of(launch, rank) for rank in (0, 1)]
        assert all(shares) and sorted(shares[0] + shares[1]) == CORES
        said = re.findall(r"muster: worker \d has pid .* bound to cores? (\S+)", launch.stderr)
        assert [listed(text) for text in said] == shares
        assert "bound" not in launch.wait_for("the scheduler has pid .*", timeout=10)[0], "the workers alone share the cores"


@pytest.mark.skipif(len(CORES) < 2, reason="a machine of one core has nothing to share")
def test_cores_by_hand_are_those_of_the_device_and_a_restarted_worker_has_them_again(tmp_path):
    first, last = CORES[0], CORES[-1]
    by_hand = json.dumps({"scheduler": [str(first)], "device1": f"{last}", "device0": []})
    recovery = {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": tmp_path / "recovery"}
    words = (*TWO, "--max_restarts=1", f"--bind_core={by_hand}")
    with Launch(*words, *shell("exec sleep 600"), env=recovery) as launch:
        pids = {name: launch.child(name) for name in ("the scheduler", "worker 0", "worker 1")}
        assert {name: affinity(pid) for name, pid in pids.items()} == {
            "the scheduler": [first],
            "worker 0": CORES,
            "worker 1": [last],
        }
        os.kill(pids["worker 1"], 9)

        def next_life():
            found = [pid for pid in launch.descendants() if pid not in pids.values() and is_worker(pid, "1")]
            return found and found[0]

        assert affinity(until(next_life, 30, "worker 1 is started again")) == [last]


def is_worker(pid, rank):
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        program = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        return program == "sleep" and f"RANK_ID={rank}".encode() in words
    return False


def test_without_join_cores_are_bound_too():
    bind = f"--bind_core={json.dumps({'device0': CORES[0]})}"
    with Launch("--worker_num=1", "--master_port=0", bind, *shell("exec sleep 600")) as launch:
        assert launch.wait(timeout=30) == 0
        assert affinity(launch.child("worker 0")) == [CORES[0]]


@pytest.mark.parametrize("words", [["--bind_numa"], ["--bind_numa", '{"device0":0,"device1":["0"]}']])
@pytest.mark.skipif(not NODES.exists() or 0 not in listed(NODES.read_text().strip()), reason="the kernel tells of no NUMA node 0")
def test_memory_is_bound_to_nodes(words):
    with Launch(*TWO, *words, *TELL) as launch:
        assert launch.wait(timeout=30) == 0
        said = re.findall(r"muster: worker \d has pid .* memory of nodes? (\S+)", launch.stderr)
        told = [re.search(r"bind:(\S+)", launch.log(f"worker_{rank}.log"))[1] for rank in (0, 1)]
        assert told == said and len(said) == 2


@pytest.mark.skipif(not NODES.exists() or 0 not in listed(NODES.read_text().strip()), reason="the kernel tells of no NUMA node 0")
def test_a_file_binds_cores_and_memory(tmp_path):
    content = {
        "bind_config": {"bind_cpu_mode": "cpu", "bind_memory_mode": "numa"},
        "bind_cpu": {"device0": {"main": str(CORES[0]), "runtime": "0"}},
        "bind_memory": {"device0": 0},
    }
    (tmp_path / "bind.json").write_text(json.dumps(content))
    with Launch("--worker_num=1", *JOINED, "--bind_numa", tmp_path / "bind.json", *TELL) as launch:
        assert launch.wait(timeout=30) == 0
        assert cores_of(launch, 0) == [CORES[0]] and "bind:0" in launch.log("worker_0.log")


ABSENT = max(listed(pathlib.Path("/sys/devices/system/cpu/possible").read_text().strip())) + 1


@pytest.mark.parametrize(
    "words, said",
    [
        (["--bind_core", json.dumps({"device0": ABSENT})], f"--bind_core: device0 has core {ABSENT}, which is not there: this host has"),
        (["--bind_core", json.dumps({"scheduler": ABSENT})], f"scheduler has core {ABSENT}"),
        (["--bind_core", '{"device2":"0"}'], "--bind_core has device2, but the workers of this host have the devices 0-1"),
        (["--bind_core", '{"device0":"x"}'], '--bind_core: device0 has "x" where a number should be'),
        (["--bind_core={device0:0-3}"], "in single quotes"),
        (["--bind_core", "yes"], "write --bind_core=True for what it may mean"),
        (["--bind_core=2"], '--bind_core is "2"; it must be True, False, or a JSON object'),
        (["--bind_numa", '{"device0":"999"}'], "--bind_numa: device0 has NUMA node 999, which is not there"),
        (["--bind_numa", "no-such.json"], '--bind_numa is "no-such.json", which can\'t be read'),
    ],
)
def test_what_cannot_be_bound_is_refused_and_starts_nothing(words, said, tmp_path):
    ended = run("run", f"--log_dir={tmp_path}/logs", "--worker_num=2", *JOINED, *words, "true")
    if "NUMA" in said and not NODES.exists():
        said = "tells of no NUMA nodes"
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr
    assert not (tmp_path / "logs").exists()


@pytest.mark.skipif(len(CORES) < 2, reason="a machine of one core leaves no other")
def test_cores_that_the_launcher_itself_may_not_use_are_refused(tmp_path):
    command = ["taskset", "-c", str(CORES[0]), MUSTER, "run", f"--log_dir={tmp_path}/logs", "--worker_num=1", *JOINED]
    words = ["--bind_core", json.dumps({"device0": CORES[1]}), "true"]
    ended = subprocess.run([*command, *words], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert f"core {CORES[1]}, which this process may not use" in ended.stderr and f"has left it {CORES[0]}" in ended.stderr


def test_more_workers_than_cores_is_a_warning_and_they_still_have_one_each():
    many = len(CORES) + 1
    with Launch(f"--worker_num={many}", "--bind_core", *JOINED, *TELL) as launch:
        assert launch.wait(timeout=60) == 0
        noun = "core" if len(CORES) == 1 else "cores"
        assert f"muster: warning: {many} workers outnumber the {len(CORES)} {noun} that they may use: " in launch.stderr
        assert [len(cores_of(launch, rank)) for rank in range(many)] == [1] * many
    with Launch(f"--worker_num={len(CORES)}", *JOINED, "true") as launch:
        assert launch.wait(timeout=60) == 0
        assert "outnumber" not in launch.stderr


def test_two_devices_with_one_core_are_a_warning():
    core = CORES[0]
    with Launch(*TWO, "--bind_core", json.dumps({"device0": core, "device1": core}), "true") as launch:
        assert launch.wait(timeout=30) == 0
        assert f"muster: warning: --bind_core: device0 and device1 share core {core}\n" in launch.stderr


@pytest.fixture
def group_with_quota():
    """A cgroup of this test's own that may use half a core, with a group below it that has no quota itself."""
    roots = [line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    made = []
    try:
        for root in roots:
            kind, options = root[root.index("-") + 1], root[-1].split(",")
            if kind == "cgroup2" or (kind == "cgroup" and "cpu" in options):
                with contextlib.suppress(OSError):
                    outer = pathlib.Path(root[4]) / f"muster-test-{uuid.uuid4().hex}"
                    outer.mkdir()
                    made.append(outer)
                    quota = outer / ("cpu.max" if kind == "cgroup2" else "cpu.cfs_quota_us")
                    # A group of the second kind has the file only where the controller is switched on.
                    quota.open("r+").write("50000 100000" if kind == "cgroup2" else "50000")
                    (outer / "inner").mkdir()
                    made.append(outer / "inner")
                    yield outer / "inner", quota
                    return
        pytest.skip("no cgroup can be given a quota here")
    finally:
        for folder in reversed(made):
            folder.rmdir()


def test_a_quota_below_the_cores_is_a_warning(group_with_quota):
    group, quota = group_with_quota
    enters = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", MUSTER, "run"]
    with Launch("--worker_num=1", *JOINED, "true", command=enters) as launch:
        assert launch.wait(timeout=60) == 0
        assert f"muster: warning: this container's quota is 0.50 cores ({quota}), but {len(CORES)} core" in launch.stderr
        launch.nothing_left(timeout=10)
