"""What each collective and message passes to the library: checked lengths, types and displacements.

The library gets addresses, and cannot know how long a buffer is. So nothing may reach it that these functions have
not checked.
"""

import ctypes
from operator import index
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from ._errors import InvalidError
from ._library import NOBODY, ReceivedStruct
from ._memory import Data, Memory, empty_like, memory_of, shape_of, writable_memory_of
from ._operations import Op, Operation, operation_number
from ._text import rank_of, source_of, tag_of, wanted_tag_of, whole


class Call(NamedTuple):
    """One call that is ready: the words after the group, what must stay alive, and what the caller gets."""

    words: Tuple[Any, ...]
    keep: Tuple[Any, ...]
    result: Any
    operation: Optional[Operation] = None
    received: Optional[ReceivedStruct] = None


def _needs(memory: Memory, count: int, name: str, why: str) -> None:
    if memory.count != count:
        raise InvalidError(f"{name}: has {memory.count} elements, and {count} are needed: {why}")


def _same_type(given: Memory, taken: Memory) -> None:
    # Whole numbers make bools that are neither 0 nor 1.
    if given.dtype != taken.dtype or given.form != taken.form or given.boolean < taken.boolean:
        raise InvalidError(f"out: has elements of {taken.type_name}, and buf of {given.type_name}; both must be the same")


def _part(total: int, size: int, name: str) -> int:
    if total % max(size, 1):  # a group of which this process is no member may be empty: the library says so
        raise InvalidError(f"{name}: has {total} elements, which are no equal parts for the {size} members of the group")
    return total // max(size, 1)


def _reduced(given: Memory, taken: Optional[Memory], count: int, op: Op, *more: int) -> Tuple[Any, ...]:
    number = operation_number(op, given)
    return (given.place, taken.place if taken else None, count, given.dtype, number, *more)


def _function_of(op: Op) -> Optional[Operation]:
    return op if isinstance(op, Operation) else None


def barrier() -> Call:
    return Call((), (), None)


def broadcast(buf: Data, root: int, is_root: bool) -> Call:
    memory = memory_of(buf, "buf") if is_root else writable_memory_of(buf, "buf")
    return Call((memory.place, memory.count, memory.dtype, root), (memory,), buf)


def allreduce(buf: Data, out: Optional[Data], op: Op) -> Call:
    if out is None:
        given = taken = writable_memory_of(buf, "buf")
    else:
        given, taken = memory_of(buf), writable_memory_of(out)
        _same_type(given, taken)
        _needs(taken, given.count, "out", "as many as buf has")
    words = _reduced(given, taken, given.count, op)
    return Call(words, (given, taken), buf if out is None else out, _function_of(op))


def allreduce_addends(buf: Data, out: Data) -> Call:
    given, taken = memory_of(buf), writable_memory_of(out)
    _same_type(given, taken)
    addends = given.count // taken.count if taken.count else 0
    if addends * taken.count != given.count:
        raise InvalidError(f"buf: {given.count} elements; expected a multiple of {taken.count}, as many as out has")
    words = (given.place, addends, taken.place, taken.count, taken.dtype)
    return Call(words, (given, taken), out)


def reduce(buf: Data, out: Optional[Data], op: Op, root: int, is_root: bool) -> Call:
    if not is_root:
        given = memory_of(buf)
        return Call(_reduced(given, None, given.count, op, root), (given,), None, _function_of(op))
    call = allreduce(buf, out, op)
    return call._replace(words=(*call.words, root))


def allgather(buf: Data, out: Optional[Data], size: int) -> Call:
    given = memory_of(buf)
    if out is None:
        out = empty_like(buf, (size, *shape_of(buf)))
    taken = writable_memory_of(out)
    _same_type(given, taken)
    _needs(taken, given.count * size, "out", f"{given.count} of each of {size} members")
    return Call((given.place, taken.place, given.count, given.dtype), (given, taken), out)


def gather(buf: Data, out: Optional[Data], root: int, is_root: bool, size: int) -> Call:
    if is_root:
        call = allgather(buf, out, size)
        return call._replace(words=(*call.words, root))
    given = memory_of(buf)
    return Call((given.place, None, given.count, given.dtype, root), (given,), None)


def scatter(buf: Optional[Data], out: Optional[Data], root: int, is_root: bool, size: int) -> Call:
    if not is_root:
        if out is None:
            raise InvalidError("out: needed where this rank is not the root, for nothing else says how much comes")
        taken = writable_memory_of(out)
        return Call((None, taken.place, taken.count, taken.dtype, root), (taken,), out)
    if buf is None:
        raise InvalidError("buf: needed at the root")
    call = _spread(buf, out, size)
    return call._replace(words=(*call.words, root))


def _spread(buf: Data, out: Optional[Data], size: int) -> Call:
    """A part of `buf` comes to `out`: for scatter and reduce_scatter."""
    given = memory_of(buf)
    count = _part(given.count, size, "buf")
    if out is None:
        shape = shape_of(buf)
        out = empty_like(buf, shape[1:] if len(shape) > 1 and shape[0] == size else (count,))
    taken = writable_memory_of(out)
    _same_type(given, taken)
    _needs(taken, count, "out", f"what buf has for each of {size} members")
    return Call((given.place, taken.place, count, given.dtype), (given, taken), out)


def reduce_scatter(buf: Data, out: Optional[Data], op: Op, size: int) -> Call:
    call = _spread(buf, out, size)
    return call._replace(words=(*call.words, operation_number(op, call.keep[0])), operation=_function_of(op))


def alltoall(buf: Data, out: Optional[Data], size: int) -> Call:
    given = memory_of(buf)
    if out is None:
        out = empty_like(buf, shape_of(buf))
    taken = writable_memory_of(out)
    _same_type(given, taken)
    _needs(taken, given.count, "out", "as many as buf has")
    return Call((given.place, taken.place, _part(given.count, size, "buf"), given.dtype), (given, taken), out)


def _numbers(values: Sequence[int], size: int, name: str) -> Any:
    """A list of counts or displacements, one for each member, as the library takes it."""
    numbers = [whole(index(value), name, 0, (1 << 63) - 1) for value in values]
    if len(numbers) != size:
        raise InvalidError(f"{name}: has {len(numbers)} numbers, and the group {size} members")
    return (ctypes.c_size_t * size)(*numbers)


def _own(counts: Any, rank: int) -> int:
    if rank < 0:
        raise InvalidError("this process is no member of the group")
    return int(counts[rank])


def _laid_out(memory: Memory, counts: Any, displs: Optional[Any], name: str) -> None:
    """Refuses parts that reach beyond the memory."""
    if displs is None:
        end = sum(counts)
    else:
        end = max((displs[rank] + count for rank, count in enumerate(counts) if count), default=0)
    if end > memory.count:
        raise InvalidError(f"{name}: has {memory.count} elements, and the parts reach to {end}")


def _displacements(displs: Optional[Sequence[int]], size: int, name: str = "displs") -> Optional[Any]:
    return None if displs is None else _numbers(displs, size, name)


def _room(like: Data, out: Optional[Data], counts: Any, displs: Optional[Any]) -> Data:
    if out is not None:
        return out
    if displs is not None:
        raise InvalidError("out: needed with displs")
    return empty_like(like, (sum(counts),))  # type: ignore[no-any-return]


def allgatherv(
    buf: Data, counts: Sequence[int], out: Optional[Data], displs: Optional[Sequence[int]], rank: int, size: int
) -> Call:
    given, many, places = memory_of(buf), _numbers(counts, size, "counts"), _displacements(displs, size)
    _needs(given, _own(many, rank), "buf", f"counts[{rank}] says so")
    out = _room(buf, out, many, places)
    taken = writable_memory_of(out)
    _same_type(given, taken)
    _laid_out(taken, many, places, "out")
    return Call((given.place, given.count, taken.place, many, places, given.dtype), (given, taken), out)


def gatherv(
    buf: Data,
    counts: Optional[Sequence[int]],
    out: Optional[Data],
    displs: Optional[Sequence[int]],
    root: int,
    is_root: bool,
    size: int,
) -> Call:
    if is_root:
        if counts is None:
            raise InvalidError("counts: needed at the root")
        call = allgatherv(buf, counts, out, displs, root, size)
        return call._replace(words=(*call.words, root))
    given = memory_of(buf)
    return Call((given.place, given.count, None, None, None, given.dtype, root), (given,), None)


def scatterv(
    buf: Optional[Data],
    counts: Optional[Sequence[int]],
    out: Data,
    displs: Optional[Sequence[int]],
    root: int,
    is_root: bool,
    size: int,
) -> Call:
    taken = writable_memory_of(out)
    if not is_root:
        return Call((None, None, None, taken.place, taken.count, taken.dtype, root), (taken,), out)
    if buf is None or counts is None:
        raise InvalidError("buf and counts: needed at the root, after out, which is the first argument: scatterv(out, buf, counts)")
    given, many, places = memory_of(buf), _numbers(counts, size, "counts"), _displacements(displs, size)
    _same_type(given, taken)
    _laid_out(given, many, places, "buf")
    return Call((given.place, many, places, taken.place, taken.count, given.dtype, root), (given, taken), out)


def reduce_scatterv(buf: Data, counts: Sequence[int], out: Optional[Data], op: Op, rank: int, size: int) -> Call:
    given, many = memory_of(buf), _numbers(counts, size, "counts")
    _needs(given, sum(many), "buf", "the sum of counts")
    if out is None:
        out = empty_like(buf, (_own(many, rank),))
    taken = writable_memory_of(out)
    _same_type(given, taken)
    _needs(taken, _own(many, rank), "out", f"counts[{rank}] says so")
    words = (given.place, taken.place, many, given.dtype, operation_number(op, given))
    return Call(words, (given, taken), out, _function_of(op))


def alltoallv(
    buf: Data,
    in_counts: Sequence[int],
    out_counts: Sequence[int],
    out: Optional[Data],
    in_displs: Optional[Sequence[int]],
    out_displs: Optional[Sequence[int]],
    size: int,
) -> Call:
    given = memory_of(buf)
    goes, comes = _numbers(in_counts, size, "in_counts"), _numbers(out_counts, size, "out_counts")
    from_places, to_places = _displacements(in_displs, size, "in_displs"), _displacements(out_displs, size, "out_displs")
    out = _room(buf, out, comes, to_places)
    taken = writable_memory_of(out)
    _same_type(given, taken)
    _laid_out(given, goes, from_places, "buf")
    _laid_out(taken, comes, to_places, "out")
    return Call((given.place, goes, from_places, taken.place, comes, to_places, given.dtype), (given, taken), out)


def send(buf: Data, to: int, tag: int) -> Call:
    given = memory_of(buf)
    words = (given.place, given.count, given.dtype, rank_of(to, "to"), tag_of(tag))
    return Call(words, (given,), None)


def recv(out: Data, source: int, tag: int, tag_name: str = "tag") -> Call:
    taken, received = writable_memory_of(out), ReceivedStruct(NOBODY)
    whence = (source_of(source), wanted_tag_of(tag, tag_name))
    words = (taken.place, taken.count, taken.dtype, *whence, ctypes.byref(received), ctypes.sizeof(received))
    return Call(words, (taken, received), None, None, received)


def sendrecv(buf: Data, to: int, out: Data, source: int, tag: int, out_tag: int) -> Call:
    given, taken = send(buf, to, tag), recv(out, source, out_tag, "out_tag")
    return Call((*given.words, *taken.words), (*given.keep, *taken.keep), None, None, taken.received)
