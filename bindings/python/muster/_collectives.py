"""The collectives that wait."""

from typing import Any, Optional, Sequence, TypeVar, cast

from . import _calls
from ._group_base import GroupBase
from ._interrupt import pending
from ._library import LIBRARY
from ._memory import NUMBERS, UNMASKED, Data, Place, refuse_mask
from ._operations import OPERATIONS, Op

D = TypeVar("D", bound=Data)

_ALLREDUCE = LIBRARY.muster_allreduce
_place = Place.from_buffer
_NOT_SO_EASY = (TypeError, ValueError, KeyError, BufferError, ZeroDivisionError)


class Collectives(GroupBase):
    """The collectives of a group that return when they are done. `Group` says what all of them have in common."""

    __slots__ = ()

    def barrier(self) -> None:
        """Returns when every member has called it."""
        self._checked(LIBRARY.muster_barrier(self._handle))

    def broadcast(self, buf: D, root: int = 0) -> D:
        """Copies the root's `buf` to everyone's `buf`, and returns it. At the root `buf` is only read."""
        return cast(D, self._run("broadcast", _calls.broadcast(buf, root, self._is_root(root))))

    def allreduce(self, buf: D, out: Optional[D] = None, op: Op = "sum") -> D:
        """Combines every rank's `buf`, element by element, and gives everyone the result.

        In place, unless `out` is given; returns where the result is. `op` is "sum", "prod", "min", "max", "avg",
        "and", "or", "xor", "sum_exact", or what `Cluster.operation` has made. Every rank gets the same bits.
        "sum_exact" is for floats: the real sum, rounded once, so that order and number of ranks do not matter.
        """
        if out is None:
            # What training loops call most, at half the price. What is unusual, or wrong, goes the long way below.
            if type(buf) not in UNMASKED:
                refuse_mask(buf, "buf")
            try:
                view = memoryview(buf)  # type: ignore[arg-type]
                size = view.itemsize
                place, count, dtype = _place(view), view.nbytes // size, NUMBERS[view.format, size]
                number = OPERATIONS[op]  # type: ignore[index]
            except _NOT_SO_EASY:
                pass
            else:
                status = _ALLREDUCE(self._handle, place, place, count, dtype, number)
                if status or pending:
                    self._checked(status)
                return buf
        return cast(D, self._run("allreduce", _calls.allreduce(buf, out, op)))

    def allreduce_addends(self, buf: Data, out: D) -> D:
        """Gives everyone, in `out`, the exact sum of all ranks' addends, rounded once.

        `buf` holds this rank's addends, each as long as `out`, one after another; it may be empty. Ranks may bring
        different numbers of addends. The same addends have the same sum, bit for bit, on any number of ranks. Floats
        only.
        """
        return cast(D, self._run("allreduce_addends", _calls.allreduce_addends(buf, out)))

    def reduce(self, buf: Data, out: Optional[Data] = None, op: Op = "sum", root: int = 0) -> Any:
        """As `allreduce`, but only the root gets the result, in `out`, or in place. Elsewhere `buf` is only read;
        returns None.
        """
        return self._run("reduce", _calls.reduce(buf, out, op, root, self._is_root(root)))

    def allgather(self, buf: Data, out: Optional[Data] = None) -> Any:
        """Gives everyone every rank's `buf`, in order of rank, in `out`, and returns that.

        `out` has the length of `buf` times the group's size. Where it is left out its shape is `(size, *buf.shape)`.
        """
        return self._run("allgather", _calls.allgather(buf, out, self._size))

    def allgatherv(
        self, buf: Data, counts: Sequence[int], out: Optional[Data] = None, displs: Optional[Sequence[int]] = None
    ) -> Any:
        """As `allgather` with parts of different sizes: `counts[r]` elements come from rank r, and go to `out` at
        `displs[r]`.

        All ranks pass the same `counts`. Without `displs` the parts follow each other.
        """
        return self._run("allgatherv", _calls.allgatherv(buf, counts, out, displs, self._rank, self._size))

    def gather(self, buf: Data, out: Optional[Data] = None, root: int = 0) -> Any:
        """As `allgather`, but only the root gets the parts. On other ranks `out` is not used, and the call returns
        None.
        """
        return self._run("gather", _calls.gather(buf, out, root, self._is_root(root), self._size))

    def gatherv(
        self,
        buf: Data,
        counts: Optional[Sequence[int]] = None,
        out: Optional[Data] = None,
        displs: Optional[Sequence[int]] = None,
        root: int = 0,
    ) -> Any:
        """As `gather` with parts of different sizes; `counts`, `out` and `displs` are used at the root only."""
        return self._run("gatherv", _calls.gatherv(buf, counts, out, displs, root, self._is_root(root), self._size))

    def scatter(self, buf: Optional[Data] = None, out: Optional[Data] = None, root: int = 0) -> Any:
        """Gives each rank its part of the root's `buf`, in `out`, and returns that.

        `buf` is used at the root only, and has equal parts for all members, in order of rank. `out` may be left out at
        the root; its shape is then that of `buf[0]` if `buf` has a row for each member.
        """
        return self._run("scatter", _calls.scatter(buf, out, root, self._is_root(root), self._size))

    def scatterv(
        self,
        out: Data,
        buf: Optional[Data] = None,
        counts: Optional[Sequence[int]] = None,
        displs: Optional[Sequence[int]] = None,
        root: int = 0,
    ) -> Any:
        """As `scatter` with parts of different sizes: `counts[r]` elements from `displs[r]` of `buf` on go to rank r.
        """
        call = _calls.scatterv(buf, counts, out, displs, root, self._is_root(root), self._size)
        return self._run("scatterv", call)

    def reduce_scatter(self, buf: Data, out: Optional[Data] = None, op: Op = "sum") -> Any:
        """Combines every rank's `buf`, element by element, and gives each rank its part of the result, in `out`.

        `buf` has equal parts for all members, in order of rank. Shapes as for `scatter`.
        """
        return self._run("reduce_scatter", _calls.reduce_scatter(buf, out, op, self._size))

    def reduce_scatterv(self, buf: Data, counts: Sequence[int], out: Optional[Data] = None, op: Op = "sum") -> Any:
        """As `reduce_scatter` with parts of different sizes: rank r gets `counts[r]` elements. All ranks pass the
        same `counts`.
        """
        return self._run("reduce_scatterv", _calls.reduce_scatterv(buf, counts, out, op, self._rank, self._size))

    def alltoall(self, buf: Data, out: Optional[Data] = None) -> Any:
        """Gives every rank a part of every other's `buf`: part r of `buf` becomes this rank's part of rank r's `out`.
        """
        return self._run("alltoall", _calls.alltoall(buf, out, self._size))

    def alltoallv(
        self,
        buf: Data,
        in_counts: Sequence[int],
        out_counts: Sequence[int],
        out: Optional[Data] = None,
        in_displs: Optional[Sequence[int]] = None,
        out_displs: Optional[Sequence[int]] = None,
    ) -> Any:
        """As `alltoall` with parts of different sizes: `in_counts[r]` elements go to rank r, and `out_counts[r]` come
        from it.
        """
        call = _calls.alltoallv(buf, in_counts, out_counts, out, in_displs, out_displs, self._size)
        return self._run("alltoallv", call)
