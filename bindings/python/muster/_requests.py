"""Operations that were started and may still go on."""

import asyncio
import contextlib
import ctypes
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generator, Generic, Iterable, Iterator, List, Optional, Sequence, TypeVar, cast

from . import _life
from ._calls import Call
from ._errors import ForkedError, InvalidError, MismatchError, MusterError, StateError, Status, TimeoutError, check, error_of
from ._library import LIBRARY, NOBODY, OK, ReceivedStruct
from ._memory import name_of
from ._times import milliseconds

if TYPE_CHECKING:
    from ._group_base import GroupBase

T = TypeVar("T")

# After these the operation has not ended: its wait was interrupted, or this process is a forked child.
_GOES_ON = (Status.IN_PROGRESS, Status.INTERRUPTED, Status.FORKED)


@dataclass(frozen=True)
class Received:
    """A description of the message that a receive got."""

    source: int
    """The sender's rank in the group."""
    tag: int
    """The sender's tag."""
    count: int
    """How many elements came, at most as many as were asked for. For a probe, and for a message that did not fit, how many
    the message has.
    """
    dtype: str
    """Their type, as "float32"; "V16" for elements of 16 bytes that have no type here."""


def received_of(struct: ReceivedStruct) -> Received:
    return Received(struct.source, struct.tag, struct.count, name_of(struct.dtype))


def tell_of_misfit(error: MusterError, call: Call) -> None:
    """Gives the error of a receive the message that did not fit."""
    if isinstance(error, MismatchError) and call.received is not None and call.received.source != NOBODY:
        error.received = received_of(call.received)


class Request(_life.OfThisProcess, Generic[T]):
    """An operation that was started: a collective or message without waiting. Its result is what the form that waits
    returns.

    The operation goes on by itself. Until it has ended its buffers are in use, and this object keeps them alive. If the
    program drops a request, the operation goes on, and its buffers live until it has ended. After that they live until
    the package looks at the request, or the program ends: whenever an operation is started, the package looks at 16
    dropped requests, each in its turn. A request belongs to one thread at a time. `await` it in a coroutine, or `wait`.
    """

    def __init__(self, group: "GroupBase", call: Call) -> None:
        self._group = group
        self._flight: Optional[_life.InFlight] = _life.keep(self, group, call)  # until the operation has ended
        self._result: Any = None
        self._error: Optional[MusterError] = None
        self._turn = threading.Lock()

    def test(self) -> bool:
        """Whether the operation has ended well. Raises its error. Does not wait.

        A loop that does nothing but test keeps the processor from the thread that does the work: `wait` is better.
        """
        self._ask(LIBRARY.muster_request_test)
        return self._ended()

    def wait(self, timeout: Optional[float] = None) -> T:
        """Waits until the operation has ended, and returns its result or raises its error.

        `timeout` is in seconds; None waits for the operation's own end, which the group's time-out limits. When the
        time is up, `TimeoutError` is raised: that ends the wait but not the operation, and the program may wait again.
        A signal handler that raises also ends only the wait.
        """
        self._ask(LIBRARY.muster_request_wait, -1 if timeout is None else milliseconds(timeout))
        if not self._ended():
            raise TimeoutError(f"the operation still goes on after {timeout} s; only the wait has ended")
        return cast(T, self._result)

    def cancel(self) -> None:
        """Cancels the operation, which ends soon: `wait` then raises `AbortedError`. If the operation was too far on,
        it ends normally.

        One rank alone cannot take a collective back: its group is revoked, and every rank's calls on it raise
        `AbortedError` with this rank's name. A message ends alone. May wait up to 250 ms.
        """
        self._take_turn()
        try:
            status = OK if self._flight is None else LIBRARY.muster_request_cancel(self._flight.handle)
        finally:
            self._turn.release()
        check(status)

    @property
    def done(self) -> bool:
        """Whether the operation has ended, well or not. Does not wait. In a forked child an operation of the parent
        never ends: `ForkedError`.
        """
        if self._flight is not None:
            try:
                self.test()
            except ForkedError:
                raise
            except MusterError:
                pass
        return self._flight is None

    def _ask(self, call: Any, *words: int) -> None:
        """Asks the library what became of the operation, and frees the request once it has ended."""
        if self._flight is None:
            return
        self._take_turn()
        try:
            flight = self._flight
            status = OK if flight is None else call(flight.handle, *words)
            if flight is not None and status not in _GOES_ON:
                self._end(flight, status)
                status = OK
        finally:
            self._turn.release()
        check(status)

    def _take_turn(self) -> None:
        """The library frees a request whatever others do with it, so two threads must not be in it at once."""
        if not self._turn.acquire(blocking=False):
            if not self._group._owner.is_ours():  # that thread is the parent's
                raise ForkedError("this request belongs to the parent process: after fork() a child cannot use it")
            raise StateError("another thread is in a call on this request; a request belongs to one thread at a time")

    def _end(self, flight: _life.InFlight, status: int) -> None:
        call = flight.call
        if status < 0:
            self._error = error_of(status, group=self._group)
            tell_of_misfit(self._error, call)
        else:
            self._result = call.result if call.received is None else received_of(call.received)
        self._flight = None
        _life.let_go(flight)

    def _ended(self) -> bool:
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it would grow with each wait
        return self._flight is None

    def __await__(self) -> Generator[Any, None, T]:
        """Waits in an event loop of asyncio, as `wait` does, while other coroutines go on.

        A coroutine that is cancelled meanwhile ends the wait, but not the operation.
        """
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> T:
        if self._flight is not None:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()
            # A descriptor of its own, for an event loop knows one waiter for each.
            descriptor = os.dup(check(LIBRARY.muster_request_descriptor(self._flight.handle)))
            loop.add_reader(descriptor, _wake, ended)
            try:
                await ended
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self.wait()


def _wake(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


@contextlib.contextmanager
def _turns_of(requests: Sequence[Request[Any]]) -> Iterator[Any]:
    """Takes the turn of each, and gives what the library takes for them: NULL for one that has ended already."""
    taken: List[Request[Any]] = []
    try:
        for request in {id(request): request for request in requests}.values():
            if not isinstance(request, Request):
                raise TypeError(f"requests: {request!r} is a {type(request).__name__}; requests are needed")
            request._take_turn()
            taken.append(request)
        yield (ctypes.c_void_p * len(requests))(*(request._flight.handle.value if request._flight else None for request in requests))
    finally:
        for request in taken:
            request._turn.release()


def wait_any(requests: Iterable[Request[Any]], timeout: Optional[float] = None) -> int:
    """Waits until one of these requests has ended, well or not, and returns its place. Its `wait` then tells at once
    how it ended.

    If several have ended, it is the first in the list. The requests may be of different groups and clusters. `timeout`
    as for `Request.wait`.
    """
    awaited = list(requests)
    if not awaited:
        raise InvalidError("requests: there are none, so none will end")
    found = ctypes.c_size_t(len(awaited))
    limit = -1 if timeout is None else milliseconds(timeout)
    with _turns_of(awaited) as handles:
        # One whose end is known already leaves only those before it to ask.
        asked = next((place for place, handle in enumerate(handles) if handle is None), len(awaited))
        if asked < len(awaited):
            found.value, limit = asked, 0
        status = LIBRARY.muster_request_wait_any(handles, asked, limit, ctypes.byref(found)) if asked else OK
    if found.value < len(awaited):
        status = OK  # it is that request's, which tells it
    if check(status) == Status.IN_PROGRESS:
        raise TimeoutError(f"none of {len(awaited)} operations has ended after {timeout} s; only the wait has ended")
    return found.value


def wait_all(requests: Iterable[Request[Any]], timeout: Optional[float] = None) -> List[Any]:
    """Waits until all of these requests have ended, and returns their results, or raises the error of the first that
    has failed.

    They may be of different groups and clusters. `timeout` as for `Request.wait`.
    """
    limit, awaited = -1 if timeout is None else milliseconds(timeout), list(requests)
    with _turns_of(awaited) as handles:
        status = LIBRARY.muster_request_wait_all(handles, len(awaited), limit)
    if status in _GOES_ON and check(status) == Status.IN_PROGRESS:
        raise TimeoutError(f"not all of {len(awaited)} operations have ended after {timeout} s; only the wait has ended")
    if status < 0:
        error = error_of(status)  # before a request's own sentence takes the place of this one
        if not all([request.done for request in awaited]):
            raise error  # it is the wait's own, such as that there is no memory for it
    return [request.wait() for request in awaited]
