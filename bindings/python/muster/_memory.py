"""The memory of callers: where it lies, how many elements of which type it has. Nothing is copied.

Taken are objects with the buffer protocol (bytes, bytearray, array, memoryview, numpy), numpy arrays whose element
type the buffer protocol does not know (bfloat16 of ml_dtypes), and objects with DLPack on the CPU (torch, jax).
"""

import array
import contextlib
import ctypes
import math
import re
import sys
from typing import TYPE_CHECKING, Any, Dict, Optional, Set, Tuple, Union

from . import _dlpack, _library
from ._errors import InvalidError, worded

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Data = Union[Buffer, _dlpack.SupportsDLPack]
    """What a call takes as a buffer."""
else:
    Data = object

# By the buffer protocol's letter. The sizes of l and L are this machine's.
_LONG, _ULONG = (
    (_library.INT64, _library.UINT64) if ctypes.sizeof(ctypes.c_long) == 8 else (_library.INT32, _library.UINT32)
)
DTYPES: Dict[str, int] = {
    "b": _library.INT8,
    "h": _library.INT16,
    "i": _library.INT32,
    "l": _LONG,
    "q": _library.INT64,
    "B": _library.UINT8,
    "c": _library.UINT8,
    "?": _library.UINT8,
    "H": _library.UINT16,
    "I": _library.UINT32,
    "L": _ULONG,
    "Q": _library.UINT64,
    "e": _library.FLOAT16,
    "f": _library.FLOAT32,
    "d": _library.FLOAT64,
}
ITEMSIZES: Tuple[int, ...] = (1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8)
# Those that all operations take, by letter and size: ctypes gives unions and packed structures of any size the letter B.
NUMBERS = {(letter, ITEMSIZES[dtype]): dtype for letter, dtype in DTYPES.items() if letter != "?"}
NAMES: Tuple[str, ...] = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)

# What says in a format that the bytes lie as this machine has them.
_OWN_ORDER = "@=<" if sys.byteorder == "little" else "@=>!"

# Of these no object has a mask. numpy's own array joins them when the first one comes, for nothing here imports numpy.
UNMASKED: Set[Any] = {array.array, bytearray, bytes, memoryview}

# An array of no elements: it has an address and an owner, and costs least to make.
Place = ctypes.c_char * 0


class _PyBuffer(ctypes.Structure):
    """`Py_buffer`, as it has been since Python 3.0; part of the stable ABI since 3.11."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.c_void_p]
_release_buffer.restype = None


def _address_of(view: memoryview) -> Optional[int]:
    """Where memory lies that may not be written, which `from_buffer` of ctypes refuses. It lies there while the view lives."""
    buffer = _PyBuffer()
    try:
        _get_buffer(view, ctypes.byref(buffer), 0)
        address: Optional[int] = buffer.buf
        return address
    finally:
        _release_buffer(ctypes.byref(buffer))  # does nothing where none was got


class Memory:
    """A stretch of memory: `place` is what the library is passed, `owner` what keeps it alive. `form` tells types of the caller's
    own apart that have one size: the buffer protocol's format, or numpy's name.
    """

    __slots__ = ("boolean", "count", "dtype", "form", "owner", "place", "writable")

    def __init__(
        self, place: Any, count: int, dtype: int, writable: bool, owner: Any, boolean: bool = False, form: str = ""
    ) -> None:
        self.place = place
        self.count = count
        self.dtype = dtype
        self.writable = writable
        self.owner = owner
        self.boolean = boolean
        self.form = form

    @property
    def itemsize(self) -> int:
        return itemsize_of(self.dtype)

    @property
    def type_name(self) -> str:
        return "bool" if self.boolean else f"{name_of(self.dtype)} ({self.form})" if self.form else name_of(self.dtype)


def refuse_mask(data: Any, name: str) -> None:
    """Refuses numpy's masked arrays: their memory has what they hide, too, and does not say so. Costs more than a look at `UNMASKED`."""
    numpy, masked = sys.modules.get("numpy"), sys.modules.get("numpy.ma")
    if isinstance(data, getattr(masked, "MaskedArray", ())):
        raise InvalidError(
            f"{name}: a masked array, whose mask is not in its memory, so what it hides would come out as data; an array without "
            "a mask is needed, as array.filled() or array.data gives it"
        )
    if type(data) is getattr(numpy, "ndarray", None):
        UNMASKED.add(type(data))


def memory_of(data: Any, name: str = "buf") -> Memory:
    """The memory of an object, to be read. Raises `InvalidError` with what would be right."""
    if type(data) not in UNMASKED:
        refuse_mask(data, name)
    try:
        view = memoryview(data)
    except (TypeError, ValueError, BufferError) as refused:
        return _without_buffer(data, name, refused)
    if not view.c_contiguous:
        raise InvalidError(
            f"{name}: its elements do not lie one after another (shape {view.shape}, strides {view.strides}); a C-contiguous "
            "one is needed, as numpy.ascontiguousarray makes it"
        )
    letter = view.format if len(view.format) == 1 else view.format.lstrip(_OWN_ORDER)
    dtype, form = DTYPES.get(letter), ""
    if dtype is None or ITEMSIZES[dtype] != view.itemsize:
        dtype, form = _own_type(view, name), re.sub(f"[{_OWN_ORDER}]", "", view.format)
    count = view.nbytes // view.itemsize
    if not view.readonly:
        return Memory(Place.from_buffer(view), count, dtype, True, view, letter == "?", form)
    return Memory(_address_of(view), count, dtype, False, view, letter == "?", form)


def _own_type(view: memoryview, name: str) -> int:
    """The type of elements that the library can move, and knows nothing else of: complex numbers, structures, texts.
    """
    # Of ctypes are z and Z, texts of C; Zf, Zd and Zg are numpy's complex numbers. What stands between colons is a name.
    if re.search(r"[OPXz&]|Z(?![fdg])", re.sub(r":[^:]*:", " ", view.format)):
        raise InvalidError(f"{name}: elements of the format {view.format!r} are pointers, which mean nothing elsewhere")
    if not 1 <= view.itemsize <= _library.ELEMENT_BYTES_MAX:
        raise InvalidError(
            f"{name}: elements of {view.itemsize} bytes; they may have 1 to {_library.ELEMENT_BYTES_MAX}, or be viewed as bytes"
        )
    return _library.ELEMENT + view.itemsize


def itemsize_of(dtype: int) -> int:
    return ITEMSIZES[dtype] if dtype < len(ITEMSIZES) else dtype - _library.ELEMENT


def name_of(dtype: int) -> str:
    """The type's name in numpy: "float32", or "V16" for elements of 16 bytes of the caller's own."""
    return NAMES[dtype] if dtype < len(NAMES) else f"V{itemsize_of(dtype)}"


def _without_buffer(data: Any, name: str, refused: Exception) -> Memory:
    """What the buffer protocol does not serve: some of numpy's types, as bfloat16 and datetime64, and DLPack."""
    numpy, torch, jax = (sys.modules.get(module) for module in ("numpy", "torch", "jax"))
    if numpy and isinstance(data, numpy.ndarray):
        if data.dtype.hasobject:
            raise InvalidError(f"{name}: elements of the type {data.dtype} hold pointers, which mean nothing elsewhere")
        memory = memory_of(data.view(f"V{data.dtype.itemsize}"), name)
        if data.dtype.name == "bfloat16" and data.dtype.isnative:
            memory.dtype, memory.form = _library.BFLOAT16, ""
        else:
            memory.form = str(data.dtype)
        return memory
    if torch and isinstance(data, torch.Tensor) and data.is_neg():  # of which DLPack says nothing
        raise InvalidError(
            f"{name}: a tensor with the negative bit, whose memory has its numbers without the minus; one without it is needed, "
            "as tensor.resolve_neg() makes it"
        )
    if hasattr(data, "__dlpack__"):
        tensor = _dlpack.open_tensor(data, name)
        writable = tensor.writable and not isinstance(data, getattr(jax, "Array", ()))  # which is never written, and does not say so
        return Memory(tensor.address, tensor.count, tensor.dtype, writable, tensor, tensor.boolean)
    raise InvalidError(
        f"{name}: a {type(data).__name__} has neither the buffer protocol nor DLPack ({worded(refused)}); bytes, bytearray, array.array, "
        "memoryview, numpy arrays and tensors on the CPU do"
    )


def writable_memory_of(data: Any, name: str = "out") -> Memory:
    """The memory of an object, to be written."""
    memory = memory_of(data, name)
    if not memory.writable:
        raise InvalidError(f"{name}: a {type(data).__name__} that may not be written, or shows a copy; a writable one is needed")
    return memory


def shape_of(data: Any) -> Tuple[int, ...]:
    shape = getattr(data, "shape", None)
    if shape is not None:
        return tuple(int(length) for length in shape)
    return (len(data),) if hasattr(data, "__len__") else ()  # a number of ctypes, or DLPack alone, has neither


def empty_like(data: Any, shape: Tuple[int, ...]) -> Any:
    """New memory of this shape, of the kind and element type that `data` has.

    A numpy array for a numpy array, a tensor for a torch tensor, an `array.array` for one, a bytearray for bytes. The
    last two have no shape. A memoryview for a memoryview.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy and isinstance(data, (numpy.ndarray, numpy.generic)):
        return numpy.empty(shape, dtype=data.dtype)
    if torch and isinstance(data, torch.Tensor):
        return data.new_empty(shape)
    count = math.prod(shape)
    if isinstance(data, array.array):
        return array.array(data.typecode, bytes(data.itemsize * count))
    if isinstance(data, (bytes, bytearray)):
        return bytearray(count)
    if isinstance(data, memoryview):
        letter = data.format.lstrip("@=<")  # "<i" is this machine's own, and no format of a memoryview's cast
        with contextlib.suppress(ValueError, TypeError):  # a structure
            made = memoryview(bytearray(count * data.itemsize)).cast("B").cast(letter)  # type: ignore[call-overload]
            if made.itemsize == data.itemsize:
                return made
    raise InvalidError(f"out: needed for a {type(data).__name__}, for nothing is known to make one like it")
