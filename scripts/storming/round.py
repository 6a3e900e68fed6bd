"""One round: a job is started, struck, watched, and looked over when it has ended."""

import subprocess
import time

from killing.job import MUSTER, Failed, clean_environment

from .audit import Audit
from .job import ByHand, Launched, stat_of
from .ledger import Ledger
from .strike import Striker

TICK = 0.01
OVERDUE_SECONDS = 2.0
STILL_SECONDS, ROUND_SECONDS = 150, 400


class Round:
    def __init__(self, plan, folder, standstill, plant=None, limit=None):
        self.plan, self.folder, self.standstill = plan, folder, standstill
        self.plant, self.limit = plant, limit
        self.ledger = Ledger(folder, plan.ranks)
        self.began = time.monotonic()
        self.moved = (None, self.began)
        self.audit = None

    def run(self):
        """Ends with Failed, which tells what was violated."""
        kind = Launched if self.plan.launched else ByHand
        with kind(self.plan, self.folder, self.plant, self.limit) as job:
            striker = Striker(self.plan, job, self.ledger, secret=self.plant == "culprit")
            try:
                while not (job.is_over and not striker.due):
                    striker.tick()
                    job.tend(striker.aways)
                    self.look(job, striker)
                    time.sleep(TICK)
            finally:
                striker.close()
            job.tend(striker.aways)
            self.raise_violations(job)
            self.audit = Audit(self.plan, job, striker, self.ledger, self.standstill.since(self.began))
            found = self.audit.all()
        if found:
            raise Failed("\n".join(found))
        return self.audit

    def raise_violations(self, job):
        try:
            raise Failed((self.folder / "violations").read_text(errors="replace").strip())
        except FileNotFoundError:
            pass

    def look(self, job, striker):
        """Whether a rank has found something violated, and whether all go on."""
        if (self.folder / "violations").exists():
            time.sleep(0.2)  # others may have found the same
            self.raise_violations(job)
        now, slots = time.monotonic_ns(), self.ledger.slots()
        living = set(job.processes().values()) - set(striker.stopped)
        for slot in slots:
            for call in slot.calls if slot.pid in living else ():
                if now - call.since_ns > call.limit_ns + OVERDUE_SECONDS * 1e9:
                    raise Failed(f"a call does not end in time: {call.what}\n{self.where(job)}")
        state = [(slot.done, slot.lives, slot.recoveries, slot.phase) for slot in slots]
        if state != self.moved[0]:
            self.moved = (state, time.monotonic())
        if time.monotonic() - self.moved[1] > STILL_SECONDS:
            raise Failed(f"nothing has moved for {STILL_SECONDS} s\n{self.where(job)}")
        if time.monotonic() - self.began > ROUND_SECONDS:
            raise Failed(f"the round takes more than {ROUND_SECONDS} s\n{self.where(job)}")

    def where(self, job):
        """Where each rank is: by its own notes, and by what the scheduler knows."""
        now = time.monotonic_ns()
        lines = [slot.describe(now) + f", process state {(stat_of(slot.pid) or ('gone',))[0]}" for slot in self.ledger.slots()]
        words = [MUSTER, "status", "--sched_host", "127.0.0.1", "--sched_port", str(job.port())]
        try:
            status = subprocess.run([str(word) for word in words], env=clean_environment(), capture_output=True, text=True,
                                    timeout=20)
            lines += ["muster status:", status.stdout + status.stderr]
        except subprocess.TimeoutExpired:
            lines.append("muster status does not end")
        return "\n".join(lines)
