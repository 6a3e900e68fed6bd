"""The order of folding as docs/protocol.md has it, written anew from the page.

`x` is what each rank brings, as arrays, and `fold(lower, higher)` combines two of them. An order makes one of all, for elements of block
`block`.

    folded("reduce", x, np.add, commutes=True, thresholds=thresholds, root=1)   # what the call gives on one level
    Placement("aaab").folded(...)                                              # on two, with rank 3 on a host of its own
"""

import functools

import numpy as np

CHUNK_BYTES = 2 << 20
PIECE_BYTES = 4096
SCATTERS = ("reduce_scatter", "reduce_scatterv")


def mixed(lower, higher):
    """Neither commutative nor associative: every other order gives something else."""
    with np.errstate(over="ignore"):
        result = (lower * np.uint64(0x9E3779B97F4A7C15)) ^ (higher * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(1))
    return result ^ (result >> np.uint64(29))


def mix(lower, inout, dtype):
    """`mixed`, for `Cluster.operation`."""
    lower, inout = (np.frombuffer(each, np.uint64) for each in (lower, inout))
    inout[:] = mixed(lower, inout)


def one_by_one(x, fold):
    return functools.reduce(fold, x)


def from_above(x, fold):
    return functools.reduce(lambda higher, lower: fold(lower, higher), x[::-1])


def upward(x, fold, root, block):
    return one_by_one(x, fold)


def halves(x, fold, root, block):
    values, distance = list(x), 1
    while distance < len(values):
        for at in range(0, len(values), 2 * distance):
            if at + distance < len(values):
                values[at] = fold(values[at], values[at + distance])
        distance *= 2
    return values[0]


def halves_from_the_root(x, fold, root, block):
    return halves(x[root:] + x[:root], fold, 0, block)


def towards_the_root(x, fold, root, block):
    return from_above(x[root:] + x[:root], fold)


def inwards(x, fold, root, block):
    result = x[root]
    if root > 0:
        result = fold(one_by_one(x[:root], fold), result)
    if root < len(x) - 1:
        result = fold(result, from_above(x[root + 1:], fold))
    return result


def ring(x, fold, root, block):
    return one_by_one(x[block + 1:] + x[:block + 1], fold)


def circulant(x, fold, root, block):
    values = [x[(block - below) % len(x)] for below in range(len(x))]
    distance = 1
    while 2 * distance < len(x):
        distance *= 2
    while distance > 0:
        for at in range(distance):
            if at + distance < len(values):
                values[at] = fold(values[at + distance], values[at])
        values, distance = values[:distance], distance // 2
    return values[0]


def pairwise(x, fold, root, block):
    result = x[block]
    for distance in range(1, len(x)):
        rank = (block - distance) % len(x)
        result = fold(x[rank], result) if rank < block else fold(result, x[rank])
    return result


def is_power_of_two(n):
    return n & (n - 1) == 0


# Each order, whether it needs an operation that commutes, and the condition: of the number of ranks, the bytes that a rank brings
# (all parts together, where ranks get parts), and the thresholds.
SCATTER_LINES = [
    (circulant, True, lambda n, brings, t: brings <= t["reduce_scatter_circulant_bytes"]),
    (pairwise, True, lambda n, brings, t: True),
    (upward, False, lambda n, brings, t: True),
]
LINES = {
    "allreduce": [
        (halves, False, lambda n, brings, t: n >= t["allreduce_tree_ranks"] and brings <= t["allreduce_tree_bytes"]),
        (halves, False, lambda n, brings, t: (
            is_power_of_two(n) and brings <= t["allreduce_pair_bytes" if n == 2 else "allreduce_doubling_bytes"])),
        (upward, False, lambda n, brings, t: n * brings <= t["allreduce_gather_bytes"]),
        (halves, False, lambda n, brings, t: n == 2 or (is_power_of_two(n) and brings <= t["allreduce_halving_bytes"])),
        (circulant, True, lambda n, brings, t: brings <= t["allreduce_circulant_bytes"]),
        (ring, True, lambda n, brings, t: True),
        (upward, False, lambda n, brings, t: True),
    ],
    "reduce": [
        (halves_from_the_root, True, lambda n, brings, t: brings <= t["reduce_binomial_bytes"]),
        (towards_the_root, True, lambda n, brings, t: True),
        (halves, False, lambda n, brings, t: brings <= t["reduce_binomial_bytes"]),
        (inwards, False, lambda n, brings, t: True),
    ],
    **dict.fromkeys(SCATTERS, SCATTER_LINES),
}  # fmt: skip


def order_of(kind, n, brings, commutes, thresholds):
    """The first line of the page's table whose condition is true."""
    lines = ((order, condition) for order, starred, condition in LINES[kind] if commutes or not starred)
    return next(order for order, condition in lines if condition(n, brings, thresholds))


def equal_parts(count, n):
    return [count // n + (part < count % n) for part in range(n)]


def folded(kind, x, fold, commutes, thresholds, root=0, counts=None):
    """What a call gives on one level. If ranks get parts, it is all parts, one after another, with these counts."""
    n = len(x)
    order = order_of(kind, n, x[0].nbytes, commutes, thresholds)
    lengths = [len(x[0])] if kind == "reduce" else counts or equal_parts(len(x[0]), n)
    ends = np.cumsum(lengths)
    parts = (order([each[end - length:end] for each in x], fold, root, block)
             for block, (length, end) in enumerate(zip(lengths, ends)))
    return np.concatenate(list(parts))


class Placement:
    """Which host each rank is on: a letter for each."""

    def __init__(self, hosts):
        self.hosts = hosts
        # In the order of their lowest ranks.
        self.members = [[rank for rank, each in enumerate(hosts) if each == host] for host in dict.fromkeys(hosts)]
        self.fullest = max(len(ranks) for ranks in self.members)

    def takes_two(self, kind, element_bytes, commutes):
        """Whether a call is on two levels. (Here no call is too long for that.)"""
        ordered = [rank for ranks in self.members for rank in ranks] == list(range(len(self.hosts)))
        fits = {"reduce_scatter": self.fullest * element_bytes <= PIECE_BYTES, "reduce_scatterv": False}.get(kind, True)
        return len(self.members) > 1 and self.fullest > 1 and (commutes or ordered) and fits

    def folded(self, kind, x, fold, commutes, thresholds, root=0):
        """What the group gets, on as many levels as the call takes."""
        settings = (fold, commutes, thresholds)
        if not self.takes_two(kind, x[0].itemsize, commutes):
            return folded(kind, x, *settings, root=root)
        if kind == "reduce_scatter":
            return self._scattered(x, settings)
        each = CHUNK_BYTES // x[0].itemsize
        if len(x[0]) < 2 * each:
            each = len(x[0])
        place = next(host for host, ranks in enumerate(self.members) if root in ranks)
        chunks = (self._within([values[first:first + each] for values in x], settings, root) for first in range(0, len(x[0]), each))
        return np.concatenate([folded(kind, chunk, *settings, root=place) for chunk in chunks])

    def _scattered(self, x, settings):
        parts = np.array(self._within(x, settings)).reshape(len(self.members), len(self.hosts), -1)
        ranks = [rank for members in self.members for rank in members]
        brought = [np.ravel(each) for each in parts[:, ranks]]
        counts = [len(members) * parts.shape[2] for members in self.members]
        result = np.empty(parts.shape[1:], x[0].dtype)
        result[ranks] = folded("reduce_scatterv", brought, *settings, counts=counts).reshape(result.shape)
        return np.ravel(result)

    def _within(self, x, settings, root=0):
        """What each host brings: folded as a reduce to its speaker is."""
        speakers = [ranks.index(root) if root in ranks else 0 for ranks in self.members]
        return [folded("reduce", [x[rank] for rank in ranks], *settings, root=speaker) for ranks, speaker in zip(self.members, speakers)]
