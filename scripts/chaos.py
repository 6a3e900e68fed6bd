#!/usr/bin/env python3
"""Trains under `muster run --max_restarts` while processes are killed at random moments, and lays the weights beside those of
a training in which nothing died: they must be the same, bit for bit.

    scripts/chaos.py [--seed N] [--kills N] [--plan KIND,KIND,...] [--tls]

The seed decides who is killed, how and at which steps; what the machine does in between no seed decides. It ends what it has
started, and nothing else. Exit code 0: the same weights, and without --plan somebody was hit at the end, too.
"""

import argparse
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from killing.blows import KINDS, LAST, Blows
from killing.job import TREE, Failed, Job, train_quietly
from killing.table import table

sys.path.append(str(TREE / "tests" / "python"))
from certificates import Certificates  # noqa: E402

STEPS_PER_EPOCH = 23  # of the data beside train_digits, in batches of 64
# Where, as shares of all steps, the first kill may be and the last but those at the end.
FIRST, LAST_BUT_END = 0.03, 0.9


def plan_of(rng, kills):
    """Each kind once, as far as there are kills for it, then any; those at the end come last."""
    kinds = list(KINDS)
    if kills < len(kinds):
        kinds = rng.sample(kinds, kills)
    kinds += rng.choices(list(KINDS), k=kills - len(kinds))
    rng.shuffle(kinds)
    return sorted(kinds, key=lambda kind: LAST.index(kind) + 1 if kind in LAST else 0)


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="default: one from the clock, which is printed")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--plan", help=f"kinds of kills in this order, of {', '.join(KINDS)}")
    parser.add_argument("--tls", action="store_true", help="all connections run TLS; the quiet training has none")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=None, help="default: as many as the kills need")
    parser.add_argument("--interval", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--limit", type=float, default=300, help="seconds")
    given = parser.parse_args()
    if given.seed is None:
        given.seed = time.time_ns() % 1_000_000
    if given.plan and not set(given.plan.split(",")) <= set(KINDS):
        parser.error(f"--plan is {given.plan!r}; it must be kinds of {', '.join(KINDS)}")
    if given.ranks < 3 or given.kills < 1:
        parser.error("there must be 3 ranks or more, and 1 kill or more")
    return given


def chaos(given, folder):
    """The blows that were struck, and whether the weights are the same."""
    rng = random.Random(given.seed)
    plan = given.plan.split(",") if given.plan else plan_of(rng, given.kills)
    epochs = given.epochs or 250 * len(plan)  # some two seconds of quiet training for each kill
    steps = epochs * STEPS_PER_EPOCH
    parent = rng.randrange(1, given.ranks)
    words = ["--epochs", epochs]
    quiet = train_quietly(folder, given.ranks, words, given.limit)
    settings = Certificates(folder / "certificates").env() if given.tls else {}
    limit = time.monotonic() + given.limit
    words += ["--checkpoint_interval", given.interval, "--fork_child", parent]
    how = " under TLS" if given.tls else ""
    print(f"seed {given.seed}: {given.ranks} ranks{how}, {steps} steps, a checkpoint every {given.interval}; {' '.join(plan)}",
          flush=True)
    moments = sorted(rng.uniform(FIRST, LAST_BUT_END) for kind in plan if kind not in LAST)
    with Job(folder, given.ranks, words, restarts=4 * len(plan), settings=settings) as job:
        blows = Blows(job, rng, steps, parent, limit)
        for kind, share in zip(plan, moments + [1.0] * len(plan)):
            blows.strike(kind, int(share * steps))
        job.until_end(limit)
    if not given.plan and "end" in plan and not any(blow.victims for blow in blows.struck if blow.kind == "end"):
        raise Failed("nobody was hit at the end, which was over too soon: try another time")
    rows = blows.rows()
    print(table(rows), flush=True)
    weights = {"the file of rank 0": job.weights.read_bytes(),
               **{f"rank {rank}'s checkpoint": job.checkpointed_weights(rank, steps) for rank in range(given.ranks)}}
    wrong = [whose for whose, bits in weights.items() if bits != quiet]
    if wrong:
        raise Failed(f"other weights than those of the quiet training: {', '.join(wrong)}")
    print(f"the weights ({len(quiet)} bytes, on each of {given.ranks} ranks) are those of a training in which nothing died")


def main():
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without ending what was started
    place = TREE / "target" / "chaos"
    place.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"seed-{given.seed}-", dir=place))
    try:
        chaos(given, folder)
    except Failed as failure:
        print(f"seed {given.seed}: {failure}\nall that was written lies in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
