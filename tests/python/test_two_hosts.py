"""One command on each of two hosts with four workers each, as msrun's users start a job: with and without --node_rank, and with
recovery, when a whole host dies and is started again. The hosts have networks and names of their own, or are behind a real sshd.
"""

import contextlib
import os
import re
import select
import signal
import threading
import time

import pytest

from cluster import EXAMPLES, MUSTER, Cluster, reserved_port
from launch import MARK, Launch
from many_hosts import FarHosts, children_of, plain
from named_hosts import NAMES
from sshd import Sshd
from test_train_digits import REPORT_LINE

pytestmark = [pytest.mark.launchers, pytest.mark.xdist_group("hosts")]

LIMIT = 120
WORKERS, HERE = 8, 4
SIZES = [f"--worker_num={WORKERS}", f"--local_worker_num={HERE}", "--join", "--cluster_time_out=100"]
TRAIN = [EXAMPLES / "train_digits", "--epochs", "2"]
# A host dies when it has its second checkpoint. What all ranks write of 200 steps fills the pipe, and this is four times as long.
INTERVAL, STRUCK_AT = 50, 100
LONG = [EXAMPLES / "train_digits", "--epochs", "40", "--hidden", "16"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with FarHosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


def node_rank(host, is_given):
    return [f"--node_rank={host}"] if is_given else []


def start(hosts, host, *words, env=None, cwd=None, contained=False):
    """The command on this host. The first host's address and the default port are what both are told."""
    command = hosts.command(host, [MUSTER, "run"], contained)
    words = ["--master_addr", hosts.addresses[0], *SIZES, *words]
    return Launch(*words, env=env, cwd=cwd, command=command)


def reports(*launches):
    """The rank of each report, and the weights with which it ended."""
    found = [report for launch in launches for report in REPORT_LINE.findall(plain(launch.stdout))]
    return sorted(int(report[0]) for report in found), {report[-1] for report in found}


def ends_well(*launches):
    for launch in launches:
        assert launch.wait(LIMIT) == 0, launch.describe()
    ranks, weights = reports(*launches)
    assert ranks == list(range(WORKERS)) and len(weights) == 1, (ranks, weights)
    return weights.pop()


@pytest.mark.parametrize("is_given", [True, False], ids=["node_rank", "ranks are assigned"])
def test_two_hosts_with_four_workers_each_train_the_same_model(hosts, is_given, tmp_path):
    with contextlib.ExitStack() as stack:
        # The scheduler's host comes last.
        launches = [stack.enter_context(start(hosts, host, *node_rank(host, is_given), *TRAIN, cwd=tmp_path)) for host in (1, 0)]
        ends_well(*launches)
        there, here = launches
        if is_given:
            assert reports(here)[0] == [0, 1, 2, 3] and reports(there)[0] == [4, 5, 6, 7]
        assert "the scheduler is here" in here.stderr and "the scheduler is on another host" in there.stderr
        names = {path.name for path in there.logs.glob("*.log")}
        first = HERE if is_given else 0
        assert names == {f"worker_{number}.log" for number in range(first, first + HERE)}


def test_the_host_with_the_address_has_the_scheduler_whatever_that_binds(hosts, tmp_path):
    with contextlib.ExitStack() as stack:
        launches = [stack.enter_context(start(hosts, host, *TRAIN, env={"MUSTER_SCHED_BIND": "*"}, cwd=tmp_path)) for host in (1, 0)]
        ends_well(*launches)
        there, here = launches
        assert "the scheduler is here" in here.stderr and "the scheduler is on another host" in there.stderr


@pytest.mark.parametrize("is_given", [True, False], ids=["node_rank", "ranks are assigned"])
def test_behind_sshd_likewise(is_given, tmp_path):
    """The second one knows the scheduler by a name that leads there, and is no address of its host."""
    with Sshd(tmp_path) as sshd, reserved_port() as port, contextlib.ExitStack() as stack:
        launches = []
        for host, (name, address) in enumerate((("one", "127.0.0.1"), ("two", "0x0"))):
            command = [*sshd.ssh.split(), "-o", f"SendEnv={MARK}", name, MUSTER, "run"]
            words = [f"--master_addr={address}", f"--master_port={port}", *SIZES, *node_rank(host, is_given), *TRAIN]
            launches.append(stack.enter_context(Launch(*words, command=command)))
        ends_well(*launches)
        sshd.no_sessions()


class Pipe:
    """What train_digits traces goes through a pipe: while nobody reads, the ranks soon stand still."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path, self._end = path, os.open(path, os.O_RDWR)  # never without a writer, and so never at its end

    def wait_for(self, pattern):
        text, deadline = "", time.monotonic() + LIMIT
        while not re.search(pattern, text, re.M):
            ready, _, _ = select.select([self._end], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} is not in what is traced: {text[-2000:]}"
            text += os.read(self._end, 1000).decode()

    @contextlib.contextmanager
    def flow(self):
        """Meanwhile all is read."""
        is_over = threading.Event()
        reader = threading.Thread(target=lambda: [os.read(self._end, 65536) for _ in iter(is_over.is_set, True)])
        reader.start()
        try:
            yield
        finally:
            is_over.set()
            os.write(self._end, b"\n")  # for a reader that waits
            reader.join()


@pytest.fixture(scope="module")
def quiet():
    """The weights of a training in which nothing died."""
    with Cluster(LONG, workers=WORKERS) as cluster:
        return REPORT_LINE.findall(cluster.succeed(timeout=LIMIT)[0].stdout)[0][-1]


@pytest.mark.parametrize("victim", [0, 1], ids=["with the scheduler", "without"])
def test_a_host_that_dies_is_started_again_and_the_training_goes_on(hosts, victim, quiet, tmp_path):
    """Nothing of it is left, its launcher neither; the same command once more, with what it has on its disk, brings it back."""
    checkpoints = tmp_path / "checkpoints"
    pipe = Pipe(tmp_path / "trace")
    program = [*LONG, "--checkpoint", checkpoints, "--checkpoint_interval", INTERVAL, "--trace", pipe.path]

    def begin(host):
        env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / NAMES[host], "MUSTER_RECOVER_TIMEOUT": LIMIT}
        return start(hosts, host, f"--node_rank={host}", *program, env=env, cwd=tmp_path, contained=host == victim)

    with begin(1 - victim) as survivor, contextlib.ExitStack() as stack:
        with begin(victim) as struck:
            pipe.wait_for(rf" {HERE * victim} saved {STRUCK_AT}$")
            struck.signal(signal.SIGKILL)
            struck.nothing_left(LIMIT)
        again = stack.enter_context(begin(victim))
        stack.enter_context(pipe.flow())
        assert ends_well(survivor, again) == quiet


def test_workers_come_back_on_each_host_and_the_whole_run_with_its_command(hosts, quiet, tmp_path):
    """One command for both hosts. A worker of the second host is killed, then the launcher that leads. Its job has the same secret."""
    pipe = Pipe(tmp_path / "trace")
    program = [*LONG, "--checkpoint", tmp_path / "checkpoints", "--checkpoint_interval", INTERVAL, "--trace", pipe.path]
    words = ["-H", f"host1:{HERE},host2:{HERE}", "--max_restarts=3", *program]
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "kept", "MUSTER_RECOVER_TIMEOUT": LIMIT}
    with hosts.launch(*words, env=env, cwd=tmp_path) as launch:
        pipe.wait_for(rf" 0 saved {STRUCK_AT}$")
        os.kill(children_of(launch, 1)[5], signal.SIGKILL)
        pipe.wait_for(rf" 0 saved {2 * STRUCK_AT}$")
        assert re.search(r"^\[host2\] muster: worker 5 \(pid \d+\) .*; restart 1 of 3 has pid \d+$", launch.stderr, re.M)
        launch.kill()
        launch.wait(LIMIT)
        launch.nothing_left(LIMIT)
    secret = (tmp_path / "kept" / "job-secret").read_text()
    with hosts.launch(*words, env=env, cwd=tmp_path) as launch, pipe.flow():
        assert ends_well(launch) == quiet
        launch.nothing_left(LIMIT)
    assert (tmp_path / "kept" / "job-secret").read_text() == secret
