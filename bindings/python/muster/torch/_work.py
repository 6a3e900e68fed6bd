"""What a call of the backend gives out, and how it learns of the end.

A call that torch waits for at once runs on the caller's thread. Any other is started, and a thread of the library tells of its
end: on that thread, with the interpreter's lock, the work is finished and its future completed. So no thread of Python waits
for anything, calls of one group end in any order, and callbacks of futures run while the program computes.

A callback may wait for a further work, as torch's own hooks of DDP do. It runs on the thread that would tell of that work's end, so
the operation is waited for right there.
"""

import ctypes
import itertools
import os
import threading
import time
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence

import torch
from torch._C._distributed_c10d import Work as TorchWork
from torch.distributed import DistBackendError

from .. import _life
from .._callbacks import called_by_the_library, is_called_by_the_library
from .._calls import Call
from .._errors import ForkedError, InvalidError, MusterError, UnsupportedError, check
from .._group import Group
from .._library import LIBRARY, NOTIFY_FN
from .._requests import Request
from .._times import LONGEST_S

_tokens = itertools.count(1)
_started: Dict[int, "Part"] = {}  # until the library has told of the end
_unclaimed: Dict[int, "Part"] = {}  # until somebody takes it on to tell its work of the end
for _parts in (_started, _unclaimed):
    os.register_at_fork(after_in_child=_parts.clear)  # they are the parent's


class Part:
    """One operation of a work: its name, what is passed, and what is to be done once it has ended well."""

    __slots__ = ("call", "finish", "name", "request", "work")

    def __init__(self, name: str, call: Call, finish: Optional[Callable[[], None]] = None) -> None:
        self.name = name
        self.call = call
        self.finish = finish
        self.request: Optional[Request[Any]] = None
        self.work: Optional["Work"] = None

    def end(self) -> None:
        """Tells the work how the operation has ended."""
        request, work = self.request, self.work
        assert request is not None and work is not None  # both were set before anybody could call this
        error: Optional[BaseException] = None
        try:
            work._take(request.wait())
            if self.finish:
                self.finish()
        except MusterError as raised:
            error = translated(raised)
        except BaseException as raised:  # such as torch's about the copy: the work's, not this thread's
            error = raised
        work._part_ended(error)


def _run_started(group: Group, part: Part, turn: Callable[[], ContextManager[Any]]) -> Any:
    """Starts one operation within a turn, and waits for it outside."""
    with turn():
        request = group._started(part.name, part.call)
    try:
        return request.wait()
    except BaseException as error:
        if not isinstance(error, MusterError):  # a signal's handler raised: as in any collective that is under way
            request.cancel()
        raise


class Work(TorchWork):
    """An operation, or several that are waited for together. It keeps its tensors until it has ended."""

    def __init__(self, tensors: Sequence[Any], sequence: int) -> None:
        super().__init__()
        self._tensors = tensors
        self._sequence = sequence
        self._error: Optional[BaseException] = None
        self._source: Optional[int] = None
        self._left = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._inner: Any = None
        self._future: Any = None
        self._tokens: List[int] = []

    # Carrying out

    def run(self, group: Group, parts: Sequence[Part], turn: Optional[Callable[[], ContextManager[Any]]] = None) -> "Work":
        """Carries out on this thread, and waits. With `turn` each operation starts within one."""
        try:
            for part in parts:
                self._take(group._run(part.name, part.call) if turn is None else _run_started(group, part, turn))
                if part.finish:
                    part.finish()
        except MusterError as error:
            self._error = translated(error)
        self._end()
        return self

    def start(self, group: Group, parts: Sequence[Part]) -> "Work":
        """Starts all, and returns."""
        self._left = len(parts)
        if not parts:
            self._end()
        for done, part in enumerate(parts):
            part.work = self
            try:
                _start(group, part)
            except MusterError as error:
                self._part_ended(translated(error), len(parts) - done)
                break
        return self

    def _settle(self) -> None:
        """On the thread that tells of ends, where no other could: waits for what has not been told of yet. In a forked child
        nothing tells of the end of what went on in the parent.
        """
        if not self._ended.is_set() and os.getpid() != self._pid:
            raise translated(ForkedError("this work belongs to the parent process: after fork() a child cannot wait for it"))
        if is_called_by_the_library():
            for token in self._tokens:
                part = _unclaimed.pop(token, None)
                if part is not None:
                    part.end()

    def _take(self, result: Any) -> None:
        self._source = getattr(result, "source", self._source)

    def _part_ended(self, error: Optional[BaseException], parts: int = 1) -> None:
        with self._lock:
            self._error = self._error or error
            self._left -= parts
            last = self._left == 0
        if last:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended.set()
            inner = self._inner
        if inner is not None:
            inner.set_result(None)

    # What torch asks

    def wait(self, timeout: Any = None) -> bool:
        """Waits for the end, and raises its error. `timeout` as torch has it: 0 is none. In a callback it does not count."""
        seconds = min(timeout.total_seconds(), LONGEST_S) if timeout and timeout.total_seconds() > 0 else None
        self._settle()
        if not self._ended.is_set() and not self._ended.wait(seconds):
            raise DistBackendError(f"the operation still goes on after {seconds} s; only the wait has ended")
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Any:
        """A future with the tensors. Its callbacks run on a thread of the library, which has taken the interpreter's lock.

        In such a callback this waits until the work has ended.
        """
        self._settle()
        if os.getpid() != self._pid:  # another thread of the parent may have had the lock, or was about to complete the future
            return self._ended_future()
        with self._lock:
            if self._future is not None:
                return self._future
            self._inner = torch.futures.Future()
            # What a callback raises is an error to torch's own threads, too. An exception that is set is a value to them.
            self._future = self._inner.then(self._outcome)
            comes_late = self._ended.is_set()
        if comes_late:
            self._inner.set_result(None)
        return self._future

    def _ended_future(self) -> Any:
        """Another future of a work that has ended."""
        inner: Any = torch.futures.Future()
        future = inner.then(self._outcome)
        inner.set_result(None)
        return future

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return list(self._tensors)

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def is_success(self) -> bool:
        return self._ended.is_set() and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> List[Any]:
        return list(self._tensors)

    def source_rank(self) -> int:
        return -1 if self._source is None else self._source

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.wait()

    def _get_sequence_number(self) -> int:
        return self._sequence


def translated(error: MusterError) -> BaseException:
    """What torch's callers expect: what was wrong with the call as it is, anything else as `DistBackendError`."""
    if isinstance(error, (InvalidError, UnsupportedError)):
        return error
    wrapped: BaseException = DistBackendError(str(error))
    wrapped.__cause__ = error
    return wrapped


def _start(group: Group, part: Part) -> None:
    part.request = request = group._started(part.name, part.call)
    assert request._flight is not None
    token = next(_tokens)
    _started[token] = _unclaimed[token] = part
    assert part.work is not None
    part.work._tokens.append(token)
    try:
        check(LIBRARY.muster_request_notify(request._flight.handle, _NOTIFY, token))
    except MusterError:
        del _started[token], _unclaimed[token]
        raise


def _notified(_: int, token: int) -> None:
    """Called by a thread of the library when an operation has ended."""
    with called_by_the_library(), _life.waited_for_at_the_end():
        _started.pop(token, None)
        part = _unclaimed.pop(token, None)
        if part is not None:  # else a callback has waited for it
            part.end()


_NOTIFY = NOTIFY_FN(_notified)


def none_is_left(timeout: float) -> bool:
    """Waits until every operation that was started has been told of. Whether that was so within `timeout` seconds."""
    until = time.monotonic() + timeout
    while _started and time.monotonic() < until:
        time.sleep(0.001)  # once, at the end of a program: no lock is worth it
    return not _started
