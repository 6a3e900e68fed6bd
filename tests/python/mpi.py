"""Real mpirun jobs: each launcher's command, and the program that its ranks run."""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from cluster import TARGET, TREE, Process, complaints

sys.path.append(str(TREE / "scripts"))
import fetch_mpi  # noqa: E402

LAUNCHERS = ("Open MPI", "MPICH", "Intel MPI", "Open MPI 5")
SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "launched.c"
BUILT = TARGET / "mpi"
# A machine of two cores beside which others work: two jobs start, form and end in less than two seconds as a rule.
JOB_SECONDS = 120
# A rank looks at the next of several ports when the scheduler says nothing for a second, and then comes back: so it is on a
# machine on which a process waits that long for a processor.
PASSED_ON = "is gone before the cluster was complete: its connection ended (it closed the connection); its place is free"


def demand(launcher):
    """Skips where the launcher is not installed; where all that a test needs is to be there, that is a failure."""
    if fetch_mpi.is_there(launcher):
        return launcher
    words = f"{launcher} is not installed: `make mpi` installs it where it can, and says why where it can't"
    # A machine without a way to Debian's packages has no launcher; where CI is set it must have one.
    return pytest.fail(words) if os.environ.get("CI") else pytest.skip(words)


def compiled(launcher, with_mpi):
    """The ranks' program, linked with the launcher's MPI or with none."""
    BUILT.mkdir(parents=True, exist_ok=True)
    name = launcher.replace(" ", "_").lower() if with_mpi else "no_mpi"
    program = BUILT / f"launched_{name}"
    compilers = {"Open MPI": ["mpicc.openmpi"], "MPICH": ["mpicc.mpich"], "Open MPI 5": [fetch_mpi.OPEN_MPI_5 / "bin" / "mpicc"]}
    compiler = compilers.get(launcher, ["gcc"]) if with_mpi else ["gcc"]
    flags = ["-DWITH_MPI"] if with_mpi else []
    if with_mpi and launcher == "Intel MPI":
        lib = fetch_mpi.INTEL / "lib"
        flags += ["-I", fetch_mpi.INTEL / "include", "-L", lib, f"-Wl,-rpath,{lib}", "-lmpi"]
    release = TARGET / "release"
    command = [*compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", program, "-I", TREE / "include",
               "-L", release, "-lmuster", f"-Wl,-rpath,{release}", *flags]
    subprocess.run([str(word) for word in command], check=True, timeout=120)
    return program


COMMANDS = {
    "Open MPI": ["mpirun.openmpi", "--allow-run-as-root"],
    "Open MPI 5": [fetch_mpi.OPEN_MPI_5 / "bin" / "mpirun", "--allow-run-as-root"],
    "MPICH": ["mpirun.mpich"],
    "Intel MPI": [fetch_mpi.INTEL / "bin" / "mpiexec.hydra"],
}
# What each needs in its environment.
NEEDS = {"Intel MPI": {"I_MPI_ROOT": fetch_mpi.INTEL}}
# How each is told to call another program in place of ssh.
AGENTS = {
    "Open MPI": lambda ssh: ["--mca", "plm_rsh_agent", ssh],
    "Open MPI 5": lambda ssh: ["--prtemca", "plm_ssh_agent", ssh],
    "MPICH": lambda ssh: ["-launcher", "ssh", "-launcher-exec", ssh],
    "Intel MPI": lambda ssh: ["-bootstrap", "ssh", "-bootstrap-exec", ssh],
}


# Open MPI 4 keeps the files of all of a user's jobs on a host in one folder. It fails where two jobs make that at once, and a job
# that ends may take it from one that starts. It hands the name of another folder on to the other hosts.
OWN_FOLDER = {"Open MPI": lambda folder: ["--mca", "orte_tmpdir_base", folder]}
FOLDERS = tempfile.TemporaryDirectory(prefix="mpi-")

# More ranks than a host has processors. Beside slots for each host, Open MPI 5 takes it for leave to start all on the first.
ON_ONE_HOST = {"Open MPI": ["--oversubscribe"], "Open MPI 5": ["--oversubscribe"]}
# It binds each rank to a processor of its own otherwise, and refuses where a host has fewer than ranks.
UNBOUND = {"Open MPI": ["--bind-to", "none"], "Open MPI 5": ["--bind-to", "none"]}


def mpirun(launcher, ranks, program, options=None):
    """The command, and what must stand in its environment. Without options all ranks are on this host."""
    options = ON_ONE_HOST.get(launcher, []) if options is None else options
    if launcher in OWN_FOLDER:
        options = [*OWN_FOLDER[launcher](tempfile.mkdtemp(dir=FOLDERS.name)), *options]
    return [*COMMANDS[launcher], *options, "-n", str(ranks), *(str(word) for word in program)], NEEDS.get(launcher, {})


class Job(Process):
    """One mpirun whose ranks all say this number."""

    def __init__(self, launcher, program, number, ranks=2, how="plain", env=None):
        command, needs = mpirun(launcher, ranks, [program, number, ranks, how])
        self.number, self.ranks = number, ranks
        # Should ranks never find each other they are to say so before the test gives up.
        limits = {"MUSTER_CLUSTER_TIMEOUT": JOB_SECONDS / 2}
        super().__init__(command, {**limits, **needs, **(env or {})}, f"{launcher}'s job {number}")

    def succeeds(self):
        assert self.wait(timeout=JOB_SECONDS) == 0, self.stderr
        expected = [f"job {self.number}: rank {rank} of {self.ranks}" for rank in range(self.ranks)]
        assert sorted(self.stdout.splitlines()) == expected
        assert [line for line in complaints(self.stderr) if PASSED_ON not in line] == [], self.stderr


def pairs_do_not_mix(launcher, pairs, ranks=2):
    """So many times two jobs are started side by side; each is alone with itself."""
    program = compiled(launcher, with_mpi=False)
    for pair in range(pairs):
        with Job(launcher, program, 2 * pair, ranks) as one, Job(launcher, program, 2 * pair + 1, ranks) as other:
            one.succeeds()
            other.succeeds()
