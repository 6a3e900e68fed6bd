"""Reductions: the library's own by name, and functions of Python."""

import contextlib
import ctypes
import functools
import traceback
from typing import Any, Callable, Dict, Iterator, List, Union

from . import _library, _life
from ._callbacks import called_by_the_library
from ._errors import InvalidError, check
from ._library import LIBRARY, REDUCE_FN
from ._memory import NAMES, Memory, itemsize_of, name_of

OPERATIONS = {
    "sum": _library.SUM,
    "prod": _library.PROD,
    "min": _library.MIN,
    "max": _library.MAX,
    "avg": _library.AVG,
    "and": _library.AND,
    "or": _library.OR,
    "xor": _library.XOR,
    "sum_exact": _library.SUM_EXACT,
}
# What leaves bytes that are 0 or 1 such.
_OF_BOOLS = (_library.MIN, _library.MAX, _library.AND, _library.OR, _library.XOR)

# The letters by which a memoryview shows elements. The floats of 16 bits, which it does not know everywhere, come as their bits.
FORMATS = ("b", "h", "i", "q", "B", "H", "I", "Q", "H", "H", "f", "d")

Function = Callable[[memoryview, memoryview, str], None]


class Operation(_life.OfThisProcess):
    """A reduction by a function of Python, made by `Cluster.operation`. Calls take it as `op`.

    The function gets two memoryviews and the type's name. The memory is the library's: the views end when the function
    returns, and nothing that was made of them (a numpy array, a slice) may be used after that.

    Only the groups of its cluster take the operation. It lives as long as something refers to it, such as a call that
    goes on. Ranks that reduce together must have made their operations in the same order.
    """

    def __init__(self, cluster: _life.Handle, function: Function, commutative: bool) -> None:
        if not callable(function):
            raise InvalidError(f"function: {function!r} cannot be called; a function of lower, inout and dtype is needed")
        self._cluster = cluster
        # What it raises, for each call that is under way. No lock: a forked child would find it as another thread had it.
        self._watched: Dict[int, List[BaseException]] = {}
        # What the library and the handle get does not refer to this object: it would never be dropped, nor its cluster freed.
        entry = REDUCE_FN(functools.partial(_reduce, function, self._watched))
        number = ctypes.c_int32()
        status = LIBRARY.muster_op_create(cluster.value, entry, None, int(commutative), ctypes.byref(number))
        check(status, cluster=cluster.value)
        self.number: int = number.value
        self._owner = _life.Handle(number.value, functools.partial(_free, cluster, entry))

    @contextlib.contextmanager
    def watched(self, heard: List[BaseException]) -> Iterator[None]:
        """Around a call: `heard` gets what the function raises meanwhile. The library does not say for which call it calls, so
        each that is under way hears of it.
        """
        self._watched[id(heard)] = heard
        try:
            yield
        finally:
            del self._watched[id(heard)]


def _free(cluster: _life.Handle, _entry: Any, number: int) -> None:
    """Neither the cluster nor the function's entry may go before."""
    LIBRARY.muster_op_free(cluster.value, number)


def _reduce(function: Function, watched: Dict[int, List[BaseException]], *words: Any) -> None:
    """Called by a thread of the library. An exception must not go into it: it is kept for the callers."""
    lower, inout, count, dtype, _ = words
    views: List[memoryview] = []
    try:
        length, letter = count * itemsize_of(dtype), FORMATS[dtype] if dtype < len(FORMATS) else "B"
        views.extend(_view(place, length, letter) for place in (lower, inout))
        operands, result = views
        with called_by_the_library(), _life.waited_for_at_the_end():
            function(operands, result, name_of(dtype))
    except BaseException as raised:
        _clear_frames(raised)
        for heard in watched.copy().values():  # in one step: calls come and go
            heard.append(raised)
    finally:
        for view in views:
            with contextlib.suppress(BufferError):  # the function has kept something that uses it
                view.release()


def _clear_frames(raised: BaseException) -> None:
    """Clears the frames that an exception, and what is behind it, have left: their names refer to the library's memory."""
    errors = [raised]
    for error in errors:
        traceback.clear_frames(error.__traceback__)
        behind = (error.__cause__, error.__context__)
        errors.extend(each for each in behind if each is not None and all(each is not other for other in errors))


def _view(place: int, length: int, letter: str) -> memoryview:
    memory: Any = memoryview((ctypes.c_char * length).from_address(place))
    view: memoryview = memory.cast("B").cast(letter)
    return view


Op = Union[str, Operation]


def operation_number(op: Op, memory: Memory) -> int:
    """The number that the library knows an operation by."""
    if isinstance(op, Operation):
        if memory.boolean:
            raise InvalidError("op: a function may make others than 0 and 1 of bool elements; view them as uint8, as by view(numpy.uint8)")
        return op.number
    number = OPERATIONS.get(op)
    if number is None:
        raise InvalidError(f"op: {op!r} is none; there are {', '.join(OPERATIONS)}, and what Cluster.operation makes")
    if memory.dtype >= _library.ELEMENT:
        raise InvalidError(
            f"op: {op!r} cannot reduce elements of {memory.itemsize} bytes of another type than {', '.join(NAMES)}; what "
            "Cluster.operation makes of a function can"
        )
    if memory.boolean and number not in _OF_BOOLS:
        raise InvalidError(f"op: {op!r} of bool elements would make others than 0 and 1; min, max, and, or, xor do not")
    return number
