"""A worker of a job that goes on when processes are lost: it counts in steps, keeps the sum, and goes back with the others.

    returning.py STEPS [PLAN]

$KEPT is a folder that outlives the process, $LIMIT_MS how long it waits in muster_recover. PLAN is JSON: {"rank.life@step": what}, with lives from 0 and what is
"kill", "fork" (as that, and a forked child lives on), "exit N" or "abort N"; at step "end" it is done when all others
have left. Where $LEAVES is set it leaves when there is no next epoch, and ends once there is a file exit
in $KEPT. While the file hold in $KEPT has a step's number, all stand at that step, and notice who is lost.
"""

import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import muster_ctypes  # noqa: E402
from muster_ctypes import MAX, MIN, MusterError  # noqa: E402

KEPT = pathlib.Path(os.environ["KEPT"])
STEPS = int(sys.argv[1])
PLAN = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
LIMIT_MS = int(os.environ.get("LIMIT_MS", 60_000))
REST_SECONDS = 0.005


def keep(path, value):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    os.replace(new, path)


def kept(path, default):
    return json.loads(path.read_text()) if path.exists() else default


def held_at():
    try:
        return int((KEPT / "hold").read_text())
    except (FileNotFoundError, ValueError):
        return STEPS


def break_off(how, cluster):
    word, _, number = how.partition(" ")
    if word == "fork" and os.fork() == 0:
        time.sleep(600)
    if word in ("kill", "fork"):
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "abort":
        cluster.abort(int(number), "on purpose")
    os._exit(int(number or 0))


def await_files(paths):
    deadline = time.monotonic() + LIMIT_MS / 1000
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            sys.exit(f"not all of {paths} came")
        time.sleep(REST_SECONDS)


class Work:
    """The sums after the newest steps, by step."""

    def __init__(self, cluster):
        self.cluster, self.rank = cluster, cluster.rank
        self.file = KEPT / f"rank_{self.rank}.json"
        self.sums = {int(step): total for step, total in kept(self.file, {"0": 0}).items()}
        self.step, self.agreed = max(self.sums), False

    def agree(self):
        self.step = self.cluster.world.allreduce([max(self.sums)], MIN)[0]
        self.sums = {step: total for step, total in self.sums.items() if step <= self.step}
        self.agreed = True

    def is_held(self):
        """The answer is the same for all ranks, although they look at the file at different times."""
        return self.cluster.world.allreduce([self.step == held_at()], MAX)[0] == 1

    def go_on(self, life):
        if not self.agreed:
            self.agree()
        if how := PLAN.get(f"{self.rank}.{life}@{self.step}"):
            break_off(how, self.cluster)
        if self.is_held():
            print(f"stands at {self.step}", flush=True)
            while self.is_held():
                time.sleep(REST_SECONDS)
        number = self.step + 1
        total = self.sums[self.step] + self.cluster.world.allreduce([number * (self.rank + 1)])[0]
        self.sums = {self.step: self.sums[self.step], number: total}
        self.step = number
        keep(self.file, self.sums)


def go_on_together(cluster):
    try:
        cluster.recover(LIMIT_MS)
    except MusterError as error:
        if "LEAVES" in os.environ:
            cluster.finalize()
            print(f"left after {error.status}", flush=True)
            await_files([KEPT / "exit"])
        raise


def main():
    rank = int(os.environ["MS_NODE_ID"])
    lives = KEPT / f"lives_{rank}.json"
    life = kept(lives, 0)
    keep(lives, life + 1)
    print(f"life {life}", flush=True)
    if kept(KEPT / f"rank_{rank}.json", {}).get(str(STEPS)) is not None:
        print("all is done", flush=True)
        return
    cluster = muster_ctypes.init()
    work = Work(cluster)
    print(f"joined as rank {work.rank} in epoch {cluster.epoch}, restarts {cluster.restarts}", flush=True)
    while work.step < STEPS or not work.agreed:
        try:
            work.go_on(life)
        except MusterError as error:
            if error.status not in ("PEER_LOST", "REVOKED"):
                raise
            go_on_together(cluster)
            work.agreed = False
    print(f"sum {work.sums[STEPS]}", flush=True)
    cluster.world.barrier()
    if how := PLAN.get(f"{rank}.{life}@end"):
        await_files([KEPT / f"left_{other}" for other in range(cluster.size) if other != rank])
        break_off(how, cluster)
    cluster.leave()
    (KEPT / f"left_{rank}").touch()


main()
