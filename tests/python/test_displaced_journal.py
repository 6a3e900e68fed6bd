"""The scheduler's journal is removed, moved away or replaced while the scheduler uses it: it says so at the next write and writes
it anew, and the next scheduler knows everything."""

import re
import shutil
import time

import pytest
from cluster import MUSTER
from nodes import node, said
from recovering import LIMIT_SECONDS, Recovering

LINES = """
    c = join()
    c.store_set(f"before/{c.rank}", b"1")
    c.world.barrier()
    say(has_written=True)
    hold("displaced")
    if c.rank == 0:
        c.store_set("after", b"2")
    hold("go")
    assert [c.store_get(key, 0) for key in ("before/0", "before/1", "after")] == [b"1", b"1", b"2"]
    say(found=True)
    c.leave()
"""


def removed(path):
    path.unlink()


def moved(path):
    path.rename(path.with_name("kept"))


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def removed_with_its_folder(path):
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("displace", [removed, moved, replaced, removed_with_its_folder])
def test_the_journal_is_written_anew_where_it_is_not_in_its_place_any_more(tmp_path, displace):
    with Recovering(node(LINES), workers=2, folder=tmp_path, scheduler=[MUSTER, "scheduler"]) as job:
        job.await_all("has_written")
        path = job.recovery / "scheduler.journal"
        displace(path)
        before = path.stat().st_ino if path.exists() else None
        job.let("displaced")
        deadline = time.monotonic() + LIMIT_SECONDS
        while not path.exists() or path.stat().st_ino == before:
            assert time.monotonic() < deadline, job.scheduler.describe()
            time.sleep(0.01)
        words = f"{path}: it was removed, or another file was put in its place"
        job.scheduler.wait_for(re.escape(words), LIMIT_SECONDS)
        job.lose_scheduler()
        job.start_scheduler()
        job.let("go")
        for worker in job.workers:
            assert worker.wait(LIMIT_SECONDS) == 0, worker.describe()
            assert said(worker)["found"]
        assert job.scheduler.wait(LIMIT_SECONDS) == 0
