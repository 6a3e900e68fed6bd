"""A real Slurm of two nodes, which the test starts and ends: munged, slurmctld and two slurmds.

    with Slurm(folder) as slurm:
        with slurm.srun(["-N2", "--ntasks-per-node=2"], node("c = join(); say(rank=c.rank); c.leave()")) as step:
            step.wait(timeout=60)

Each node is a host with a name (named_hosts.py). Whatever a node has started ends with it. Commands run on the first node.
`make launchers` installs Slurm from Debian's packages, where it may.
"""

import os
import pathlib
import sys
import time

import pytest

from cluster import TREE, Process, command_line
from launch import until
from named_hosts import NAMES, NamedHosts

sys.path.append(str(TREE / "scripts"))
import fetch_launchers  # noqa: E402

CPUS = 4  # of each, as Slurm is told: so many tasks fit, however many processors there are
LIMIT = 60
POLL_SECONDS = 0.2  # a question to slurmctld is a process

CONFIGURATION = """
ClusterName=muster
SlurmctldHost=host1({addresses[0]})
SlurmUser=root
AuthType=auth/munge
# A job that is queued again waits until its old credentials have expired: two minutes, where nothing is said.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
# Where processors are short, a daemon answers late.
MessageTimeout=60
# A node that was down takes tasks again as soon as it is back.
ReturnToService=2
KillWait=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
NodeName=host1 NodeAddr={addresses[0]} CPUs={cpus}
NodeName=host2 NodeAddr={addresses[1]} CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def demand():
    """Skips where Slurm is not installed, or may not be run: munged and slurmd start as root only, in namespaces of their own, and
    nothing could stand in for them."""
    if os.geteuid() != 0:  # munged and slurmd start as root only
        pytest.skip("Slurm's daemons need root: make test-launchers")
    if not fetch_launchers.is_there("Slurm"):
        pytest.skip("Slurm is not installed: make test-launchers")


class Slurm:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.conf = self.folder / "slurm.conf"
        self.hosts = NamedHosts(folder)
        self.daemons = {}

    def process(self, program, env=None, name=None):
        return Process(self.hosts.command(0, program), {"SLURM_CONF": self.conf, **(env or {})}, name)

    def srun(self, options, program, env=None):
        """A step. Each line of its output begins with the task's number."""
        return self.process(["srun", "--label", *options, *command_line(program)], env, "srun")

    def ask(self, *words, env=None, cwd=None):
        """What one of Slurm's commands says."""
        done = self.hosts.run(0, words, {"SLURM_CONF": self.conf, **(env or {})}, cwd)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout.strip()

    def submit(self, *words, env=None, cwd=None):
        """The number of a batch job that is submitted from this folder."""
        return self.ask("sbatch", "--parsable", *words, env=env, cwd=cwd)

    def job(self, number):
        """What Slurm knows of a job."""
        words = self.ask("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number, timeout, state="COMPLETED"):
        """Until a job has ended so; any other end is a failure."""
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")
        deadline = time.monotonic() + timeout
        while (found := self.job(number)["JobState"]) != state:
            assert found not in ends and time.monotonic() < deadline, f"job {number} is {found}, not {state}\n{self.logs()}"
            time.sleep(POLL_SECONDS)

    def pids(self, number, rank):
        """The processes of this rank of a job, the first of them first."""
        wanted = {f"SLURM_CONF={self.conf}", f"SLURM_JOB_ID={number}", f"SLURM_PROCID={rank}", "SLURM_STEP_NUM_TASKS"}
        for entry in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda entry: int(entry.name)):
            try:
                there = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # it has ended, or is nobody's
            if wanted <= {*there, *(word.partition("=")[0] for word in there)}:
                yield int(entry.name)

    def start(self, name, program, host):
        self.daemons[name] = Process(self.hosts.command(host, program, contained=True), {"SLURM_CONF": self.conf}, name)

    def start_node(self, host):
        """A node's slurmd, and with it the node."""
        self.start(NAMES[host], ["slurmd", "-D"], host)

    def idle(self):
        """Until both nodes take tasks."""
        def stands():
            self.check()
            return self.ask("sinfo", "--noheader", "--format=%D %T") == f"{len(NAMES)} idle"
        until(stands, LIMIT, "two idle nodes")

    def kill_node(self, host):
        """Everything on this node ends, at once."""
        self.daemons.pop(NAMES[host]).close()

    def check(self):
        for daemon in self.daemons.values():
            assert daemon.returncode is None, f"{daemon.describe()}\n{self.logs()}"

    def logs(self):
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        self.conf.write_text(CONFIGURATION.format(addresses=self.hosts.addresses, folder=self.folder, cpus=CPUS))
        for name in ("state", "munge", *NAMES):
            (self.folder / name).mkdir()
        munge = self.folder / "munge"
        key = munge / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        munge.chmod(0o711)
        files = [f"--{name}={munge}/{name.split('-')[0]}" for name in ("socket", "pid-file", "seed-file")]
        self.start("munged", ["munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}", *files], 0)
        until(lambda: self.check() or (munge / "socket").exists(), LIMIT, "munged's socket")
        self.start("slurmctld", ["slurmctld", "-D", "-i"], 0)
        for host in range(len(NAMES)):
            self.start_node(host)
        until(lambda: self.check() or self._answers(), LIMIT, "slurmctld")
        self.idle()

    def _answers(self):
        return self.hosts.run(0, ["scontrol", "ping"], {"SLURM_CONF": self.conf}).returncode == 0

    def __exit__(self, *_):
        for daemon in reversed(self.daemons.values()):
            daemon.close()
        self.hosts.__exit__()
