"""Strikes the blows of a plan. What is about to be done is written down first, for the ranks look there when somebody is called
lost: a line in `blows` is the moment, the kind, who, the process, and for how long it is stopped."""

import os
import signal
import time

from .job import LAUNCHER, SCHEDULER
from .plan import END_PHASES

ENDED_WITH_LAUNCHER_SECONDS = 20


class Striker:
    """Each of the plan's blows when its time has come; `struck` has all that was done."""

    def __init__(self, plan, job, ledger, secret=False):
        self.plan, self.job, self.ledger = plan, job, ledger
        self.secret = secret  # a planted fault: nothing is written down
        self.file = os.open(job.folder / "blows", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.waiting = list(plan.blows)
        self.due = []  # (moment, what to do)
        self.struck = []  # (ns, kind, name, pid, seconds)
        self.stopped = {}  # until when which pids stand
        self.aways = {}
        self.resumed = []  # (pid, for how long it really stood)

    def close(self):
        for pid in list(self.stopped):
            self.resume(pid)
        os.close(self.file)

    @property
    def is_done(self):
        return not self.waiting and not self.due and not self.stopped

    def tick(self):
        now = time.monotonic()
        for moment, act in [due for due in self.due if due[0] <= now]:
            self.due.remove((moment, act))
            act()
        for pid, (since, until) in list(self.stopped.items()):
            if now >= until:
                self.resume(pid)
        if self.waiting and self.is_time(self.waiting[0]):
            blow = self.waiting.pop(0)
            self.due.append((now + blow.delay, lambda: self.strike(blow)))

    def is_time(self, blow):
        slots = self.ledger.slots()
        if blow.kind == "end":
            return any(slot.in_phase in END_PHASES for slot in slots)
        return max(slot.done for slot in slots) >= blow.step

    def strike(self, blow):
        processes = self.job.processes()
        workers = sorted(name for name in processes if isinstance(name, int))
        chance = self.plan.chance
        some = chance.sample(workers, min(2, len(workers)))
        whom = {
            "worker": some[:1], "two": some, "scheduler": [SCHEDULER], "both": [SCHEDULER, *some[:1]],
            "all": [SCHEDULER, *workers], "launcher": [LAUNCHER], "stop-worker": some[:1], "stop-scheduler": [SCHEDULER],
            "stop-launcher": [LAUNCHER], "end": some[:1], "more": some[:1],
        }[blow.kind]
        for name in whom:
            self.aways[name] = blow.away
        victims = {name: processes[name] for name in whom if name in processes}
        if blow.kind == "launcher":
            self.kill_launcher(processes)
        elif blow.kind.startswith("stop"):
            for name, pid in victims.items():
                self.stop(name, pid, blow.seconds)
        else:
            for name, pid in victims.items():
                self.kill("kill", name, pid)
        if blow.again is not None:
            more = type(blow)("more", 0, 0.0, away=blow.away)
            self.due.append((time.monotonic() + blow.again, lambda: self.strike(more)))

    def announce(self, kind, name, pid, seconds=0.0):
        ns = time.monotonic_ns()
        if not self.secret:
            os.write(self.file, f"{ns} {kind} {name} {pid} {seconds:.3f}\n".encode())
        self.struck.append((ns, kind, name, pid, seconds))

    def kill(self, kind, name, pid):
        if self.job.is_there(name, pid):
            self.announce(kind, name, pid)
            os.kill(pid, signal.SIGKILL)
            self.stopped.pop(pid, None)

    def stop(self, name, pid, seconds):
        if self.job.is_there(name, pid) and pid not in self.stopped:
            self.announce("stop", name, pid, seconds)
            os.kill(pid, signal.SIGSTOP)
            now = time.monotonic()
            self.stopped[pid] = (now, now + seconds)

    def resume(self, pid):
        since, _ = self.stopped.pop(pid)
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        self.resumed.append((pid, time.monotonic() - since))

    def kill_launcher(self, processes):
        """Its processes end with it: so they are struck, too."""
        pid = processes.get(LAUNCHER)
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)  # it starts nobody meanwhile
        for name, child in self.job.processes().items():
            self.announce("launcher", name, child)
            self.stopped.pop(child, None)
        os.kill(pid, signal.SIGKILL)
        self.job.launcher.wait()
        self.due.append((time.monotonic(), lambda: self.launch_again(time.monotonic() + ENDED_WITH_LAUNCHER_SECONDS)))

    def launch_again(self, limit):
        """Once everything has ended that the launcher had started."""
        left = self.job.left_over()
        if left and time.monotonic() < limit:
            self.due.append((time.monotonic() + 0.05, lambda: self.launch_again(limit)))
        elif not left and self.plan.recovers and not all(slot.finished for slot in self.ledger.slots()):
            self.job.start_launcher()
