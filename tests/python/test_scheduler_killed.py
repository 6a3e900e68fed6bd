"""With recovery: the scheduler is killed while the cluster forms, while it is made whole again, while its nodes leave; what
follows, and what it is when nobody starts it again."""

import time

from nodes import node, said
from recovering import LIMIT_SECONDS, Recovering, lives

# The limit for leaving without the scheduler: 5 s from when it went. The slack is for a busy machine.
LEAVING_SECONDS = 5 + 5

KEEPS = """
    c = join()
    say(epoch=c.epoch, restarts=c.restarts)
    c.store_add("joined", 1)
    c.world.barrier()
    say(joined_by=c.store_add("joined", 0))
    say(stands=True)
    if c.rank > 0:
        hold("leave")
    began = time.monotonic()
    c.leave()
    say(left=time.monotonic() - began)
"""


def test_while_the_cluster_forms(tmp_path):
    """The nodes that were there come again by themselves; none is counted twice."""
    with Recovering(node(KEEPS), workers=3, started=2, folder=tmp_path, env={"MUSTER_LOG": "info"}) as job:
        for rank in range(2):
            job.scheduler.wait_for(f'admitted worker node "{rank}"', LIMIT_SECONDS)
        job.lose_scheduler()
        job.start_scheduler()
        for rank in range(2):
            job.scheduler.wait_for(f'admitted worker node "{rank}"', LIMIT_SECONDS)
        job.start_worker()
        job.let("leave")
        for worker in job.succeed(timeout=LIMIT_SECONDS):
            words = said(worker)
            assert (words["epoch"], words["restarts"], words["joined_by"]) == (1, 0, 3), words


def test_while_one_that_is_back_waits_with_the_others(tmp_path):
    """One survivor is missing; the next scheduler hears of all the others by themselves."""
    with Recovering(lives(), workers=3, folder=tmp_path) as job:
        job.await_all("stands_1")
        job.lose(1)
        job.await_all("failed_1", [0, 2])
        job.start_again(1)
        job.scheduler.wait_for(r"rank 1 \(.*\) is back", LIMIT_SECONDS)
        job.lose_scheduler()
        job.start_scheduler()
        job.scheduler.wait_for(r"rank 1 \(.*\) is back", LIMIT_SECONDS)
        job.scheduler.wait_for("recovering since .* awaited: rank [02]", LIMIT_SECONDS)
        job.let("recover_1")
        places = job.await_all("stands_2")
        assert [(place["epoch"], place["restarts"]) for place in places] == [(2, 0), (2, 1), (2, 0)]
        job.let("end")
        job.succeed(timeout=LIMIT_SECONDS)


def test_while_its_nodes_leave(tmp_path):
    """A node that has left is not waited for; when the last has left the scheduler ends well, and the next start is a new job."""
    with Recovering(node(KEEPS), workers=3, folder=tmp_path) as job:
        job.await_all("stands")
        assert job.workers[0].wait(LIMIT_SECONDS) == 0
        job.lose_scheduler()
        scheduler = job.start_scheduler()
        scheduler.wait_for("this scheduler was started again", LIMIT_SECONDS)
        job.let("leave")
        job.succeed(timeout=LIMIT_SECONDS)
        assert scheduler.returncode == 0 and "lost" not in scheduler.stderr, scheduler.describe()
    with Recovering(node(KEEPS), workers=3, folder=tmp_path) as job:
        for worker in job.succeed(timeout=LIMIT_SECONDS):
            assert (said(worker)["epoch"], said(worker)["joined_by"]) == (1, 3)
        assert "is done: a new one begins" in job.scheduler.stderr


def test_a_worker_leaves_in_time_and_says_so_when_the_scheduler_never_comes_back(tmp_path):
    with Recovering(node(KEEPS), workers=3, folder=tmp_path) as job:
        job.await_all("stands")
        assert job.workers[0].wait(LIMIT_SECONDS) == 0
        job.lose_scheduler()
        went = time.monotonic()
        for worker in job.workers[1:]:
            worker.wait_for(r"the scheduler at .* has been away for .*: collectives go on", LIMIT_SECONDS)
        job.let("leave")
        for worker in job.workers[1:]:
            assert worker.wait(LIMIT_SECONDS) == 0
            assert said(worker)["left"] < LEAVING_SECONDS
            assert "left without telling the scheduler" in worker.stderr, worker.describe()
        assert time.monotonic() - went < LIMIT_SECONDS
