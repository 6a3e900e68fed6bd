"""The main job on real images: the ranks agree to the bit, and the loss curve does not depend on how many they are."""

import os
import re
import struct

import pytest

from cluster import EXAMPLES, Cluster, Process

TRAIN = EXAMPLES / "train_digits"
TRAINING_IMAGES = 1438
LOSS_LINE = re.compile(r"^epoch: (\d+), step: (\d+), loss is (\d+\.\d{4})$", re.M)
REPORT_LINE = re.compile(
    r"^rank (\d+) of (\d+): samples used: (\d+), accuracy on (\d+) held-back images: ([\d.]+) %, "
    r"weights hash: ([0-9a-f]{16})$",
    re.M,
)


def trained_well(text, ranks=8):
    """So many ranks say here, in whatever order, that they have learnt the same."""
    found = re.findall(r"rank (\d+) of (\d+): samples used: \d+, accuracy on 359 held-back images: ([\d.]+) %, weights hash: (\w+)", text)
    assert sorted((int(rank), int(size)) for rank, size, _, _ in found) == [(rank, ranks) for rank in range(ranks)], text
    assert len({digest for *_, digest in found}) == 1 and all(float(accuracy) >= 95 for _, _, accuracy, _ in found), text


class Report:
    """What one rank printed."""

    def __init__(self, worker):
        self.curve = {(int(e), int(s)): float(loss) for e, s, loss in LOSS_LINE.findall(worker.stdout)}
        (rank, size, samples, held_back, accuracy, self.hash), = REPORT_LINE.findall(worker.stdout)
        self.rank, self.size, self.samples, self.held_back = int(rank), int(size), int(samples), int(held_back)
        self.accuracy = float(accuracy)


def train(workers, *options, env=None):
    with Cluster([TRAIN, *options], workers=workers, env=env) as cluster:
        reports = [Report(worker) for worker in cluster.succeed(timeout=120)]
        assert [report.rank for report in reports] == list(range(workers))
        return reports


@pytest.fixture(scope="module")
def four_ranks():
    return train(4)


def test_all_ranks_end_with_the_same_weights_and_know_the_digits(four_ranks):
    assert len({report.hash for report in four_ranks}) == 1
    for report in four_ranks:
        assert report.held_back == 359
        assert report.accuracy >= 95.0


def test_every_rank_trains_on_its_own_part(four_ranks):
    epochs = 1 + max(epoch for epoch, _ in four_ranks[0].curve)
    assert sum(report.samples for report in four_ranks) == epochs * TRAINING_IMAGES
    fair = epochs * TRAINING_IMAGES / 4
    for report in four_ranks:
        assert abs(report.samples - fair) <= epochs, "the parts of a batch differ by one image at most"


def test_every_rank_prints_the_loss_of_the_whole_batch(four_ranks):
    first = four_ranks[0].curve
    assert {step for _, step in first} == {0, 10, 20}
    assert all(report.curve == first for report in four_ranks)
    assert first[0, 0] > 2.0 > 0.2 > max(loss for (epoch, _), loss in first.items() if epoch >= 15)


def test_one_two_and_four_ranks_have_the_same_loss_curve(four_ranks):
    for workers in (1, 2):
        curve = train(workers)[0].curve
        assert curve.keys() == four_ranks[0].curve.keys()
        for at, loss in curve.items():
            # Only the order of float32 additions differs.
            assert loss == pytest.approx(four_ranks[0].curve[at], rel=2e-3, abs=5e-4), at


def test_the_same_run_gives_the_same_bits(four_ranks):
    assert train(4)[0].hash == four_ranks[0].hash


def test_without_allreduce_the_weights_drift_apart():
    reports = train(4, "--no-sync")
    assert len({report.hash for report in reports}) == 4


def test_three_ranks_and_a_batch_smaller_than_the_ranks_are_many():
    for options in (("--epochs", "1"), ("--epochs", "1", "--batch", "2")):
        reports = train(3, *options)
        assert len({report.hash for report in reports}) == 1
        assert sum(report.samples for report in reports) == TRAINING_IMAGES


def test_alone_without_any_setting_it_trains_too():
    with Process([TRAIN]) as alone:
        assert alone.wait(timeout=60) == 0
        assert Report(alone).accuracy >= 95.0


# MNIST's format, with images made for the test: digit d is a bright bar at row d.

def idx(magic, lengths, data):
    return struct.pack(f">{1 + len(lengths)}I", magic, *lengths) + bytes(data)


def bar(digit, shade):
    return [shade if pixel // 28 in (2 * digit, 2 * digit + 1) else 0 for pixel in range(28 * 28)]


def write_mnist(folder, part, count):
    digits = [(7 * i + 3) % 10 for i in range(count)]
    pixels = [pixel for i, digit in enumerate(digits) for pixel in bar(digit, 155 + i % 100)]
    (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(0x803, [count, 28, 28], pixels))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(0x801, [count], digits))


def test_data_path_reads_mnist_files(tmp_path):
    write_mnist(tmp_path, "train", 200)
    write_mnist(tmp_path, "t10k", 40)
    reports = train(2, "--epochs", "5", env={"DATA_PATH": tmp_path})
    assert len({report.hash for report in reports}) == 1
    assert [(report.samples, report.held_back, report.accuracy) for report in reports] == [(500, 40, 100.0)] * 2


def test_data_path_may_be_the_train_folder_of_the_usual_two(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    write_mnist(tmp_path / "train", "train", 50)
    write_mnist(tmp_path / "test", "t10k", 20)
    report, = train(1, "--epochs", "1", env={"DATA_PATH": tmp_path / "train"})
    assert (report.samples, report.held_back) == (50, 20)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
BROKEN = {
    "wrong magic": (IMAGES, lambda file: b"\0\0\7\1" + file[4:], "begins with the number 1793"),
    "swapped": (LABELS, lambda file: idx(0x803, [1, 1, 1], [0]), "begins with the number 2051"),
    "compressed": (IMAGES, lambda file: b"\x1f\x8b\x08\0" + file[4:], "gunzip"),
    "short": (IMAGES, lambda file: file[:-1], "header, which announces"),
    "long": (IMAGES, lambda file: file + b"\0", "header, which announces"),
    "no header": (LABELS, lambda file: file[:5], "is 5 bytes long"),
    "empty": (LABELS, lambda file: b"", "is 0 bytes long"),
    "absurd length": (IMAGES, lambda file: idx(0x803, [0xFFFFFFFF, 28, 28], []), "claims 4294967295"),
    "no label eleven": (LABELS, lambda file: file[:-1] + b"\x0b", "it must be a digit"),
    "other count": (LABELS, lambda file: idx(0x801, [3], [1, 2, 3]), "3 labels for 50 images"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_mnist_file_is_named(tmp_path, kind):
    name, damage, words = BROKEN[kind]
    write_mnist(tmp_path, "train", 50)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with Process([TRAIN], {"DATA_PATH": tmp_path}) as process:
        assert process.wait(timeout=30) == 1
        assert f"{tmp_path / name}: " in process.stderr and words in process.stderr


def test_bad_options_and_missing_data_are_named(tmp_path):
    (tmp_path / "digits.csv").write_text("1,2,3\n")
    cases = [
        ([TRAIN, "--epochs", "2x"], None, 2, "--epochs is '2x'"),
        ([TRAIN, "--lr", "nan"], None, 2, "--lr is 'nan'"),
        ([TRAIN, "--batch"], None, 2, "--batch needs a value"),
        ([TRAIN, "--spochs", "2"], None, 2, "unknown option '--spochs'"),
        ([TRAIN, "--data", tmp_path / "absent.csv"], None, 1, "absent.csv: No such file"),
        ([TRAIN, "--data", tmp_path / "digits.csv"], None, 1, "digits.csv: line 1 is not 64 numbers"),
        ([TRAIN, "--data", tmp_path], None, 1, "holds no train-images-idx3-ubyte"),
        ([TRAIN], {"DATA_PATH": os.devnull}, 1, "DATA_PATH is '/dev/null'"),
    ]
    for program, env, code, words in cases:
        with Process(program, env) as process:
            assert process.wait(timeout=30) == code
            assert words in process.stderr, words
