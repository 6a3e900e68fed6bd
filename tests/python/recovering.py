"""A cluster with recovery, whose processes are killed and started again: the scheduler too, on the port that it had.

    with Recovering(LIVES, workers=3, folder=tmp_path) as job:
        job.await_all("stands_1")
        job.lose(1)
        job.start_again(1)
        job.let("recover_1")
        job.await_all("stands_2")
        job.let("end")
        job.succeed(timeout=30)

What its nodes run is LIVES. In each epoch they meet, say `stands_<epoch>`, and reduce until something breaks: that they
say as `broken_<epoch>`, and go into muster_recover once the test lets them (`recover_<epoch>`). When it lets them end
they leave.
"""

import re
import signal

from cluster import Cluster, Process
from nodes import node, said

LIMIT_SECONDS = 60

LIVES = """
    WAIT_MS, LIMIT_MS = 5, 60_000

    def lets(name):
        return pathlib.Path(os.environ["HOLD_FOLDER"], name).exists()

    def poll(condition):
        deadline = time.monotonic() + 30
        while not condition() and time.monotonic() < deadline:
            time.sleep(WAIT_MS / 1000)

    def place():
        return {"epoch": c.epoch, "restarts": c.restarts, "local": [c.local_rank, c.local_size], "at": time.monotonic()}

    def reduce_until_the_end():
        c.world.barrier()
        say(**{f"stands_{c.epoch}": place()})
        while not c.world.allreduce([int(lets("end"))], MIN)[0]:
            time.sleep(WAIT_MS / 1000)

    def hears(error):
        words = {"error": error.status, "sentence": error.sentence, "at": time.monotonic()}
        say(**{f"broken_{c.epoch}": {**words, "failure": c.failure(), "cluster": c.error()}})

    if "HOLD_FIRST" in os.environ:
        say(here=True)
        hold(os.environ["HOLD_FIRST"])
    c = join()
    while True:
        try:
            reduce_until_the_end()
            break
        except MusterError as error:
            hears(error)
        poll(lambda: len(c.failed_ranks()) >= LOST.get(c.epoch, 1))
        say(**{f"failed_{c.epoch}": c.failed_ranks()})
        hold(f"recover_{c.epoch}")
        say(**{f"recovers_{c.epoch}": True})
        c.recover(LIMIT_MS)
    c.leave()
"""


def lives(lost=None):
    """The command; its nodes wait until they have been told of all losses: how many by epoch, where it is not one."""
    return node(LIVES.replace("LOST", str(lost or {})))


class Recovering(Cluster):
    def __init__(self, program, workers, folder, *, env=None, **more):
        self.folder = folder
        self.recovery = folder / "recovery"
        self.past = []
        settings = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": self.recovery, "HOLD_FOLDER": folder, **(env or {})}
        super().__init__(program, workers, env=settings, keeps_port=True, **more)

    def let(self, name):
        (self.folder / name).touch()

    def lose(self, *ranks):
        """Kills these workers at once, and waits until they are gone."""
        for rank in ranks:
            self.workers[rank].kill()
        for rank in ranks:
            assert self.workers[rank].wait(LIMIT_SECONDS) == -signal.SIGKILL

    def start_again(self, rank, env=None):
        """The next life of a worker."""
        settings = {"MS_ROLE": "MS_WORKER", **({"MS_NODE_ID": rank} if self.numbered else {}), **(env or {})}
        self.past.append(self.workers[rank])
        self.workers[rank] = Process(self.program, {**self.env, **settings}, f"worker {rank}, once more")
        return self.workers[rank]

    def lose_scheduler(self):
        self.scheduler.kill()
        assert self.scheduler.wait(LIMIT_SECONDS) == -signal.SIGKILL
        self.past.append(self.scheduler)
        self.scheduler = None

    def await_all(self, word, ranks=None):
        """Waits until these workers have said this word, and returns what each said with it."""
        ranks = range(len(self.workers)) if ranks is None else ranks
        for rank in ranks:
            self.workers[rank].wait_for(f'"{re.escape(word)}"', LIMIT_SECONDS)
        return [said(self.workers[rank])[word] for rank in ranks]

    def identity(self, rank):
        return self.recovery / f"node-{rank}.identity"

    def __exit__(self, kind, error, trace):
        if kind is not None:
            for process in self.past:
                print(process.describe())
        super().__exit__(kind, error, trace)

    def close(self):
        super().close()
        for process in self.past:
            process.close()
