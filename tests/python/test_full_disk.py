"""`muster run` where a disk is full: a scheduler whose journal finds no room is started again, but not in vain; logs that end early are told of."""

import resource
import signal

import pytest

from cluster import MUSTER, Process
from disks import Full
from launch import Launch
from nodes import node

LIMIT = 90
# A file that may not grow refuses with an error, as a full disk does, where this signal is ignored.
REFUSING = ("sh", "-c", f"trap '' {signal.SIGXFSZ.value}; exec \"$@\"", "sh", MUSTER, "run")
LINES = """
    c = join()
    c.store_set("filler", bytes(300_000))
    say(filled=True)
    hold("go")
    c.store_set("more", bytes(100_000))
    say(value=len(c.store_get("more")))
    c.leave()
"""


class Job(Launch):
    """One worker, that fills the journal, and goes on writing when it may."""

    def __init__(self, tmp_path, restarts):
        self.kept = tmp_path
        settings = {"HOLD_FOLDER": tmp_path, "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
        words = ["--worker_num=1", "--master_port=0", "--join", f"--max_restarts={restarts}", "--tail_worker_log=none"]
        super().__init__(*words, *node(LINES), env=settings, command=REFUSING)

    def fill(self, *pids):
        """From now on the journal has no room in these processes, nor in those that they start."""
        self.wait_for_log("worker_0.log", "filled", LIMIT)
        size = (self.kept / "recovery" / "scheduler.journal").stat().st_size
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))

    def go(self):
        (self.kept / "go").touch()


def test_a_scheduler_whose_journal_failed_is_started_again_and_finds_room(tmp_path):
    with Job(tmp_path, restarts=3) as job:
        scheduler = job.child("the scheduler")
        job.fill(scheduler)
        job.go()
        assert job.wait(LIMIT) == 0, job.describe()
        assert f"the scheduler (pid {scheduler}) exited with code 5; restart 1 of 3 has pid" in job.stderr
        assert job.stderr.count("; restart ") == 1
        assert '"value": 100000' in job.log("worker_0.log")
        assert "scheduler.journal" in job.log("scheduler.log")
        job.nothing_left()


def test_one_that_finds_no_room_as_it_starts_is_not_started_in_a_loop(tmp_path):
    with Job(tmp_path, restarts=1000) as job:
        job.fill(job.child("the scheduler"), job.pid)
        job.go()
        assert job.wait(LIMIT) == 4, job.describe()
        assert job.stderr.count("; restart 1 of 1000") == 1 and "; restart 2" not in job.stderr
        assert "exited with code 4 after 1 restart, log " in job.stderr
        job.nothing_left()
    with Job(tmp_path, restarts=3) as job:
        assert job.wait(LIMIT) == 0, "with room the next run goes on where it was"
        assert '"value": 100000' in job.log("worker_0.log")


@pytest.mark.parametrize("code", [0, 3])
def test_a_full_disk_under_the_logs_is_told_of(code):
    with Full() as disk:
        fills = f'dd if=/dev/zero of="$0/filler" bs=4096 2>/dev/null; echo lost; exit {code}'
        words = ["--worker_num=1", "--master_port=0", "--join", f"--log_dir={disk.path}/logs", "sh", "-c", fills, disk.path]
        with Process(disk.command([MUSTER, "run", *words])) as launcher:
            launcher.wait(LIMIT)
            sentence = f"muster: warning: the disk with the logs ({disk.path}/logs) is full: what workers wrote last may be lost\n"
            assert launcher.stderr.count(sentence) == 1, launcher.stderr
