"""Ctrl-C in a call that waits.

A call of the library is one instruction to Python, which runs its signal handlers between instructions only. So the
library asks a hook on EINTR and every 50 ms while a call waits, on the thread that waits. The hook runs Python's
handlers, and says "stop" where one raised. The exception is kept in `pending`, and the caller raises it once the
library has returned.

The hook must not lose that exception, and Python runs handlers as soon as it enters a function, before any `try` of
it. So no function is entered. A hook is a generator that is suspended inside its `try` already, and is resumed by
`next`. The calls around it (`deque.pop`, `map`) are not Python's code either. Each call takes a generator of its own
out of the pool, for a handler may itself call the library, and other threads wait, too. The pool is filled again
inside the `try`, for that enters functions; once the `try` has ended, nothing is called any more.

Tested in tests/python/test_package_interrupt.py.
"""

import collections
import ctypes
import threading
from typing import Deque, Iterator, List

from . import _library
from ._callbacks import called_by_the_library

# What handlers raised. Only the main thread runs handlers, so only that thread fills and empties it.
pending: List[BaseException] = []

_SPARE = 8
_check_signals = ctypes.pythonapi.PyErr_CheckSignals
_pool: Deque[Iterator[int]] = collections.deque()
_ending = False


def _asked() -> Iterator[int]:
    try:
        yield 0
        with called_by_the_library():
            while len(_pool) < _SPARE:
                _pool.append(_new())
            _check_signals()
        answer = int(_ending)
    except GeneratorExit:
        raise
    except BaseException as raised:  # whatever a handler raises is its caller's
        pending[:0] = [raised]  # no call, and so nothing else that may raise
        answer = 1
    yield answer


def _new() -> Iterator[int]:
    generator = _asked()
    next(generator)
    return generator


_pool.extend(_new() for _ in range(_SPARE))
HOOK = _library.INTERRUPT_FN(map(next, iter(_pool.pop, None)).__next__)


def arm(config: ctypes.c_void_p) -> None:
    """Lets the waits of what is made of these settings be interrupted."""
    _library.LIBRARY.muster_config_set_interrupt(config, HOOK, None)


def is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def end_all_waits() -> None:
    """From now on every wait ends at once, on every thread: the interpreter is about to end."""
    global _ending
    _ending = True
