"""The cluster's store: a map from keys to bytes, kept by the scheduler, for what is small."""

import ctypes
from typing import Any, Iterable, List, Optional, Protocol, Sequence, Tuple, Union

from . import _life
from ._errors import InvalidError, check
from ._library import LIBRARY, BytesStruct
from ._memory import Data, memory_of
from ._text import utf8, whole
from ._times import DEFAULT, milliseconds

Key = Union[str, bytes]
Value = Union[str, Data]


class Values(Protocol):
    """A mapping from keys to values. `Mapping[Key, Value]` would refuse a `dict[str, str]`: its type of keys must be met exactly."""

    def keys(self) -> Iterable[Key]: ...

    def values(self) -> Iterable[Value]: ...


def _key_of(key: Key) -> bytes:
    if isinstance(key, (str, bytes)):
        return utf8(key, "key") if isinstance(key, str) else key
    raise InvalidError(f"key: {key!r} is a {type(key).__name__}; a string or bytes are needed")


def _span(value: Value, name: str) -> Tuple[Any, int, Any]:
    """Where the bytes of a value lie, how many they are, and what keeps them alive."""
    data = utf8(value, name) if isinstance(value, str) else value
    memory = memory_of(data, name)
    return memory.place, memory.count * memory.itemsize, (memory, data)


def _list_of(values: Sequence[Value], name: str) -> Tuple[Any, Any]:
    """The values as the library takes a list of them, and what keeps them alive."""
    spans = [_span(value, name) for value in values]
    entries = (BytesStruct * len(spans))()
    for entry, (place, length, _) in zip(entries, spans):
        entry.data = ctypes.addressof(place) if isinstance(place, ctypes.Array) else place
        entry.len = length
    return entries, spans


def _names_of(keys: Iterable[Key]) -> Tuple[Any, Any]:
    """Keys as the library takes a list of them. A text is no list, though Python would give its letters out."""
    if isinstance(keys, (str, bytes)):
        raise InvalidError(f"keys: {keys!r} is one key; a list is needed, as [{keys!r}]")
    return _list_of([_key_of(key) for key in keys], "keys")


class _Given:
    """A block of memory that the store gives out: bytes, or a list of them. Frees it at the end of a `with` statement."""

    def __init__(self) -> None:
        self.block, self.length = ctypes.c_void_p(), ctypes.c_size_t()
        self.out = (ctypes.byref(self.block), ctypes.byref(self.length))

    def __enter__(self) -> "_Given":
        return self

    def __exit__(self, *_: object) -> None:
        LIBRARY.muster_free(self.block)

    def value(self) -> bytes:
        return ctypes.string_at(self.block.value or 0, self.length.value) if self.length.value else b""

    def values(self, count: int) -> List[bytes]:
        entries: Any = (BytesStruct * count).from_address(self.block.value or 0) if count else []
        return [ctypes.string_at(entry.data, entry.len) if entry.len else b"" for entry in entries]


class Store(_life.OfThisProcess):
    """Keys of 1 to 4,096 bytes, values of up to 16 MiB, all together up to 256 MiB (settings change that).

    Keys and values are text, which is kept as UTF-8, or bytes, zeros included. A value may also be any object that
    gives a buffer (bytearray, memoryview, an array). Values come back as bytes. Calls may come from any thread. They
    wait for the scheduler's answer, and Ctrl-C ends that wait. Their errors revoke nothing. `timeout` is in seconds:
    None means no limit, `muster.DEFAULT` the setting `store_timeout` (300 s).
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: _life.Handle) -> None:
        self._owner = owner

    def set(self, key: Key, value: Value) -> None:
        """Sets a key. Once this has returned every node's `get` finds the value."""
        name, (place, length, _) = _key_of(key), _span(value, "value")
        self._checked(LIBRARY.muster_store_set_bytes(self._owner.value, name, len(name), place, length))

    def get(self, key: Key, timeout: Optional[float] = DEFAULT) -> bytes:
        """Waits until somebody has set a key, and returns its value. A time-out of 0 tries once, and raises
        `NotFoundError`.
        """
        name = _key_of(key)
        with _Given() as given:
            words = (name, len(name), milliseconds(timeout), *given.out)
            self._checked(LIBRARY.muster_store_get_bytes(self._owner.value, *words))
            return given.value()

    def add(self, key: Key, delta: int = 1) -> int:
        """Adds to the number in a key, exactly once, and returns the sum. A key that is not there counts as 0.

        The number is kept as decimal text, of 64 bits.
        """
        name, total = _key_of(key), ctypes.c_int64()
        whole(delta, "delta", -(1 << 63), (1 << 63) - 1)
        self._checked(LIBRARY.muster_store_add_bytes(self._owner.value, name, len(name), delta, ctypes.byref(total)))
        return total.value

    def append(self, key: Key, value: Value) -> int:
        """Appends bytes to the value of a key, exactly once, and returns the value's new length."""
        name, (place, length, _), total = _key_of(key), _span(value, "value"), ctypes.c_size_t()
        words = (name, len(name), place, length, ctypes.byref(total))
        self._checked(LIBRARY.muster_store_append(self._owner.value, *words))
        return total.value

    def compare_set(self, key: Key, expected: Value, desired: Value, *, c10d: bool = False) -> bytes:
        """Sets a key to `desired` if its value is `expected`, exactly once, and returns the value afterwards.

        A key that is not there counts as empty. Compare the returned value with `desired` to see whether the key was
        set. With `c10d`, if the key is not there and `expected` is not empty, the call returns `expected`, as PyTorch's
        stores do.
        """
        name, (old, old_length, _old) = _key_of(key), _span(expected, "expected")
        new, new_length, _new = _span(desired, "desired")
        with _Given() as given:
            words = (name, len(name), old, old_length, new, new_length, int(c10d), *given.out)
            self._checked(LIBRARY.muster_store_compare_set_bytes(self._owner.value, *words))
            return given.value()

    def delete(self, key: Key) -> bool:
        """Deletes a key, and returns whether it was there."""
        name, existed = _key_of(key), ctypes.c_int32()
        self._checked(LIBRARY.muster_store_delete_bytes(self._owner.value, name, len(name), ctypes.byref(existed)))
        return bool(existed.value)

    def wait(self, keys: Sequence[Key], timeout: Optional[float] = DEFAULT) -> None:
        """Waits until every key exists. The error names up to three missing keys."""
        names, _keep = _names_of(keys)
        self._checked(LIBRARY.muster_store_wait_bytes(self._owner.value, names, len(names), milliseconds(timeout)))

    def check(self, keys: Sequence[Key]) -> List[bool]:
        """Which of the keys exist, all at one moment."""
        names, _keep = _names_of(keys)
        exists = (ctypes.c_int32 * len(names))()
        self._checked(LIBRARY.muster_store_check(self._owner.value, names, len(names), exists))
        return [bool(one) for one in exists]

    def count(self) -> int:
        """How many keys there are."""
        count = ctypes.c_uint64()
        self._checked(LIBRARY.muster_store_count(self._owner.value, ctypes.byref(count)))
        return count.value

    def list(self, prefix: Key = b"") -> List[bytes]:
        """The keys that begin with this, in the order of their bytes. A key that is set meanwhile may be in the list or
        not.
        """
        name = _key_of(prefix)
        with _Given() as given:
            self._checked(LIBRARY.muster_store_list(self._owner.value, name, len(name), *given.out))
            return given.values(given.length.value)

    def multi_set(self, values: Values) -> None:
        """Sets several keys in one request: all at one moment, or none. At most 1 MiB minus 1 KiB of keys, and 16 MiB
        of values.
        """
        names, _keep = _names_of(values.keys())
        entries, _alive = _list_of(list(values.values()), "values")
        self._checked(LIBRARY.muster_store_multi_set(self._owner.value, names, entries, len(names)))

    def multi_get(self, keys: Sequence[Key], timeout: Optional[float] = DEFAULT) -> List[bytes]:
        """Waits until several keys are there, and returns their values at one moment, in one request."""
        names, _keep = _names_of(keys)
        with _Given() as given:
            words = (names, len(names), milliseconds(timeout), given.out[0])
            self._checked(LIBRARY.muster_store_multi_get(self._owner.value, *words))
            return given.values(len(names))

    def _checked(self, status: int) -> int:
        return check(status, cluster=self._owner.value)
