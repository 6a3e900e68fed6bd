"""Checkpoints of train_digits: where they are, which are kept, and that none is loaded that is not whole and its own."""

import re
import shutil
import signal
import struct

import pytest

from cluster import EXAMPLES, Cluster, Process
from launch import until

TRAIN = EXAMPLES / "train_digits"
STEPS_PER_EPOCH = 23
EPOCHS = 4
LAST = EPOCHS * STEPS_PER_EPOCH
INTERVAL = 20
WORDS = ["--epochs", EPOCHS, "--hidden", 16, "--checkpoint_interval", INTERVAL]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def names(rank, *steps):
    return sorted(f"rank-{rank}-step-{step}.ckpt" for step in steps)


def train_alone(folder, *words, code=0):
    """One rank; what it wrote, and the weights that it saved."""
    weights = folder / "weights"
    weights.unlink(missing_ok=True)
    with Process([TRAIN, *WORDS, "--checkpoint", folder / "ckpt", "--save", weights, *words]) as process:
        assert process.wait(timeout=60) == code
        return process.stdout, process.stderr, weights.read_bytes() if weights.exists() else None


def train_together(folder, workers=2, code=0):
    """Several; what each wrote, and rank 0's weights."""
    weights = folder / "weights"
    weights.unlink(missing_ok=True)
    with Cluster([TRAIN, *WORDS, "--checkpoint", folder / "ckpt", "--save", weights], workers=workers) as cluster:
        ended = cluster.wait(timeout=60)
        assert [worker.returncode for worker in ended] == [code] * workers
        return ([worker.stdout for worker in ended], [worker.stderr for worker in ended],
                weights.read_bytes() if weights.exists() else None)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A finished training of one rank: its folder, to be copied, and its weights."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, train_alone(folder)[2]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return folder, train_together(folder)[2]


def copy(trained, tmp_path, *lost):
    """The folder of a training, without these files."""
    shutil.copytree(trained[0] / "ckpt", tmp_path / "ckpt")
    for name in lost:
        (tmp_path / "ckpt" / name).unlink()
    return tmp_path / "ckpt"


def test_the_newest_few_are_kept_and_nothing_else_is_left(two):
    assert files(two[0] / "ckpt") == sorted(names(0, 60, 80, LAST) + names(1, 60, 80, LAST))


def test_how_many_are_kept_can_be_said(tmp_path):
    train_alone(tmp_path, "--keep", 2)
    assert files(tmp_path / "ckpt") == names(0, 80, LAST)


def test_checkpoints_change_nothing(alone, tmp_path):
    with Process([TRAIN, *WORDS, "--save", tmp_path / "weights"]) as process:
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "weights").read_bytes() == alone[1]


@pytest.mark.parametrize("newest, lost", [(80, [LAST]), (60, [LAST, 80])])
def test_it_goes_on_from_the_newest_and_ends_with_the_same_bits(alone, tmp_path, newest, lost):
    folder = copy(alone, tmp_path, *names(0, *lost))
    out, err, weights = train_alone(tmp_path)
    assert f"rank 0 goes on from step {newest}\n" in out and err == ""
    assert f" samples used: {EPOCHS * 1438}, " in out, "as if it had never ended"
    assert weights == alone[1]
    assert files(folder) == names(0, 60, 80, LAST)


def test_all_go_to_the_newest_that_everyone_has(two, tmp_path):
    copy(two, tmp_path, *names(0, LAST), *names(1, 80, LAST))
    out, err, weights = train_together(tmp_path)
    assert all(f"rank {rank} goes on from step 60\n" in out[rank] for rank in range(2))
    assert weights == two[1]


def test_where_the_newest_common_one_is_not_the_least_newest_they_look_further(two, tmp_path):
    """Rank 0 has 60 and 92, rank 1 has 60 and 80: both have 60 only."""
    copy(two, tmp_path, *names(0, 80), *names(1, LAST))
    out, err, weights = train_together(tmp_path)
    assert all(f"rank {rank} goes on from step 60\n" in out[rank] for rank in range(2))
    assert "goes back from step 92 to 60, by more than one interval" in err[0]
    assert weights == two[1]


def test_ranks_with_nothing_in_common_say_so_and_begin_nothing_anew(two, tmp_path):
    copy(two, tmp_path, *names(1, 60, 80, LAST))
    out, err, weights = train_together(tmp_path, code=1)
    assert "rank 0 has a checkpoint of step 92" in err[0] and "the ranks have none in common" in err[0]
    assert "the ranks have none in common" in err[1], "the reason of the abort"
    assert weights is None


def flip(at):
    return lambda file: file[:at] + bytes([file[at] ^ 1]) + file[at + 1:]


DAMAGE = {
    "empty": (lambda file: b"", "is no checkpoint"),
    "torn in the header": (lambda file: file[:40], "is no checkpoint"),
    "torn in the weights": (lambda file: file[:1000], "is damaged"),
    "without its end": (lambda file: file[:-1], "is damaged"),
    "longer": (lambda file: file + b"\0" * 8, "is damaged"),
    "a weight": (flip(200), "is damaged"),
    "a velocity": (flip(-100), "is damaged"),
    "the checksum": (flip(-1), "is damaged"),
    "something else": (lambda file: b"x" * len(file), "is no checkpoint"),
    "a later version": (lambda file: file[:8] + struct.pack("<I", 2) + file[12:], "is of version 2, this program's is 1"),
    "another rank's": (lambda file: file[:12] + struct.pack("<I", 7) + file[16:], "is that of rank 7 and step 92"),
    "another step's": (lambda file: file[:24] + struct.pack("<Q", 80) + file[32:], "is that of rank 0 and step 80"),
    "another training's": (flip(16), "belongs to another training"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_not_whole_and_its_own_is_told_of_and_never_loaded(alone, tmp_path, kind):
    damage, said = DAMAGE[kind]
    newest = copy(alone, tmp_path) / names(0, LAST)[0]
    newest.write_bytes(damage(newest.read_bytes()))
    out, err, weights = train_alone(tmp_path)
    assert f"{newest} {said}: it is left out\n" in err.replace(": other options, other data, or another number of ranks", "")
    assert "rank 0 goes on from step 80\n" in out
    assert weights == alone[1]


def test_other_options_are_another_training(alone, tmp_path):
    folder = copy(alone, tmp_path)
    out, err, weights = train_alone(tmp_path, "--lr", "0.01")
    assert err.count("belongs to another training") == 3
    assert "goes on" not in out and weights not in (None, alone[1])
    assert files(folder) == names(0, 60, 80, LAST)


def test_what_a_life_before_left_unfinished_is_cleared_away(alone, tmp_path):
    folder = copy(alone, tmp_path)
    (folder / "rank-0-step-80.ckpt.77.tmp").write_bytes(b"half")
    (folder / "rank-1-step-80.ckpt.77.tmp").write_bytes(b"another's")
    train_alone(tmp_path)
    assert files(folder) == sorted([*names(0, 60, 80, LAST), "rank-1-step-80.ckpt.77.tmp"])


def test_where_nothing_can_be_written_it_ends_with_the_path(tmp_path):
    (tmp_path / "ckpt").write_text("a file")
    assert "ckpt" in train_alone(tmp_path, code=1)[1]


def test_a_loss_without_recovery_ends_the_job_and_the_next_start_goes_on(two, tmp_path):
    """Rank 1 is killed when it has a checkpoint; all are started again."""
    folder, weights = tmp_path / "ckpt", tmp_path / "weights"
    words = ["--epochs", 2000, "--hidden", 16, "--checkpoint_interval", INTERVAL, "--checkpoint", folder, "--save", weights]
    with Cluster([TRAIN, *words], workers=2) as cluster:
        until(lambda: folder.exists() and any("rank-1-step-4" in name for name in files(folder)), 60, "a checkpoint")
        cluster.workers[1].kill()
        cluster.wait(timeout=60)
        assert cluster.workers[1].returncode == -signal.SIGKILL and cluster.workers[0].returncode == 1
        assert re.search(r"rank 1 \(.*\) is lost", cluster.workers[0].stderr)
    with Cluster([TRAIN, *words], workers=2) as cluster:
        for rank, worker in enumerate(cluster.workers):
            step = int(worker.wait_for(rf"rank {rank} goes on from step (\d+)\n", timeout=60)[1])
            assert step > 0 and step % INTERVAL == 0


def test_one_that_comes_back_to_a_training_that_is_over_ends_well(two, tmp_path):
    """The others have left, and there is no scheduler any more."""
    folder = copy(two, tmp_path)
    settings = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": 1025, "MS_WORKER_NUM": 2}
    program = [TRAIN, *WORDS, "--checkpoint", folder]
    with Process(program, {**settings, "MS_NODE_ID": 1}) as late:
        assert late.wait(timeout=60) == 0
        assert "all ranks have finished: there is nothing left to do" in late.stdout
    (folder / names(1, LAST)[0]).unlink()
    with Process(program, {**settings, "MS_NODE_ID": 1, "MS_CLUSTER_TIMEOUT": 1}) as early:
        assert early.wait(timeout=60) == 1, "its work is not done"


@pytest.mark.parametrize("words, said", [
    (["--checkpoint", "x", "--keep", 1], "--keep is '1'; it must be 2 or more"),
    (["--checkpoint", "x", "--no-sync"], "--checkpoint and --no-sync exclude each other"),
    (["--checkpoint_interval", 0], "--checkpoint_interval is '0'"),
])
def test_options_that_do_not_fit_are_named(words, said):
    with Process([TRAIN, *words]) as process:
        assert process.wait(timeout=30) == 2
        assert said in process.stderr
