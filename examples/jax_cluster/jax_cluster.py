#!/usr/bin/env python3
"""JAX on several processes under muster: jax.distributed.initialize() needs only the name of the class below.

JAX asks a `ClusterEnv` for what it needs to know. `MusterCluster` answers with the cluster's ranks, and rank 0 chooses the port
of JAX's coordinator. A program that has this class needs two lines: `MusterCluster.cluster = cluster`, and
`jax.distributed.initialize(cluster_detection_method=MusterCluster.name)`.

JAX cannot go on in a process whose peer is lost. So its processes end then, and start again together.

    muster run --worker_num 4 --local_worker_num 4 examples/jax_cluster/jax_cluster.py
"""

import os
import socket

import jax
import jax.numpy as jnp
import muster
import numpy as np
from jax._src.clusters import ClusterEnv
from jax.experimental import multihost_utils


class MusterCluster(ClusterEnv):
    """Makes JAX's processes of muster's ranks. JAX must be told its name: without one JAX takes the first ClusterEnv that works,
    and its own for Slurm, Open MPI and Kubernetes come before this one."""

    name = "muster"
    cluster = None  # the one that the program has joined
    _bound = None  # where this class has told JAX to listen

    @classmethod
    def is_env_present(cls):
        return cls.cluster is not None

    @classmethod
    def get_process_count(cls):
        return cls.cluster.size

    @classmethod
    def get_process_id(cls):
        return cls.cluster.rank

    @classmethod
    def get_local_process_id(cls):
        return cls.cluster.local_rank  # on a GPU machine: one device for each process

    @classmethod
    def get_coordinator_address(cls, timeout_secs, override_coordinator_port):
        if cls.cluster.rank == 0:
            host = cls.cluster.world.member(0).address.rpartition(":")[0]
            address = f"{host}:{override_coordinator_port or cls._reserve_port(host.strip('[]'))}"
            # Otherwise JAX listens at every address of the host. What the program's user has set stays.
            if os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") in (None, cls._bound):
                os.environ["JAX_COORDINATOR_BIND_ADDRESS"] = cls._bound = address
        return cls.cluster.world.broadcast_object(address if cls.cluster.rank == 0 else None)

    @classmethod
    def _reserve_port(cls, host):
        """A port that stays ours: the socket is never closed, and JAX's own, which listens, may share it (SO_REUSEPORT)."""
        cls._reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        cls._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        cls._reserved.bind((host, 0))
        return cls._reserved.getsockname()[1]


def main():
    with muster.init() as cluster:
        MusterCluster.cluster = cluster
        jax.distributed.initialize(cluster_detection_method=MusterCluster.name)
        ranks = multihost_utils.process_allgather(np.array([cluster.rank]), tiled=True)

        devices = jax.sharding.Mesh(jax.devices(), "all")
        rows = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("all"))
        own = np.full((jax.local_device_count(), 3), cluster.rank + 1, dtype=np.float32)
        total = jax.jit(jnp.sum)(jax.make_array_from_process_local_data(rows, own))
        print(f"process {jax.process_index()} of {jax.process_count()}: ranks {ranks.tolist()}, sum {float(total)}", flush=True)
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()
