"""DLPack on the CPU: where a tensor of another library lies.

The capsule is not consumed: it stays what its producer made it, and its own destructor frees it when this is gone.
"""

import ctypes
from typing import Any, Protocol, Tuple

from . import _library
from ._errors import InvalidError, worded

_CPU = 1
_READ_ONLY, _IS_COPIED = 1, 2
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_DTYPES = {
    **{(_INT, bits): dtype for bits, dtype in zip((8, 16, 32, 64), range(_library.INT8, _library.INT64 + 1))},
    **{(_UINT, bits): dtype for bits, dtype in zip((8, 16, 32, 64), range(_library.UINT8, _library.UINT64 + 1))},
    (_FLOAT, 16): _library.FLOAT16,
    (_BFLOAT, 16): _library.BFLOAT16,
    (_FLOAT, 32): _library.FLOAT32,
    (_FLOAT, 64): _library.FLOAT64,
    (_BOOL, 8): _library.UINT8,
}


class SupportsDLPack(Protocol):
    """An object with `__dlpack__` and `__dlpack_device__`, as the Python array API standard describes them."""

    def __dlpack_device__(self) -> Tuple[Any, Any]: ...


class _DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned` of dlpack.h, of major version 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer_of.restype = ctypes.c_void_p


class Tensor:
    """A tensor that was opened: keeps it alive, and says what it is."""

    __slots__ = ("address", "boolean", "capsule", "count", "dtype", "writable")

    def __init__(self, capsule: Any, tensor: _DLTensor, writable: bool, name: str) -> None:
        self.capsule = capsule
        dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if dtype is None:
            raise InvalidError(
                f"{name}: elements of DLPack's type code {tensor.code} with {tensor.bits} bits have no type here; view "
                "them as one of the integers or floats of 8 to 64 bits, or as bytes"
            )
        self.dtype: int = dtype
        self.boolean: bool = tensor.code == _BOOL
        self.writable = writable
        self.count = _count(tensor, name)
        self.address = (tensor.data or 0) + tensor.byte_offset if self.count else None


def _count(tensor: _DLTensor, name: str) -> int:
    """How many elements lie one after another; refuses those that don't."""
    count, contiguous = 1, True
    for axis in range(tensor.ndim - 1, -1, -1):
        length = tensor.shape[axis]
        if tensor.strides and length != 1 and tensor.strides[axis] != count:
            contiguous = False
        count *= length
    if count and not contiguous:
        shape, strides = (tuple(numbers[axis] for axis in range(tensor.ndim)) for numbers in (tensor.shape, tensor.strides))
        raise InvalidError(
            f"{name}: its elements do not lie one after another (shape {shape}, strides {strides}); a C-contiguous "
            "one is needed, as tensor.contiguous() makes it"
        )
    return count


def _capsule_of(data: Any) -> Any:
    try:
        return data.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer from before version 1
        return data.__dlpack__()


def open_tensor(data: Any, name: str) -> Tensor:
    """Asks an object for its tensor. Raises `InvalidError` where it gives none, is not on the CPU, or is not contiguous."""
    try:
        device = tuple(data.__dlpack_device__())
        is_here = int(device[0]) == _CPU
        capsule = _capsule_of(data) if is_here else None
    except (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError) as refused:  # as producers say no
        raise InvalidError(
            f"{name}: a {type(data).__name__} that does not give its memory out ({worded(refused)}); one of plain numbers on the CPU "
            "is needed, as tensor.detach(), .resolve_conj(), .to_dense(), .int_repr() or .cpu() makes it"
        ) from refused
    if not is_here:
        raise InvalidError(f"{name}: lies on the device {device}, not on the CPU (1, 0); copy it to the host first")
    if _is_capsule(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise InvalidError(f"{name}: speaks version {versioned.major} of DLPack; versions 0 and 1 are known here")
        # What a call writes into a copy would be lost.
        return Tensor(capsule, versioned.tensor, not versioned.flags & (_READ_ONLY | _IS_COPIED), name)
    if _is_capsule(capsule, b"dltensor"):
        return Tensor(capsule, _DLTensor.from_address(_pointer_of(capsule, b"dltensor")), True, name)
    raise InvalidError(f"{name}: __dlpack__ of a {type(data).__name__} gives no tensor of DLPack, but a {type(capsule).__name__}")
