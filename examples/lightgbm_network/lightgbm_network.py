#!/usr/bin/env python3
"""LightGBM on muster: data-parallel training over a cluster's own connections.

LightGBM does its communication through two functions, a reduce-scatter and an all-gather of blocks of bytes, and takes those of
the program by LGBM_NetworkInitWithFunctions. `Network` gives it muster's. So it needs no list of machines and no ports of its
own, and is encrypted where the cluster is.

Its reductions are its own: it passes a function each time, for elements of its own size (8 kB where ranks agree on a split), which
may not be cut. To muster these are elements of the caller's own, and the function is an operation. All ranks end with the same model.

    muster run --worker_num 4 --local_worker_num 4 examples/lightgbm_network/lightgbm_network.py digits.csv [ROUNDS]
"""

import ctypes
import hashlib
import os
import sys
import traceback
from ctypes import POINTER, c_int, c_int32, c_void_p

import lightgbm
import muster
import numpy as np

REDUCER = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_int32)
REDUCE_SCATTER = ctypes.CFUNCTYPE(
    None, c_void_p, c_int32, c_int, POINTER(c_int32), POINTER(c_int32), c_int, c_void_p, c_int32, POINTER(REDUCER)
)
ALLGATHER = ctypes.CFUNCTYPE(None, c_void_p, c_int32, POINTER(c_int32), POINTER(c_int32), c_int, c_void_p, c_int32)


class Network:
    """LightGBM's network of this thread, as long as the `with` block lasts: parameters must then have `num_machines`."""

    def __init__(self, cluster):
        self.cluster = cluster
        self._functions = (REDUCE_SCATTER(self._reduce_scatter), ALLGATHER(self._allgather))  # kept as long as they are called
        self._operation = cluster.operation(self._reduce, commutative=False)  # what it does is told with each call

    def __enter__(self):
        check(LIB.LGBM_NetworkInitWithFunctions(self.cluster.size, self.cluster.rank, *self._functions))
        return self

    def __exit__(self, *exception):
        check(LIB.LGBM_NetworkFree())

    def _reduce_scatter(self, data, size, element, starts, lengths, blocks, out, out_size, reducer):
        """Block r of all ranks' data, reduced, to rank r. Blocks lie one after another, and are whole elements."""
        with self._all_or_nothing():
            self._reducer, self._element = reducer[0], element
            counts = [length // element for length in lengths[:blocks]]
            own = lengths[self.cluster.rank]
            self.cluster.world.reduce_scatterv(view(data, size, element), counts, view(out, own, element), self._operation)

    def _reduce(self, lower, inout, _):
        """LightGBM's `reducer(a, b, ...)` does b += a."""
        lower, inout = (np.frombuffer(elements, np.uint8) for elements in (lower, inout))
        self._reducer(lower.ctypes.data, inout.ctypes.data, self._element, inout.size)

    def _allgather(self, data, size, starts, lengths, blocks, out, out_size):
        """Every rank's data to everyone, where the list of starts says. LightGBM may pass the beginning of `out` as `data`."""
        with self._all_or_nothing():
            own = view(data, size).copy()
            self.cluster.world.allgatherv(own, lengths[:blocks], out=view(out, out_size), displs=starts[:blocks])

    def _all_or_nothing(self):
        return Fatal(self.cluster)


class Fatal:
    """LightGBM's functions return nothing, so they cannot fail: an error in one ends the process, and the others are told."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            traceback.print_exception(kind, error, trace)
            try:
                self.cluster.abort(f"LightGBM's communication failed: {error}")
            finally:
                sys.stderr.flush()
                os._exit(1)


LIB = lightgbm.basic._LIB


def check(result):
    if result != 0:
        raise lightgbm.basic.LightGBMError(LIB.LGBM_GetLastError().decode())


def view(address, size, element=1):
    """The memory itself, as elements of so many bytes."""
    return np.ctypeslib.as_array(ctypes.cast(address, POINTER(ctypes.c_uint8)), (size,)).view(f"V{element}")


def main(path, rounds=20):
    with muster.init() as cluster:
        table = np.loadtxt(path, delimiter=",", dtype=np.float32)
        images, labels = table[:, :-1], table[:, -1]
        own = np.arange(cluster.rank, len(table), cluster.size)  # each rank learns from its own images, and is tested on all
        parameters = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "tree_learner": "data", "pre_partition": True,
                      "num_machines": cluster.size, "num_threads": 1, "verbose": -1}
        with Network(cluster):
            model = lightgbm.train(parameters, lightgbm.Dataset(images[own], labels[own]), rounds)
        right = np.mean(model.predict(images).argmax(axis=1) == labels)
        digest = hashlib.sha256(model.model_to_string().encode()).hexdigest()[:16]
        print(f"rank {cluster.rank} of {cluster.size}: {model.num_trees()} trees, {right:.3f} of all images right, "
              f"model {digest}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
