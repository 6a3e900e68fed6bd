"""What the ranks of a storm write down as they go: the ledger, as benches/storm/ledger.hpp lays it out, and their error lines."""

import dataclasses
import mmap
import struct

BYTES = 1 << 20
SLOT_BYTES, CALLS_AT, CALL_BYTES, CALLS = 4096, 512, 192, 8
NUMBERS = ("pid", "lives", "joined", "epoch", "done", "finished", "phase", "collectives", "messages", "writes", "errors",
           "recoveries")
PHASES = ("joining", "working", "recovering", "finishing", "leaving", "left")


@dataclasses.dataclass(frozen=True)
class Call:
    since_ns: int
    limit_ns: int
    what: str


class Slot:
    """One rank, through all its lives."""

    def __init__(self, rank, numbers, calls):
        self.rank = rank
        self.calls = calls
        for name, number in zip(NUMBERS, numbers):
            setattr(self, name, number)

    @property
    def in_phase(self):
        return PHASES[self.phase]

    def describe(self, now_ns):
        doing = "; ".join(f"{call.what}, for {(now_ns - call.since_ns) / 1e9:.1f} s" for call in self.calls) or "in no call"
        return (f"rank {self.rank} (pid {self.pid}, life {self.lives}): {self.in_phase}, epoch {self.epoch}, "
                f"{self.done} steps done: {doing}")


class Ledger:
    def __init__(self, folder, ranks):
        self.ranks = ranks
        path = folder / "ledger"
        path.write_bytes(bytes(BYTES))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), BYTES)

    def slot(self, rank):
        at = rank * SLOT_BYTES
        numbers = struct.unpack_from(f"<{len(NUMBERS)}q", self.memory, at)
        calls = []
        for number in range(CALLS):
            since, limit, what = struct.unpack_from("<qq176s", self.memory, at + CALLS_AT + number * CALL_BYTES)
            if since:
                calls.append(Call(since, limit, what.partition(b"\0")[0].decode(errors="replace")))
        return Slot(rank, numbers, calls)

    def slots(self):
        return [self.slot(rank) for rank in range(self.ranks)]


@dataclasses.dataclass(frozen=True)
class Error:
    """A call that failed, as a rank wrote it down: `names` is the process that its sentence names, or 0."""

    ns: int
    rank: int
    pid: int
    epoch: int
    status: int
    names: int
    words: str


def errors(folder):
    try:
        lines = (folder / "errors").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        *numbers, words = line.split(" ", 6)
        found.append(Error(*map(int, numbers), words))
    return found
