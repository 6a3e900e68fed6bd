"""A training under `muster run --max_restarts`, its processes, and the ways to end them."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

from .trace import Trace

TREE = pathlib.Path(__file__).resolve().parents[2]
MUSTER = TREE / "target" / "release" / "muster"
TRAIN = TREE / "target" / "examples" / "train_digits"
POLL_SECONDS = 0.0005
STOPPING_SECONDS = 2.0
SCHEDULER = "scheduler"
# Of a checkpoint, as examples/train_digits/checkpoint.cpp writes it.
HEADER_BYTES, CHECKSUM_BYTES = 56, 4


def children_of(launcher):
    """What lives of a launcher's children: pids of workers by rank, and the scheduler's by its name."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        state, parent = stat_of(entry.name) or ("Z", 0)
        if parent == launcher and state not in "ZX":
            environment = environment_of(entry.name)
            if environment.get("MS_ROLE") == "MS_SCHED":
                found[SCHEDULER] = int(entry.name)
            elif environment.get("MS_NODE_ID", "").isdigit():
                found[int(environment["MS_NODE_ID"])] = int(entry.name)
    return found


def signal_child(pid, number):
    """Signals a process that may end and be reaped at any moment; whether it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Failed(Exception):
    """The training did not go as it must; the words say how."""


def stat_of(pid):
    """State and parent of a process, or None when it is gone."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return words[0], int(words[1])


def environment_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return dict(word.decode(errors="replace").split("=", 1) for word in words if b"=" in word)


def clean_environment(**settings):
    """This process's environment without the settings of any cluster, and with these."""
    foreign = ("MS_", "MUSTER_", "OMPI_", "PMI_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "DEVICE_ID", "DATA_PATH")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**inherited, **{name: str(value) for name, value in settings.items()}}


class Job:
    """As a context it leaves no process behind."""

    def __init__(self, folder, ranks, words, restarts, settings=None):
        self.folder = pathlib.Path(folder)
        self.ranks = ranks
        self.trace = Trace(self.folder / "trace")
        self.weights = self.folder / "weights"
        self.checkpoints = self.folder / "checkpoints"
        self.log = self.folder / "launcher.log"
        program = [TRAIN, "--checkpoint", self.checkpoints, "--save", self.weights, "--trace", self.trace.path, *words]
        launcher = [MUSTER, "run", "--worker_num", ranks, "--local_worker_num", ranks, "--master_port", 0, "--join",
                    "--max_restarts", restarts, "--cluster_time_out", 60, "--log_dir", self.folder / "logs",
                    "--tail_worker_log", "none"]
        environment = clean_environment(MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH=self.folder / "recovery", MUSTER_LOG="info",
                                        **(settings or {}))
        with open(self.log, "wb") as log:
            self.launcher = subprocess.Popen([str(word) for word in [*launcher, *program]], env=environment,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def running(self):
        return self.launcher.poll() is None

    def processes(self):
        """The living ones by rank, and the scheduler by its name."""
        return children_of(self.launcher.pid)

    def workers(self):
        return {rank: pid for rank, pid in self.processes().items() if rank != SCHEDULER}

    def until(self, condition, limit, what):
        """Waits, at most until that moment (of time.monotonic), and returns what the condition returned."""
        while True:
            self.trace.read()
            value = condition()
            if value:
                return value
            if not self.running:
                raise Failed(f"the launcher has ended with {self.launcher.returncode}; still not: {what}")
            if time.monotonic() > limit:
                raise Failed(f"too late: {what}")
            time.sleep(POLL_SECONDS)

    def until_end(self, limit):
        """Waits for the launcher, which must say that all went well."""
        try:
            code = self.launcher.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed("too late: the end of the training") from None
        self.trace.read()
        if code != 0:
            raise Failed(f"the launcher ended with {code}")

    def checkpointed_weights(self, rank, step):
        """Those in a rank's checkpoint of that step, as bytes: the first half of what lies behind the header."""
        inside = (self.checkpoints / f"rank-{rank}-step-{step}.ckpt").read_bytes()[HEADER_BYTES:-CHECKSUM_BYTES]
        return inside[:len(inside) // 2]

    def is_child(self, pid):
        return (stat_of(pid) or ("Z", 0))[1] == self.launcher.pid

    def kill(self, pid):
        """Kills a process of this job; the moment, in nanoseconds, or None if it had ended."""
        state, parent = stat_of(pid) or ("Z", 0)
        if parent != self.launcher.pid or state in "ZX":
            return None
        now = time.monotonic_ns()
        return now if signal_child(pid, signal.SIGKILL) else None

    def kill_in(self, pid, condition):
        """Kills a process only if it is where the condition (on its pid) wants it: for that it is held still."""
        if not self.is_child(pid):
            return None
        with self.held(pid) as is_held:
            return self.kill(pid) if is_held and condition(pid) else None

    @contextlib.contextmanager
    def held(self, pid):
        """Stops a process for a moment; whether it stands. All that it has said is then in the trace."""
        signal_child(pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + STOPPING_SECONDS
            while (state := (stat_of(pid) or "Z")[0]) not in "TZX":
                if time.monotonic() > deadline:
                    raise Failed(f"process {pid} does not stop")
            self.trace.read()
            yield state == "T"
        finally:
            if self.is_child(pid):
                signal_child(pid, signal.SIGCONT)

    def children_left(self):
        """Those of the forked children that live: pids."""
        forked = [event.number for event in self.trace.events if event.what == "child"]
        return [pid for pid in forked if environment_of(pid).get("MS_RECOVERY_PATH") == str(self.folder / "recovery")]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.running:
            self.launcher.terminate()  # it ends what it has started
            try:
                self.launcher.wait(timeout=10)
            except subprocess.TimeoutExpired:
                for pid in self.processes().values():
                    self.kill(pid)
                self.launcher.kill()
                self.launcher.wait()
        self.trace.read()
        for pid in self.children_left():
            signal_child(pid, signal.SIGKILL)


def train_quietly(folder, ranks, words, timeout):
    """The weights of a training in which nothing dies, as bytes."""
    weights = pathlib.Path(folder) / "quiet_weights"
    launcher = [MUSTER, "run", "--worker_num", ranks, "--local_worker_num", ranks, "--master_port", 0, "--join",
                "--log_dir", pathlib.Path(folder) / "quiet_logs", "--tail_worker_log", "none", TRAIN, "--save", weights]
    with open(pathlib.Path(folder) / "quiet.log", "wb") as log:
        process = subprocess.Popen([str(word) for word in [*launcher, *words]], env=clean_environment(),
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"the quiet training took more than {timeout} s") from None
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if code != 0:
        raise Failed(f"the quiet training ended with {code}")
    return weights.read_bytes()
