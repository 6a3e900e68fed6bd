"""The order of folding on two levels in docs/protocol.md is enough to compute what a call gives; and what two levels save of frames.

programs/folding.py has the orders, written anew from the page.
"""

import contextlib

import pytest

from cluster import MUSTER, Process
from networks import Hosts
from nodes import said
from packaged import packaged
from test_two_levels import carried, started

LIMIT = 120
MOST = 1 << 30
PORT = 8118  # of a network of the test's own

# A call of few elements takes other lines of the page's table than one of many does, and a chunk others than the shorter last one.
THRESHOLDS = {
    "allreduce_tree_ranks": MOST, "allreduce_tree_bytes": 0, "allreduce_doubling_bytes": 0, "allreduce_pair_bytes": 1024,
    "allreduce_gather_bytes": 2048, "allreduce_halving_bytes": 0, "allreduce_circulant_bytes": 1 << 20,
    "reduce_binomial_bytes": 1 << 20, "reduce_scatter_circulant_bytes": 1 << 16,
}  # fmt: skip
# As many bytes of 32-bit elements for each rank: one piece, several pieces, three chunks.
COUNTS = {"few": 40, "some": 3000, "many": 1_200_000}
# For each operation: its type, and whether its operands may be exchanged.
OPERATIONS = {"sum": ("float32", True), "avg": ("float32", True), "mixed": ("uint64", True), "mixed in order": ("uint64", False)}

LINES = """
import numpy as np
from folding import Placement, from_above, mix, mixed, one_by_one

c = muster.init()
w, rank, size = c.world, c.rank, c.size
placement = Placement(HOSTS)
ops = {"sum": "sum", "avg": "avg", "mixed": c.operation(mix), "mixed in order": c.operation(mix, commutative=False)}

def values_of(each, count, dtype):
    chance = np.random.default_rng(each)
    if dtype == "uint64":
        return chance.integers(0, 1 << 63, count, np.uint64)
    return (chance.standard_normal(count) * 2.0 ** chance.integers(-6, 7, count)).astype(np.float32)

def same(got, wanted, *words):
    assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes(), words

def check(name, dtype, commutes):
    op = ops[name]
    fold = mixed if dtype == "uint64" else np.add
    count = COUNT * 4 // np.dtype(dtype).itemsize // size * size
    x = [values_of(each, count, dtype) for each in range(size)]
    own = slice(rank * count // size, (rank + 1) * count // size)

    def wanted(kind, root=0):
        result = placement.folded(kind, x, fold, commutes, THRESHOLDS, root)
        if size > 2 and placement.takes_two(kind, x[0].itemsize, commutes):
            others = (one_by_one(x, fold), from_above(x, fold))
            assert all(other.tobytes() != result.tobytes() for other in others), "the order decides nothing here"
        return result / np.float32(size) if name == "avg" else result

    of_allreduce, of_scatter, of_scatterv = (wanted(kind) for kind in ("allreduce", "reduce_scatter", "reduce_scatterv"))
    for call in range(1 if IS_LONG else 5):  # on one level, calls from the fourth on go another way
        words = (name, call)
        same(w.allreduce(x[rank].copy(), op=op), of_allreduce, "allreduce", *words)
        for root in sorted({0, 1, size // 2, size - 1}):
            got = w.reduce(x[rank], out=np.empty_like(x[rank]), op=op, root=root)
            if rank == root:
                same(got, wanted("reduce", root), "reduce", root, *words)
        same(w.reduce_scatter(x[rank].reshape(size, -1), op=op), of_scatter[own], "reduce_scatter", *words)
        same(w.reduce_scatterv(x[rank], [count // size] * size, op=op), of_scatterv[own], "reduce_scatterv", *words)

for name, (dtype, commutes) in OPERATIONS.items():
    if not IS_LONG or name in ("sum", "mixed in order"):  # the other two take the same ways
        check(name, dtype, commutes)
if not IS_LONG:
    x = [values_of(each, COUNT, "float32") for each in range(size)]
    request = w.iallreduce(x[rank].copy())
    same(request.wait(), placement.folded("allreduce", x, np.add, True, THRESHOLDS), "iallreduce")
say(ended=True)
c.finalize()
"""


@pytest.mark.parametrize("many", COUNTS)
@pytest.mark.parametrize("hosts", ["aaaabbb", "aaaab", "ab", "abab", "abacaba", "abbcca"])
def test_a_call_gives_what_the_page_says(hosts, many):
    lines = LINES.replace("HOSTS", repr(hosts)).replace("COUNT", str(COUNTS[many])).replace("IS_LONG", str(many == "many"))
    lines = lines.replace("THRESHOLDS", repr(THRESHOLDS)).replace("OPERATIONS", repr(OPERATIONS))
    env = {"MUSTER_THRESHOLDS": ",".join(f"{key}={number}" for key, number in THRESHOLDS.items())}
    with started(lines, hosts, env, program=packaged) as cluster:
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["ended"]
            assert len(hosts) == 2 or f"; links between {len(set(hosts))} hosts)" in carried(worker)


CALLS = 1000
SMALL = """
import numpy as np

def sent():
    \"\"\"How many packets have left this host over the network.\"\"\"
    line, = [line for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines() if line.strip().startswith("net0:")]
    return int(line.partition(":")[2].split()[9])

c = muster.init()
w, x = c.world, np.ones(2, np.float32)
for _ in range(10):
    w.allreduce(x)
w.barrier()
before = sent()
for _ in range(CALLS):
    w.allreduce(x)
say(sent=sent() - before)
c.finalize()
"""


def packets(hosts, shm):
    """How many packets each host sends in so many allreduces of 8 bytes on 2 hosts with 4 ranks each."""
    settings = {"MS_SCHED_HOST": hosts.address("net", 0), "MS_SCHED_PORT": PORT, "MS_WORKER_NUM": 8,
                "MUSTER_SHM": shm, "MUSTER_LOG": "debug"}
    with contextlib.ExitStack() as stack:

        def start(host, program, env, name):
            return stack.enter_context(Process(hosts.command(host, program), {**settings, **env}, name))

        scheduler = start(0, [MUSTER, "scheduler"], {"MS_ROLE": "MS_SCHED"}, "scheduler")
        lines, workers = SMALL.replace("CALLS", str(CALLS)), []
        for rank in range(8):
            host = rank // 4
            env = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, "MS_WORKER_IP": hosts.address("net", host), "MUSTER_HOST_ID": f"host{host}"}
            workers.append(start(host, packaged(lines), env, f"worker {rank}"))
        for process in (*workers, scheduler):
            assert process.wait(LIMIT) == 0, process.describe()
        words = "; links between 2 hosts)" if shm == "require" else "world: links (the scheduler's setting shm is off)"
        assert all(words in worker.stderr for worker in workers)
        return [said(workers[rank])["sent"] for rank in (0, 4)]


def test_two_levels_send_fewer_frames_than_one_between_hosts():
    """On two levels a host sends a frame a call, which is acknowledged by itself at most. On one level each rank sends one."""
    with Hosts("net") as hosts:
        two, one = packets(hosts, "require"), packets(hosts, "off")
    assert max(two) < 3 * CALLS < min(one), (two, one)
