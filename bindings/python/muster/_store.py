"""The cluster's store: a map from keys to bytes, kept by the scheduler, for what is small."""

import ctypes
from typing import Optional, Sequence, Union

from . import _life
from ._errors import check
from ._library import LIBRARY
from ._memory import Data, memory_of
from ._text import text_of
from ._times import DEFAULT, milliseconds

Value = Union[str, Data]


def _bytes_of(value: Value) -> Data:
    return value.encode() if isinstance(value, str) else value


def _take(value: ctypes.c_void_p, length: ctypes.c_size_t) -> bytes:
    """The bytes that the store gave out; frees its copy."""
    try:
        return ctypes.string_at(value.value, length.value) if value.value and length.value else b""
    finally:
        LIBRARY.muster_free(value)


class Store:
    """Keys of 1 to 4,096 bytes, values of up to 16 MiB, all together up to 256 MiB (settings change that).

    Keys are text. Values are bytes, or text, which is kept as UTF-8; they come back as bytes. Calls may come from any
    thread. They wait for the scheduler's answer. Their errors revoke nothing.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: _life.Handle) -> None:
        self._owner = owner

    def set(self, key: str, value: Value) -> None:
        """Sets a key. Once this has returned every node's `get` finds the value."""
        memory = memory_of(_bytes_of(value), "value")
        length = memory.count * memory.itemsize
        self._checked(LIBRARY.muster_store_set(self._owner.value, text_of(key, "key"), memory.place, length))

    def get(self, key: str, timeout: Optional[float] = DEFAULT) -> bytes:
        """The value of a key; waits until somebody sets it.

        `timeout` is in seconds: None is without limit, `muster.DEFAULT` the setting `store_timeout` (300 s). 0 tries
        once, and raises `NotFoundError` where the key is not there.
        """
        value, length = ctypes.c_void_p(), ctypes.c_size_t()
        words = (milliseconds(timeout), ctypes.byref(value), ctypes.byref(length))
        self._checked(LIBRARY.muster_store_get(self._owner.value, text_of(key, "key"), *words))
        return _take(value, length)

    def add(self, key: str, delta: int = 1) -> int:
        """Adds to the number in a key, exactly once, and returns the sum. A key that is not there counts as 0.

        The number is kept as decimal text, of 64 bits.
        """
        total = ctypes.c_int64()
        self._checked(LIBRARY.muster_store_add(self._owner.value, text_of(key, "key"), delta, ctypes.byref(total)))
        return total.value

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Sets a key to `desired` if its value is `expected`, exactly once, and returns the value afterwards.

        A key that is not there counts as empty. Compare what is returned with `desired` to see which it was.
        """
        old, new = memory_of(_bytes_of(expected), "expected"), memory_of(_bytes_of(desired), "desired")
        value, length = ctypes.c_void_p(), ctypes.c_size_t()
        sides = (old.place, old.count * old.itemsize, new.place, new.count * new.itemsize)
        words = (*sides, ctypes.byref(value), ctypes.byref(length))
        self._checked(LIBRARY.muster_store_compare_set(self._owner.value, text_of(key, "key"), *words))
        return _take(value, length)

    def delete(self, key: str) -> bool:
        """Deletes a key, and returns whether it was there."""
        existed = ctypes.c_int32()
        self._checked(LIBRARY.muster_store_delete(self._owner.value, text_of(key, "key"), ctypes.byref(existed)))
        return bool(existed.value)

    def wait(self, keys: Sequence[str], timeout: Optional[float] = DEFAULT) -> None:
        """Waits until every key exists. `timeout` as for `get`. The error names up to three that are missing."""
        names = (ctypes.c_char_p * len(keys))(*(text_of(key, "key") for key in keys))
        self._checked(LIBRARY.muster_store_wait(self._owner.value, names, len(keys), milliseconds(timeout)))

    def _checked(self, status: int) -> int:
        return check(status, cluster=self._owner.value)
