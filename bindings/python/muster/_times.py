"""Times: seconds in Python, milliseconds in the library."""

from typing import Optional

from ._errors import InvalidError
from ._library import NO_LIMIT

DEFAULT = -1.0
"""In place of a time-out: the one of the settings. It is this very object; another -1 is wrong, as every negative time is."""

LONGEST_S = 1_000_000_000
"""The longest time that a setting takes; and no clock overflows within it."""


def milliseconds(seconds: Optional[float], name: str = "timeout") -> int:
    """None and infinity are without limit, and so is what the library's milliseconds cannot hold. A part of a millisecond
    counts as a whole one, so that only 0 means "try once".
    """
    if seconds is None:
        return NO_LIMIT
    if seconds is DEFAULT:
        return -1
    if not seconds >= 0:
        raise InvalidError(f"{name}: {seconds!r} seconds; 0 or more, None without limit, or muster.DEFAULT is right")
    return NO_LIMIT if seconds >= NO_LIMIT / 1000 else min(-int(-seconds * 1000 // 1), NO_LIMIT)
