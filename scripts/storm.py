#!/usr/bin/env python3
"""Random work under random blows: round after round a job of several ranks does collectives on world and on groups that it makes
and frees, exchanges messages and uses the store, from several threads, while its workers, its scheduler and its launcher are
killed and stopped. Every result is held against a computed one, and what must hold is checked after every step and every round.

    scripts/storm.py [--hours H | --minutes M | --rounds N] [--seed N] [--round K]

The seed decides work and blows; what the machine does in between no seed decides. --round replays the plan of one round. It ends
what it has started, and nothing else. Exit code 0: nothing was violated; 1: something was, all that was written is kept.
"""

import argparse
import collections
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile
import time

from killing.job import TREE, Failed
from storming.job import STORM
from storming.machine import Standstill, node_timeout
from storming.plan import KINDS, MODES, PLAIN, plan_of
from storming.round import Round

PLANTS = ("result", "message", "add", "write", "leak", "hang", "log", "orphan", "exit", "culprit")
COUNTED = ("collectives", "messages", "writes", "errors", "recoveries")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float)
    length.add_argument("--minutes", type=float)
    length.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=None, help="default: one from the clock, which is printed")
    parser.add_argument("--round", type=int, default=None, help="only this one, counted from 1")
    parser.add_argument("--mode", choices=MODES, help="how jobs are started; default: by chance")
    parser.add_argument("--blows", type=int, help="how many there are in a round with recovery; default: by chance")
    parser.add_argument("--kinds", help=f"kinds of blows in this order, of {', '.join(sorted({*KINDS, *PLAIN}))}")
    parser.add_argument("--node_timeout", type=float, help="the heartbeat time-out, in seconds; default: what the machine bears")
    parser.add_argument("--limit", type=float, help="how long a call may take, in seconds")
    parser.add_argument("--plant", choices=PLANTS, help="a fault that the storm must find")
    given = parser.parse_args()
    if given.seed is None:
        given.seed = time.time_ns() % 1_000_000
    given.kinds = given.kinds.split(",") if given.kinds else None
    if given.kinds and not set(given.kinds) <= {*KINDS, *PLAIN}:
        parser.error(f"--kinds is {','.join(given.kinds)!r}; it must be of {', '.join(sorted({*KINDS, *PLAIN}))}")
    if not STORM.exists():
        parser.error(f"{STORM} is not there: run `make storm-worker` first")
    return given


def numbers(given):
    """The rounds to play."""
    if given.round is not None:
        yield given.round
        return
    seconds = 3600 * given.hours if given.hours else 60 * given.minutes if given.minutes else None
    rounds = given.rounds or (None if seconds else 1)
    end = time.monotonic() + (seconds or 0)
    number = 1
    while (rounds is None or number <= rounds) and (seconds is None or time.monotonic() < end):
        yield number
        number += 1


class Tally:
    """What all rounds came to."""

    def __init__(self):
        self.rounds = 0
        self.counts = collections.Counter()
        self.struck = collections.Counter()
        self.epochs = 0
        self.latencies = []

    def add(self, audit):
        self.rounds += 1
        for slot in audit.ledger.slots():
            self.counts.update({name: getattr(slot, name) for name in COUNTED})
        self.epochs += max(slot.epoch for slot in audit.ledger.slots())
        self.struck.update(f"{kind} {name if isinstance(name, str) else 'worker'}"
                           for _, kind, name, _, _ in audit.striker.struck)
        self.latencies += [(took, error.words) for took, error in audit.latencies]

    def words(self):
        done = ", ".join(f"{self.counts[name]:,} {name}" for name in COUNTED)
        blows = ", ".join(f"{count} {kind}" for kind, count in sorted(self.struck.items()))
        lines = [f"{self.rounds} rounds, {self.epochs} epochs: {done}", f"struck: {blows or 'nobody'}"]
        if self.latencies:
            (most, words), times = max(self.latencies), [took for took, _ in self.latencies]
            lines.append(f"from a kill to a survivor's error, with a scheduler, {len(times)} times: median {1000 * statistics.median(times):.1f} "
                         f"ms, most {1000 * most:.1f} ms: {words}")
        return "\n".join(lines)


def replay(given, plan):
    """The command that plays a round's plan again."""
    own = [f"--{name} {value}" for name in ("mode", "blows", "limit", "plant") if (value := getattr(given, name)) is not None]
    kinds = [f"--kinds {','.join(given.kinds)}"] if given.kinds else []
    return " ".join(["scripts/storm.py", f"--seed {given.seed}", f"--round {plan.number}",
                     f"--node_timeout {plan.node_timeout:g}", *own, *kinds])


def storm(given, place, standstill):
    tally = Tally()
    print(f"seed {given.seed}", flush=True)
    for number in numbers(given):
        timeout, why = (given.node_timeout, "") if given.node_timeout else node_timeout(standstill)
        plan = plan_of(given.seed, number, timeout, given.mode, given.blows, given.kinds)
        print(f"{number}: {plan.words()}{f' ({why})' if why else ''}", flush=True)
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"seed-{given.seed}-round-{number}-", dir=place))
        game = Round(plan, folder, standstill, given.plant, given.limit)
        try:
            tally.add(game.run())
        except Failed as failure:
            print(f"VIOLATED in round {number} of seed {given.seed}:\n{failure}\nall that was written lies in {folder}; its plan "
                  f"again:\n    {replay(given, plan)}", file=sys.stderr, flush=True)
            return 1
        shutil.rmtree(folder, ignore_errors=True)
    print(tally.words(), flush=True)
    return 0


def main():
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without ending what was started
    place = TREE / "target" / "storm"
    place.mkdir(parents=True, exist_ok=True)
    standstill = Standstill()
    try:
        return storm(given, place, standstill)
    finally:
        standstill.end()


if __name__ == "__main__":
    sys.exit(main())
