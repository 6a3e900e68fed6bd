"""The processes of one round: started under `muster run`, or by hand, and started again when they are lost."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from killing.job import MUSTER, SCHEDULER, TREE, children_of, clean_environment, environment_of, stat_of

STORM = TREE / "target" / "benches" / "storm"
LAUNCHER = "launcher"
DONE, TOLD, VIOLATION, FENCED = 0, 3, 70, 75  # of benches/storm/life.hpp
FORMING_SECONDS, CALL_SECONDS = 60, 60
MARK = "STORM_ROUND"  # an environment variable by which all processes of a round are known


def marked(value):
    """Every living process that has this mark, its children's children included: pids."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and environment_of(entry.name).get(MARK) == value:
            if (stat_of(entry.name) or "Z")[0] not in "ZX":
                found.append(int(entry.name))
    return found


class Job:
    """What both kinds have in common. As a context it leaves nothing behind."""

    def __init__(self, plan, folder, plant, limit):
        self.plan, self.folder = plan, folder
        self.mark = f"{folder.name}-{os.getpid()}"
        self.ended = []  # (who, exit code) of processes that the driver waits for
        words = ["--folder", folder, "--seed", plan.seed * 1000 + plan.number, "--steps", plan.steps, "--ranks", plan.ranks,
                 "--limit", limit or CALL_SECONDS]
        words += [] if plan.recovers else ["--plain"]
        words += ["--plant", plant] if plant else []
        self.program = [str(word) for word in [STORM, *words]]
        settings = {MARK: self.mark, "MS_NODE_TIMEOUT": plan.node_timeout, "MUSTER_LOG": "info", "MUSTER_TIMEOUT": 120}
        if plan.recovers:
            settings.update(MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH=folder / "recovery")
        self.environment = clean_environment(**settings)
        self.logs = folder / "logs"
        self.logs.mkdir()

    def popen(self, words, log, environment, **more):
        with open(log, "ab") as file:
            return subprocess.Popen([str(word) for word in words], env=environment, stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=file, **more)

    def left_over(self):
        return marked(self.mark)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pid in self.left_over():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.own():
            process.wait()


class Launched(Job):
    """Under `muster run --max_restarts`; the driver starts the launcher again when it has killed it."""

    def __init__(self, plan, folder, plant=None, limit=None):
        super().__init__(plan, folder, plant, limit)
        self.launcher = None
        self.start_launcher()

    def start_launcher(self):
        plan = self.plan
        words = [MUSTER, "run", "--worker_num", plan.ranks, "--local_worker_num", plan.ranks, "--master_port", 0, "--join",
                 "--cluster_time_out", FORMING_SECONDS, "--log_dir", self.logs, "--tail_worker_log", 0, "--node_rank", 0]
        words += ["--max_restarts", 1000] if plan.recovers else []
        self.launcher = self.popen([*words, *self.program], self.logs / "launcher.log", self.environment)

    def own(self):
        return [self.launcher]

    def processes(self):
        """Living ones: pids by rank, or by their names."""
        found = children_of(self.launcher.pid)
        if self.launcher.poll() is None:
            found[LAUNCHER] = self.launcher.pid
        return found

    def is_there(self, name, pid):
        """Whether that process still lives, so that it may be struck."""
        state, parent = stat_of(pid) or ("Z", 0)
        return state not in "ZX" and (pid == self.launcher.pid or parent == self.launcher.pid)

    def tend(self, aways):
        """Nothing to be done: the launcher does it."""

    @property
    def is_over(self):
        return self.launcher.poll() is not None

    def port(self):
        ports = re.findall(r"port (\d+)", (self.logs / "launcher.log").read_text(errors="replace"))
        return ports[-1] if ports else None


class ByHand(Job):
    """A scheduler and workers that the driver starts, and starts again when they are lost, after a while."""

    def __init__(self, plan, folder, plant=None, limit=None):
        super().__init__(plan, folder, plant, limit)
        # Bound, and nobody listens: the port remains this job's while its scheduler is away.
        self.holder = socket.socket()
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.holder.bind(("127.0.0.1", 0))
        self.environment.update(MS_SCHED_HOST="127.0.0.1", MS_SCHED_PORT=str(self.port()), MS_WORKER_NUM=str(plan.ranks),
                                MS_CLUSTER_TIMEOUT=str(FORMING_SECONDS))
        self.running = {}
        self.due = {}  # when somebody is to be started again
        for name in [SCHEDULER, *range(plan.ranks)]:
            self.start(name)

    def start(self, name):
        if name == SCHEDULER:
            words, own, log = [MUSTER, "scheduler"], {"MS_ROLE": "MS_SCHED"}, "scheduler.log"
        else:
            words, own, log = self.program, {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(name)}, f"worker_{name}.log"
        self.running[name] = self.popen(words, self.logs / log, {**self.environment, **own})

    def own(self):
        return list(self.running.values())

    def processes(self):
        return {name: process.pid for name, process in self.running.items() if process.poll() is None}

    def is_there(self, name, pid):
        process = self.running.get(name)
        return process is not None and process.pid == pid and process.poll() is None

    def tend(self, aways):
        """Starts again who is lost: `aways` says for how long each stays away."""
        now = time.monotonic()
        for name, process in self.running.items():
            code = process.poll()
            if code is None or self.is_tended(process):
                continue
            self.ended.append((name, process.pid, code))
            lost = code == -signal.SIGKILL or (name != SCHEDULER and code == FENCED)
            if lost and self.plan.recovers:
                self.due[name] = now + aways.get(name, 0.0)
        for name in [name for name, moment in self.due.items() if moment <= now]:
            del self.due[name]
            self.start(name)

    @property
    def is_over(self):
        return not self.due and all(self.is_tended(process) for process in self.running.values())

    def is_tended(self, process):
        """Whether its end was seen, and what was to follow has been done."""
        return any(pid == process.pid for _, pid, _ in self.ended)

    def port(self):
        return self.holder.getsockname()[1]

    def __exit__(self, *error):
        super().__exit__(*error)
        self.holder.close()
