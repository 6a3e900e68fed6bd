"""Where a process group's cluster comes from, and how it is left.

- The store that torch was given is a `muster.torch.Store`: its cluster.
- The program has joined a cluster: that one.
- The environment says which node this process is (MS_ROLE, MUSTER_ROLE), as under `muster run`: it joins.
- Otherwise torch's own launcher has given ranks and a store. Rank 0 starts a scheduler, and the store tells the others where.

A cluster that was joined here is left by `destroy_process_group`, or when the interpreter or a child of multiprocessing ends.
A scheduler that rank 0 has started serves until the process ends, and then for as long as others need it, at most 30 s.
"""

import atexit
import contextlib
import os
from multiprocessing import util
from typing import Any, Dict, List, Optional

from .. import _life
from .._cluster import Cluster, init
from .._errors import InvalidError, MusterError, StateError, UnreachableError, worded
from .._scheduler import Scheduler
from .._times import LONGEST_S
from ._backend import Backend
from ._places import is_loopback, own_loopback, towards_others
from ._store import Store
from ._work import none_is_left, translated

_ADDRESS = "muster/scheduler"
# In the place of an address: rank 0 has no scheduler, for this reason.
_NONE = "none: "
_LINGER_S = 30.0

_schedulers: List[Scheduler] = []
_joined: List[Cluster] = []
# That of torch's default group, which is one for a process.
_default: List[Cluster] = []


def make_backend(options: Any, _: Optional[object] = None) -> Backend:
    """Makes the backend of a process group: what torch calls for the default group, and then for each further group on its
    members. `options` is torch's `_DistributedBackendOptions`.
    """
    try:
        ranks = list(options.global_ranks_in_group)
        if not ranks:
            cluster = _join(options)
            _default[:] = [cluster]
            try:
                return Backend(cluster.world, options, lambda: _shut_down(cluster))
            except BaseException as error:
                _shut_down(cluster, error)
                raise
        if not _default:
            raise StateError('a group of muster needs a default group of muster: init_process_group("muster")')
        group = _default[0].create_group(ranks, f"torch {options.group_id}", options.timeout.total_seconds())
        return Backend(group, options, group.free)
    except MusterError as error:
        raise translated(error)  # which names what is behind it


def _join(options: Any) -> Cluster:
    rank, size = options.group_rank, options.group_size
    store = _innermost(options.store)
    if isinstance(store, Store):
        cluster = store.cluster
    elif _life.open_clusters:
        cluster = _life.open_clusters[-1]
    else:
        cluster = init() if _is_told_its_role() else _form(options, store, rank, size)
        _joined.append(cluster)
    # A child of multiprocessing ends without what atexit calls, or calls it when nothing tells of an exception any more.
    util.Finalize(None, _end, exitpriority=0)
    if (cluster.rank, cluster.size) != (rank, size):
        told = f"rank {cluster.rank} of {cluster.size}"
        _shut_down(cluster)
        raise InvalidError(
            f"init_process_group: this process is {told} in muster's cluster, and rank {rank} of {size} for torch "
            "(RANK and WORLD_SIZE, or rank and world_size); both must be the same"
        )
    return cluster


def _is_told_its_role() -> bool:
    return bool(os.environ.get("MS_ROLE") or os.environ.get("MUSTER_ROLE"))


def _innermost(store: Any) -> Any:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _form(options: Any, store: Any, rank: int, size: int) -> Cluster:
    """Makes a cluster of the ranks that torch's launcher has given."""
    if rank == 0:
        cluster = _hosted(options, store, size)
    else:
        word = options.store.get(_ADDRESS).decode()
        if word.startswith(_NONE):
            raise UnreachableError(f"init_process_group: rank 0 started no scheduler: {word[len(_NONE):]}")
        address, _, loopback = word.partition(" ")
        if loopback and loopback != own_loopback():
            raise InvalidError(
                f"init_process_group: rank 0 listens at {address}, which only processes of its own host reach: "
                "set MUSTER_SCHED_HOST to an address of that host that all ranks reach, on all ranks"
            )
        cluster = _joined_at(address, options, rank, size)
    try:
        # No rank goes on, perhaps to the next group, before rank 0 has removed the address from the store.
        cluster.world.barrier()
    except BaseException as error:
        cluster._leave(error)
        raise
    return cluster


def _hosted(options: Any, store: Any, size: int) -> Cluster:
    """The cluster, with the scheduler in this process, which is rank 0."""
    host = (os.environ.get("MUSTER_SCHED_HOST") or getattr(store, "host", None) or "127.0.0.1").strip("[]")
    try:
        bound = host if os.environ.get("MUSTER_SCHED_BIND") else towards_others(host, size, binds=True)
        port = os.environ.get("MUSTER_SCHED_PORT") or 0
        for earlier in _schedulers if port else []:  # of a group that was destroyed: it has the port until all ranks have left
            with contextlib.suppress(MusterError):
                earlier.wait(float(_limit(options)))
        place: Dict[str, Any] = {"sched_host": bound, "sched_port": port, "cluster_timeout": _limit(options)}
        scheduler = Scheduler(environment=True, role="scheduler", worker_num=size, **place)
    except Exception as error:  # a warning may be one, too
        # Or the others would wait for an address. The word stays: another attempt needs another store, or another prefix.
        with contextlib.suppress(RuntimeError):  # of a store that is gone
            options.store.set(_ADDRESS, _NONE + worded(error))
        raise
    _schedulers.append(scheduler)
    address = _reachable(scheduler.address, host)
    # An address that leads each host to itself is of use to those alone that have the same loopback.
    options.store.set(_ADDRESS, f"{address} {own_loopback()}" if is_loopback(_host_of(address)) else address)
    try:
        return _joined_at(address, options, 0, size)
    finally:
        # All have read it, or it leads nowhere. The next group may have the same store, and must not find this address there.
        with contextlib.suppress(RuntimeError):  # of a store that cannot
            options.store.delete_key(_ADDRESS)


def _reachable(address: str, host: str) -> str:
    """Where the ranks connect to a scheduler that listens at this address: at its host, if it listens at every address."""
    bound, _, port = address.rpartition(":")
    if bound not in ("0.0.0.0", "[::]"):
        return address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _joined_at(address: str, options: Any, rank: int, size: int) -> Cluster:
    port = address.rpartition(":")[2]
    place: Dict[str, Any] = {"sched_host": towards_others(_host_of(address), size), "sched_port": port}
    return init(role="worker", cluster_timeout=_limit(options), worker_num=size, rank_id=rank, **place)


def _limit(options: Any) -> int:
    """How many seconds the cluster may take to form: torch's time-out, for the scheduler as for the ranks."""
    return min(max(1, int(options.timeout.total_seconds())), LONGEST_S)


def _shut_down(cluster: Cluster, error: Optional[BaseException] = None) -> None:
    """The end of the default group: a cluster that was joined for it is left. Of a broken one all have been told already."""
    _default.clear()
    if cluster in _joined:
        _joined.remove(cluster)
        cluster._leave(error)


@atexit.register
def _end() -> None:
    """Before the interpreter ends no thread of the library may still be about to call Python."""
    error = _life._unhandled()
    with contextlib.ExitStack() as steps:  # the last first; and all of them, also where a signal's handler raises in one
        steps.callback(_await_schedulers, error)
        steps.callback(none_is_left, _life._LONGEST_WAIT_S)
        # Works go on in the program's own cluster, too.
        for cluster in dict.fromkeys([*_joined, *(one for one in _default if one in _life.open_clusters)]):
            steps.callback(cluster._leave, error)


def _await_schedulers(error: Any) -> None:
    while _schedulers:
        try:
            _schedulers.pop().wait(0 if error else _LINGER_S)
        except MusterError:  # the others have said what broke the job; or they need it no more
            pass


def _forget() -> None:
    for kept in (_joined, _schedulers, _default):
        kept.clear()


os.register_at_fork(after_in_child=_forget)
