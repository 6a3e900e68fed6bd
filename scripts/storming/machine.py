"""How busy the machine is: for how long a thread that wants to run must wait. What is judged by time is judged with that in
mind."""

import os
import threading
import time

PAUSE = 0.005


class Standstill:
    """Measures while the storm goes on: the driver shares the ranks' processors and priority."""

    def __init__(self):
        self.waits = [(time.monotonic(), 0.0)]  # each that was longer than the one second of calm before
        self._ends = False
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._thread.start()

    def _measure(self):
        while not self._ends:
            before = time.monotonic()
            time.sleep(PAUSE)
            over = time.monotonic() - before - PAUSE
            if over > PAUSE:
                self.waits.append((before, over))
                del self.waits[:-100_000]

    def since(self, moment):
        """The longest wait since that moment, of time.monotonic()."""
        return max((over for at, over in list(self.waits) if at >= moment), default=0.0)

    def end(self):
        self._ends = True
        self._thread.join()


def node_timeout(standstill):
    """A heartbeat time-out that this machine bears now, and the words for it where it is not the usual one."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    waits = standstill.since(time.monotonic() - 5)
    why = f"load {load:.0f} on {cores} processors, up to {waits * 1000:.0f} ms of waiting for one"
    if waits > 0.5:
        return 5.0, why
    if load > 4 * cores or waits > 0.1:
        return 3.0, why
    return 2.0, ""
