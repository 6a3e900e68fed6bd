"""Ranks of one host: who runs beside muster, each as its users start it, and how one of them is asked for a list of cases.

Open MPI, MPICH and Intel MPI take memory by themselves between ranks of one host. A program carries out its cases one after another
and prints a line for each. So what it had printed before it failed, or was ended, counts; the case at which it failed is given up.
"""

import csv
import shutil
import tempfile

from . import programs
from .processes import Failed, run
from .programs import BUILT, MUSTER, MUSTER_PEER, PEERS_C, TREE, fetch_mpi

OURS = {"muster_memory": {"MUSTER_SHM": "auto"}, "muster_tcp": {"MUSTER_SHM": "off"}}
# Their ranks sleep while they wait, in place of looking again and again: Intel's words for it.
SLEEPING = {"I_MPI_WAIT_MODE": "1", "I_MPI_THREAD_YIELD": "3"}
PEERS = ("openmpi_memory", "mpich", "intelmpi", "intelmpi_sleep")
LAUNCHERS = {"openmpi_memory": "Open MPI", "mpich": "MPICH", "intelmpi": "Intel MPI", "intelmpi_sleep": "Intel MPI"}
SHM_FLOOR = BUILT / programs.MEMORY_YARDSTICK


def install():
    """The peers that are there, in order, and why the others are not."""
    there, missing = [], {}
    for peer in PEERS:
        why = fetch_mpi.provide(LAUNCHERS[peer])
        if why is None:
            there.append(peer)
        else:
            missing[peer] = why
    return there, missing


def build(peers):
    source, lib = TREE / "benches" / "peers" / "mpi.c", fetch_mpi.INTEL / "lib"
    intel = ["-I", fetch_mpi.INTEL / "include", "-L", lib, f"-Wl,-rpath,{lib}", "-lmpi"]
    compilers = {"openmpi_memory": (["mpicc.openmpi"], []), "mpich": (["mpicc.mpich"], []), "intelmpi": (["cc"], intel)}
    for peer in compilers.keys() & set(peers):
        compiler, flags = compilers[peer]
        run([*compiler, *PEERS_C, source, "-o", BUILT / peer, *flags], 120)


def command(program, ranks, folder):
    """The words before the cases, and the environment, as a user has them who starts so many ranks on this host."""
    if program in OURS:
        logs = tempfile.mkdtemp(prefix="logs-", dir=folder)
        launcher = [MUSTER, "run", "--worker_num", ranks, "--local_worker_num", ranks, "--master_port", 0, "--join", "True",
                    "--log_dir", logs, "--tail_worker_log", 0]
        return [*launcher, MUSTER_PEER], OURS[program]
    launchers = {"openmpi_memory": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], "mpich": ["mpirun.mpich"],
                 "intelmpi": [fetch_mpi.INTEL / "bin" / "mpiexec.hydra"]}
    kind = "intelmpi" if program == "intelmpi_sleep" else program
    environment = {"TMPDIR": str(folder), **programs.MPI_ENVIRONMENT}
    environment |= {"I_MPI_ROOT": str(fetch_mpi.INTEL)} if kind == "intelmpi" else {}
    environment |= SLEEPING if program == "intelmpi_sleep" else {}
    return [*launchers[kind], "-n", ranks, BUILT / kind], environment


def word(case):
    """`case`: collective, algorithm, bytes."""
    collective, algorithm, size = case
    return f"{collective}/{algorithm}:{size}" if algorithm else f"{collective}:{size}"


def rows_of(out):
    """The lines that are whole."""
    lines = out.splitlines() if out.endswith("\n") else out.splitlines()[:-1]
    begin = next((at for at, line in enumerate(lines) if line.startswith("collective,")), len(lines))
    rows = [row for row in csv.DictReader(lines[begin:]) if None not in row and None not in row.values()]
    for row in rows:
        row["collective"], _, row["algorithm"] = row["collective"].partition("/")
    return rows


def launch(program, ranks, cases, folder, seconds, timeout):
    """The rows of the cases that went well, and the failure, if there was one."""
    words, environment = command(program, ranks, folder)
    try:
        out = run([*words, *map(word, cases)], timeout, {**environment, "BENCH_SECONDS": f"{seconds:g}"}, f"{program} -n {ranks}")
    except Failed as failure:
        return rows_of(failure.out), failure
    finally:
        if program in OURS:
            shutil.rmtree(words[words.index("--log_dir") + 1], ignore_errors=True)
    return rows_of(out), None


def yardstick(ranks, timeout):
    rows = []
    for line in run([SHM_FLOOR, ranks], timeout).splitlines():
        found, size, iterations, p50, mean = line.split(",")
        rows.append({"collective": "allreduce" if int(size) else "barrier", "ranks": found, "bytes": size, "iterations": iterations,
                     "p50_rank0_us": p50, "mean_rank0_us": mean})
    return rows
