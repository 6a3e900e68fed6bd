"""What one round of a storm is to be, by seed and number: how its processes are started, how many ranks, and which blows."""

import dataclasses
import random

# Under `muster run`, or each process by hand; with recovery, or without ("plain").
MODES = {"run": 45, "hand": 30, "plain-run": 12, "plain-hand": 13}
STOP_MOST = 6.0
END_PHASES = ("finishing", "leaving")

# Kinds of blows, with how often each comes in jobs with recovery.
KINDS = {
    "worker": 6,  # one is killed
    "two": 2,
    "scheduler": 4,
    "both": 3,  # scheduler and worker
    "all": 1,  # all but the launcher
    "launcher": 2,  # is killed, and its processes with it
    "stop-worker": 5,
    "stop-scheduler": 2,
    "stop-launcher": 1,
    "end": 2,  # one is killed while all finish or leave
}
OF_LAUNCHERS = ("launcher", "stop-launcher")
PLAIN = {"worker": 5, "two": 2, "both": 3, "scheduler": 2, "stop-worker": 3, "launcher": 1, "none": 2}


@dataclasses.dataclass(frozen=True)
class Blow:
    kind: str
    step: int  # when the first rank has completed so many
    delay: float  # seconds after that
    seconds: float = 0.0  # of a stop
    away: float = 0.0  # for how long what was killed stays away, where the driver starts it again
    again: float | None = None  # so many seconds after it one more worker is killed

    def words(self):
        stop = f" for {self.seconds:.2f} s" if self.seconds else ""
        again = f", and one more worker {self.again:.2f} s later" if self.again is not None else ""
        return f"{self.kind}{stop} at step {self.step} + {self.delay:.3f} s{again}"


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int
    number: int
    mode: str
    ranks: int
    node_timeout: float
    steps: int
    blows: tuple
    chance: random.Random  # for whom a blow strikes

    @property
    def recovers(self):
        return not self.mode.startswith("plain")

    @property
    def launched(self):
        return self.mode.endswith("run")

    def words(self):
        blows = "; ".join(blow.words() for blow in self.blows) or "no blow"
        return (f"{self.mode}, {self.ranks} ranks, heartbeat time-out {self.node_timeout:g} s, {self.steps} steps: {blows}")


def chosen(chance, weights):
    return chance.choices(list(weights), list(weights.values()))[0]


def stop_seconds(chance, node_timeout):
    """Short, about as long as the heartbeat time-out, or longer."""
    low, high = chance.choice([(0.05, 0.4), (0.6, 1.4), (1.6, 3.0)])
    return min(STOP_MOST, chance.uniform(low, high) * node_timeout)


def plan_of(seed, number, node_timeout, mode=None, blows=None, kinds=None):
    """`mode`, `blows` (how many) and `kinds` of them, if they are given, are not left to chance."""
    chance = random.Random(f"{seed}/{number}")
    mode_by_chance, ranks = chosen(chance, MODES), chance.randrange(3, 7)
    mode = mode or mode_by_chance
    plain = mode.startswith("plain")
    weights = {kind: often for kind, often in (PLAIN if plain else KINDS).items()
               if mode.endswith("run") or kind not in OF_LAUNCHERS}
    count = 1 if plain else blows or chance.randrange(2, 9)
    struck, step = [], 0
    for at in range(count):
        step += chance.randrange(6, 20)
        kind = kinds[at % len(kinds)] if kinds else chosen(chance, weights)
        seconds = stop_seconds(chance, node_timeout) if kind.startswith("stop") else 0.0
        again = chance.choice([0.0, 0.05, 0.2, 0.6, 1.5]) * chance.random()
        again = again if not plain and chance.random() < 0.35 else None
        away = chance.choice([0.0, 0.0, 0.3, 1.5, 3.0]) * chance.random()
        if kind != "none":
            struck.append(Blow(kind, step, chance.uniform(0, 0.06), seconds, away, again))
    steps = step + chance.randrange(6, 16)
    ends = sorted(struck, key=lambda blow: blow.kind == "end")
    return Plan(seed, number, mode, ranks, node_timeout, steps, tuple(ends), chance)
