"""Starts real processes for a test: one of any kind, or a whole cluster described by MS_* variables.

    with Cluster([EXAMPLES / "allgather"], workers=4) as cluster:
        workers = cluster.succeed(timeout=30)
        assert workers[2].stdout == "[[0.], [1.], [2.], [3.]]\\n"

Every wait has a deadline. What is still running at the end of the `with` is killed, by pid, with the processes it has
started; when the block fails, what every process wrote is printed. The port is chosen by the system: the test binds it
and hands the listening descriptor on to the scheduler, so that nobody can take it in between; or, where a scheduler is to be
started more than once, or late, it keeps the port for it.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
TARGET = TREE / "target"
EXAMPLES = TARGET / "examples"
MUSTER = TARGET / "release" / "muster"
LIBRARY = TARGET / "release" / "libmuster.so"
# What `make ctests` has installed, for programs that are built as a user of muster builds them.
INSTALLED = TARGET / "installed"
VERSION = re.search(r'^version = "(.*)"', (TREE / "Cargo.toml").read_text(), re.MULTILINE)[1]

# A test's processes see nothing of the launcher or the settings under which the tests themselves run.
FOREIGN_VARIABLE = re.compile(
    r"(MS_|MUSTER_|OMPI_|PMI_|PMIX_|HYDRA_|I_MPI_|TORCHELASTIC_|SLURM_|SLURMD_|MASTER_|NCCL_|CM_|PET_|LWS_|VC_|VK_|FLUX_|PALS_|"
    r"JSM_|MV2_|HOROVOD_|PRTE_|PRTERUN_).*|"
    r"RANK|WORLD_SIZE|LOCAL_RANK|RANK_ID|RANK_SIZE|DEVICE_ID|RANK_TABLE_FILE|MPI_LOCALRANKID|MPI_LOCALNRANKS|JOB_COMPLETION_INDEX|JOB_NAME|K_MPI_JOB_ROLE|"
    r"DATA_PATH"
)
POLL_SECONDS = 0.01


def clean_environment(extra=None):
    """This process's environment without any setting of a cluster, and with `extra` (a None takes a name out)."""
    environment = {name: value for name, value in os.environ.items() if not FOREIGN_VARIABLE.fullmatch(name)}
    for name, value in (extra or {}).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    return environment


def complaints(text):
    """What the library wrote, without lines on how far it is: on a busy machine forming takes more than 3 s."""
    progress = (" forming since ", " still trying: ")
    return [line for line in text.splitlines() if "muster" in line and not any(words in line for words in progress)]


def command_line(program):
    """The words of a command; a Python file runs under the interpreter of the tests."""
    words = [str(word) for word in program]
    return [sys.executable, *words] if words[0].endswith(".py") else words


def stop(pid, timeout=30):
    """Stops a process, and waits until all its threads stand still: until one of them has taken the signal the others go on."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + timeout
    while any(state != "T" for state in thread_states(pid)):
        assert time.monotonic() < deadline, f"pid {pid} goes on {timeout} s after SIGSTOP"
        time.sleep(0.001)


def thread_states(pid):
    """The letter of each thread's state, from /proc."""
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def reserved_port(host="127.0.0.1"):
    """A port on which nobody listens, and which the system gives to nobody else.

    It is bound but does not listen. A scheduler that binds it too (with SO_REUSEADDR, as schedulers do) can listen.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        yield holder.getsockname()[1]


class Process:
    """A running program whose output goes to two files. As a context it is killed at the end."""

    def __init__(self, program, env=None, name=None, pass_fds=(), cwd=None):
        self.name = name or pathlib.Path(str(program[0])).name
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.began = time.monotonic()
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self.popen = subprocess.Popen(
                command_line(program),
                env=clean_environment(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=True,  # so that its own children can be killed with it
            )

    @property
    def pid(self):
        return self.popen.pid

    @property
    def returncode(self):
        """None while it runs; -n when signal n has ended it."""
        return self.popen.poll()

    @property
    def stdout(self):
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def stderr(self):
        return (self.folder / "stderr").read_text(errors="replace")

    def wait(self, timeout):
        """Waits for the end and returns the exit code."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} (pid {self.pid}) still runs after {timeout} s") from None

    def wait_for(self, pattern, timeout):
        """Waits until `pattern` occurs in what it writes, on either stream, and returns the match."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.returncode is not None  # asked first: what it wrote last is then there to be read
            match = re.search(pattern, self.stdout) or re.search(pattern, self.stderr)
            if match:
                return match
            assert not ended, f"{self.name} ended with {self.returncode} and never wrote {pattern!r}"
            assert time.monotonic() < deadline, f"{self.name} has not written {pattern!r} in {timeout} s"
            time.sleep(POLL_SECONDS)

    def signal(self, number):
        if number == signal.SIGSTOP:
            stop(self.pid)
        else:
            self.popen.send_signal(number)

    def kill(self):
        """SIGKILL, as an out-of-memory killer would do it: to this process only."""
        self.popen.kill()

    def describe(self):
        state = "still running" if self.returncode is None else f"exit code {self.returncode}"
        parts = [f"--- {self.name} (pid {self.pid}): {state}"]
        for stream in ("stdout", "stderr"):
            text = getattr(self, stream)
            parts.append(f"{stream}:\n{text.rstrip()}" if text else f"{stream}: nothing")
        return "\n".join(parts)

    def close(self):
        """Kills it and whatever it has started, and removes its files."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # all of them have ended
        self.popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(self.describe())
        self.close()


class Cluster:
    """A scheduler, workers and servers that run `program` on this host.

    workers, servers   what everyone is told to expect (MS_WORKER_NUM, MS_SERVER_NUM), and how many are started
    started            how many workers are started at first, if fewer (or more); start_worker() starts more
    numbered           worker i has MS_NODE_ID=i and with it rank i; False: no node ids
    env                further variables for every process
    scheduler          what the scheduler runs, if not `program`; False: none is started until start_scheduler()
    keeps_port         the port is reserved to the end: a connection while there is no scheduler is refused, and
                       start_scheduler() can start another when one has ended
    host               the scheduler's address
    """

    def __init__(self, program, workers=1, servers=0, *, started=None, numbered=True, env=None, scheduler=True,
                 keeps_port=False, host="127.0.0.1"):
        self.program = program
        self.numbered = numbered
        self.workers = []
        self.servers = []
        self.others = []
        self.scheduler = None
        self.scheduler_program = program if scheduler in (True, False) else scheduler
        self._start_scheduler = scheduler is not False
        self._started = workers if started is None else started
        self._servers_started = servers
        self._held = contextlib.ExitStack()
        self._listener = None
        if keeps_port:
            self.port = self._held.enter_context(reserved_port(host))
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = self._held.enter_context(socket.create_server((host, 0), family=family, backlog=128))
            self.port = self._listener.getsockname()[1]
        self.env = {"MS_SCHED_HOST": host, "MS_SCHED_PORT": self.port, "MS_WORKER_NUM": workers, **(env or {})}
        if servers:
            self.env.setdefault("MS_SERVER_NUM", servers)

    def start_scheduler(self, env=None):
        handed_on = [self._listener.fileno()] if self._listener else []
        settings = {"MS_ROLE": "MS_SCHED", **{"MUSTER_SCHED_FD": number for number in handed_on}, **(env or {})}
        if self.scheduler:
            self.others.append(self.scheduler)
        self.scheduler = Process(self.scheduler_program, {**self.env, **settings}, "scheduler", handed_on)
        if self._listener:
            self._listener.close()  # from here on the scheduler alone holds the port
        return self.scheduler

    def start_worker(self, env=None, program=None):
        number = len(self.workers)
        settings = {"MS_ROLE": "MS_WORKER", **({"MS_NODE_ID": number} if self.numbered else {}), **(env or {})}
        worker = Process(program or self.program, {**self.env, **settings}, f"worker {number}")
        self.workers.append(worker)
        return worker

    def start_server(self, env=None, program=None):
        settings = {"MS_ROLE": "MS_PSERVER", **(env or {})}
        server = Process(program or self.program, {**self.env, **settings}, f"server {len(self.servers)}")
        self.servers.append(server)
        return server

    def start(self, program, env=None, name=None):
        """Any other process that belongs to the test, with no settings but `env`."""
        process = Process(program, env, name)
        self.others.append(process)
        return process

    @property
    def processes(self):
        return [*([self.scheduler] if self.scheduler else []), *self.workers, *self.servers, *self.others]

    def wait(self, timeout):
        """Waits until every process has ended, however it ended, and returns the workers."""
        deadline = time.monotonic() + timeout
        for process in self.processes:
            try:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running = [other.name for other in self.processes if other.returncode is None]
                raise AssertionError(f"still running after {timeout} s: {', '.join(running)}") from None
        return self.workers

    def succeed(self, timeout):
        """Like wait(), and every process has ended with exit code 0."""
        self.wait(timeout)
        failed = {process.name: process.returncode for process in self.processes if process.returncode != 0}
        assert not failed, f"exit codes: {failed}"
        return self.workers

    def __enter__(self):
        try:
            if self._start_scheduler:
                self.start_scheduler()
            for _ in range(self._servers_started):
                self.start_server()
            for _ in range(self._started):
                self.start_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            for process in self.processes:
                print(process.describe())
        self.close()

    def close(self):
        for process in self.processes:
            process.close()
        self._held.close()
