"""The tables about ranks of one host: muster in memory beside its peers there, and exact sums beside plain ones."""

import statistics

from .ratios import Ratio

KIB, MIB = 1 << 10, 1 << 20
NAMES = {"shm_floor": "yardstick", "muster_memory": "muster", "openmpi_memory": "Open MPI", "mpich": "MPICH",
         "intelmpi": "Intel MPI", "intelmpi_sleep": "Intel MPI, sleeping", "muster_tcp": "muster over TCP"}
PEERS = ("openmpi_memory", "mpich", "intelmpi", "intelmpi_sleep")
COLLECTIVES = ("allreduce", "allgather", "broadcast", "reduce_scatter", "barrier")
# Of the yardstick's time at most from 64 KiB on; below it so many times and microseconds, for there a call's own cost counts.
YARDSTICK_TARGET, SMALL_TARGET, SMALL_US = 1.3, 1.6, 0.3
SMALL = 64 * KIB
# Of the plain sum's time at most, by size.
EXACT_TARGETS = {8: 2, 64 * MIB: 1.5}
EXACT_TYPES = ("float32", "bfloat16", "float64")
NOTHING = "Not measured in this run."
# In the name of each target of these tables.
IN_MEMORY = ", in memory, "


class MemoryTables:
    """Part of `Page`, which has `raw` and the targets."""

    def memory_cases(self):
        """Collective, bytes and ranks of each case that muster was measured at."""
        for collective in COLLECTIVES:
            for count in self.raw.values("bytes", program="muster_memory", collective=collective):
                for ranks in self.raw.values("beside", program="muster_memory", collective=collective, bytes=count):
                    yield {"collective": collective, "bytes": count, "beside": ranks}

    def memory_times(self, case, measure):
        """By program, as far as there are any. The yardstick knows rank 0 alone, so allreduce is told of rank 0."""
        of_rank_0 = case["collective"] in ("allreduce", "barrier")
        column = f"{measure}_rank0_us" if of_rank_0 else f"{measure}_us"
        found = {program: self.raw.by_pass(column, program=program, run=1, algorithm="", **case) for program in NAMES}
        return {program: times for program, times in found.items() if times}

    def memory(self):
        """Medians and means of all programs."""
        there = [program for program in NAMES if any(row["program"] == program for row in self.raw.rows)]
        rows = []
        for case in self.memory_cases():
            p50, mean = (self.memory_times(case, measure) for measure in ("p50", "mean"))
            cells = [f"{self.time_us(p50[name])} / {self.time_us(mean.get(name))}" if name in p50 else "" for name in there]
            rows.append([self.what(case), case["beside"], *cells])
        return self.table(["collective", "ranks", *(NAMES[program] for program in there)], rows) if rows else NOTHING

    def memory_ratios(self):
        """What the targets are about."""
        rows = []
        for case in self.memory_cases():
            row = [self.what(case), case["beside"]]
            for measure in ("p50", "mean"):
                times = self.memory_times(case, measure)
                what = f"{self.what(case)} on {case['beside']} ranks{IN_MEMORY}{'mean' if measure == 'mean' else 'median'}"
                row += [self.beside_yardstick(what, case, times), self.beside_peers(what, times)]
            rows.append(row)
        columns = ["collective", "ranks", "muster / yardstick, median", "best peer / muster, median", "muster / yardstick, mean",
                   "best peer / muster, mean"]
        return self.table(columns, rows) if rows else NOTHING

    def beside_yardstick(self, what, case, times):
        floor, ours = times.get("shm_floor"), times.get("muster_memory")
        ratio = Ratio.of(ours or {}, floor or {})
        if ratio is None:
            return ""
        if case["collective"] != "allreduce":  # a barrier of the yardstick is no target
            return f"{ratio}"
        limit = YARDSTICK_TARGET
        if case["bytes"] < SMALL:
            limit = SMALL_TARGET + SMALL_US / statistics.median(floor.values())
        return f"{ratio}; at most {limit:.2f}: {self.target(what, ratio.median <= limit)}"

    def beside_peers(self, what, times):
        ours, peers = times.get("muster_memory"), {peer: times[peer] for peer in PEERS if peer in times}
        if not ours or not peers:
            return ""
        best = min(peers, key=lambda peer: statistics.median(peers[peer].values()))
        ratio = Ratio.of(peers[best], ours)
        return f"{NAMES[best]}: {ratio}; {self.target(f'{what}, against {NAMES[best]}', ratio.median > 1)}" if ratio else ""

    def exact(self):
        rows = []
        for program, transport in (("exact_memory", "memory"), ("exact_tcp", "TCP")):
            for ranks in self.raw.values("beside", program=program):
                for count in self.raw.values("bytes", program=program, beside=ranks):
                    case = {"program": program, "beside": ranks, "bytes": count}
                    rows += [[transport, ranks, self.size(count), dtype, *self.exact_cells(case, dtype, transport)]
                             for dtype in EXACT_TYPES]
        columns = ["over", "ranks", "size", "type", "plain, us", "exact, us", "exact / plain, medians", "exact / plain, means", "target"]
        return self.table(columns, rows) if rows else NOTHING

    def exact_cells(self, case, dtype, transport):
        plain, exact, plain_mean, exact_mean = (self.raw.by_pass(measure, algorithm=dtype + kind, **case)
                                                for measure in ("p50_us", "mean_us") for kind in ("", "_exact"))
        ratio, means = Ratio.of(exact, plain), Ratio.of(exact_mean, plain_mean)
        limit = EXACT_TARGETS.get(case["bytes"]) if dtype != "float64" else None
        told = ""
        if ratio and limit:
            what = f"an exact sum of {dtype}, {self.size(case['bytes'])} on {case['beside']} ranks over {transport}"
            told = f"at most {limit:g}: {self.target(what, ratio.median <= limit)}"
        times = [f"{self.time_us(p50)} / {self.time_us(mean)}" if p50 else "" for p50, mean in
                 ((plain, plain_mean), (exact, exact_mean))]
        return [*times, ratio or "", means or "", told]

    def what(self, case):
        return case["collective"] + (f" of {self.size(case['bytes'])}" if case["bytes"] else "")

    ## The short tables of the page for users: medians of an allreduce, by size and number of ranks.

    def expected(self, program, ranks):
        sizes = self.raw.values("bytes", program=program, collective="allreduce", run=1)
        cells = {count: [self.time_us(self.raw.by_pass("p50_rank0_us", program=program, collective="allreduce", run=1, algorithm="",
                                                      bytes=count, beside=number)) for number in ranks] for count in sizes}
        return self.table(["size", *(f"{number} ranks, us" for number in ranks)],
                          [[self.size(count), *row] for count, row in cells.items()]) if sizes else NOTHING

    def expect_memory(self):
        return self.expected("muster_memory", self.raw.values("beside", program="muster_memory", collective="allreduce"))

    def expect_tcp(self):
        return self.expected("muster", [2, 4, 8])
