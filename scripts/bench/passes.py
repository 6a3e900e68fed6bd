"""The passes of a run: who is measured when.

Noise comes and goes on such machines, so what counts is the ratio of two times of one pass. In a pass, for each number of
ranks: the yardstick, muster, Open MPI, Gloo, and the yardstick again; every other pass goes backwards. muster thus runs
beside the yardstick's first run, once after it and once before it, and the two runs of the yardstick tell what the
machine does by itself.
"""

import os
import pathlib
import sys
import tempfile
import time

from . import programs
from .processes import Failed, run

KIB, MIB = 1 << 10, 1 << 20

PEERS_TIMEOUT_S = 300
# A start of 256 processes that takes longer is not waited for, and not tried again.
BOOTSTRAP_LIMIT_S = 20
FORMING_LIMIT_S = 60
# Gloo has several algorithms: the first pass times all, the others those within this factor of the best, two at most.
CLOSE, MOST_CHOSEN = 1.5, 2


class Plan:
    """What a run measures. `quick` is enough to see that all works."""

    def __init__(self, quick, passes=None):
        self.passes = passes or (2 if quick else 9)
        self.ranks = [2, 4] if quick else [2, 4, 8]
        self.between = [3] if quick else [3, 5, 6, 7]
        self.allreduce = [8, 64 * KIB, MIB] if quick else [8, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB]
        self.allgather = [128, 64 * KIB] if quick else [128, 64 * KIB, MIB]
        # Processes, how often each pass starts that many, in how many passes the peers do.
        self.bootstrap = [(8, 3, 1)] if quick else [(8, 5, 9), (64, 3, 5), (256, 1, 2)]
        # Nodes of a scheduler alone, and in how many passes.
        self.forming = [(1000, 1)] if quick else [(10_000, 5), (18_000, 5)]
        self.gigabit = 1 if quick else 3
        # Ranks of small calls, beside nobody and beside a competitor for each processor, and for how many seconds each.
        self.waits = [(ranks, competitors) for ranks in (2, 4) for competitors in (0, os.cpu_count())]
        self.waits_s = 0.3 if quick else 0.5

    def cases(self):
        return {"allreduce": self.allreduce, "allgather": self.allgather, "broadcast": [128], "barrier": [0]}


def next_power_of_two(ranks):
    return 1 << (ranks - 1).bit_length()


def in_turn(turns, number):
    return turns if number % 2 else turns[::-1]


class Run:
    """One run; writes to `raw`, and tells on standard output what it does."""

    def __init__(self, plan, raw, has_yardsticks, minutes):
        self.plan, self.raw, self.has_yardsticks = plan, raw, has_yardsticks
        self.deadline = time.monotonic() + minutes * 60
        self.chosen = {}  # Gloo's algorithms by ranks and case
        self.given_up = set()  # starts of so many processes that took too long
        self.failures = 0

    def go(self):
        with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
            self.folder = pathlib.Path(folder)
            longest, done = 0, 0
            for number in range(1, self.plan.passes + 1):
                begun = time.monotonic()
                if done and begun + longest > self.deadline:
                    self.raw.tell("short", f"the time was up after {done} of {self.plan.passes} passes")
                    break
                self.one_pass(number)
                took, done = time.monotonic() - begun, done + 1
                longest = took if done < 3 else max(longest, took)  # the first pass alone tries all of Gloo's algorithms
                print(f"pass {number} of {self.plan.passes}: {took:.0f} s", flush=True)
            self.raw.tell("passes", done)
            self.gigabit()

    def one_pass(self, number):
        turns = [(self.peers, ranks) for ranks in self.plan.ranks]
        turns += [(self.between, ranks) for ranks in self.plan.between]
        turns += [(self.bootstrap, start) for start in self.plan.bootstrap]
        turns += [(self.forming, nodes) for nodes, passes in self.plan.forming if number <= passes]
        turns += [(self.waits, case) for case in self.plan.waits]
        self.measure(number, 2, "loopback", programs.loopback)
        for turn, what in in_turn(turns, number):
            turn(number, what)

    def measure(self, number, beside, program, call, turn=1):
        """One program's turn; a failure is told and written down, and the run goes on."""
        try:
            rows = call()
        except Failed as failure:
            self.failures += program == "muster"
            self.raw.tell("failed", f"pass {number}, {beside} ranks, {program}: {failure}")
            print(f"pass {number}, {beside} ranks, {program}: {failure}", flush=True)
            return []
        self.raw.rows(rows, **{"pass": number, "beside": beside, "program": program, "run": turn})
        return rows

    def yardstick(self, number, ranks, turn):
        if self.has_yardsticks:
            self.measure(number, ranks, "yardstick", lambda: programs.yardstick(next_power_of_two(ranks)), turn)

    def peers(self, number, ranks):
        cases = self.plan.cases()
        turns = [
            lambda: self.yardstick(number, ranks, 1),
            lambda: self.measure(number, ranks, "muster", lambda: programs.muster(ranks, cases)),
            lambda: self.measure(number, ranks, "openmpi",
                                 lambda: programs.openmpi(ranks, cases, self.folder, PEERS_TIMEOUT_S)),
            lambda: self.gloo(number, ranks, cases),
            lambda: self.yardstick(number, ranks, 2),
        ]
        for turn in in_turn(turns, number):
            turn()

    def gloo(self, number, ranks, cases):
        chosen = self.chosen.get(ranks)
        rows = self.measure(number, ranks, "gloo",
                            lambda: programs.gloo(ranks, cases, self.folder, chosen, PEERS_TIMEOUT_S))
        if chosen is None and rows:
            self.chosen[ranks] = best_of(rows)

    def between(self, number, ranks):
        cases = {"allreduce": self.plan.allreduce}
        turns = [
            lambda: self.yardstick(number, ranks, 1),
            lambda: self.measure(number, ranks, "muster", lambda: programs.muster(ranks, cases)),
        ]
        for turn in in_turn(turns, number):
            turn()

    def bootstrap(self, number, start):
        processes, repetitions, peers_passes = start
        with_peers = number <= peers_passes
        floor = lambda: programs.floor_bootstrap(processes, repetitions, 60)
        calls = {
            "muster": lambda: programs.muster_bootstrap(processes, repetitions, 120),
            "openmpi": lambda: programs.openmpi_bootstrap(processes, self.folder, time.monotonic, BOOTSTRAP_LIMIT_S),
            "gloo": lambda: programs.gloo_bootstrap(processes, self.folder, BOOTSTRAP_LIMIT_S),
        }
        turns = [("yardstick", floor, 1)] if self.has_yardsticks else []
        turns += [("muster", calls["muster"], 1)]
        turns += [(peer, calls[peer], 1) for peer in ("openmpi", "gloo") if with_peers]
        turns += [("yardstick", floor, 2)] if self.has_yardsticks else []
        for program, call, turn in in_turn(turns, number):
            if (program, processes) in self.given_up:
                continue
            if not self.measure(number, processes, program, call, turn) and program in ("openmpi", "gloo"):
                self.given_up.add((program, processes))

    def forming(self, number, nodes):
        calls = [("muster", programs.muster_forming, 1)]
        if self.has_yardsticks:
            calls = [("yardstick", programs.floor_forming, 1), *calls, ("yardstick", programs.floor_forming, 2)]
        for program, call, turn in in_turn(calls, number):
            self.measure(number, nodes, program, lambda: call(nodes, FORMING_LIMIT_S), turn)

    def waits(self, number, case):
        ranks, competitors = case
        for way in in_turn(["sockets", "allgather", "request_wait", "request_test"], number):
            program = "sockets" if way == "sockets" else "muster"
            self.measure(number, ranks, program, lambda: programs.waits(way, ranks, competitors, self.plan.waits_s))

    def waits_alone(self):
        """Only this part."""
        for number in range(1, self.plan.passes + 1):
            for case in in_turn(self.plan.waits, number):
                self.waits(number, case)
        self.raw.tell("passes", self.plan.passes)

    def gigabit(self):
        script = programs.TREE / "scripts" / "bench_gigabit.py"
        for number in range(1, self.plan.gigabit + 1):
            def links():
                line = run([sys.executable, script, "--format", "csv"], 120).splitlines()[1]
                ranks, size, rate, p50, _ = line.split(",")
                return [{"collective": "gigabit", "algorithm": rate, "ranks": ranks, "bytes": size, "p50_us": p50}]
            if not self.measure(number, 4, "muster", links):
                break


def best_of(rows):
    """The algorithms worth timing again, by case."""
    by_case = {}
    for row in rows:
        by_case.setdefault((row["collective"], int(row["bytes"])), []).append((float(row["p50_us"]), row["algorithm"]))
    return {case: [name for us, name in sorted(found)[:MOST_CHOSEN] if us <= CLOSE * min(found)[0]]
            for case, found in by_case.items()}
