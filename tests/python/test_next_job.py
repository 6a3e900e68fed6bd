"""With recovery: when a job is over for good the next start on the same recovery path is a new one."""

import re

import pytest

from cluster import Cluster, reserved_port
from nodes import node, said
from recovering import LIMIT_SECONDS, Recovering

ARCHIVES_KEPT = 3
NOTICE = r"the job of the journal (\S+) is done: a new one begins"

JOB = """
    c = join()
    say(epoch=c.epoch, restarts=c.restarts, found=fails(c.store_get, "key", 0))
    c.world.barrier()
    c.store_set("key", os.environ["VALUE"].encode())
    c.world.barrier()
    if os.environ["VALUE"] == "aborted":
        if c.rank == 0:
            c.store_wait(["passed"])
            c.abort(7, "on purpose")
        else:
            c.store_set("passed", b"")
        say(**fails(c.world.barrier))
    c.leave()
"""


def archives(job):
    return {path.name: path.read_bytes() for path in job.recovery.glob("scheduler.journal.*")}


def run_job(folder, value, number):
    """One job after another in the same folder; each finds an empty store, and the journal of the one before archived."""
    with Recovering(node(JOB), workers=2, folder=folder, env={"VALUE": value}) as job:
        for worker in job.workers:
            assert worker.wait(LIMIT_SECONDS) == 0
        assert job.scheduler.wait(LIMIT_SECONDS) == (1 if value == "aborted" else 0)
        for worker in job.workers:
            words = said(worker)
            assert (words["epoch"], words["restarts"], words["found"]["error"]) == (1, 0, "NOT_FOUND"), words
            assert words.get("error") == ("ABORTED" if value == "aborted" else None), words
        notices = re.findall(NOTICE, job.scheduler.stderr)
        assert notices == ([] if number == 0 else [str(job.recovery / "scheduler.journal")])
        return archives(job), (job.recovery / "scheduler.journal").read_bytes()


def test_the_next_start_archives_the_journal_of_a_job_that_is_over_and_keeps_three(tmp_path):
    values = ["first", "aborted", "third", "fourth", "fifth"]
    for number, value in enumerate(values):
        kept, journal = run_job(tmp_path, value, number)
        numbers = range(max(1, number + 1 - ARCHIVES_KEPT), number + 1)
        assert sorted(kept) == [f"scheduler.journal.{n}" for n in numbers]
        assert all(values[n - 1].encode() in kept[f"scheduler.journal.{n}"] for n in numbers)
        assert value.encode() in journal and all(other.encode() not in journal for other in values[:number])
    assert all((path.stat().st_mode & 0o777) == 0o600 for path in (tmp_path / "recovery").iterdir())


ABORTS = """
    c = join()
    c.world.barrier()
    say(stands=True)
    if c.rank == 2:
        hold("never")
    if os.environ["LOSES"] == "1":
        say(lost=fails(c.world.barrier))
    hold("abort")
    if c.rank == 1:
        c.abort(7, "on purpose")
    while (words := fails(c.recover, 100))["error"] == "TIMEOUT":
        pass
    say(aborted=words)
    hold("look")
    say(still=fails(c.recover, 30_000))
    hold("leave")
    c.leave()
"""


@pytest.mark.parametrize("loses", [False, True], ids=["whole", "one is lost"])
def test_after_an_abort_the_next_start_is_a_new_job_though_the_scheduler_was_killed(loses, tmp_path):
    """Those who were told of the abort stay with it, also when they meet the new job's scheduler."""
    env = {"MS_NODE_TIMEOUT": 20, "LOSES": int(loses)}
    with Recovering(node(ABORTS), workers=3, folder=tmp_path, env=env) as job:
        job.await_all("stands")
        if loses:
            job.lose(2)
            job.await_all("lost", [0, 1])
        job.let("abort")
        for words in job.await_all("aborted", [0, 1]):
            assert words["error"] == "ABORTED" and "code 7: on purpose" in words["sentence"], words
        job.lose_scheduler()
        if not loses:
            job.lose(2)
        job.start_scheduler()
        job.scheduler.wait_for(NOTICE, 30)
        job.let("look")
        assert {words["error"] for words in job.await_all("still", [0, 1])} == {"ABORTED"}
        job.let("leave")
        assert [job.workers[rank].wait(LIMIT_SECONDS) for rank in (0, 1)] == [0, 0]
        # They were no part of the new job: it still waits for its nodes.
        (tmp_path / "abort").unlink()
        again = [job.start_again(rank) for rank in range(3)]
        for worker in again:
            worker.wait_for('"stands"', LIMIT_SECONDS)


HOSTED = """
    c = join()
    say(epoch=c.epoch, found=fails(c.store_get, "key", 0))
    c.world.barrier()
    c.store_set("key", b"of the aborted job")
    if os.environ["ABORTS"] == str(c.rank):
        c.abort(7, "on purpose")
        os._exit(3)
    if os.environ["ABORTS"]:
        fails(c.world.barrier)
        os._exit(3)
    c.leave()
"""


@pytest.mark.parametrize("aborts", [0, 1], ids=["the one that hosts the scheduler aborts", "another one aborts"])
def test_an_abort_is_known_though_the_scheduler_ended_with_its_process_at_once(aborts, tmp_path):
    names = ("MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_ROLE", "MS_NODE_ID")
    recovery = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    for aborts_now in (aborts, ""):
        with reserved_port() as port, Cluster(node(HOSTED), workers=2, started=0, scheduler=False) as cluster:
            for rank in range(2):
                place = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port - 2}
                cluster.start_worker(env={**dict.fromkeys(names), **place, **recovery, "ABORTS": aborts_now})
            for worker in cluster.workers:
                # A rank whose call meets the end of the scheduler's process ends with 1.
                assert worker.wait(LIMIT_SECONDS) in ([0] if aborts_now == "" else [1, 3]), worker.stderr
                words = said(worker)
                assert (words["epoch"], words["found"]["error"]) == (1, "NOT_FOUND"), words
