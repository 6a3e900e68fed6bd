"""NCCL's communicators under muster: on a device where there is one, and against the stub, which needs none.

The tests on a device run by themselves where there is one. They need NCCL (the system's, or that of the Python that runs them)
and CUDA's driver. All ranks share the devices that there are; NCCL then talks over sockets.
"""

import ctypes
import importlib.util
import os
import pathlib
import re

import pytest

from cluster import EXAMPLES
from example_options import WRONG_LOSSES, WRONG_STEPS, usage_is_told
from launch import Launch

PROGRAM = EXAMPLES / "nccl_communicator"
STUB = EXAMPLES / "stubs" / "nccl"
RANKS = 4
LOST = 2
STEPS = 20
GOES_ON = re.compile(r"rank (\d): epoch (\d+): a communicator of 4; goes on from step (\d+)")
DONE = re.compile(rf"rank (\d): {STEPS} steps, communicators made: (\d+), all sums right")
# Each rank gets a value of its own from a shell: NCCL lets only ranks of different hosts share a device.
ON_HOSTS_OF_THEIR_OWN = ("sh", "-c", 'NCCL_HOSTID="host $RANK_ID" exec "$@"', "sh")


def train(tmp_path, *words, env=None, under=(), recovery=True, timeout=120):
    """Four ranks under `muster run`; returns the launcher, which has ended."""
    settings = {"TMPDIR": tmp_path, **(env or {})}
    restarts = []
    if recovery:
        settings |= {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
        restarts = ["--max_restarts", 1]
    launch = Launch("--worker_num", RANKS, "--local_worker_num", RANKS, "--master_port", 0, "--join", "True", *restarts,
                    *under, PROGRAM, *words, env=settings)
    with launch:
        launch.wait(timeout)
        launch.nothing_left(timeout=10)
        launch.outcome = (launch.returncode, launch.stdout + launch.stderr)
    return launch.outcome


def with_stub(tmp_path, *words, env=None, **more):
    return train(tmp_path, *words, env={"LD_LIBRARY_PATH": STUB, **(env or {})}, **more)


def all_went_on(outcome, where):
    """Everyone finished; those who lived made two communicators, and went on from where they were. (Some do not come to the first
    one, if the rank is lost while the id is still on its way to them.)"""
    code, output = outcome
    assert code == 0, output
    made = dict(DONE.findall(output))
    assert sorted(made) == [str(rank) for rank in range(RANKS)]
    assert made.pop(str(LOST)) == "1" and set(made.values()) <= ({"2"} if where == "step" else {"1", "2"})
    again = sorted((rank, int(step)) for rank, epoch, step in GOES_ON.findall(output) if epoch == "2")
    assert again == [(str(rank), STEPS // 2 if where == "step" else 0) for rank in range(RANKS)]
    assert len(re.findall(rf"rank \d: step \d+: .*rank {LOST} .*is lost", output)) >= RANKS - 1


def test_ranks_reduce(tmp_path):
    code, output = with_stub(tmp_path, recovery=False)
    assert code == 0, output
    assert not list(tmp_path.glob("nccl-stub-*")), "the id was not used up"
    assert sorted(DONE.findall(output)) == [(str(rank), "1") for rank in range(RANKS)]


@pytest.mark.parametrize("notices", [None, 1], ids=["nccl never knows", "nccl knows"])
@pytest.mark.parametrize("where", ["step", "init"])
def test_after_a_loss_there_is_a_new_communicator(tmp_path, where, notices):
    all_went_on(with_stub(tmp_path, "--lose", LOST, where, env={"NCCL_STUB_NOTICES": notices}), where)


@pytest.mark.parametrize("words", WRONG_STEPS + WRONG_LOSSES + [("--lose", "1", "connect"), ("--lose", "1")])
def test_a_wrong_option_is_refused(words):
    usage_is_told(PROGRAM, words, "[--steps N] [--lose RANK init|step]")


def test_a_rank_that_there_is_not_cannot_be_lost(tmp_path):
    code, output = with_stub(tmp_path, "--lose", 4, "step", recovery=False)
    assert code == 1 and "nccl_communicator: --lose 4: the ranks are 0 to 3" in output, output


def test_without_nccl_all_ranks_end_and_say_why(tmp_path):
    (tmp_path / "libcuda.so.1").symlink_to("/dev/null")
    code, output = train(tmp_path, env={"LD_LIBRARY_PATH": tmp_path}, recovery=False)
    assert code == 1
    assert "nccl_communicator: " in output and "libcuda.so.1" in output


@pytest.fixture(scope="session")
def device():
    """Where NCCL lies, for LD_LIBRARY_PATH. Skips where there is no device, or no NCCL."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    # Without the driver there is no device, and nothing else could stand in for one.
    except OSError as error:
        pytest.skip(f"no CUDA device here ({error})")
    if not found:
        pytest.skip("no CUDA device here (the driver finds none)")
    package = importlib.util.find_spec("nvidia")
    roots = package.submodule_search_locations if package else []
    places = [place for root in roots for place in pathlib.Path(root).rglob("libnccl.so.2")]
    try:
        ctypes.CDLL(str(places[0]) if places else "libnccl.so.2")
    except OSError as error:
        pytest.skip(f"no NCCL here ({error})")
    return places[0].parent if places else None


def on_device(tmp_path, device, *words, **more):
    beside = os.environ.get("LD_LIBRARY_PATH")
    folders = [str(folder) for folder in (device, beside) if folder]
    env = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1, "NCCL_DEBUG": "WARN", "LD_LIBRARY_PATH": ":".join(folders) or None}
    return train(tmp_path, *words, env=env, under=ON_HOSTS_OF_THEIR_OWN, timeout=300, **more)


def test_ranks_reduce_on_a_device(tmp_path, device):
    code, output = on_device(tmp_path, device, recovery=False)
    assert code == 0, output
    assert sorted(DONE.findall(output)) == [(str(rank), "1") for rank in range(RANKS)]


@pytest.mark.parametrize("where", ["step", "init"])
def test_after_a_loss_there_is_a_new_communicator_on_a_device(tmp_path, device, where):
    all_went_on(on_device(tmp_path, device, "--lose", LOST, where), where)
