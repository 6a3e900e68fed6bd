"""The library's log, into Python's."""

import logging
import os
import threading
from typing import Any, Callable, List, Optional

from . import _library
from ._callbacks import called_by_the_library
from ._errors import InvalidError, check
from ._library import LIBRARY, LOG_FN

LogFunction = Callable[[int, str, str], None]

_LEVELS = {
    "error": _library.LOG_ERROR,
    "warning": _library.LOG_WARNING,
    "info": _library.LOG_INFO,
    "debug": _library.LOG_DEBUG,
}
_OF_LOGGING = {
    _library.LOG_ERROR: logging.ERROR,
    _library.LOG_WARNING: logging.WARNING,
    _library.LOG_INFO: logging.INFO,
    _library.LOG_DEBUG: logging.DEBUG,
}
_kept: List[Any] = []
_setting = threading.Lock()


def set_log(function: Optional[LogFunction], level: str = "warning") -> None:
    """Sends the log of every cluster of this process, up to `level`, to `function(level, speaker, line)`. With None the
    log goes to standard error again.

    `level` is "error", "warning", "info" or "debug". The function gets one of the levels of `logging`, so that
    `muster.set_log(lambda level, speaker, line: logging.log(level, line))` does. A thread of the library calls the
    function, one line at a time. The function must not call muster. What it raises goes to `sys.unraisablehook`. If a
    call of the previous function is under way, `set_log` waits for its end.
    """
    number = _LEVELS.get(level)
    if number is None:
        raise InvalidError(f"level: {level!r} is none; there are {', '.join(_LEVELS)}")
    if function is not None and not callable(function):
        raise InvalidError(f"function: {function!r} cannot be called; a function of level, speaker and line is needed, or None")
    entry = LOG_FN() if function is None else LOG_FN(_guarded(function))
    with _setting:
        _kept.append(entry)  # whatever interrupts what follows: the library may have it
        check(LIBRARY.muster_set_log_callback(number, entry, None))
        del _kept[:-1]  # only now may those before it go


def _guarded(function: LogFunction) -> Callable[[int, bytes, bytes, Any], None]:
    def entry(level: int, target: bytes, message: bytes, _: Any) -> None:
        words = (target.decode(errors="replace"), message.decode(errors="replace"))
        with called_by_the_library():
            function(_OF_LOGGING.get(level, logging.DEBUG), *words)

    return entry


def _forget() -> None:
    global _setting
    _setting = threading.Lock()  # another thread of the parent may have had it


os.register_at_fork(after_in_child=_forget)
