"""Tensors as the library takes them: where they lie, how many elements of which type they have.

The library takes elements that lie one after another. Other tensors (transposed, strided, conjugated views) are copied
before, and back afterwards.
"""

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch.distributed import ReduceOp

from .. import _library
from .._errors import InvalidError, UnsupportedError

_DTYPES: Dict[Any, int] = {
    torch.int8: _library.INT8,
    torch.int16: _library.INT16,
    torch.int32: _library.INT32,
    torch.int64: _library.INT64,
    torch.uint8: _library.UINT8,
    torch.uint16: _library.UINT16,
    torch.uint32: _library.UINT32,
    torch.uint64: _library.UINT64,
    torch.float16: _library.FLOAT16,
    torch.bfloat16: _library.BFLOAT16,
    torch.float32: _library.FLOAT32,
    torch.float64: _library.FLOAT64,
    torch.bool: _library.UINT8,
    # Pairs, when they are moved as when they are added.
    torch.complex32: _library.FLOAT16,
    torch.complex64: _library.FLOAT32,
    torch.complex128: _library.FLOAT64,
}
_OPERATIONS: Dict[Any, int] = {
    ReduceOp.SUM: _library.SUM,
    ReduceOp.PRODUCT: _library.PROD,
    ReduceOp.MIN: _library.MIN,
    ReduceOp.MAX: _library.MAX,
    ReduceOp.AVG: _library.AVG,
    ReduceOp.BAND: _library.AND,
    ReduceOp.BOR: _library.OR,
    ReduceOp.BXOR: _library.XOR,
}
# A bool stays 0 or 1: a sum of bools is "any", and a product "all", as NCCL has it.
_OF_BOOLS = {**_OPERATIONS, ReduceOp.SUM: _library.OR, ReduceOp.PRODUCT: _library.AND}


@dataclasses.dataclass(frozen=True)
class Elements:
    """A stretch of memory for the library: its address, how many elements, and their type. `tensor` keeps it alive."""

    place: int
    count: int
    dtype: int
    tensor: Any


def _check(tensor: Any, name: str) -> None:
    if tensor.device.type != "cpu":
        raise InvalidError(f"{name}: a tensor on {tensor.device}; muster moves tensors on the CPU")
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"{name}: a tensor of the layout {tensor.layout}; muster moves dense tensors (torch.strided)")


def _is_plain(tensor: Any) -> bool:
    return bool(tensor.is_contiguous()) and not tensor.is_conj() and not tensor.is_neg()


def _elements(tensor: Any) -> Elements:
    # Floats of 8 bits: what is only moved may be any bytes.
    return Elements(tensor.data_ptr(), count_of(tensor), _DTYPES.get(tensor.dtype, _library.UINT8), tensor)


def count_of(tensor: Any) -> int:
    """How many elements the library moves for a tensor."""
    count: int = tensor.numel() * (2 if tensor.is_complex() else 1 if tensor.dtype in _DTYPES else tensor.element_size())
    return count


def reading(tensor: Any, name: str) -> Elements:
    """A tensor that is only read."""
    _check(tensor, name)
    if not _is_plain(tensor):
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return _elements(tensor)


class Writing:
    """Tensors that a call writes. Where one cannot be written as it lies, another is, and `finish` copies it."""

    def __init__(self) -> None:
        self._copies: List[Any] = []

    def add(self, tensor: Any, name: str, keeps: bool = False) -> Elements:
        """Where to write. With `keeps` the tensor's elements are there before, as in a call in place."""
        _check(tensor, name)
        if _is_plain(tensor):
            return _elements(tensor)
        dense = torch.empty(tensor.shape, dtype=tensor.dtype)
        if keeps:
            dense.copy_(tensor.detach())
        self._copies.append((tensor, dense))
        return _elements(dense)

    def apart(self, tensors: Sequence[Any], name: str) -> Elements:
        """One stretch for several tensors of one type, one after another, which `finish` copies to them."""
        for tensor in tensors:
            _check(tensor, name)
        flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=_one_dtype(tensors, name))
        pieces = flat.split([tensor.numel() for tensor in tensors])
        self._copies.extend((tensor, piece.view(tensor.shape)) for tensor, piece in zip(tensors, pieces))
        return _elements(flat)

    def finish(self) -> Optional[Callable[[], None]]:
        """What is left to do once the call has ended well; None where nothing is."""
        return self._copy if self._copies else None

    def _copy(self) -> None:
        for tensor, dense in self._copies:
            # A tensor of the inference mode is written in that mode only, whatever the mode of the thread that does it.
            with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                tensor.copy_(dense)


def joined(tensors: Sequence[Any], name: str) -> Elements:
    """The elements of several tensors of one type, one after another."""
    for tensor in tensors:
        _check(tensor, name)
    _one_dtype(tensors, name)
    return _elements(torch.cat([tensor.detach().resolve_conj().resolve_neg().reshape(-1) for tensor in tensors]))


def _one_dtype(tensors: Sequence[Any], name: str) -> Any:
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) != 1:
        raise InvalidError(f"{name}: tensors of {', '.join(sorted(map(str, dtypes)))}; one type for all is needed")
    return dtypes.pop()


def only(tensors: Sequence[Any], name: str) -> Any:
    """The one tensor of a list: a rank has one device here."""
    if len(tensors) != 1:
        raise InvalidError(f"{name}: {len(tensors)} tensors; one is needed, for a process has one CPU device")
    return tensors[0]


def same_type(given: Any, taken: Any) -> None:
    """Refuses an output of another type than the input's."""
    if given.dtype != taken.dtype:
        raise InvalidError(f"output: a tensor of {taken.dtype}, and the input of {given.dtype}; both must be the same")


def operation(op: Any, tensor: Any) -> int:
    """The number of a reduction; refuses what the library does not do on these elements."""
    number = (_OF_BOOLS if tensor.dtype is torch.bool else _OPERATIONS).get(op.op)
    if number is None:
        raise UnsupportedError(f"op: {op.op.name} is not supported; SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR are")
    if tensor.dtype not in _DTYPES:
        raise UnsupportedError(f"tensor: elements of {tensor.dtype} can be moved, but not reduced")
    if tensor.is_complex() and number not in (_library.SUM, _library.AVG):
        raise UnsupportedError(f"op: {op.op.name} of complex numbers is not supported; SUM and AVG are")
    if tensor.dtype is torch.bool and number == _library.AVG:
        raise UnsupportedError("op: the average of bools is no bool; SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR are supported")
    return number
