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

from . import memory, programs
from .processes import Failed, run

KIB, MIB = 1 << 10, 1 << 20

# What a run consists of; each can be had alone.
PARTS = ("tcp", "memory", "exact", "start", "forming", "waits", "gigabit")
PEERS_TIMEOUT_S, MUSTER_TIMEOUT_S, YARDSTICK_TIMEOUT_S = 300, 120, 120
# A start of 256 processes that takes longer is not waited for, and not tried again.
BOOTSTRAP_LIMIT_S = 20
FORMING_LIMIT_S = 60
# All cases of one program in memory on so many ranks; one case of it has a limit of its own (CASE_LIMIT_S in benches/peers/case.h).
LAUNCH_LIMIT_S = 120
# What is left for the links of 1 Gbit/s, which come last.
GIGABIT_LIMIT_S = 150
# Gloo has several algorithms: the first pass times all, the others those within this factor of the best, two at most.
CLOSE, MOST_CHOSEN = 1.5, 2


class Plan:
    """What a run measures. `quick` is enough to see that all works."""

    def __init__(self, quick, passes=None, parts=PARTS, ranks=None):
        self.passes = passes or (2 if quick else 9)
        self.parts = parts
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
        # Ranks of one host, in memory: sizes of allreduce, and of what moves as much for each rank.
        self.memory_ranks = [2, 4, 8] if quick else [2, 3, 4, 7, 8]
        self.memory_sizes = [8, 64 * KIB, 16 * MIB] if quick else [8, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB]
        self.memory_s = 0.05 if quick else 0.1
        # Exact sums beside plain ones, by type.
        self.exact_ranks = [2] if quick else [2, 4, 8]
        self.exact_sizes = [8, MIB] if quick else [8, 64 * KIB, 64 * MIB]
        if ranks:
            for name in ("ranks", "between", "memory_ranks", "exact_ranks"):
                setattr(self, name, [number for number in getattr(self, name) if number in ranks])

    def memory_cases(self, number):
        """Small sizes first. All but allreduce move so much for each rank that sizes above 1 MiB are for every other pass."""
        every = number % 2 == 1
        collectives = ("allreduce", "allgather", "broadcast", "reduce_scatter")
        return [("barrier", "", 0)] + [(collective, "", size) for size in self.memory_sizes for collective in collectives
                                       if collective == "allreduce" or size <= MIB or every]

    def exact_cases(self):
        return [("allreduce", dtype + kind, size) for size in self.exact_sizes for dtype in ("float32", "bfloat16", "float64")
                for kind in ("", "_exact")]

    def cases(self):
        return {"allreduce": self.allreduce, "allgather": self.allgather, "broadcast": [128], "barrier": [0]}


def next_power_of_two(ranks):
    return 1 << (ranks - 1).bit_length()


def in_turn(turns, number):
    return turns if number % 2 else turns[::-1]


class Run:
    """One run; writes to `raw`, and tells on standard output what it does. `there`: the programs that are on this machine beside
    those over TCP, and the yardsticks by part."""

    def __init__(self, plan, raw, there, minutes):
        self.plan, self.raw, self.there = plan, raw, there
        self.deadline = time.monotonic() + minutes * 60
        self.has_yardsticks = "yardstick" in there
        self.chosen = {}  # Gloo's algorithms by ranks and case
        self.given_up = set()  # starts of so many processes that took too long; cases of a peer in memory that failed
        self.longest = {}  # seconds by turn
        self.left_out = 0
        self.failures = 0

    def go(self):
        with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
            self.folder = pathlib.Path(folder)
            has_links = "gigabit" in self.plan.parts
            end = self.deadline
            self.deadline = end - (GIGABIT_LIMIT_S if has_links else 0)
            done = 0
            for number in range(1, self.plan.passes + 1):
                begun, before = time.monotonic(), self.left_out
                self.one_pass(number)
                done += self.left_out == before
                print(f"pass {number} of {self.plan.passes}: {time.monotonic() - begun:.0f} s", flush=True)
                if time.monotonic() > self.deadline:
                    break
            if done < self.plan.passes:
                self.raw.tell("short", f"the time was up after {done} whole passes of {self.plan.passes}")
            self.raw.tell("passes", done)
            self.deadline = end
            if has_links:
                self.gigabit()

    def left(self, limit):
        """So many seconds, or as many as there are till the end."""
        return max(0.1, min(limit, self.deadline - time.monotonic()))

    def turn(self, call, number, what):
        """One turn of a pass, where it would end by the deadline."""
        key, begun = (call.__name__, what), time.monotonic()
        if begun + self.longest.get(key, 0) > self.deadline:
            self.left_out += 1
            return
        call(number, what)
        self.longest[key] = max(self.longest.get(key, 0), time.monotonic() - begun)

    def turns(self, number):
        plan = self.plan
        by_part = {
            "tcp": [(self.peers, ranks) for ranks in plan.ranks] + [(self.between, ranks) for ranks in plan.between],
            "memory": [(self.memory, ranks) for ranks in plan.memory_ranks],
            "exact": [(self.exact, ranks) for ranks in plan.exact_ranks],
            "start": [(self.bootstrap, start) for start in plan.bootstrap],
            "forming": [(self.forming, nodes) for nodes, passes in plan.forming if number <= passes],
            "waits": [(self.waits, case) for case in plan.waits],
        }
        return [turn for part, turns in by_part.items() if part in plan.parts for turn in turns]

    def one_pass(self, number):
        if "tcp" in self.plan.parts:
            self.measure(number, 2, "loopback", programs.loopback)
        for call, what in in_turn(self.turns(number), number):
            self.turn(call, number, what)

    def measure(self, number, beside, program, call, turn=1):
        """One program's turn, where there is time for it; a failure is told and written down, and the run goes on."""
        if self.deadline - time.monotonic() < 1:
            self.left_out += 1
            return []
        try:
            rows = call()
        except Failed as failure:
            self.tell_failure(number, beside, program, failure)
            return []
        self.raw.rows(rows, **{"pass": number, "beside": beside, "program": program, "run": turn})
        return rows

    def tell_failure(self, number, beside, program, failure):
        self.failures += program.startswith(("muster", "exact"))
        words = f"pass {number}, {beside} ranks, {program}: {failure}"
        self.raw.tell("failed", words)
        print(words, flush=True)

    def yardstick(self, number, ranks, turn):
        if self.has_yardsticks:
            even = next_power_of_two(ranks)
            self.measure(number, ranks, "yardstick", lambda: programs.yardstick(even, self.left(YARDSTICK_TIMEOUT_S)), turn)

    def peers(self, number, ranks):
        cases = self.plan.cases()
        turns = [
            lambda: self.yardstick(number, ranks, 1),
            lambda: self.measure(number, ranks, "muster", lambda: programs.muster(ranks, cases, self.left(MUSTER_TIMEOUT_S))),
            lambda: self.measure(number, ranks, "openmpi",
                                 lambda: programs.openmpi(ranks, cases, self.folder, self.left(PEERS_TIMEOUT_S))),
            lambda: self.gloo(number, ranks, cases),
            lambda: self.yardstick(number, ranks, 2),
        ]
        for turn in in_turn(turns, number):
            turn()

    def gloo(self, number, ranks, cases):
        chosen = self.chosen.get(ranks)
        rows = self.measure(number, ranks, "gloo",
                            lambda: programs.gloo(ranks, cases, self.folder, chosen, self.left(PEERS_TIMEOUT_S)))
        if chosen is None and rows:
            self.chosen[ranks] = best_of(rows)

    def between(self, number, ranks):
        cases = {"allreduce": self.plan.allreduce}
        turns = [
            lambda: self.yardstick(number, ranks, 1),
            lambda: self.measure(number, ranks, "muster", lambda: programs.muster(ranks, cases, self.left(MUSTER_TIMEOUT_S))),
        ]
        for turn in in_turn(turns, number):
            turn()

    def bootstrap(self, number, start):
        processes, repetitions, peers_passes = start
        with_peers = number <= peers_passes
        floor = lambda: programs.floor_bootstrap(processes, repetitions, self.left(60))
        calls = {
            "muster": lambda: programs.muster_bootstrap(processes, repetitions, self.left(120)),
            "openmpi": lambda: programs.openmpi_bootstrap(processes, self.folder, time.monotonic,
                                                          self.left(BOOTSTRAP_LIMIT_S)),
            "gloo": lambda: programs.gloo_bootstrap(processes, self.folder, self.left(BOOTSTRAP_LIMIT_S)),
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
            self.measure(number, nodes, program, lambda: call(nodes, self.left(FORMING_LIMIT_S)), turn)

    def waits(self, number, case):
        ranks, competitors = case
        for way in in_turn(["sockets", "allgather", "request_wait", "request_test"], number):
            program = "sockets" if way == "sockets" else "muster"
            self.measure(number, ranks, program, lambda: programs.waits(way, ranks, competitors, self.plan.waits_s))

    ## Within a host.

    def memory(self, number, ranks):
        cases = self.plan.memory_cases(number)
        floor = [("shm_floor", 1)] if memory.SHM_FLOOR.name in self.there else []
        peers = [peer for peer in memory.PEERS if peer in self.there]
        turns = [*floor, ("muster_memory", 1), *((peer, 1) for peer in peers), ("muster_tcp", 1)]
        turns += [("shm_floor", 2)] * len(floor)
        for program, turn in in_turn(turns, number):
            if program == "shm_floor":
                self.measure(number, ranks, program, lambda: memory.yardstick(ranks, self.left(YARDSTICK_TIMEOUT_S)), turn)
            else:
                self.launch(number, ranks, program, program, cases)

    def exact(self, number, ranks):
        for program in in_turn(["muster_memory", "muster_tcp"], number):
            self.launch(number, ranks, program, program.replace("muster", "exact"), self.plan.exact_cases())

    def launch(self, number, ranks, program, called, cases):
        """All cases of one program. One that fails ends it there: that case is given up, and the next begin anew."""
        end = time.monotonic() + self.left(LAUNCH_LIMIT_S)
        wanted = [case for case in cases if (called, ranks, case) not in self.given_up]
        while wanted and end - time.monotonic() > 1:
            rows, failure = memory.launch(program, ranks, wanted, self.folder, self.plan.memory_s, end - time.monotonic())
            self.raw.rows(rows, **{"pass": number, "beside": ranks, "program": called, "run": 1})
            if failure is None:
                return
            done = {(row["collective"], row["algorithm"], int(row["bytes"])) for row in rows}
            failed, *wanted = [case for case in wanted if case not in done] or [("its end", "", 0)]
            self.tell_failure(number, ranks, called, f"{memory.word(failed)}: {failure}")
            if failure.is_late:
                return  # all cases together took too long: none of them is to blame
            self.given_up.add((called, ranks, failed))
        if wanted:
            self.left_out += 1

    def gigabit(self):
        script = programs.TREE / "scripts" / "bench_gigabit.py"
        for number in range(1, self.plan.gigabit + 1):
            def links():
                line = run([sys.executable, script, "--format", "csv"], self.left(120)).splitlines()[1]
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
