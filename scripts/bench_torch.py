#!/usr/bin/env python3
"""Trains examples/torch_digits with PyTorch on muster and on Gloo, in turn, and prints what a step takes on each.

    scripts/bench_torch.py [--ranks 4] [--width 128] [--times 5]

Both run under `muster run`. The figures are the median and the range of all runs. Losses that differ end it with an error.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import fetch_torch

TREE = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = TREE / "examples" / "torch_digits" / "torch_digits.py"
DIGITS = TREE / "examples" / "train_digits" / "data" / "digits.csv"
MUSTER = TREE / "target" / "release" / "muster"
BACKENDS = ("muster", "gloo")
TIMEOUT_S = 600


def run(python, backend, ranks, width, environment):
    """What rank 0 says: the losses, and the milliseconds a step."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--master_port=0", "--join=True", f"--log_dir={folder}"]
        program = [python, EXAMPLE, DIGITS, "--backend", backend, "--width", str(width)]
        subprocess.run([MUSTER, "run", *words, *program], env=environment, check=True, capture_output=True, timeout=TIMEOUT_S)
        log = (pathlib.Path(folder) / "worker_0.log").read_text()
    return re.findall(r"loss (\S+)", log), float(re.search(r": (\S+) ms a step", log)[1])


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--ranks", type=int, default=4)
    words.add_argument("--width", type=int, default=128)
    words.add_argument("--times", type=int, default=5)
    options = words.parse_args()
    version = fetch_torch.VERSIONS[-1]
    python = fetch_torch.python(version) or sys.exit(f"torch {version} is not installed: make torch")
    sys.path.append(str(TREE / "tests" / "python"))
    from cluster import clean_environment

    with tempfile.TemporaryDirectory() as folder:
        environment = clean_environment(fetch_torch.installed(pathlib.Path(folder)))
        found = {backend: [] for backend in BACKENDS}
        for _ in range(options.times):
            for backend in BACKENDS:
                found[backend].append(run(python, backend, options.ranks, options.width, environment))
    losses = {backend: [[float(loss) for loss in run[0]] for run in runs] for backend, runs in found.items()}
    for mine, theirs in zip(losses["muster"], losses["gloo"]):
        assert len(mine) == len(theirs) and all(abs(a - b) < 1e-4 for a, b in zip(mine, theirs)), losses
    for backend, runs in found.items():
        times = sorted(run[1] for run in runs)
        print(f"{backend}: {statistics.median(times):.2f} ms a step ({times[0]:.2f} to {times[-1]:.2f}), {options.ranks} ranks, "
              f"width {options.width}, torch {version}; losses {' '.join(runs[0][0])}")


if __name__ == "__main__":
    main()
