"""One command on each of two hosts, and workers that are in no call of muster: a failure on one host stops those on the other, too.
And what a launcher says whose workers have all exited with 0.

The scheduler tells each launcher how the job goes, for none of its own workers does. The hosts have networks of their own.
"""

import contextlib
import os
import re
import signal
import time

import pytest

from certificates import Certificates
from cluster import MUSTER, thread_states
from launch import Launch, until
from networks import Hosts
from nodes import node

pytestmark = pytest.mark.xdist_group("hosts")

NETWORK = "cluster"
LIMIT = 90
# A second is what users are promised. Three are for a machine that does much else at the time.
AT_ONCE_SECONDS = 3
SIZES = ["--worker_num=4", "--local_worker_num=2", "--join", "--cluster_time_out=80"]
FIRST, SECOND = (0, 1), (2, 3)  # the ranks of each host
# All are in no call. The last of each host ends when it is told to.
IDLE = node("""
    c = join()
    if c.rank % 2:
        hold(f"exit-{c.rank}")
        os._exit(7)
    hold("go")
""")
# They leave the cluster, and work on.
WORK_ON = node("c = join(); c.leave(); say(left=True); hold('go')")

# Those of the second host end with code 0.
ENDS_WITH_0 = """
    if int(os.environ["RANK_ID"]) < 2:
        c = join()
        hold("end")
        c.leave()
        sys.exit()
    {}
"""


@pytest.fixture(scope="module")
def hosts():
    with Hosts(NETWORK) as hosts:
        yield hosts


def guarded_by(guard, tmp_path):
    if guard == "tls":
        return Certificates(tmp_path / "files").env()
    return {"MUSTER_JOB_SECRET": "xyzzy"} if guard == "secret" else {}


@contextlib.contextmanager
def two_launchers(hosts, tmp_path, program, said, env=None):
    """On each host, once each of its workers has said this; without a word at once."""
    with contextlib.ExitStack() as stack:
        launches = []
        for host in (0, 1):
            where = ["--master_addr", hosts.address(NETWORK, 0), f"--node_rank={host}"]
            settings = {"HOLD_FOLDER": tmp_path, **(env(host) if env else {})}
            command = hosts.command(host, [MUSTER, "run"])
            launches.append(stack.enter_context(Launch(*where, *SIZES, *program, env=settings, command=command)))
        for launch, ranks in zip(launches, (FIRST, SECOND)):
            for rank in ranks if said else ():
                launch.wait_for_log(f"worker_{rank}.log", said, LIMIT)
        yield launches


@pytest.mark.parametrize("end", ["kill", "exit"])
@pytest.mark.parametrize("victim", [0, 1], ids=["with the scheduler", "without"])
def test_a_failure_stops_workers_of_another_host_that_are_in_no_call(hosts, victim, end, tmp_path):
    with two_launchers(hosts, tmp_path, IDLE, '"joined"') as launches:
        rank = (FIRST, SECOND)[victim][1]
        pid = launches[victim].child(f"worker {rank}")
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL) if end == "kill" else (tmp_path / f"exit-{rank}").touch()
        other = launches[1 - victim]
        for launch in (other, launches[victim]):
            launch.wait(LIMIT)
        took = time.monotonic() - began
        assert took < AT_ONCE_SECONDS, f"{took} s; {other.describe()}"
        for launch in launches:
            launch.nothing_left()
        assert launches[victim].returncode == (128 + signal.SIGKILL if end == "kill" else 7)
        assert other.returncode == 1, other.describe()
        said = rf"muster: the job is over: rank {rank} \(.*, pid {pid}\) is lost: .*; all processes here are asked to end\n"
        assert re.search(said, other.stderr), other.stderr
        assert "muster: the job is over" not in launches[victim].stderr
        told = "the first failure was on another host: rank 3 " if victim else "nothing failed here: all were stopped, for the job is over\n"
        assert f"muster: {told}" in other.stderr, other.stderr


@pytest.mark.parametrize("guard", ["plain", "secret", "tls"])
def test_a_killed_scheduler_stops_workers_of_another_host_that_are_in_no_call(hosts, guard, tmp_path):
    settings = guarded_by(guard, tmp_path)
    with two_launchers(hosts, tmp_path, IDLE, '"joined"', lambda _: settings) as (here, there):
        began = time.monotonic()
        os.kill(here.child("the scheduler"), signal.SIGKILL)
        for launch in (there, here):
            launch.wait(LIMIT)
        took = time.monotonic() - began
        assert took < AT_ONCE_SECONDS, f"{took} s; {there.describe()}"
        for launch in (here, there):
            launch.nothing_left()
        assert here.returncode == 128 + signal.SIGKILL, here.describe()
        assert there.returncode == 1, there.describe()
        gone = r"muster: the job is over: the scheduler at .* is gone: its port refuses connections, and it has not said that it ends; "
        assert re.search(gone, there.stderr), there.stderr
        assert "the job is over" not in here.stderr


@pytest.mark.parametrize("guard", ["plain", "tls"])
def test_workers_that_work_on_after_they_have_left_are_not_stopped(hosts, guard, tmp_path):
    """The scheduler has ended, and said so: its launcher waits for its workers."""
    settings = guarded_by(guard, tmp_path)
    with two_launchers(hosts, tmp_path, WORK_ON, '"left"', lambda _: settings) as launches:
        scheduler = launches[0].child("the scheduler")
        # A zombie until the end of the run; its last word was that all have left, and then its port refuses.
        until(lambda: "Z" in thread_states(scheduler), LIMIT, "the scheduler ends when all have left")
        assert [launch.popen.poll() for launch in launches] == [None, None]
        (tmp_path / "go").touch()
        for launch in launches:
            assert launch.wait(LIMIT) == 0, launch.describe()
            assert "the job is over" not in launch.stderr


def test_a_job_with_recovery_is_not_stopped(hosts, tmp_path):
    """Without restarts a launcher ends with its worker; the other's workers wait in muster_recover or compute, and are left alone."""
    def env(host):
        return {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / f"host{host}"}

    with two_launchers(hosts, tmp_path, IDLE, '"joined"', env) as (here, there):
        (tmp_path / "exit-3").touch()
        assert there.wait(LIMIT) == 7
        here.wait_for_log("scheduler.log", r"rank 3 \(.*\) is lost", LIMIT)
        (tmp_path / "exit-1").touch()  # what ends the run is this, and nothing before it
        assert here.wait(LIMIT) == 7, here.describe()
        assert "the job is over" not in here.stderr, here.describe()


def test_a_host_whose_workers_all_exit_with_0_while_others_wait_for_them_to_join_says_so(hosts, tmp_path):
    with two_launchers(hosts, tmp_path, node(ENDS_WITH_0.format("hold('go')")), None) as (here, there):
        here.wait_for_log("scheduler.log", "forming since .*: 2 of 4 workers have come", LIMIT)
        (tmp_path / "go").touch()
        assert there.wait(LIMIT) == 1, there.describe()
        assert re.search(r"muster: worker [23] \(pid \d+\) exited with code 0 without joining the cluster, for which 2 others wait\n", there.stderr)
        assert "    it ended without joining the cluster (muster_init), for which others waited\n" in there.stderr, there.stderr
        there.nothing_left()


@pytest.mark.parametrize("helper", ["", "os.system('setsid sleep 600 &'); "], ids=["alone", "with a helper"])
def test_a_host_whose_workers_all_exit_with_0_without_leaving_says_so(hosts, helper, tmp_path):
    """What they have left in the background does not change that."""
    lines = ENDS_WITH_0.format(f"c = join(); {helper}hold('go'); os._exit(0)")
    with two_launchers(hosts, tmp_path, node(lines), '"joined"') as (here, there):
        (tmp_path / "go").touch()
        assert there.wait(LIMIT) == 1, there.describe()
        assert re.search(r"muster: first failure: worker [23] \(pid \d+\) exited with code 0, ", there.stderr), there.stderr
        assert "    it ended with code 0, without leaving the cluster (muster_finalize)\n" in there.stderr, there.stderr
        assert here.wait(LIMIT) == 1, here.describe()
        assert "muster: the first failure was on another host: rank " in here.stderr, here.stderr


def test_a_host_whose_workers_have_left_ends_well_at_once(hosts, tmp_path):
    lines = ENDS_WITH_0.format("c = join(); c.leave(); say(left=True); hold('go')")
    with two_launchers(hosts, tmp_path, node(lines), '"joined"') as (here, there):
        for rank in SECOND:
            there.wait_for_log(f"worker_{rank}.log", '"left"', LIMIT)
        began = time.monotonic()
        (tmp_path / "go").touch()
        assert there.wait(LIMIT) == 0, there.describe()
        took = time.monotonic() - began
        assert took < AT_ONCE_SECONDS, f"{took} s; {there.describe()}"
        assert here.popen.poll() is None
        (tmp_path / "end").touch()
        assert here.wait(LIMIT) == 0, here.describe()


def test_a_host_whose_plain_programs_nobody_waits_for_ends_well_at_once(hosts, tmp_path):
    task = ["--", "sh", "-c", 'name=go; [ $RANK_ID -lt 2 ] && name=end; while [ ! -e "$HOLD_FOLDER/$name" ]; do sleep 0.02; done']
    with two_launchers(hosts, tmp_path, task, None) as (here, there):
        here.wait_for_log("scheduler.log", "forming since .*: 0 of 4 workers have come", LIMIT)
        began = time.monotonic()
        (tmp_path / "go").touch()
        assert there.wait(LIMIT) == 0, there.describe()
        took = time.monotonic() - began
        assert took < AT_ONCE_SECONDS, f"{took} s; {there.describe()}"
        assert "without joining" not in there.stderr


def test_a_host_that_starts_all_workers_and_is_not_the_first_is_refused(hosts, tmp_path):
    """Its --local_worker_num is missing."""
    words = ["--worker_num=4", f"--master_addr={hosts.address(NETWORK, 0)}", "--node_rank=1", "--join", *IDLE]
    with Launch(*words, env={"HOLD_FOLDER": tmp_path}, command=hosts.command(1, [MUSTER, "run"])) as launch:
        assert launch.wait(LIMIT) == 2, launch.describe()
        assert "muster: --node_rank is 1, but all 4 workers are on this host, and --master_addr, " in launch.stderr, launch.stderr
        assert "give the number of workers on each host by --local_worker_num\n" in launch.stderr
        launch.nothing_left()
