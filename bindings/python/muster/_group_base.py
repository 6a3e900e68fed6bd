"""How a call on a group is made: every collective and message comes through here."""

import contextlib
import ctypes
import threading
from typing import Any, Iterator, Optional

from . import _life, _reductions
from ._calls import Call
from ._errors import InvalidError, MismatchError, Status, check
from ._library import LIBRARY
from ._requests import Request, received_of, tell_of_misfit


class GroupBase(_life.OfThisProcess):
    """A group's handle. The classes that build on it add what can be called."""

    __slots__ = ("__weakref__", "_cluster", "_handle", "_holds", "_is_made", "_lock", "_owner", "_rank", "_size")

    def __init__(self, handle: int, cluster: _life.Handle, made: Optional[_life.Handle] = None) -> None:
        """`made` is the handle of a group that was made. One of the cluster's own goes with its cluster."""
        self._handle: Optional[int] = handle
        self._cluster = cluster
        self._owner = cluster if made is None else made
        self._is_made = made is not None
        self._lock = threading.RLock()  # `free` takes the handle away under it
        self._holds = 0  # by the thread that has the lock
        self._size: int = check(LIBRARY.muster_group_size(handle))
        self._rank: int = LIBRARY.muster_group_rank(handle)

    @contextlib.contextmanager
    def _held(self) -> Iterator[Optional[int]]:
        """The handle for a question about a call that has failed: another thread may free the group meanwhile, and waits.

        None once the group has been freed, and in a forked child, where the lock may be that of a thread which is not there.
        """
        if not self._owner.is_ours():
            yield None
            return
        with self._lock:
            handle = self._handle
            self._holds += 1
            try:
                yield handle
            finally:
                self._holds -= 1
                is_left = handle is not None and self._handle is None and self._holds == 0
        if is_left:  # a signal's handler, or a finalizer, has freed the group on this thread
            self._owner.free()

    def _take_away(self) -> bool:
        """Takes the handle out of use. Whether it may be freed now; if not, `_held` frees it on this very thread."""
        with self._lock if self._owner.is_ours() else contextlib.nullcontext():
            self._handle = None
            return self._holds == 0

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
        handle = ctypes.c_void_p()
        try:
            status = getattr(LIBRARY, "muster_i" + name)(self._handle, *call.words, ctypes.byref(handle))
        finally:  # a signal's handler may raise as the call returns, or below: the request and its buffers are kept then
            request: Request[Any] = Request(handle.value, self, call)
        self._checked(status)
        return request
