"""A group of ranks."""

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence

from . import _life
from ._errors import ROLES, Failure, Status, failure_of
from ._library import LIBRARY, FailureStruct, MemberStruct
from ._nonblocking import Starts
from ._objects import Objects
from ._text import rank_of, whole
from ._times import milliseconds

_STATES = {0: "present", 1: "lost", 2: "left"}


@dataclass(frozen=True)
class Member:
    """A member of a group."""

    role: str
    """"worker" or "server"."""
    rank: int
    """Its rank among the nodes of its role."""
    local_rank: int
    """Its place among the nodes of its role on its host."""
    pid: int
    """Its process."""
    state: str
    """"present", "lost" or "left", as far as this process has heard."""
    node_id: str
    """Its node id."""
    host: str
    """Its host's name."""
    address: str
    """Where it can be reached, as "host:port" with a numeric host."""


class Group(Objects, Starts):
    """An ordered set of nodes with its own sequence of collectives.

    **Buffers** are objects with the buffer protocol (bytes, bytearray, array, memoryview, numpy) or DLPack on the CPU
    (torch). They are used where they lie, and nothing is copied. Their elements must lie one after another. Their types
    are the integers of 8 to 64 bits, float16, bfloat16, float32, float64 and bool; elements of any other type, except
    those of tensors, can be moved, and be reduced by functions. All ranks pass the same count and type. If `out` is
    left out, `allreduce` and `reduce` work in `buf`. The other calls make a new buffer of the kind of `buf`, and return
    it. Lengths are in elements.

    **Order.** All members call a group's collectives in the same order. Calls may come from any thread. During a call
    the interpreter's lock is released.

    **Time.** A collective blocks until it is done, at most for the group's time-out. A signal whose handler raises
    (Ctrl-C) ends the call within about 50 ms. A collective that was under way is then cancelled, which revokes the
    group.

    **Errors.** A collective that fails revokes the group: all members' pending and later calls raise the same first
    cause. `InvalidError` is raised before anything has begun.
    """

    __slots__ = ()

    @property
    def rank(self) -> int:
        """This process's rank in the group, 0 or more. Raises `NotFoundError` if the process is no member."""
        return self._checked(LIBRARY.muster_group_rank(self._handle))

    @property
    def size(self) -> int:
        """How many members the group has."""
        return self._checked(LIBRARY.muster_group_size(self._handle))

    def world_rank(self, rank: int) -> int:
        """The rank among all workers of the member with this rank. Raises `NotFoundError` if the member is no
        worker.
        """
        return self._checked(LIBRARY.muster_group_to_world(self._handle, rank_of(rank, "rank")))

    def rank_of(self, world_rank: int) -> int:
        """The rank in this group of the worker with this rank. Raises `NotFoundError` if the worker is no member."""
        rank = rank_of(world_rank, "world_rank", "the number of workers")
        return self._checked(LIBRARY.muster_group_from_world(self._handle, rank))

    def member(self, rank: int) -> Member:
        """Describes a member. In clusters of more than 1,024 nodes this may ask the scheduler."""
        struct = MemberStruct()
        words = (rank_of(rank, "rank"), ctypes.byref(struct), ctypes.sizeof(struct))
        self._checked(LIBRARY.muster_group_member(self._handle, *words))
        texts = [getattr(struct, name).decode(errors="replace") for name in ("node_id", "host", "address")]
        return Member(ROLES[struct.role], struct.rank, struct.local_rank, struct.pid, _STATES[struct.state], *texts)

    def members(self) -> List[Member]:
        """Describes all members, in order of rank."""
        return [self.member(rank) for rank in range(self.size)]

    def failure(self) -> Optional[Failure]:
        """The first cause for which the group is over; None while it holds. Does not block."""
        struct = FailureStruct()
        status = LIBRARY.muster_group_failure(self._handle, ctypes.byref(struct), ctypes.sizeof(struct))
        if status == Status.NOT_FOUND:
            return None
        self._checked(status)
        return failure_of(struct)

    def set_timeout(self, timeout: Optional[float]) -> None:
        """How many seconds an operation on the group may take, from now on and in this process.

        None means no limit, `muster.DEFAULT` the setting `timeout` (1,800 s), and 0 only what can be done at once. When
        the time is up a collective revokes the group, and a message ends alone.
        """
        self._checked(LIBRARY.muster_group_set_timeout(self._handle, milliseconds(timeout)))

    def create(self, ranks: Sequence[int]) -> Optional["Group"]:
        """Makes a group of these ranks of this group; their order is the order of rank in the new group.

        A collective: all members of this group call it, with the same list. Members that are not in the list get None.
        """
        numbers = (ctypes.c_int32 * len(ranks))(*[rank_of(rank, "ranks") for rank in ranks])
        return Group._made(self._cluster, self._checked, LIBRARY.muster_group_create, self._handle, numbers, len(ranks))

    def split(self, colour: Optional[int], key: int = 0) -> Optional["Group"]:
        """Splits the group: members that pass the same colour get one new group together, in order of `key`, then of
        rank. Colours are 0 to 2^31-1, keys numbers of 32 bits.

        A collective: all members call it. A member whose colour is None is in no new group, and gets None.
        """
        number = -1 if colour is None else whole(colour, "colour", 0)
        words = (self._handle, number, whole(key, "key"))
        return Group._made(self._cluster, self._checked, LIBRARY.muster_group_split, *words)

    def free(self) -> None:
        """Frees a group that the program made; does nothing to one of the cluster's own groups. It is no collective:
        each member may call it at any time.

        Members that still need this member get `PeerLeftError`. This process's calls and requests on the group that go
        on end with `StateError`; no thread may begin a call on it at this moment. A group that nothing refers to is
        freed, too. May wait up to 1 s for what was sent last.
        """
        if self._is_made:
            self._handle = None
            self._free_if_unused()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    @staticmethod
    def _made(cluster: _life.Handle, checked: Callable[[int], int], call: Any, *words: Any) -> Optional["Group"]:
        """The group that a call of the library gives out behind these words, if it does."""
        made, handle = _life.Handle(None, LIBRARY.muster_group_free), ctypes.c_void_p()
        try:
            status = call(*words, ctypes.byref(handle))
        finally:  # a signal's handler may raise as the call returns, or below: then nothing refers to the group, and it is freed
            made._owned.append(handle.value)  # which calls no code of Python, where a handler could raise
        checked(status)
        return None if handle.value is None else Group(handle.value, cluster, made)
