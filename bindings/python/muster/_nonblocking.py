"""The collectives that do not wait."""

from typing import Any, Optional, Sequence, TypeVar

from . import _calls
from ._group_base import GroupBase
from ._memory import Data
from ._operations import Op
from ._requests import Request

D = TypeVar("D", bound=Data)


class Starts(GroupBase):
    """Each collective in a form that starts it and returns a `Request`. The request's result is what the form that
    waits returns.

    Collectives of a group, of either form, run one after another in the order of the calls. One rank may call the form
    that waits, and another rank the other form. Buffers are in use until the request has ended; lists of counts and
    displacements are not needed after the call. The group's time-out counts from the call on. Wrong arguments raise at
    once; the request raises later errors. A function of Python cannot be `op` here.
    """

    __slots__ = ()

    def ibarrier(self) -> Request[None]:
        """Starts a `barrier`."""
        return self._start("barrier", _calls.barrier())

    def ibroadcast(self, buf: D, root: int = 0) -> Request[D]:
        """Starts a `broadcast`."""
        return self._start("broadcast", _calls.broadcast(buf, root, self._is_root(root)))

    def iallreduce(self, buf: D, out: Optional[D] = None, op: Op = "sum") -> Request[D]:
        """Starts an `allreduce`."""
        return self._start("allreduce", _calls.allreduce(buf, out, op))

    def iallreduce_addends(self, buf: Data, out: D) -> Request[D]:
        """Starts an `allreduce_addends`."""
        return self._start("allreduce_addends", _calls.allreduce_addends(buf, out))

    def ireduce(self, buf: Data, out: Optional[Data] = None, op: Op = "sum", root: int = 0) -> Request[Any]:
        """Starts a `reduce`."""
        return self._start("reduce", _calls.reduce(buf, out, op, root, self._is_root(root)))

    def iallgather(self, buf: Data, out: Optional[Data] = None) -> Request[Any]:
        """Starts an `allgather`."""
        return self._start("allgather", _calls.allgather(buf, out, self._size))

    def iallgatherv(
        self, buf: Data, counts: Sequence[int], out: Optional[Data] = None, displs: Optional[Sequence[int]] = None
    ) -> Request[Any]:
        """Starts an `allgatherv`."""
        return self._start("allgatherv", _calls.allgatherv(buf, counts, out, displs, self._rank, self._size))

    def igather(self, buf: Data, out: Optional[Data] = None, root: int = 0) -> Request[Any]:
        """Starts a `gather`."""
        return self._start("gather", _calls.gather(buf, out, root, self._is_root(root), self._size))

    def igatherv(
        self,
        buf: Data,
        counts: Optional[Sequence[int]] = None,
        out: Optional[Data] = None,
        displs: Optional[Sequence[int]] = None,
        root: int = 0,
    ) -> Request[Any]:
        """Starts a `gatherv`."""
        return self._start("gatherv", _calls.gatherv(buf, counts, out, displs, root, self._is_root(root), self._size))

    def iscatter(self, buf: Optional[Data] = None, out: Optional[Data] = None, root: int = 0) -> Request[Any]:
        """Starts a `scatter`."""
        return self._start("scatter", _calls.scatter(buf, out, root, self._is_root(root), self._size))

    def iscatterv(
        self,
        out: Data,
        buf: Optional[Data] = None,
        counts: Optional[Sequence[int]] = None,
        displs: Optional[Sequence[int]] = None,
        root: int = 0,
    ) -> Request[Any]:
        """Starts a `scatterv`."""
        call = _calls.scatterv(buf, counts, out, displs, root, self._is_root(root), self._size)
        return self._start("scatterv", call)

    def ireduce_scatter(self, buf: Data, out: Optional[Data] = None, op: Op = "sum") -> Request[Any]:
        """Starts a `reduce_scatter`."""
        return self._start("reduce_scatter", _calls.reduce_scatter(buf, out, op, self._size))

    def ireduce_scatterv(self, buf: Data, counts: Sequence[int], out: Optional[Data] = None, op: Op = "sum") -> Request[Any]:
        """Starts a `reduce_scatterv`."""
        return self._start("reduce_scatterv", _calls.reduce_scatterv(buf, counts, out, op, self._rank, self._size))

    def ialltoall(self, buf: Data, out: Optional[Data] = None) -> Request[Any]:
        """Starts an `alltoall`."""
        return self._start("alltoall", _calls.alltoall(buf, out, self._size))

    def ialltoallv(
        self,
        buf: Data,
        in_counts: Sequence[int],
        out_counts: Sequence[int],
        out: Optional[Data] = None,
        in_displs: Optional[Sequence[int]] = None,
        out_displs: Optional[Sequence[int]] = None,
    ) -> Request[Any]:
        """Starts an `alltoallv`."""
        call = _calls.alltoallv(buf, in_counts, out_counts, out, in_displs, out_displs, self._size)
        return self._start("alltoallv", call)
