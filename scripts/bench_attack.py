#!/usr/bin/env python3
"""How much slower a cluster forms, and works, while strangers connect to its ports as fast as they can.

Three states are laid side by side, in turns: nobody attacks; the same attackers attack a port of another program (they take
processor time, whatever they attack); they attack the scheduler and all ranks but the last. Prints the medians of all turns. Needs what
`make build` makes.
"""

import argparse
import contextlib
import csv
import io
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TREE / "tests" / "python"))
from attacks import connect, silent  # noqa: E402
from cluster import EXAMPLES, MUSTER, Cluster  # noqa: E402
from nodes import listening_ports  # noqa: E402

STATES = ("nobody", "another program", "its own ports")
RANKS, FORMING = 4, 16
SIZES = {"8": "8 B", "65536": "64 KiB", "1048576": "1 MiB"}
HELD = 100  # connections on each port that say nothing
LIMIT = 300
NONSENSE = b"\0" * 64


def flood(ports):
    """Says nonsense, and drops, over and over, while silent connections stay open; until it is killed."""
    with contextlib.ExitStack() as held:
        for port in ports:
            with contextlib.suppress(OSError):
                held.enter_context(silent(port, HELD))
        while True:
            for port in ports:
                with contextlib.suppress(OSError):
                    with connect(port) as one:
                        one.sendall(NONSENSE)


@contextlib.contextmanager
def another_program():
    """A port at which each connection is taken and dropped."""

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


@contextlib.contextmanager
def attacked(state, ports, other):
    if state == "nobody":
        yield
        return
    ports = ports if state == "its own ports" else [other] * len(ports)
    attacker = subprocess.Popen([sys.executable, __file__, "--flood", *map(str, ports)])
    try:
        time.sleep(0.5)  # until it is at it
        yield
        assert attacker.poll() is None, "the attackers have ended"
    finally:
        attacker.kill()
        attacker.wait()


def forming(state, other):
    """Seconds from the start of 16 ranks until all have left again."""
    with Cluster([EXAMPLES / "allgather"], workers=FORMING, started=0) as cluster:
        with attacked(state, [cluster.port], other):
            began = time.monotonic()
            for _ in range(FORMING):
                cluster.start_worker()
            cluster.succeed(LIMIT)
            return time.monotonic() - began


def working(state, other):
    """The median time of an allreduce of each size, in microseconds."""
    words = [MUSTER, "bench", "allreduce", f"--sizes={','.join(SIZES)}", "--warmup=200", "--iters=2000", "--check=0", "--format=csv"]
    with Cluster(words, workers=RANKS, started=RANKS - 1, scheduler=[MUSTER, "scheduler"], env={"MUSTER_SHM": "off"}) as cluster:
        ports = []
        while len(ports) < RANKS - 1:
            ports = [port for worker in cluster.workers for port in listening_ports(worker.pid)]
            time.sleep(0.01)
        with attacked(state, [cluster.port, *ports], other):
            cluster.start_worker()  # nothing is timed before it is there
            cluster.succeed(LIMIT)
        rows = csv.DictReader(io.StringIO(cluster.workers[0].stdout))
        return {row["bytes"]: float(row["p50_us"]) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--flood", type=int, nargs="+", metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        flood(options.flood)
    formed = {state: [] for state in STATES}
    worked = {state: {size: [] for size in SIZES} for state in STATES}
    with another_program() as other:
        for _ in range(options.turns):
            for state in STATES:
                formed[state].append(forming(state, other))
                for size, us in working(state, other).items():
                    worked[state][size].append(us)
    print("attacked:" + "".join(f"{state:>18}" for state in STATES))
    print(f"{FORMING} ranks form and leave, s" + "".join(f"{statistics.median(formed[state]):18.3f}" for state in STATES))
    for size, name in SIZES.items():
        times = "".join(f"{statistics.median(worked[state][size]):18.1f}" for state in STATES)
        print(f"allreduce of {name} on {RANKS}, us" + times)


if __name__ == "__main__":
    main()
