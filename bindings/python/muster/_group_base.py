"""How a call on a group is made: every collective and message comes through here."""

import contextlib
import ctypes
from typing import Any, Callable, Iterator, List, Optional, TypeVar

from . import _life, _reductions
from ._calls import Call, barrier
from ._errors import ForkedError, InvalidError, MismatchError, StateError, Status, check
from ._library import LIBRARY
from ._requests import Request, received_of, tell_of_misfit
from ._text import whole

Answer = TypeVar("Answer")

# The errors of a call that has not begun. Any other error of a collective has revoked the group already.
_NOTHING_BEGAN = (InvalidError, StateError, ForkedError)


class GroupBase(_life.OfThisProcess):
    """A group's handle. The classes that build on it add what can be called."""

    __slots__ = ("__weakref__", "_asking", "_cluster", "_handle", "_is_made", "_owner", "_rank", "_size")

    def __init__(self, handle: int, cluster: _life.Handle, made: Optional[_life.Handle] = None) -> None:
        """`made` is the handle of a group that was made. One of the cluster's own goes with its cluster."""
        self._handle: Optional[int] = handle
        self._cluster = cluster
        self._owner = cluster if made is None else made
        self._is_made = made is not None
        self._asking: List[object] = []  # a mark for each thread that asks something about a call that has failed
        self._size: int = check(LIBRARY.muster_group_size(handle))
        self._rank: int = LIBRARY.muster_group_rank(handle)

    def _asked(self, question: Callable[[int], Answer]) -> Optional[Answer]:
        """The answer to a question about a call that has failed. Another thread may free the group meanwhile: then this thread
        does it after the question. None once the group has been freed, and in a forked child.
        """
        if not self._owner.is_ours():
            return None
        mark = object()
        try:
            self._asking.append(mark)
            handle = self._handle
            return None if handle is None else question(handle)
        finally:
            if mark in self._asking:
                self._asking.remove(mark)
            if self._handle is None:
                self._free_if_unused()

    def _free_if_unused(self) -> None:
        """Frees a group that was made, and whose handle has been taken out of use, unless a thread asks it something."""
        if self._is_made and not self._asking:
            self._owner.free()

    def _checked(self, status: int) -> int:
        if self._handle is None and status == Status.INVALID:
            raise InvalidError("this group has been freed")
        return check(status, group=self)

    def _run(self, name: str, call: Call) -> Any:
        """Carries a call out, and waits for its end."""
        if call.operation is not None:
            return _reductions.run(self, name, call)
        try:
            self._checked(getattr(LIBRARY, "muster_" + name)(self._handle, *call.words))
        except MismatchError as error:
            tell_of_misfit(error, call)
            raise
        return call.result if call.received is None else received_of(call.received)

    def _start(self, name: str, call: Call) -> Request[Any]:
        """Starts a call, and gives a request out."""
        if call.operation is not None:
            raise InvalidError("op: a function of Python reduces only in calls that wait; call one, in a thread if need be")
        return self._started(name, call)

    def _started(self, name: str, call: Call) -> Request[Any]:
        request: Request[Any] = Request(self, call)  # first, for a signal's handler may raise as the call returns
        flight = request._flight
        assert flight is not None
        status = getattr(LIBRARY, "muster_i" + name)(self._handle, *call.words, ctypes.byref(flight.handle))
        if status < 0:
            request._flight = None
            _life.let_go(flight)
        self._checked(status)
        return request

    def _is_root(self, root: int) -> bool:
        """Whether this rank is the root. Raises `InvalidError` where there is no such rank."""
        return whole(root, "root", 0, max(self._size, 1) - 1, "0 to the group's size less 1") == self._rank

    @contextlib.contextmanager
    def _together(self, name: str = "barrier", call: Callable[[], Call] = barrier) -> Iterator[None]:
        """Around collectives that belong together. A rank may leave between them by an exception, such as one that a signal's
        handler raises. Then the group is revoked: the others would wait in vain, or take the rank's next call for this one.

        `name` and `call` give the last of the collectives, where it is known beforehand. Then it is that which is cancelled, and
        not a barrier, which the others may take for the rank's call. Where it has ended nevertheless, nobody waits.
        Once another thread's `recover` has returned the next epoch, nobody waits either: the group is as new.
        """
        epoch = LIBRARY.muster_epoch(self._cluster.value)
        try:
            yield
        except _NOTHING_BEGAN:
            raise
        except BaseException:
            if LIBRARY.muster_epoch(self._cluster.value) == epoch:
                self._start_and_cancel(name, call())
            raise

    def _start_and_cancel(self, name: str, call: Call) -> None:
        """This revokes the group, if the others have not ended the call with this rank already. No errors: what comes here is an
        exception that says more, and a group that is over stays so.
        """
        request = ctypes.c_void_p()
        getattr(LIBRARY, "muster_i" + name)(self._handle, *call.words, ctypes.byref(request))
        LIBRARY.muster_request_cancel(request)
        LIBRARY.muster_request_free(request)
