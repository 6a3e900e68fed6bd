"""Threads on which the library has called a function of Python: for a log line, a reduction, or whether to go on waiting.

Such a thread must not free anything of the library meanwhile, and the garbage collector may run on any thread at any time.
"""

import contextlib
import threading
from typing import Iterator

_thread = threading.local()


@contextlib.contextmanager
def called_by_the_library() -> Iterator[None]:
    """Around what the library calls."""
    before = is_called_by_the_library()
    _thread.called = True
    try:
        yield
    finally:
        _thread.called = before


def is_called_by_the_library() -> bool:
    return getattr(_thread, "called", False)
