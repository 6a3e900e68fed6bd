"""A node's cluster: joining, leaving, and what is known of it."""

import contextlib
import ctypes
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Type, Union

from . import _config, _life
from ._config import Config
from ._errors import ROLES, Failure, InvalidError, MusterError, Status, check, failure_of, worded
from ._group import Group
from ._library import LIBRARY, FailureStruct, HcclCmStruct
from ._operations import Operation
from ._store import Store
from ._text import rank_of, text_of, whole
from ._times import DEFAULT, milliseconds

_BACKENDS = (None, "hccl", "nccl", "mccl")


@dataclass(frozen=True)
class HcclCm:
    """The five values that HCCL needs to start through its cluster manager."""

    chief_ip: str
    """The scheduler's address, numeric."""
    chief_port: int
    """The scheduler's port plus one."""
    chief_device: int
    """The chief's device: 0, or DEVICE_ID if there is only one worker."""
    worker_size: int
    """How many workers."""
    worker_ip: str
    """This node's address, numeric."""


class Cluster(_life.OfThisProcess):
    """A node's cluster. Its calls may come from any thread.

    At the end of a `with` block the process leaves the cluster: in order (`finalize`) if the block ends well, and by
    `abort`, with the exception as the reason, if an exception ends it. If the program does not leave the cluster, the
    process leaves it in the same way when the interpreter ends. This does not hold in a child that `multiprocessing`
    has forked: some versions of Python end it without that. In a forked child every call on its parent's cluster raises
    `ForkedError`.
    """

    def __init__(self, handle: int) -> None:
        self._owner = _life.Handle(handle, LIBRARY.muster_cluster_free)
        self._claims = False  # whether the environment says that this process has joined as whoever it names
        _life.open_clusters.append(self)
        try:
            self.world = Group(LIBRARY.muster_world(handle), self._owner)
            """All workers."""
            self.servers = Group(LIBRARY.muster_servers(handle), self._owner)
            """All parameter servers; of size 0 if there are none."""
            self.universe = Group(LIBRARY.muster_universe(handle), self._owner)
            """All workers, then all servers."""
            self.store = Store(self._owner)
            """The cluster's store."""
        except BaseException as error:  # a signal's handler raised it while the cluster formed
            self._leave(error)
            raise

    # Leaving

    def finalize(self) -> None:
        """Leaves the cluster in order. If all is well this takes milliseconds; it ends within the setting
        finalize_timeout (30 s).

        Calls of other threads that still go on raise `StateError`. Peers that need this node afterwards get
        `PeerLeftError`. A process that hosts the scheduler waits here for the others to leave. A second call does
        nothing.
        """
        self._checked(LIBRARY.muster_finalize(self._handle))
        self._is_left()

    def abort(self, reason: Union[str, BaseException], code: int = 1) -> None:
        """Ends the job for every rank: their pending and later calls raise `AbortedError` with this rank, code and
        reason.

        `reason` is a text, or an exception, which is told as "ValueError: disk full". It is cut after 1,024 bytes. Returns
        once all other nodes have been told, or raises `UnreachableError`, which says how many could not be told. Waits
        250 ms for the scheduler. If the scheduler does not answer, this rank tells the nodes itself, for 2 s at most.
        """
        text = worded(reason) if isinstance(reason, BaseException) else reason
        if not isinstance(text, str):
            raise TypeError(f"reason: {reason!r} is a {type(reason).__name__}; a string or an exception is needed")
        words = (whole(code, "code"), text.encode(errors="replace").replace(b"\0", b"?"))
        self._checked(LIBRARY.muster_abort(self._handle, *words))

    def recover(self, timeout: Optional[float] = DEFAULT) -> None:
        """Makes the cluster whole again after a group was revoked: the next epoch begins once every node is in this
        call.

        Then every group is as new. `timeout` is in seconds: `muster.DEFAULT` means the forming time-out (600 s), None
        no limit. With 0 the call succeeds only if all other nodes wait for the next epoch already. After an error the
        epoch is what it was, and the call may be repeated.
        """
        self._checked(LIBRARY.muster_recover(self._handle, milliseconds(timeout)))

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is None:
            self.finalize()
        else:
            self._leave(error)

    def _leave(self, error: Optional[BaseException]) -> None:
        """Leaves without a complaint of its own: in order, or with the exception as everybody's reason."""
        try:
            if error is not None and not _is_success(error):
                with contextlib.suppress(MusterError):  # a scheduler that is away may still tell the others
                    self.abort(error, _code_of(error))
            with contextlib.suppress(MusterError):  # the exception that is on its way says more
                self.finalize()
        finally:
            self._is_left()

    def _is_left(self) -> None:
        if self in _life.open_clusters:
            _life.open_clusters.remove(self)
            if self._claims:
                _config.drop_claim()
            _life.free_orphans()  # their operations have ended, and what they use refers to the cluster

    # Groups and operations

    def create_group(self, ranks: Sequence[int], tag: str = "", timeout: Optional[float] = DEFAULT) -> Group:
        """Makes a group of these workers. Only its members call it, with the same ranks and tag.

        The order of the ranks is the order in the group. The tag tells groups of the same members apart. Blocks until
        all members have called it, at most `timeout` seconds; `muster.DEFAULT` means the setting `timeout` (1,800 s),
        None no limit. `Group.create` and `Group.split` are collectives of a whole group, and need no tag.
        """
        numbers = (ctypes.c_int32 * len(ranks))(*[rank_of(rank, "ranks", "the number of workers") for rank in ranks])
        words = (numbers, len(ranks), text_of(tag, "tag"), milliseconds(timeout))
        made = Group._made(self._owner, self._checked, LIBRARY.muster_group_create_members, self._handle, *words)
        assert made is not None  # the library gives one out with OK
        return made

    def operation(self, function: Callable[[memoryview, memoryview, str], None], commutative: bool = True) -> Operation:
        """Makes a reduction of `function(lower, inout, dtype)`, to be passed as `op` to calls that wait.

        The function writes `lower[i] op inout[i]` to `inout[i]` for all elements; `lower` has the elements of lower
        ranks. Both are memoryviews of one dimension, with the elements' type. Floats of 16 bits come as their bits, in
        unsigned integers. numpy.frombuffer makes arrays of them. Elements of other types, such as complex numbers and
        structures, come as bytes, and `dtype` tells only the size of an element, as "V16". So the function names their
        type itself: `numpy.frombuffer(lower, numpy.complex128)`.

        A thread of the library calls the function, on any stretch of the elements. The function must not call muster.
        If it raises, the call raises `ReductionError` on every rank, and so do calls of other threads with the same
        operation that are under way.

        Ranks that reduce together must make their operations in the same order. A process that was started again must
        make them again. If `commutative` is False, contributions are folded in order of rank. The result is the same
        for any number of ranks only if the function is associative. Make an operation once, and not for each call: a
        cluster has 65,536 numbers for operations, and uses none again. After that the call raises `LimitError`.
        """
        return Operation(self._owner, function, commutative)

    # About the cluster

    @property
    def role(self) -> str:
        """"worker" or "server"."""
        return ROLES[self._checked(LIBRARY.muster_role(self._handle))]

    @property
    def rank(self) -> int:
        """This node's rank among the nodes of its role, 0 or more."""
        return self._checked(LIBRARY.muster_rank(self._handle))

    @property
    def size(self) -> int:
        """How many nodes of this node's role there are."""
        return self._checked(LIBRARY.muster_size(self._handle))

    @property
    def local_rank(self) -> int:
        """This node's place among the nodes of its role on its host."""
        return self._checked(LIBRARY.muster_local_rank(self._handle))

    @property
    def local_size(self) -> int:
        """How many nodes of this node's role are on its host."""
        return self._checked(LIBRARY.muster_local_size(self._handle))

    @property
    def restarts(self) -> int:
        """How often this node was lost, started again, and took part again."""
        return self._checked(LIBRARY.muster_restarts(self._handle))

    @property
    def epoch(self) -> int:
        """The number of the epoch: 1 for the first."""
        return self._checked(LIBRARY.muster_epoch(self._handle))

    @property
    def node_id(self) -> str:
        """This node's id."""
        self._checked(LIBRARY.muster_role(self._handle))  # a query that fails where this one has no way to
        return (LIBRARY.muster_node_id(self._handle) or b"").decode()

    def failed_ranks(self) -> List[int]:
        """The ranks of the workers that are lost, ascending."""
        count = ctypes.c_size_t()
        self._checked(LIBRARY.muster_failed_ranks(self._handle, None, 0, ctypes.byref(count)))
        ranks = (ctypes.c_int32 * count.value)()
        self._checked(LIBRARY.muster_failed_ranks(self._handle, ranks, len(ranks), ctypes.byref(count)))
        return list(ranks)[: count.value]

    def failure(self) -> Optional[Failure]:
        """The first cause for which the cluster is broken. While nothing is broken it is the newest message that timed
        out, if there is one; the groups still hold then. Otherwise None. Does not block.
        """
        struct = FailureStruct()
        status = LIBRARY.muster_failure(self._handle, ctypes.byref(struct), ctypes.sizeof(struct))
        if status == Status.NOT_FOUND:
            return None
        self._checked(status)
        return failure_of(struct)

    def hccl_cm(self) -> HcclCm:
        """The values that HCCL needs to start through its cluster manager."""
        struct = HcclCmStruct()
        self._checked(LIBRARY.muster_hccl_cm(self._handle, ctypes.byref(struct), ctypes.sizeof(struct)))
        numbers = (struct.chief_port, struct.chief_device, struct.worker_size)
        return HcclCm(struct.chief_ip.decode(), *numbers, struct.worker_ip.decode())

    def rank_table(self) -> Dict[str, Any]:
        """The HCCL rank table, version 1.0, of the workers, as `json.loads` gives it. In a large cluster this asks
        the scheduler.
        """
        needed = ctypes.c_size_t()
        self._checked(LIBRARY.muster_rank_table(self._handle, None, 0, ctypes.byref(needed)))
        buffer = ctypes.create_string_buffer(needed.value)
        self._checked(LIBRARY.muster_rank_table(self._handle, buffer, len(buffer), ctypes.byref(needed)))
        table: Dict[str, Any] = json.loads(buffer.value)
        return table

    @property
    def _handle(self) -> int:
        return self._owner.value

    def _checked(self, status: int) -> int:
        return check(status, cluster=self._handle)


def _code_of(error: BaseException) -> int:
    code = error.code if isinstance(error, SystemExit) else None
    return code if isinstance(code, int) and -(1 << 31) <= code < 1 << 31 else 1


def _is_success(error: BaseException) -> bool:
    return isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0))


def init(backend_name: Optional[str] = None, *, environment: bool = True, **settings: Any) -> Cluster:
    """Joins the cluster that the settings describe, and returns it once all nodes are there.

    Settings come from keyword arguments, which are the names of docs/settings.md (`role`, `sched_host`, `worker_num`,
    ...), and from the environment, unless `environment` is False. `role` is "worker", "server" or "scheduler". None and
    `muster.DEFAULT` leave a setting out. Infinity means no limit, for a time that may be without one. With no settings
    at all the process is a cluster of one. `backend_name` is there for MindSpore's programs ("hccl", "nccl", "mccl"),
    and changes nothing: all collectives are on the host's memory.

    Blocks, at most for the setting cluster_timeout (600 s). Ctrl-C ends the wait. In the scheduler's process the call
    serves until the job has ended, and then raises `SystemExit(0)`, or the job's error.

    Errors: `ConfigError` (also if this process has inherited the environment of a process that has joined, whose rank
    it would claim), `BindError`, `UnreachableError`, `RejectedError`, `TimeoutError` (the sentence names who is
    missing), `SecurityError`, `AbortedError`; with recovery `JournalError`, `PeerLeftError`, `FencedError`.
    """
    if backend_name not in _BACKENDS:
        raise InvalidError(f"backend_name: {backend_name!r} is none; hccl, nccl, mccl or nothing is right, and all mean the same")
    handle, cluster = ctypes.c_void_p(), None
    if environment:
        _config.refuse_inherited_identity(settings)
    try:
        with Config(settings, environment) as config, _life.waited_for_at_the_end():
            status = LIBRARY.muster_init(config.handle, ctypes.byref(handle))
    finally:  # a signal's handler may raise as the call returns, and below: then the cluster is left at the end
        if handle.value is not None:
            cluster = Cluster(handle.value)
    if cluster is None:
        check(status)
        raise SystemExit(0)
    if environment:
        cluster._claims = _config.claim_identity(settings)
    check(status)
    return cluster
