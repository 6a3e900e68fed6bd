"""The backend: each call of torch as one of the library's.

torch gives lists of tensors with options, and gets a work. A call is made of parts, each one operation of the library; most
have one. What torch does not find here it refuses itself, with the names of the backend and of the call.
"""

import contextlib
import ctypes
import datetime
import functools
import os
import threading
from typing import Any, Callable, ContextManager, Iterator, List, Sequence, Set, Tuple

from torch._C._distributed_c10d import Backend as TorchBackend

from .._calls import Call
from .._errors import InvalidError, UnsupportedError
from .._group import Group
from .._library import NOBODY, ReceivedStruct
from ._tensors import Elements, Writing, count_of, joined, only, operation, reading, same_type
from ._work import Part, Work


# torch's own objects call a backend, and do not all keep it as an object of Python.
_alive: Set["Backend"] = set()


class Backend(TorchBackend):
    """A process group's operations on one of muster's groups. torch calls it; programs call `torch.distributed`.

    Calls may come from any thread. Those of one group must come in the same order on all its ranks.
    """

    def __init__(self, group: Group, options: Any, shut_down: Callable[[], None]) -> None:
        super().__init__(options.group_rank, options.group_size)
        self._group = group
        self._shut_down = shut_down
        self._sequence = 0
        self._starting = threading.RLock()  # a signal's handler may start a call, too
        self._has_other_timeouts = False  # behind the first, a call that waits starts under the lock, too: that takes longer
        self._options = TorchBackend.Options("muster", options.timeout)
        self._options.group_name = options.group_id
        self._options.global_ranks_in_group = options.global_ranks_in_group
        self.set_timeout(options.timeout)
        _alive.add(self)

    # What torch asks of the backend itself

    def getBackendName(self) -> str:  # noqa: N802
        return "muster"

    @property
    def options(self) -> Any:
        return self._options

    # torch looks these up on the object, and its own answer to each is to look it up again, without end.
    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    _supports_time_estimate = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long an operation may take, from now on."""
        self._group.set_timeout(timeout.total_seconds())  # which may refuse it
        self._timeout_s = timeout.total_seconds()
        self._options._timeout = timeout

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def shutdown(self) -> None:
        """Frees the group. With the default group it leaves a cluster that was joined for it."""
        self._shut_down()
        _alive.discard(self)

    abort = shutdown

    # How a call is made

    def _do(self, tensors: Sequence[Any], parts: Sequence[Part], options: Any = None) -> Work:
        self._sequence += 1
        work = Work(tensors, self._sequence)
        seconds = options.timeout.total_seconds() if options is not None else -1.0
        if getattr(options, "asyncOp", True):
            with self._turn(seconds):
                return work.start(self._group, parts)
        needs_turns = seconds > 0 or self._has_other_timeouts
        return work.run(self._group, parts, functools.partial(self._turn, seconds) if needs_turns else None)

    def _turn(self, seconds: float) -> ContextManager[Any]:
        """What starts within has this time-out, or the group's where it is none, whatever calls other threads start."""
        return self._other_timeout(seconds) if seconds > 0 else self._starting

    @contextlib.contextmanager
    def _other_timeout(self, seconds: float) -> Iterator[None]:
        """The library reads a group's time-out when an operation starts."""
        self._has_other_timeouts = True
        with self._starting:  # or another thread's way back comes before this one's start
            self._group.set_timeout(seconds)
            try:
                yield
            finally:
                self._group.set_timeout(self._timeout_s)

    def barrier(self, opts: Any) -> Work:
        return self._do([], [Part("barrier", Call((), (), None))], opts)

    # One tensor, in place

    def broadcast(self, tensors: List[Any], opts: Any) -> Work:
        tensor = only(tensors, "tensor")
        writing = Writing()
        if opts.rootRank == self.rank():
            memory = reading(tensor, "tensor")
        else:
            memory = writing.add(tensor, "tensor")
        return self._do(tensors, [_part("broadcast", (*_triple(memory), opts.rootRank), [memory], writing)], opts)

    def allreduce(self, tensors: List[Any], opts: Any) -> Work:
        return self._do(tensors, [_allreduce(only(tensors, "tensor"), opts)], opts)

    def allreduce_coalesced(self, tensors: List[Any], opts: Any) -> Work:
        return self._do(tensors, [_allreduce(tensor, opts) for tensor in tensors], opts)

    def reduce(self, tensors: List[Any], opts: Any) -> Work:
        tensor = only(tensors, "tensor")
        writing, is_root = Writing(), opts.rootRank == self.rank()
        memory = writing.add(tensor, "tensor", keeps=True) if is_root else reading(tensor, "tensor")
        number = operation(opts.reduceOp, tensor)
        out = memory.place if is_root else None
        words = (memory.place, out, memory.count, memory.dtype, number, opts.rootRank)
        return self._do(tensors, [_part("reduce", words, [memory], writing)], opts)

    # One tensor to or from all

    def all_gather_single(self, output: Any, input: Any, opts: Any) -> Work:
        return self._do([output], [self._gathered(output, input)], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: List[Any], inputs: List[Any], opts: Any) -> Work:
        return self._do(outputs, [self._gathered(*pair) for pair in _pairs(outputs, inputs)], opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered(self, output: Any, input: Any) -> Part:
        self._needs(output, input.numel() * self.size(), "output", f"{input.numel()} of each of {self.size()} ranks")
        same_type(input, output)
        writing, given = Writing(), reading(input, "input")
        taken = writing.add(output, "output")
        return _part("allgather", (given.place, taken.place, given.count, given.dtype), [given, taken], writing)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any) -> Work:
        return self._do([output], [self._reduced(output, input, opts)], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: List[Any], inputs: List[Any], opts: Any) -> Work:
        return self._do(outputs, [self._reduced(output, input, opts) for output, input in _pairs(outputs, inputs)], opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduced(self, output: Any, input: Any, opts: Any) -> Part:
        self._needs(input, output.numel() * self.size(), "input", f"{output.numel()} for each of {self.size()} ranks")
        same_type(input, output)
        writing, given = Writing(), reading(input, "input")
        taken = writing.add(output, "output")
        words = (given.place, taken.place, taken.count, taken.dtype, operation(opts.reduceOp, input))
        return _part("reduce_scatter", words, [given, taken], writing)

    def all_to_all_single(self, output: Any, input: Any, output_splits: List[int], input_splits: List[int], opts: Any) -> Work:
        same_type(input, output)
        writing, given = Writing(), reading(input, "input")
        taken = writing.add(output, "output")
        goes = self._split(input, given, input_splits, "input")
        comes = self._split(output, taken, output_splits, "output")
        words = (given.place, goes, None, taken.place, comes, None, given.dtype)
        return self._do([output], [_part("alltoallv", words, [given, taken, goes, comes], writing)], opts)

    alltoall_base = all_to_all_single

    def _split(self, tensor: Any, memory: Elements, splits: List[int], name: str) -> Any:
        """How many elements go to, or come from, each rank: rows of the first dimension as given, or equal parts."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self.size():
                raise InvalidError(f"{name}: has {rows} rows, which are no equal parts for {self.size()} ranks")
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows or min(splits) < 0:
            raise InvalidError(f"{name}_split_sizes: {splits}; {self.size()} numbers with the sum {rows} are needed")
        return _counts([split * (memory.count // rows) if rows else 0 for split in splits])

    # Lists of tensors, one for each rank

    def allgather(self, outputs: List[List[Any]], inputs: List[Any], opts: Any) -> Work:
        outs = only(outputs, "tensor_list")
        return self._do(outs, [self._gathered_apart(outs, only(inputs, "tensor"))], opts)

    def allgather_coalesced(self, outputs: List[List[Any]], inputs: List[Any], opts: Any) -> Work:
        self._one_each(outputs, "output_tensor_lists")
        parts = [self._gathered_apart([row[i] for row in outputs], tensor) for i, tensor in enumerate(inputs)]
        return self._do([tensor for row in outputs for tensor in row], parts, opts)

    def _gathered_apart(self, outs: Sequence[Any], input: Any) -> Part:
        self._one_each(outs, "tensor_list")
        writing, given = Writing(), reading(input, "tensor")
        taken = []
        for out in outs:
            same_type(input, out)
            taken.append(writing.add(out, "tensor_list"))
        self._needs(outs[self.rank()], input.numel(), f"tensor_list[{self.rank()}]", "as many as the tensor has")
        words = (given.place, given.count, _places(taken), _if_different(taken), given.dtype)
        return _part("allgather_list", words, [given, *taken], writing)

    def reduce_scatter(self, outputs: List[Any], inputs: List[List[Any]], opts: Any) -> Work:
        output, ins = only(outputs, "output"), only(inputs, "input_list")
        self._one_each(ins, "input_list")
        for tensor in ins:
            same_type(tensor, output)
        self._needs(ins[self.rank()], output.numel(), f"input_list[{self.rank()}]", "as many as the output has")
        writing, given = Writing(), [reading(tensor, "input_list") for tensor in ins]
        taken = writing.add(output, "output")
        number = operation(opts.reduceOp, output)
        words = (_places(given), _if_different(given), taken.place, taken.count, taken.dtype, number)
        return self._do(outputs, [_part("reduce_scatter_list", words, [*given, taken], writing)], opts)

    def gather(self, outputs: List[List[Any]], inputs: List[Any], opts: Any) -> Work:
        input = only(inputs, "tensor")
        writing, given = Writing(), reading(input, "tensor")
        if opts.rootRank != self.rank():
            words: Tuple[Any, ...] = (given.place, given.count, None, None, None, given.dtype, opts.rootRank)
            return self._do([], [_part("gatherv", words, [given], writing)], opts)
        outs = only(outputs, "gather_list")
        self._one_each(outs, "gather_list")
        same_type(input, outs[0])
        self._needs(outs[self.rank()], input.numel(), f"gather_list[{self.rank()}]", "as many as the tensor has")
        taken = writing.apart(outs, "gather_list")
        counts = _counts([count_of(out) for out in outs])
        words = (given.place, given.count, taken.place, counts, None, given.dtype, opts.rootRank)
        return self._do(outs, [_part("gatherv", words, [given, taken, counts], writing)], opts)

    def scatter(self, outputs: List[Any], inputs: List[List[Any]], opts: Any) -> Work:
        output = only(outputs, "tensor")
        writing = Writing()
        taken = writing.add(output, "tensor")
        given, counts, keep = None, None, [taken]
        if opts.rootRank == self.rank():
            ins = only(inputs, "scatter_list")
            self._one_each(ins, "scatter_list")
            same_type(ins[0], output)
            self._needs(ins[self.rank()], output.numel(), f"scatter_list[{self.rank()}]", "as many as the tensor has")
            flat = joined(ins, "scatter_list")
            given, counts, keep = flat.place, _counts([count_of(tensor) for tensor in ins]), [taken, flat]
        words = (given, counts, None, taken.place, taken.count, taken.dtype, opts.rootRank)
        return self._do(outputs, [_part("scatterv", words, [*keep, counts], writing)], opts)

    def alltoall(self, outputs: List[Any], inputs: List[Any], opts: Any) -> Work:
        self._one_each(outputs, "output_tensor_list")
        self._one_each(inputs, "input_tensor_list")
        same_type(inputs[0], outputs[0])
        writing, given = Writing(), joined(inputs, "input_tensor_list")
        taken = writing.apart(outputs, "output_tensor_list")
        goes, comes = (_counts([count_of(tensor) for tensor in tensors]) for tensors in (inputs, outputs))
        words = (given.place, goes, None, taken.place, comes, None, given.dtype)
        return self._do(outputs, [_part("alltoallv", words, [given, taken, goes, comes], writing)], opts)

    # Messages

    def send(self, tensors: List[Any], dst: int, tag: int) -> Work:
        memory = reading(only(tensors, "tensor"), "tensor")
        return self._do(tensors, [_part("send", (*_triple(memory), dst, tag), [memory], Writing())])

    def recv(self, tensors: List[Any], src: int, tag: int) -> Work:
        if tag < 0:  # one of them is any tag to the library
            raise InvalidError(f"tag is {tag}: expected 0 or more")
        writing = Writing()
        memory = writing.add(only(tensors, "tensor"), "tensor", keeps=True)  # the message may be shorter
        received = ReceivedStruct(NOBODY)
        words = (*_triple(memory), src, tag, ctypes.byref(received), ctypes.sizeof(received))
        call = Call(words, (memory, received), None, received=received)
        return self._do(tensors, [Part("recv", call, writing.finish())])

    def recv_anysource(self, tensors: List[Any], tag: int) -> Work:
        raise UnsupportedError("recv: src is needed; torch cannot tell from which rank a backend in Python has received")

    # What is wrong with a call

    def _needs(self, tensor: Any, count: int, name: str, why: str) -> None:
        if tensor.numel() != count:
            raise InvalidError(f"{name}: has {tensor.numel()} elements, and {count} are needed: {why}")

    def _one_each(self, tensors: Sequence[Any], name: str) -> None:
        if len(tensors) != self.size():
            raise InvalidError(f"{name}: has {len(tensors)} tensors, and the group {self.size()} ranks")


def _part(name: str, words: Any, keep: Any, writing: Writing) -> Part:
    return Part(name, Call(tuple(words), tuple(keep), None), writing.finish())


def _triple(memory: Elements) -> Any:
    return memory.place, memory.count, memory.dtype


def _allreduce(tensor: Any, opts: Any) -> Part:
    writing = Writing()
    memory = writing.add(tensor, "tensor", keeps=True)
    words = (memory.place, memory.place, memory.count, memory.dtype, operation(opts.reduceOp, tensor))
    return _part("allreduce", words, [memory], writing)


def _pairs(outputs: List[Any], inputs: List[Any]) -> Any:
    if len(outputs) != len(inputs):
        raise InvalidError(f"outputs: {len(outputs)} tensors, and there are {len(inputs)} inputs; as many are needed")
    return zip(outputs, inputs)


def _counts(numbers: Sequence[int]) -> Any:
    return (ctypes.c_size_t * len(numbers))(*numbers)


def _places(memories: Sequence[Elements]) -> Any:
    return (ctypes.c_void_p * len(memories))(*(memory.place for memory in memories))


def _if_different(memories: Sequence[Elements]) -> Any:
    """The counts, where they are not all the same."""
    counts = [memory.count for memory in memories]
    return None if len(set(counts)) == 1 else _counts(counts)


def _forget() -> None:
    for backend in _alive:
        backend._starting = threading.RLock()  # another thread of the parent may have had it


os.register_at_fork(after_in_child=_forget)
