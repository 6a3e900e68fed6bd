"""`muster run` with workers that form a cluster: which process is blamed when it breaks, and what each may say."""

import pathlib
import re
import signal

import pytest
from cluster import Process, complaints, reserved_port
from launch import Launch

WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")
WORDS = ("--worker_num=4", "--master_port=0", "--join=True", "--tail_worker_log=none")


def failures(launch):
    return [line for line in launch.stderr.splitlines() if line.startswith(("muster: first", "muster: then"))]


def test_a_job_that_ends_well():
    with Launch(*WORDS, WORKER, "leave") as launch:
        assert launch.wait(timeout=60) == 0
        assert [launch.log(f"worker_{rank}.log") for rank in range(4)] == [f"rank {rank} of 4\n" for rank in range(4)]
        assert complaints(launch.log("scheduler.log")) == []
        assert failures(launch) == [] and launch.warnings() == []


@pytest.mark.parametrize(
    "how, code, said",
    [
        ("kill", 128 + signal.SIGKILL, "was ended by signal 9 (SIGKILL)"),
        ("exit5", 5, "exited with code 5"),
        ("raise", 1, "exited with code 1"),
        ("exit0", 1, "exited with code 0"),
    ],
)
def test_the_worker_that_broke_the_job_is_the_first(how, code, said):
    with Launch(*WORDS, WORKER, how) as launch:
        assert launch.wait(timeout=60) == code
        pid = launch.child("worker 1")
        assert failures(launch)[0].startswith(f"muster: first failure: worker 1 (pid {pid}) {said}")
        assert re.search(rf"the scheduler says: rank 1 \(.*pid {pid}\)", launch.stderr)
        assert ("RuntimeError: my own fault" in launch.stderr) == (how == "raise")
        for rank in (0, 2, 3):
            assert f"pid {pid})" in launch.log(f"worker_{rank}.log"), "the survivors had the time to say whom they lost"
        launch.nothing_left()


def test_a_worker_that_the_launcher_has_ended_itself_is_not_blamed():
    """Rank 1 has left, so the scheduler knows of no loss but those of the others, which the launcher causes. It asks the scheduler
    before it stops them, 0.25 s after the failure. On a busy machine the answer may come too late, but not each time."""
    told = []
    for _ in range(3):
        with Launch(*WORDS, WORKER, "left9") as launch:
            assert launch.wait(timeout=60) == 9
            launch.nothing_left()
            told.append(launch.stderr)
            first = f"muster: first failure: worker 1 (pid {launch.child('worker 1')}) exited with code 9, log "
            if failures(launch)[0].startswith(first) and "is lost" not in launch.stderr:
                return
    pytest.fail("\n---\n".join(told))


def test_a_worker_that_leaves_while_others_need_it_is_said_to_have_left():
    with Launch(*WORDS, WORKER, "left0") as launch:
        assert launch.wait(timeout=60) == 1
        pid = launch.child("worker 1")
        assert failures(launch)[0].startswith(f"muster: first failure: worker 1 (pid {pid}) exited with code 0, log ")
        assert "\n    it left the cluster (muster_finalize) while others still needed it\n" in launch.stderr
        launch.nothing_left()


def test_a_worker_that_is_stopped_is_named_before_those_that_notice_it():
    with Launch(*WORDS, WORKER, "stop", env={"MUSTER_NODE_TIMEOUT": 1}) as launch:
        assert launch.wait(timeout=60) == 1, "the code of the first that ended by itself"
        pid = launch.child("worker 1")
        cause = rf"^muster: the first failure was that of worker 1 \(pid {pid}\), log .*: rank 1 \(.*pid {pid}\).*\n(?:    .*\n)*muster: first to end: worker [023] "
        assert re.search(cause, launch.stderr, re.M), launch.stderr
        launch.nothing_left()


def test_a_worker_that_aborts_and_ends_slowly_is_named_and_gives_the_code():
    with Launch(*WORDS, WORKER, "abort") as launch:
        assert launch.wait(timeout=60) == 7
        pid = launch.child("worker 1")
        cause = rf"^muster: the first failure was that of worker 1 \(pid {pid}\), log .*: rank 1 \(.*\) aborted the job with code 7: bad data\n"
        assert re.search(cause, launch.stderr, re.M), launch.stderr
        launch.nothing_left()


def test_forming_that_takes_too_long_has_a_code_of_its_own():
    late = "if [ $RANK_ID = 2 ]; then exec sleep 600; fi; exec \"$0\" \"$@\""
    with Launch(*WORDS, "--cluster_time_out=5", "--", "sh", "-c", late, "python3", WORKER, "leave") as launch:
        assert launch.wait(timeout=60) == 124
        assert failures(launch)[0].startswith("muster: first failure: the scheduler")
        assert "missing: rank 2" in launch.stderr
        launch.nothing_left()


def test_while_the_ranks_are_unknown_a_worker_has_nobody_elses_place_for_torch():
    """Those of the launcher's own environment are of another launcher's worker."""
    stale = {"RANK": 99, "WORLD_SIZE": 100, "LOCAL_RANK": 7, "LOCAL_WORLD_SIZE": 8}
    with reserved_port() as port:
        words = ("--worker_num=2", "--local_worker_num=1", f"--master_port={port}", "--join=True", "--tail_worker_log=none")
        with Launch(*words, "--", "sh", "-c", "env; exit 3", env=stale) as launch:
            assert launch.wait(timeout=60) == 3
            log, = launch.logs.glob("worker_*.log")
            told = dict(line.split("=", 1) for line in log.read_text().splitlines() if "=" in line)
            assert told["RANK_SIZE"] == "2" and not stale.keys() & told.keys()


def test_a_job_over_two_launchers():
    """The second has no scheduler of its own: it is told where the first one's is, as on another host."""
    words = ("--worker_num=4", "--local_worker_num=2", "--join=True")
    with Launch(*words, "--node_rank=0", "--master_port=0", WORKER, "leave") as first:
        port = first.wait_for(r"the scheduler is here: 127\.0\.0\.1 port (\d+)", timeout=20)[1]
        environment = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": port, "MS_WORKER_NUM": 4}
        others = [Process([WORKER, "leave"], {**environment, "MS_NODE_ID": rank}, f"worker {rank}") for rank in (2, 3)]
        with others[0], others[1]:
            assert [other.wait(timeout=60) for other in others] == [0, 0]
            assert first.wait(timeout=60) == 0
        assert first.log("worker_1.log") == "rank 1 of 4\n"
