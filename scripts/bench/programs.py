"""The programs that are laid side by side: where they come from, how they are built, and what each prints.

`muster` is ours. Open MPI and Gloo are Debian's, under small programs of our own in `benches/`. The yardsticks are C
programs that do the same work with nothing in the way; they lie outside the repository, and are left out where they are
missing.
"""

import csv
import os
import pathlib
import shutil
import subprocess
import sys

from .processes import Failed, run

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TREE / "scripts"))
import fetch_mpi  # noqa: E402

TARGET = TREE / "target"
BUILT = TARGET / "bench"
MUSTER = TARGET / "release" / "muster"

PACKAGES = {"openmpi-bin": "Open MPI's mpirun", "libopenmpi-dev": "Open MPI's headers", "libgloo-dev": "Gloo"}
WAITS = BUILT / "waits"
YARDSTICKS = ("allreduce_floor", "launch_floor", "forming_floor")
MEMORY_YARDSTICK = "shm_floor"
# What a rank runs under `muster run`, in the manner of benches/peers/mpi.c.
MUSTER_PEER = BUILT / "muster_peer"

MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
          "--mca", "btl_tcp_if_include", "lo"]
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

OPTIMIZED = ["-O3", "-march=native", "-Wall", "-Wextra"]
PEERS_C = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", *OPTIMIZED]


def version_of(package):
    """The version of a Debian package; none where it is not installed."""
    words = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", package]
    try:
        status, _, version = subprocess.run(words, capture_output=True, text=True).stdout.partition(" ")
    except OSError:
        return None
    return version if status == "installed" else None


def install():
    """Installs the packages that are missing."""
    missing = [package for package in PACKAGES if version_of(package) is None]
    if not missing:
        return
    what = ", ".join(f"{package} ({PACKAGES[package]})" for package in missing)
    if shutil.which("apt-get") is None:
        raise Failed(f"missing: {what}; this is no Debian, install what corresponds to them yourself")
    if os.geteuid() != 0:
        raise Failed(f"missing: {what}; only root can install them: sudo apt-get install {' '.join(missing)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], 300, quiet)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], 600, quiet)


def yardstick_folder():
    return pathlib.Path(os.environ.get("YARDSTICKS") or TREE / ".." / "shared" / "bench")


def check_build():
    """Makes the folder of what is built here; fails where the library is not built."""
    if not MUSTER.exists():
        raise Failed(f"{MUSTER} is not there: run `make build` first")
    BUILT.mkdir(parents=True, exist_ok=True)


def build_tcp():
    """The peers over TCP: Open MPI and Gloo, and their starts."""
    benches = TREE / "benches"
    cpp = ["c++", "-std=c++17", *OPTIMIZED]
    mpi, gloo = ["mpicc.openmpi", *PEERS_C], ["-lgloo", "-pthread"]
    run(["cc", "-std=c99", *OPTIMIZED, benches / "loopback.c", "-o", BUILT / "loopback"], 120)
    run([*mpi, benches / "peers" / "mpi.c", "-o", BUILT / "openmpi"], 120)
    run([*mpi, benches / "bootstrap" / "openmpi.c", "-o", BUILT / "openmpi_bootstrap"], 120)
    run([*cpp, benches / "peers" / "gloo.cc", "-o", BUILT / "gloo", *gloo], 300)
    run([*cpp, benches / "bootstrap" / "gloo.cc", "-o", BUILT / "gloo_bootstrap", *gloo], 300)


def against_muster(compiler, source, program):
    """One C program that calls the library."""
    folder = MUSTER.parent
    run([*compiler, "-Werror", "-I", TREE / "include", TREE / "benches" / source, "-L", folder, "-lmuster",
         f"-Wl,-rpath,{folder}", "-lpthread", "-o", program], 120)


def build_waits():
    """The library's calls and plain sockets beside competitors: one program, which needs neither peers nor yardsticks."""
    against_muster(["cc", "-std=c11", *OPTIMIZED], "waits.c", WAITS)


def build_muster_peer():
    against_muster(["cc", *PEERS_C], "peers/muster.c", MUSTER_PEER)


def build_yardsticks(names):
    """Whether they are there."""
    sources = [yardstick_folder() / f"{name}.c" for name in names]
    if not all(source.exists() for source in sources):
        return False
    for name, source in zip(names, sources):
        # shm_floor checks its sums, and says itself how it is compiled.
        exact = [] if name == MEMORY_YARDSTICK else ["-ffast-math"]
        run(["cc", "-O3", "-march=native", *exact, source, "-o", BUILT / name], 120)
    return True


## Each gives rows: dictionaries with some of collective, algorithm, ranks, bytes, iterations, p50_rank0_us, p50_us.

def yardstick(ranks, timeout=120):
    rows = []
    for line in run([BUILT / "allreduce_floor", ranks], timeout).splitlines():
        found, size, iterations, p50, _ = line.split(",")
        rows.append({"collective": "allreduce", "ranks": found, "bytes": size, "iterations": iterations,
                     "p50_rank0_us": p50})
    return rows


# The comparison over TCP is one over TCP whatever the default is.
OVER_TCP = {"MUSTER_SHM": "off"}


def muster(ranks, cases, timeout=120):
    """`cases`: sizes by collective; one launch for each collective, as a user would do it."""
    rows = []
    for collective, sizes in cases.items():
        words = [MUSTER, "bench", collective, "--worker_num", ranks, "--format", "csv"]
        words += [] if collective == "barrier" else ["--sizes", ",".join(str(size) for size in sizes)]
        words += ["--root", "round"] if collective == "broadcast" else []
        rows += csv.DictReader(run(words, timeout, OVER_TCP).splitlines())
    return rows


def mpirun(ranks, words, folder, timeout):
    # Open MPI keeps files in a folder of its own; a socket's name in it must not be long.
    environment = {**MPI_ENVIRONMENT, "TMPDIR": str(folder)}
    return run([*MPIRUN, "-n", ranks, *words], timeout, environment, f"mpirun -n {ranks} {words[0].name}")


def openmpi(ranks, cases, folder, timeout=120):
    words = [f"{collective}:{size}" for collective, sizes in cases.items() for size in sizes]
    return list(csv.DictReader(mpirun(ranks, [BUILT / "openmpi", *words], folder, timeout).splitlines()))


def gloo(ranks, cases, folder, chosen=None, timeout=120):
    """`chosen`: algorithms by (collective, size), where not all are wanted."""
    words = []
    for collective, sizes in cases.items():
        for size in sizes:
            names = (chosen or {}).get((collective, size))
            words += [f"{collective}/{name}:{size}" for name in names] if names else [f"{collective}:{size}"]
    rows = list(csv.DictReader(run([BUILT / "gloo", ranks, *words], timeout, {"TMPDIR": str(folder)}).splitlines()))
    for row in rows:
        row["collective"], _, row["algorithm"] = row["collective"].partition("/")
    return rows


def loopback():
    rate, trip = run([BUILT / "loopback"], 30).strip().split(",")
    size = 256 << 10
    return [{"collective": "one_way", "ranks": 2, "bytes": size, "p50_us": f"{size / float(rate) / 1e3:.2f}"},
            {"collective": "round_trip", "ranks": 2, "bytes": 8, "p50_us": trip}]


## From the start of N processes through one barrier to their end.

def bootstrap_row(processes, milliseconds, repetitions):
    return [{"collective": "bootstrap", "ranks": processes, "bytes": 0, "iterations": repetitions,
             "p50_us": f"{float(milliseconds) * 1e3:.0f}"}]


def floor_bootstrap(processes, repetitions, timeout):
    out = run([BUILT / "launch_floor", processes, repetitions], timeout)
    return bootstrap_row(processes, out.strip().split(",")[1], repetitions)


def muster_bootstrap(processes, repetitions, timeout):
    out = run([MUSTER, "bench", "bootstrap", "--worker_num", processes, "-n", repetitions, "--format", "csv"], timeout)
    row, = csv.DictReader(out.splitlines())
    return bootstrap_row(processes, row["median_ms"], repetitions)


def openmpi_bootstrap(processes, folder, clock, timeout):
    begun = clock()
    mpirun(processes, [BUILT / "openmpi_bootstrap"], folder, timeout)
    return bootstrap_row(processes, (clock() - begun) * 1e3, 1)


def gloo_bootstrap(processes, folder, timeout):
    out = run([BUILT / "gloo_bootstrap", processes], timeout, {"TMPDIR": str(folder)})
    return bootstrap_row(processes, out.strip().split(",")[1], 1)


## A scheduler alone, until N nodes that a few processes hold have their places.

FORMING_PROCESSES = 2


def forming_row(nodes, seconds, cpu_seconds, bytes_per_node=""):
    return [{"collective": "forming", "ranks": nodes, "bytes": bytes_per_node, "iterations": 1,
             "p50_rank0_us": f"{float(cpu_seconds) * 1e6:.0f}", "p50_us": f"{float(seconds) * 1e6:.0f}"}]


def floor_forming(nodes, timeout):
    _, _, formed, cpu = run([BUILT / "forming_floor", nodes, FORMING_PROCESSES], timeout).strip().split(",")
    return forming_row(nodes, formed, cpu)


def muster_forming(nodes, timeout):
    words = [MUSTER, "bench", "forming", "--nodes", nodes, "--processes", FORMING_PROCESSES, "--format", "csv"]
    row, = csv.DictReader(run(words, timeout).splitlines())
    return forming_row(nodes, row["formed_s"], row["scheduler_cpu_s"], row["bytes_per_node"])


## Small calls, by the way in which they wait, beside so many competitors.

def waits(way, ranks, competitors, seconds, timeout=60):
    fields = run([WAITS, way, ranks, competitors, seconds], timeout).strip().split(",")
    _, _, _, calls, p50, mean, _, _ = fields
    return [{"collective": "waits", "algorithm": way, "ranks": ranks, "bytes": competitors, "iterations": calls,
             "p50_rank0_us": p50, "p50_us": mean}]
