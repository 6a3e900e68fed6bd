"""What train_digits --trace writes: a line per event, on the clock that time.monotonic_ns() shows."""

import dataclasses

# By how much two lines that stand one after the other may be the wrong way round: between the look at the clock and the
# writing a process may have to wait for a processor.
DISORDER_NS = 2_000_000_000


@dataclasses.dataclass(frozen=True)
class Event:
    ns: int
    pid: int
    rank: int
    what: str
    number: int


class Trace:
    """All events so far, in the order in which they were written, and the last one of each process."""

    def __init__(self, path):
        self.path = path
        self.events = []
        self.last = {}
        self.newest_step = 0
        self._offset = 0
        self._rest = b""

    def read(self):
        """Takes in what has been written since."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            ns, pid, rank, what, number = line.split()
            event = Event(int(ns), int(pid), int(rank), what.decode(), int(number))
            self.events.append(event)
            self.last[event.pid] = event
            if event.what == "step":
                self.newest_step = max(self.newest_step, event.number)

    def state(self, pid):
        """What the process is in the middle of, as far as it has said."""
        return self.last[pid].what if pid in self.last else "start"

    def first(self, condition, since=0):
        """The first event after this moment of which the condition holds, or None."""
        at = len(self.events)
        while at > 0 and self.events[at - 1].ns > since - DISORDER_NS:
            at -= 1
        return next((event for event in self.events[at:] if event.ns > since and condition(event)), None)
