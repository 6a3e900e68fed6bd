"""What must hold when a round is over, beyond what its ranks have checked themselves. Each check gives the words of what it finds
violated."""

import signal
import time

from .job import DONE, FENCED, SCHEDULER, TOLD
from .ledger import errors

FENCED_STATUS, PEER_LOST = -18, -11
FORBIDDEN = ("panicked", "bug in this library", "ERR_INTERNAL")
GONE_SECONDS = 10
KILLED = 128 + signal.SIGKILL
SHORT, LONG, MARGIN_SECONDS = 0.7, 1.2, 10


class Audit:
    def __init__(self, plan, job, striker, ledger, standstill):
        self.plan, self.job, self.striker, self.ledger = plan, job, striker, ledger
        self.standstill = standstill  # the longest while of the round for which somebody had to wait for a processor
        self.errors = errors(job.folder)
        self.latencies = []

    def all(self):
        checks = (self.exit_codes, self.all_is_done, self.nothing_is_left, self.logs, self.short_stops, self.long_stops,
                  self.promptness, self.one_cause, self.epochs)
        return [words for check in checks for words in check()]

    def struck(self, *kinds):
        return {pid for _, kind, _, pid, _ in self.striker.struck if kind in kinds}

    def killed_names(self):
        return {name for _, kind, name, _, _ in self.striker.struck if kind in ("kill", "launcher")}

    def exit_codes(self):
        if self.plan.launched:
            yield from self.launchers_code()
        else:
            yield from self.codes_by_hand()

    def launchers_code(self):
        code, killed = self.job.launcher.returncode, self.killed_names()
        if code == -signal.SIGKILL and "launcher" in killed:
            return
        if self.plan.recovers or not self.striker.struck:
            right = {0}
        elif self.struck("stop"):
            right = {0, TOLD, FENCED} | ({128 + signal.SIGTERM} if self.errors else set())
        else:
            right = {KILLED} if any(isinstance(name, int) for name in killed) else {KILLED, TOLD, 1}
        if code not in right:
            yield f"the launcher ended with {code}, it must be one of {sorted(right)}"

    def codes_by_hand(self):
        struck = self.struck("kill")
        for name, pid, code in self.job.ended:
            if pid in struck:
                right = {-signal.SIGKILL, DONE, TOLD, FENCED}
            elif name == SCHEDULER:
                # It has broken where somebody was lost who has not come back: without recovery, or at the very end.
                right = {0, 1} if self.striker.struck else {0}
            elif self.plan.recovers:
                right = {DONE, FENCED} if pid in self.struck("stop") else {DONE}
            else:
                right = {DONE, TOLD} | ({FENCED} if pid in self.struck("stop") else set()) if self.striker.struck else {DONE}
            if code not in right:
                yield f"{name} (pid {pid}) ended with {code}, it must be one of {sorted(right)}"

    def all_is_done(self):
        if self.plan.recovers or not self.striker.struck:
            for slot in self.ledger.slots():
                if slot.done != self.plan.steps or not slot.finished:
                    yield f"the job has ended, and rank {slot.rank} has completed {slot.done} of {self.plan.steps} steps"

    def nothing_is_left(self):
        limit = time.monotonic() + GONE_SECONDS
        while (left := self.job.left_over()) and time.monotonic() < limit:
            time.sleep(0.05)
        for pid in left:
            yield f"process {pid} is left {GONE_SECONDS} s after the job has ended"

    def logs(self):
        for log in sorted(self.job.logs.iterdir()):
            for line in log.read_text(errors="replace").splitlines():
                if any(word in line for word in FORBIDDEN):
                    yield f"{log.name}: {line}"

    def stops_alone(self):
        """Processes that were stopped once, and not struck otherwise: for how long they stood."""
        times = [pid for _, _, _, pid, _ in self.striker.struck]
        names = {pid: name for _, _, name, pid, _ in self.striker.struck}
        return [(pid, names[pid], stood) for pid, stood in self.striker.resumed if times.count(pid) == 1]

    def short_stops(self):
        for pid, name, stood in self.stops_alone():
            if stood + 2 * self.standstill < SHORT * self.plan.node_timeout:
                for error in self.errors:
                    if error.names == pid and error.status == PEER_LOST:
                        yield f"{name} stood for {stood:.2f} s only, and is called lost: {error.words}"
                        break

    def long_stops(self):
        """A rank that stood for longer than the time-out is lost, and finds out that it is given up."""
        for pid, name, stood in self.stops_alone():
            if not isinstance(name, int):
                continue
            others = [ns for ns, _, _, other, _ in self.striker.struck if other != pid]
            since = next(ns for ns, _, _, other, _ in self.striker.struck if other == pid)
            near = any(abs(ns - since) < (stood + 2 * self.plan.node_timeout) * 1e9 for ns in others)
            told = [error for error in self.errors if error.names == pid and error.status == PEER_LOST and error.pid != pid]
            fenced = any(error.pid == pid and error.status == FENCED_STATUS for error in self.errors)
            confirmed = [error for error in told if "unconfirmed" not in error.words]
            over = self.ledger.slot(name).finished
            if stood > LONG * self.plan.node_timeout + 1 + self.standstill and not near and not told and not over:
                yield f"rank {name} (pid {pid}) stood for {stood:.2f} s, and nobody was told that it is lost"
            if confirmed and not near and not fenced and self.plan.recovers:
                yield f"rank {name} (pid {pid}) was given up, and has not been told so"

    def promptness(self):
        """From a kill to the error of each that names the one who was killed."""
        killed = {pid: ns for ns, kind, name, pid, _ in self.striker.struck if kind != "stop" and isinstance(name, int)}
        limit = LONG * self.plan.node_timeout + MARGIN_SECONDS + 20 * self.standstill
        for error in self.errors:
            if error.status == PEER_LOST and error.names in killed and "muster_recover" not in error.words.split(" gave ")[0]:
                took = (error.ns - killed[error.names]) / 1e9
                if not self.was_scheduler_struck(killed[error.names], error.ns):
                    self.latencies.append((took, error))
                if took > limit:
                    yield f"{took:.1f} s after the kill, which is more than {limit:.1f} s: {error.words}"

    def was_scheduler_struck(self, since_ns, until_ns):
        """Whether somebody may have waited for it meanwhile."""
        reach = int((self.plan.node_timeout + LONG) * 1e9)
        return any(name in ("scheduler", "launcher") and ns <= until_ns and ns + seconds * 1e9 + reach >= since_ns
                   for ns, _, name, _, seconds in self.striker.struck)

    def one_cause(self):
        """All that are told of a loss in an epoch are told of the same; not who stood still, or was alone with its view."""
        causes = {}
        for error in self.errors:
            if error.status == PEER_LOST and "unconfirmed" not in error.words and error.pid not in self.struck("stop"):
                causes.setdefault(error.epoch, {}).setdefault(error.names, error)
        for epoch, told in causes.items():
            if len(told) > 1:
                yield f"epoch {epoch} has more than one first cause: " + " / ".join(error.words for error in told.values())

    def epochs(self):
        """Each epoch but the first follows a blow to a worker."""
        epochs = max(slot.epoch for slot in self.ledger.slots())
        blows = sum(isinstance(name, int) for _, _, name, _, _ in self.striker.struck)
        if epochs > 1 + blows:
            yield f"there were {epochs} epochs after {blows} blows to workers"
