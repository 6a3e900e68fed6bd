"""The kinds of kills: whom each strikes, in the middle of what, and what is awaited afterwards."""

import dataclasses
import time

from .job import SCHEDULER, Failed

# How long a training may take to go on after a blow.
BACK_SECONDS = 60
TRIES = 50
RECOVERING = ("lost",)
ENDING = ("finishing", "finished")
# What one does that is back.
BACK = ("step", "finishing", "late")


@dataclasses.dataclass
class Blow:
    """One kill, or several at the same moment."""

    kind: str
    victims: dict  # by rank, or the scheduler's name: pids
    first_ns: int  # when the first of them was struck
    ns: int  # and the last
    doing: str

    def ranks(self):
        return [rank for rank in self.victims if rank != SCHEDULER]


class Blows:
    def __init__(self, job, rng, steps, parent, limit):
        self.job, self.rng, self.steps, self.parent, self.limit = job, rng, steps, parent, limit
        self.struck = []

    def strike(self, kind, step):
        """Waits for that step, strikes, and waits until all go on; at the end there is no time for that."""
        self.job.until(lambda: self.job.trace.newest_step >= step, self.limit, f"step {step}")
        KINDS[kind](self)
        for blow in self.struck[-2:] if kind not in LAST else ():
            self.await_back(blow)

    def await_back(self, blow):
        limit = min(self.limit, time.monotonic() + BACK_SECONDS)
        for rank in blow.ranks():
            self.job.until(lambda: self.back(rank, blow.ns) or not self.job.running, limit, f"rank {rank} is back")
        if SCHEDULER in blow.victims:
            again = lambda: self.job.processes().get(SCHEDULER, blow.victims[SCHEDULER]) != blow.victims[SCHEDULER]  # noqa: E731
            self.job.until(again, limit, "the scheduler is back")

    def back(self, rank, ns):
        """The first sign, after that moment, that this rank works."""
        return self.job.trace.first(lambda event: event.rank == rank and event.what in BACK, since=ns)

    def note(self, kind, victims, ns, doing):
        self.struck.append(Blow(kind, victims, ns, ns, doing))

    def worker_in(self, kind, wanted, doing, among=None):
        """Kills a worker, by chance, in one of these states; None if for a long time none was met in it."""
        for _ in range(TRIES):
            time.sleep(self.rng.uniform(0, 0.005))
            workers = self.job.workers()
            ranks = sorted(set(workers) & set(among if among is not None else workers))
            if not ranks:
                continue
            rank = self.rng.choice(ranks)
            ns = self.job.kill_in(workers[rank], lambda pid: self.job.trace.state(pid) in wanted)
            if ns:
                self.note(kind, {rank: workers[rank]}, ns, doing)
                return rank
        raise Failed(f"{kind}: in {TRIES} tries no worker was met {doing}")

    def next_in(self, kind, condition, doing):
        """Kills the next worker that the condition (on its pid) holds for; it may be gone by the time that it is struck."""
        def try_it():
            time.sleep(self.rng.uniform(0, 0.003))
            for pid in list(self.job.trace.last):
                if condition(pid) and (ns := self.job.kill_in(pid, condition)):
                    self.note(kind, {self.job.trace.last[pid].rank: pid}, ns, doing)
                    return True
            return False

        self.job.until(try_it, min(self.limit, time.monotonic() + BACK_SECONDS), f"a worker {doing}")

    def in_step(self):
        self.worker_in("step", ("step", "saved"), "in a step")

    def in_save(self):
        state = self.job.trace.state
        self.next_in("save", lambda pid: state(pid) == "saving", "while it writes a checkpoint")

    def in_recover(self):
        """A second loss while the first is being mended: of a survivor, or of the one that comes back. Somebody who does not
        come to muster_recover meanwhile keeps the others waiting in there."""
        workers = self.job.workers()
        absent, survivor = self.rng.sample(sorted(workers), 2)
        state, last = self.job.trace.state, self.job.trace.last
        with self.job.held(workers[absent]):
            first = self.worker_in("step", ("step", "saved"), "in a step", among=set(workers) - {absent, survivor})
            if self.rng.random() < 0.5:
                there = lambda pid: pid == workers[survivor] and state(pid) == "lost"  # noqa: E731
                self.next_in("recover", there, "in muster_recover")
            else:
                back = lambda pid: state(pid) == "start" and last[pid].rank == first and pid != workers[first]  # noqa: E731
                self.next_in("recover", back, "coming back, in muster_init")

    def scheduler(self):
        pid = self.job.processes().get(SCHEDULER)
        self.strike_all("scheduler", {SCHEDULER: pid} if pid else {})

    def both(self):
        processes = self.job.processes()
        rank = self.rng.randrange(self.job.ranks)
        self.strike_all("both", {name: processes[name] for name in (SCHEDULER, rank) if name in processes})

    def all_at_once(self):
        self.strike_all("all", self.job.processes())

    def strike_all(self, kind, victims):
        struck = {name: self.job.kill(pid) for name, pid in victims.items()}
        if not struck or None in struck.values():
            raise Failed(f"{kind}: not all were there to be killed: {struck}")
        self.struck.append(Blow(kind, victims, min(struck.values()), max(struck.values()), ""))

    def with_child(self):
        trace = self.job.trace
        forked = lambda: any(event.what == "child" and event.pid == self.job.workers().get(self.parent)  # noqa: E731
                             for event in trace.events)
        self.job.until(forked, self.limit, f"rank {self.parent} has a child")
        self.worker_in("child", ("step", "saved"), "in a step, with a child", among=[self.parent])
        pid = self.struck[-1].victims[self.parent]
        child = next(event.number for event in reversed(trace.events) if event.what == "child" and event.pid == pid)
        self.await_back(self.struck[-1])
        if child not in self.job.children_left():
            raise Failed(f"the child {child} did not outlive its parent")

    def at_the_end(self):
        """In the last checkpoint, or in the last collectives. It is over in milliseconds: now and then one that is held still
        keeps the others waiting there."""
        holds = self.rng.random() < 0.5
        self.before_all_end("end", lambda: self.hold_and_hit() if holds else self.hit("end", self.is_at_the_end))

    def while_leaving(self):
        self.before_all_end("leave", lambda: self.hit("leave", lambda pid: self.job.trace.state(pid) == "leaving"))

    def before_all_end(self, kind, try_it):
        """A blow that comes too late is no failure."""
        try:
            self.job.until(try_it, self.limit, "the end")
        except Failed:
            if self.job.running:
                raise
            now = time.monotonic_ns()
            self.struck.append(Blow(kind, {}, now, now, "missed: all had ended"))

    def is_at_the_end(self, pid):
        event = self.job.trace.last[pid]
        return event.what in ENDING or (event.what == "saving" and event.number == self.steps)

    def hold_and_hit(self):
        held = next((pid for pid in list(self.job.trace.last) if self.is_at_the_end(pid) and self.job.is_child(pid)), None)
        if held is None:
            return False
        with self.job.held(held) as is_held:
            time.sleep(self.rng.uniform(0, 0.05))
            self.job.trace.read()
            return is_held and self.hit("end", lambda pid: pid != held and self.is_at_the_end(pid))

    def hit(self, kind, condition):
        """Kills any worker that the condition (on its pid) holds for, if there is one."""
        pids = [pid for pid in self.job.trace.last if condition(pid)]
        self.rng.shuffle(pids)
        for pid in pids:
            if ns := self.job.kill_in(pid, condition):
                last = self.job.trace.last[pid]
                self.note(kind, {last.rank: pid}, ns, f"at the end ({last.what})")
                return True
        return False

    def rows(self):
        """What the table shows: a dictionary per blow."""
        return [self.row(number, blow) for number, blow in enumerate(self.struck)]

    def row(self, number, blow):
        events = self.job.trace.events
        next_ns = self.struck[number + 1].first_ns if number + 1 < len(self.struck) else float("inf")
        after = [event for event in events if event.ns > blow.ns]
        row = {"who": blow.victims, "kind": blow.kind, "doing": blow.doing, "noticed": None}
        row["step"] = max((event.number for event in events if event.what == "step" and event.ns <= blow.ns), default=0)
        survivors = [event for event in after if event.what == "lost" and event.pid not in blow.victims.values()]
        if blow.ranks() and len(blow.ranks()) < self.job.ranks and survivors and survivors[0].ns < next_ns:
            row["noticed"] = (survivors[0].ns - blow.ns) / 1e6
        lives = [self.next_life(rank, blow.ns) for rank in blow.ranks()]
        if lives and all(lives):
            row["restarted"] = max((start - blow.ns) / 1e6 for start, _ in lives)
            if any(back.what == "late" for _, back in lives):
                row["doing"] += ", and comes too late"
            else:
                row["back"] = max((back.ns - start) / 1e6 for start, back in lives)
        agreed = next((event for event in after if event.what == "agreed"), None)
        if agreed and agreed.ns < next_ns and blow.ranks():
            before = [event for event in events if event.ns < agreed.ns and event.what in ("step", "agreed")]
            last = max((event.ns for event in before if event.what == "agreed" and event.ns < blow.ns), default=0)
            newest = max((event.number for event in before if event.ns >= last), default=0)
            row["repeated"] = newest - max(agreed.number, 0)
        return row

    def next_life(self, rank, ns):
        """When the life of this rank began that got to work again, and the event that shows it."""
        back = self.back(rank, ns)
        if back is None:
            return None
        return next(event.ns for event in self.job.trace.events if event.pid == back.pid), back


KINDS = {
    "step": Blows.in_step,
    "recover": Blows.in_recover,
    "save": Blows.in_save,
    "scheduler": Blows.scheduler,
    "both": Blows.both,
    "all": Blows.all_at_once,
    "child": Blows.with_child,
    "end": Blows.at_the_end,
    "leave": Blows.while_leaving,
}
LAST = ("end", "leave")
