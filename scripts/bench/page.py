"""Pages from a run's raw rows: templates with their `<!-- table: name -->` lines filled in."""

import re
import statistics

from .page_memory import COLLECTIVES, IN_MEMORY, NOTHING, MemoryTables
from .ratios import Ratio, spread

KIB, MIB = 1 << 10, 1 << 20
NAMES = {"yardstick": "yardstick", "muster": "muster", "openmpi": "Open MPI", "gloo": "Gloo"}
PEERS = ("openmpi", "gloo")

# Of the yardstick's time at most, and how many times faster than the peer at least, by the allreduce's size.
ALLREDUCE_TARGETS = {
    8: (1.3, 1.6), KIB: (1.3, 1.6), 64 * KIB: (1.2, 1.4), MIB: (1.15, 1), 16 * MIB: (1.15, 1), 64 * MIB: (1.15, 1)}
# Up to here the target is set against Open MPI, above against the better peer.
AGAINST_OPENMPI = KIB
BOOTSTRAP_TARGET = 2.5
GIGABIT_TARGET = 0.92
# A scheduler alone: of the yardstick's time, and bytes for each node.
FORMING_TARGET, NODE_BYTES_TARGET = 3, 8 * KIB
# Beside competitors: of blocking sockets' mean time. A caller that tests: of the time of one that waits.
BESIDE_TARGET, TEST_TARGET = 2, 2
# The yardstick's two runs of a pass differ by more than this: then the figure says so.
NOISE = 0.05


def size(count):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def time_us(values):
    if not values:
        return ""
    us = statistics.median(values.values())
    return f"{us:,.1f}" if us < 100 else f"{us:,.0f}"


def time_ms(values):
    if not values:
        return ""
    ms = statistics.median(values.values()) / 1e3
    return f"{ms:,.1f}" if ms < 100 else f"{ms:,.0f}"


def table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


class Page(MemoryTables):
    """The tables of one run, by name: each is made once, for the summary counts the targets in them."""

    time_us, size, table = staticmethod(time_us), staticmethod(size), staticmethod(table)

    def __init__(self, raw):
        self.raw = raw
        self.has_yardstick = any(row["program"] == "yardstick" for row in raw.rows)
        self.targets = []  # (what, whether met)
        makers = (self.machine, self.allreduce, self.between, self.others, self.bootstrap, self.forming, self.gigabit, self.waits,
                  self.failed, self.memory, self.memory_ratios, self.exact, self.expect_memory, self.expect_tcp)
        self.made = {make.__name__: make() for make in makers}
        self.made["summary"] = self.summary()  # knows the targets once all tables are made

    def fill(self, template):
        """The template with each marker replaced; a marker that nobody knows is a mistake."""
        return re.sub(r"<!-- table: (\w+) -->", lambda marker: self.made[marker[1]], template)

    ## The figures of one case.

    def times(self, program, measure, **case):
        """Times by pass; of Gloo's algorithms that with the best median."""
        if program != "gloo":
            return self.raw.by_pass(measure, program=program, run=1, **case)
        best = {}
        for algorithm in self.raw.values("algorithm", program="gloo", **case):
            found = self.raw.by_pass(measure, program="gloo", algorithm=algorithm, **case)
            if found and (not best or statistics.median(found.values()) < statistics.median(best.values())):
                best = found
        return best

    def target(self, what, is_met):
        self.targets.append((what, is_met))
        return "met" if is_met else "**missed**"

    def at_most(self, what, ratio, limit):
        return f"at most {limit:g}: {self.target(what, ratio.median <= limit)}" if ratio else ""

    def at_least(self, what, ratio, limit):
        if not ratio:
            return ""
        if limit == 1:
            return f"above 1: {self.target(what, ratio.median > 1)}"
        return f"at least {limit:g}: {self.target(what, ratio.median >= limit)}"

    def noise(self, measure, **case):
        """How the yardstick's second run of a pass compares with the first."""
        first = self.raw.by_pass(measure, program="yardstick", run=1, **case)
        second = self.raw.by_pass(measure, program="yardstick", run=2, **case)
        ratio = Ratio.of(second, first)
        if not ratio:
            return ""
        return f"{ratio}" + (f"; differs by {ratio.difference:.0%}" if ratio.difference > NOISE else "")

    def against_peers(self, what, ours, peers, limit, only=None):
        """Cells: the ratio to the better peer (or to the one named), and whether it is enough."""
        there = {peer: times for peer, times in peers.items() if times and only in (None, peer)}
        if not there or not ours:
            return ["", ""]
        better = min(there, key=lambda peer: statistics.median(there[peer].values()))
        ratio = Ratio.of(there[better], ours)
        told = f"{NAMES[better]}: {ratio}" if ratio else ""
        return [told, self.at_least(f"{what} against {NAMES[better]}", ratio, limit)]

    ## The tables.

    def machine(self):
        facts = self.raw.fact
        rate = self.raw.by_pass("p50_us", collective="one_way")
        trip = self.raw.by_pass("p50_us", collective="round_trip")
        rates = {number: 256 * KIB / us / 1e3 for number, us in rate.items()}
        rows = [["date", facts("date")], ["processor", f"{facts('processor')}, {facts('cores')} cores"],
                ["memory", facts("memory")], ["system", facts("system")],
                ["load when it began", facts("load")], ["muster", facts("muster")],
                ["Open MPI", facts("openmpi")], ["MPICH", facts("mpich")], ["Intel MPI", facts("intelmpi")], ["Gloo", facts("gloo")],
                ["passes", " ".join([facts("passes"), *self.raw.facts.get("short", [])])],
                ["loopback TCP, one way, 256 KiB a write", f"{spread(rates)} GB/s" if rates else ""],
                ["loopback TCP, 8 bytes there and back, blocking", f"{spread(trip)} us" if trip else ""]]
        return table(["what", "which"], rows)

    def allreduce(self):
        columns = ["ranks", "size", *(["yardstick, us"] if self.has_yardstick else []), "muster, us", "Open MPI, us",
                   "Gloo, us", *(["muster / yardstick", "target", "yardstick / itself"] if self.has_yardstick else []),
                   "peer / muster", "target"]
        rows = []
        for ranks in self.raw.values("beside", program="openmpi", collective="allreduce"):
            for count in self.raw.values("bytes", program="muster", collective="allreduce", beside=ranks):
                case = {"collective": "allreduce", "bytes": count, "beside": ranks}
                of = {program: self.times(program, "p50_rank0_us", **case) for program in NAMES}
                what = f"allreduce of {size(count)} on {ranks} ranks"
                most, least = ALLREDUCE_TARGETS[count]
                row = [ranks, size(count)] + [time_us(of["yardstick"])] * self.has_yardstick
                row += [time_us(of[program]) for program in ("muster", *PEERS)]
                if self.has_yardstick:
                    ratio = Ratio.of(of["muster"], of["yardstick"])
                    row += [ratio or "", self.at_most(what, ratio, most), self.noise("p50_rank0_us", **case)]
                peers = {peer: of[peer] for peer in PEERS}
                only = "openmpi" if count <= AGAINST_OPENMPI else None
                rows.append(row + self.against_peers(what, of["muster"], peers, least, only))
        return table(columns, rows) if rows else NOTHING

    def between(self):
        if not self.has_yardstick:
            return "The yardsticks were not there when this page was made."
        rows = []
        peers_ranks = self.raw.values("beside", program="openmpi", collective="allreduce")
        for ranks in self.raw.values("beside", program="muster", collective="allreduce"):
            if ranks in peers_ranks:
                continue
            for count in self.raw.values("bytes", program="muster", collective="allreduce", beside=ranks):
                case = {"collective": "allreduce", "bytes": count, "beside": ranks}
                ours, floor = (self.times(program, "p50_rank0_us", **case) for program in ("muster", "yardstick"))
                ratio = Ratio.of(ours, floor)
                on = self.raw.values("ranks", program="yardstick", **case)
                told = self.at_most(f"allreduce of {size(count)} on {ranks} ranks", ratio, ALLREDUCE_TARGETS[count][0])
                rows.append([ranks, size(count), f"{time_us(floor)} (on {on[0]})" if on else "", time_us(ours),
                             ratio or "", told])
        return table(["ranks", "size", "yardstick, us", "muster, us", "muster / yardstick", "target"], rows) if rows else NOTHING

    def others(self):
        rows = []
        for collective in ("allgather", "broadcast", "barrier"):
            for count in self.raw.values("bytes", program="muster", collective=collective):
                for ranks in self.raw.values("beside", program="muster", collective=collective):
                    case = {"collective": collective, "bytes": count, "beside": ranks}
                    ours = self.times("muster", "p50_us", **case)
                    peers = {peer: self.times(peer, "p50_us", **case) for peer in PEERS}
                    name = collective + (f" of {size(count)}" if count else "")
                    row = [name, ranks, time_us(ours), *(time_us(peers[peer]) for peer in PEERS)]
                    rows.append(row + self.against_peers(f"{name} on {ranks} ranks", ours, peers, 1))
        columns = ["collective", "ranks", "muster, us", "Open MPI, us", "Gloo, us", "peer / muster", "target"]
        return table(columns, rows) if rows else NOTHING

    def bootstrap(self):
        rows = []
        for processes in self.raw.values("beside", collective="bootstrap"):
            case = {"collective": "bootstrap", "beside": processes}
            of = {program: self.raw.by_pass("p50_us", program=program, run=1, **case) for program in NAMES}
            row = [processes] + [time_ms(of["yardstick"])] * self.has_yardstick + [time_ms(of["muster"])]
            row += [time_ms(of[peer]) or self.why_none(processes, peer) for peer in PEERS]
            if self.has_yardstick:
                ratio = Ratio.of(of["muster"], of["yardstick"])
                told = self.at_most(f"a start of {processes} processes", ratio, BOOTSTRAP_TARGET)
                row += [ratio or "", told, self.noise("p50_us", **case)]
            rows.append(row)
        if not rows:
            return NOTHING
        return table(["processes", *(["yardstick, ms"] if self.has_yardstick else []), "muster, ms", "Open MPI, ms",
                      "Gloo, ms", *(["muster / yardstick", "target", "yardstick / itself"] if self.has_yardstick else [])],
                     rows)

    def why_none(self, processes, peer):
        """What stands where a start of a peer gave no time."""
        failures = (line for line in self.raw.facts.get("failed", []) if f", {processes} ranks, {peer}: " in line)
        late = re.search(r"took more than (\d+ s)", next(failures, ""))
        return f"over {late[1]}" if late else "failed"

    def forming(self):
        rows = []
        for nodes in self.raw.values("ranks", program="muster", collective="forming"):
            case = {"collective": "forming", "ranks": nodes}
            formed, cpu, floor, floor_cpu = (self.raw.by_pass(measure, program=program, run=1, **case)
                                             for program in ("muster", "yardstick")
                                             for measure in ("p50_us", "p50_rank0_us"))
            held = statistics.median(self.raw.by_pass("bytes", program="muster", **case).values())
            rate = nodes / statistics.median(formed.values()) * 1e6
            row = [f"{nodes:,}"] + [time_ms(floor)] * self.has_yardstick + [time_ms(formed), f"{rate:,.0f}"]
            if self.has_yardstick:
                ratio = Ratio.of(formed, floor)
                told = self.at_most(f"forming {nodes:,} nodes", ratio, FORMING_TARGET)
                row += [ratio or "", told, self.noise("p50_us", **case), time_ms(floor_cpu)]
            told = self.target(f"memory of {nodes:,} nodes", held < NODE_BYTES_TARGET)
            rows.append(row + [time_ms(cpu), f"{held:,.0f}", f"under {NODE_BYTES_TARGET:,}: {told}"])
        if not rows:
            return NOTHING
        floors = ["yardstick, ms"] * self.has_yardstick
        ratios = ["muster / yardstick", "target", "yardstick / itself", "yardstick's CPU, ms"] * self.has_yardstick
        return table(["nodes", *floors, "muster, ms", "nodes/s", *ratios, "scheduler's CPU, ms", "bytes a node", "target"],
                     rows)

    def waits(self):
        rows = []
        for ranks in self.raw.values("beside", collective="waits"):
            for competitors in self.raw.values("bytes", collective="waits", beside=ranks):
                case = {"collective": "waits", "beside": ranks, "bytes": competitors}
                medians, means = ({way: self.raw.by_pass(measure, algorithm=way, **case)
                                   for way in ("sockets", "allgather", "request_wait", "request_test")}
                                  for measure in ("p50_rank0_us", "p50_us"))
                row = [ranks, competitors]
                row += [f"{time_us(medians[way])} / {time_us(means[way])}" for way in medians]
                what = f"an all-gather on {ranks} ranks beside {competitors} competitors"
                ratio = Ratio.of(means["allgather"], means["sockets"])
                row += [ratio or "", self.at_most(what, ratio, BESIDE_TARGET) if competitors else ""]
                ratio = Ratio.of(medians["request_test"], medians["request_wait"])
                row += [ratio or "", self.at_most(f"{what}, tested", ratio, TEST_TARGET)]
                rows.append(row)
        if not rows:
            return NOTHING
        return table(["ranks", "competitors", "sockets, us", "all-gather, us", "request, waited for, us", "request, tested, us",
                      "all-gather / sockets, means", "target", "tested / waited for, medians", "target"], rows)

    def gigabit(self):
        rows = []
        for row in (row for row in self.raw.rows if row["collective"] == "gigabit"):
            carried = 2 * (row["ranks"] - 1) / row["ranks"] * row["bytes"] * 8
            rows.append((row, carried / 1e9 / (row["p50_us"] / 1e6)))
        if not rows:
            return NOTHING
        first, share = rows[0][0], statistics.median(share for _, share in rows)
        told = self.target("an allreduce over links of 1 Gbit/s", share >= GIGABIT_TARGET)
        shares = f"{share:.1%} ({min(share for _, share in rows):.1%} to {max(share for _, share in rows):.1%})"
        ms = statistics.median(row["p50_us"] for row, _ in rows) / 1e3
        return table(["hosts", "size", "muster, ms", "share of the links' rate", "target"],
                     [[first["ranks"], size(first["bytes"]), f"{ms:.0f}", shares, f"at least {GIGABIT_TARGET:.0%}: {told}"]])

    def failed(self):
        lines = self.raw.facts.get("failed", [])
        return "\n".join(f"- {line}" for line in lines) or "Nothing failed."

    def summary(self):
        missed = [what for what, is_met in self.targets if not is_met]
        told = f"{len(self.targets) - len(missed)} of {len(self.targets)} targets are met in the tables of these pages."
        lines = [what for what in missed if IN_MEMORY not in what]
        for collective in COLLECTIVES:  # there are too many for a line each
            ends = [is_met for what, is_met in self.targets if IN_MEMORY in what and what.startswith(f"{collective} ")]
            if not all(ends):
                lines.append(f"{ends.count(False)} of {len(ends)} of {collective} [in memory](memory.md)")
        return told + ("\n\nMissed:\n\n" + "\n".join(f"- {line}." for line in lines) if lines else "")
