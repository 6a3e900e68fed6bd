"""What outlives a call: clusters that are open, requests that nobody holds any more, and the end of the interpreter.

A cluster stays open until the program finalizes or aborts it, also where it keeps no reference. Handles are freed
when nothing in Python refers to them, so no thread can be in a call on a freed one. In a forked child nothing is
touched: the handles are the parent's.

At the end of the interpreter no thread may be left between the library and Python. Python would end such a thread where
it stands, and the library's frames on it end the process. So, in this order:

1. clusters are finalized, or aborted where an exception ends the program; this ends all calls on them;
2. what waits without a cluster is interrupted, and waited for, as are functions that reduce;
3. the library forgets the function of Python that it logs to.
"""

import atexit
import collections
import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterator, List, NoReturn, Optional, Set

from . import _interrupt
from ._callbacks import is_called_by_the_library
from ._library import IN_PROGRESS, LIBRARY, LOG_FN, LOG_WARNING

if TYPE_CHECKING:
    from ._calls import Call
    from ._cluster import Cluster
    from ._group_base import GroupBase

open_clusters: List["Cluster"] = []

# Operations that go on, so that what they use stays, whatever becomes of their requests.
_kept: Set["InFlight"] = set()
# Those whose requests Python has forgotten. The next to be asked is the first.
_orphans: Deque["InFlight"] = collections.deque()
# One thread at a time looks at them, and no finalizer or handler that comes in between does.
_looking = threading.RLock()
_looks = False

# How many are asked when another operation starts.
_LOOKS = 16

# Handles that could not be freed where nothing referred to them any more, such as while the library was calling this process.
late: List["Handle"] = []

_under_way: List[None] = []
# Interrupted calls come back within 0.3 s, where their thread gets a processor. A function of Python takes its time.
_LONGEST_WAIT_S = 30.0

# What the parent was handling when it forked this process. Here it ends nothing.
_inherited: Optional[BaseException] = None


class OfThisProcess:
    """What can be neither copied nor pickled, for the library's handle in it belongs to one process and one object."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} belongs to its process: it can be neither copied nor pickled")


class Handle(OfThisProcess):
    """A handle of the library that is freed with this object, unless it belongs to another process."""

    __slots__ = ("_free", "_owned", "_pid", "value")

    def __init__(self, value: Optional[int], free: Any) -> None:
        """None where the library is still to give it out."""
        self.value = value or 0
        self._free = free
        self._pid = os.getpid()
        self._owned: List[Optional[int]] = [] if value is None else [value]

    def is_ours(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._pid

    def free(self) -> None:
        self.value = 0
        if self.is_ours():
            with contextlib.suppress(IndexError):  # freed already
                # One thread only takes it, whatever others do. No code of Python comes between, where a signal's handler could raise.
                next(map(self._free, iter(self._owned.pop, None)), None)

    def __del__(self, is_at_the_end: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            # Once the interpreter ends, the names of this module may be gone, which free-threaded Python shows. The process
            # takes the handle with it.
            if is_at_the_end() or not getattr(self, "_owned", None):  # or it is freed already, or was never made
                return
            if is_called_by_the_library():
                late.append(self)
            else:
                self.free()
        except BaseException as raised:  # by a signal's handler: Python would drop it here, and the next call raises it
            late.append(self)  # for it may not have been freed
            _interrupt.pending.append(raised)


def free_late() -> None:
    """Frees handles that could not be freed where they were found, unless the library is calling this thread."""
    if not is_called_by_the_library():
        for handle in late.copy():
            handle.free()
            with contextlib.suppress(ValueError):  # another thread has done so, too
                late.remove(handle)


class InFlight(weakref.ReferenceType[Any]):
    """An operation that goes on: its request's handle, None where it has none, and what it uses.

    It is a weak reference to its request. So Python tells that it has forgotten the request, and runs no code of Python for that:
    a signal's handler could raise there, and Python drops what it raises. The garbage collector does not find what is in use here.
    """

    __slots__ = ("call", "group", "handle")
    call: "Call"
    group: "GroupBase"
    handle: ctypes.c_void_p


def keep(request: Any, group: "GroupBase", call: "Call") -> InFlight:
    """Keeps what an operation will use, before it starts. Where nobody waits for its end, a look at it finds that."""
    if _orphans:
        free_orphans(_LOOKS)
    flight = InFlight(request, _orphans.append)
    flight.handle, flight.group, flight.call = ctypes.c_void_p(), group, call
    _kept.add(flight)
    return flight


def let_go(flight: InFlight) -> None:
    """Frees the request of an operation that has ended, and lets go what it used."""
    handle, flight.handle.value = flight.handle.value, None
    _kept.discard(flight)
    LIBRARY.muster_request_free(handle)


def free_orphans(most: Optional[int] = None) -> None:
    """Frees the forgotten requests that have ended, unless the library is calling this thread. Asks at most so many: those that
    have gone unasked for longest.
    """
    global _looks
    if is_called_by_the_library():
        return
    with _looking:
        if _looks:
            return
        _looks = True
        try:
            for _ in range(len(_orphans) if most is None else min(most, len(_orphans))):
                orphan = _orphans[0]  # others only put more behind it
                if LIBRARY.muster_request_test(orphan.handle) == IN_PROGRESS:
                    _orphans.rotate(-1)
                else:
                    _orphans.popleft()
                    let_go(orphan)
        finally:
            _looks = False


@contextlib.contextmanager
def waited_for_at_the_end() -> Iterator[None]:
    """Around a call that waits without a cluster, and around a function of Python that the library has called."""
    _under_way.append(None)
    try:
        yield
    finally:
        _under_way.pop()


def _unhandled() -> Optional[BaseException]:
    """The exception that ends the program, as far as Python has told. At a prompt an exception ends nothing."""
    if hasattr(sys, "ps1"):
        return None
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return last if last is not None and _has_left_python(last) else _on_its_way()


def _has_left_python(last: BaseException) -> bool:
    """Whether nothing in Python has caught an exception that is kept as the last. What shows exceptions and goes on, as consoles
    inside a program, pytest and tkinter do, keeps one there, too. But it has caught that one in a frame with callers.
    """
    trace = last.__traceback__ or getattr(sys, "last_traceback", None)
    return trace is not None and trace.tb_frame.f_back is None


def _on_its_way() -> Optional[BaseException]:
    """The exception that ends a child of multiprocessing. Up to Python 3.12 such a child calls its finalizers before it
    handles the exception; later ones call them afterwards, and then nothing tells of it.
    """
    error = sys.exc_info()[1]
    if error is _inherited:
        return None
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        behind = error.__context__
        if error.code == 1 and behind is not _inherited:  # torch.multiprocessing.spawn raises it in place of any exception
            return behind or error
    return error


@atexit.register
def _end() -> None:
    error = _unhandled()
    with contextlib.ExitStack() as steps:  # the last first; and all of them, also where a signal's handler raises in one
        steps.callback(free_late)
        steps.callback(free_orphans)
        steps.callback(LIBRARY.muster_set_log_callback, LOG_WARNING, LOG_FN(), None)
        steps.callback(_await_calls)
        steps.callback(_interrupt.end_all_waits)
        for cluster in reversed(open_clusters):
            steps.callback(cluster._leave, error)


def _await_calls() -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while _under_way and time.monotonic() < deadline:
        time.sleep(0.01)


def _forget() -> None:
    global _inherited, _looking, _looks, _orphans
    _inherited = sys.exc_info()[1]
    _looking, _looks = threading.RLock(), False  # another thread of the parent may have had it
    open_clusters.clear()
    _kept.clear()
    _orphans = collections.deque()  # requests of the parent, which die here, still go to the other
    late.clear()
    _under_way.clear()


os.register_at_fork(after_in_child=_forget)
