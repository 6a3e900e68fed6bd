"""Exact sums, as docs/exact-sums.md promises them: its program says the same on any number of workers, and so does a training,
also when workers are killed."""

import fcntl
import os
import re
import signal
import subprocess
import time

import pytest

from cluster import EXAMPLES, INSTALLED, Cluster
from launch import Launch
from pages import STRICT, Page

PAGE = Page("docs", "exact-sums.md")
PROGRAM, = PAGE.programs
SAID, = PAGE.outputs
TRAIN = EXAMPLES / "train_digits"
# 2 epochs of 23 steps, on a small model: 7 parts of each batch, so that ranks have different numbers of them, or none.
WORDS = ["--epochs", 2, "--hidden", 8, "--micro-batches", 7]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The page's program, built as it says."""
    built = tmp_path_factory.mktemp("exact") / "exact"
    (source := built.with_suffix(".c")).write_text(PROGRAM)
    places = [f"-I{INSTALLED}/include", f"-L{INSTALLED}/lib", f"-Wl,-rpath,{INSTALLED}/lib"]
    subprocess.run(["cc", *STRICT, source, "-o", built, *places, "-lmuster"], check=True, timeout=60)
    return built


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
def test_the_pages_program_says_the_same_on_any_number_of_workers(program, workers):
    with Cluster([program], workers=workers) as cluster:
        assert [worker.stdout for worker in cluster.succeed(timeout=60)] == [SAID] * workers


def hashes(workers, *words):
    """The weights' hash of each rank."""
    with Cluster([TRAIN, *WORDS, *words], workers=workers) as cluster:
        return [re.search(r"weights hash: (\w+)", worker.stdout)[1] for worker in cluster.succeed(timeout=120)]


@pytest.fixture(scope="module")
def alone():
    """The weights' hash of a training on one worker."""
    only, = hashes(1, "--exact")
    return only


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8])
def test_a_training_ends_with_the_same_weights_on_any_number_of_workers(alone, workers):
    assert hashes(workers, "--exact") == [alone] * workers


def test_without_exact_sums_the_number_of_workers_shows(alone):
    two, four = hashes(2), hashes(4)
    assert len(set(two)) == len(set(four)) == 1
    assert len({alone, two[0], four[0]}) == 3


class Traced(Launch):
    """A training with restarts, whose processes write each event to a pipe that holds few: they wait for their reader."""

    def __init__(self, folder, workers):
        self.pipe = folder / "trace"
        os.mkfifo(self.pipe)
        self.reader = os.open(self.pipe, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, 4096)
        self.rest = b""
        words = ["--exact", "--checkpoint", folder / "checkpoints", "--checkpoint_interval", 5, "--trace", self.pipe]
        settings = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": folder / "recovery"}
        super().__init__(f"--worker_num={workers}", "--master_port=0", "--join", "--max_restarts=3", TRAIN, *WORDS, *words,
                         env=settings)

    def close(self):
        os.close(self.reader)
        super().close()

    def read(self):
        """What has been written since; waits a little where that is nothing."""
        try:
            found = os.read(self.reader, 4096)
        except BlockingIOError:
            found = b""
        if not found:
            time.sleep(0.001)
        return found

    def await_event(self, wanted, limit=90):
        """The pid of the process that says so: rank, event, number."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            line, found, rest = self.rest.partition(b"\n")
            if not found:
                self.rest += self.read()
                continue
            self.rest = rest
            _, pid, *words = line.decode().split()
            if " ".join(words) == wanted:
                return int(pid)
        raise AssertionError(f"not within {limit} s: {wanted}")

    def drain(self, limit):
        """Reads on until the launcher has ended."""
        deadline = time.monotonic() + limit
        while self.popen.poll() is None:
            assert time.monotonic() < deadline, self.describe()
            self.read()


def test_a_training_ends_with_the_same_weights_after_kills(alone, tmp_path):
    with Traced(tmp_path, workers=4) as job:
        for rank, step in (1, 8), (2, 21), (0, 33):
            os.kill(job.await_event(f"{rank} step {step}"), signal.SIGKILL)
        job.drain(limit=90)
        assert job.wait(60) == 0, job.describe()
        assert len(re.findall(r"; restart \d of 3 has pid", job.stderr)) >= 3
        for rank in range(4):
            assert re.search(r"weights hash: (\w+)", job.log(f"worker_{rank}.log"))[1] == alone


@pytest.mark.parametrize("words, said", [
    (["--exact"], "--exact needs --micro-batches"),
    (["--exact", "--micro-batches", "4", "--no-sync"], "--exact and --no-sync exclude each other"),
    (["--micro-batches", "0"], "--micro-batches is '0'"),
])
def test_options_that_make_no_sense_are_told(words, said):
    done = subprocess.run([TRAIN, *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and said in done.stderr
