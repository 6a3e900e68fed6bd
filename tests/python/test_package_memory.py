"""The memory of callers: every kind of object that has some, without copying."""

import array
import ctypes
import gc
import json
import subprocess
import textwrap
import weakref

import ml_dtypes
import numpy as np
import pytest

from cluster import Cluster
from nodes import said
from optional import python_with
from packaged import BINDINGS, packaged, the_package
from torches import TIMEOUT_S, fetch_torch, python

muster = the_package()
from muster import _calls, _dlpack, _library, _memory  # noqa: E402

ADDRESS_OF = {np.ndarray: lambda data: data.ctypes.data, array.array: lambda data: data.buffer_info()[0]}


class OnlyDLPack:
    """What a tensor of another library is to this one. `versioned` is how the producer speaks."""

    def __init__(self, data, device=(1, 0), versioned=True):
        self.data, self.device, self.versioned = data, device, versioned

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **words):
        if not self.versioned and words:
            raise TypeError("an unknown keyword")
        return self.data.__dlpack__(**words)


class Refuses(OnlyDLPack):
    """A tensor that its library does not give out: `when` is the step at which it says so."""

    def __init__(self, when, error):
        super().__init__(np.zeros(4))
        self.when, self.error = when, error

    def __dlpack_device__(self):
        if self.when == "device":
            raise self.error
        return self.device

    def __dlpack__(self, **words):
        raise self.error


class Copies(OnlyDLPack):
    """A tensor whose library gives a copy out, and says so."""

    def __dlpack__(self, **words):
        capsule = self.data.__dlpack__(**words)
        _dlpack._Versioned.from_address(_dlpack._pointer_of(capsule, b"dltensor_versioned")).flags |= 2
        return capsule


class Tells:
    """What has one of the two methods of a tensor, or gives something else."""

    def __init__(self, capsule, device=None):
        self.capsule = capsule
        if device is not None:
            self.__dlpack_device__ = lambda: device

    def __dlpack__(self, **words):
        return self.capsule


class Texts(ctypes.Structure):
    _fields_ = [("of_bytes", ctypes.c_char_p), ("number", ctypes.c_int)]


class Number(ctypes.Union):
    _fields_ = [("whole", ctypes.c_int64), ("real", ctypes.c_double)]


class WideTexts(ctypes.Structure):
    _fields_ = [("of_letters", ctypes.c_wchar_p), ("d", ctypes.c_double)]


def address(memory):
    return ctypes.addressof(memory.place) if isinstance(memory.place, ctypes.Array) else memory.place


@pytest.mark.parametrize("name", _memory.NAMES)
def test_numpy_of_every_type_is_taken_where_it_lies(name):
    data = np.zeros((3, 2), dtype=getattr(ml_dtypes, name, name))
    memory = _memory.memory_of(data)
    assert (address(memory), memory.count) == (data.ctypes.data, 6)
    assert memory.dtype == getattr(_library, name.upper()) and memory.writable
    data.flags.writeable = False
    frozen = _memory.memory_of(data)
    assert address(frozen) == data.ctypes.data and not frozen.writable


@pytest.mark.parametrize("letter", "bhilqBHILQfd")
def test_array_of_every_letter(letter):
    data = array.array(letter, [1, 2, 3])
    memory = _memory.memory_of(data)
    assert (address(memory), memory.count, memory.itemsize) == (*data.buffer_info(), data.itemsize)
    name = _memory.NAMES[memory.dtype]
    assert name.startswith("float" if letter in "fd" else "u" if letter.isupper() else "int")


def test_bytes_and_views_of_them():
    for data in (b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(bytearray(b"xabc"))[1:]):
        memory = _memory.memory_of(data)
        assert (memory.count, memory.dtype) == (3, _library.UINT8)
        assert ctypes.string_at(address(memory), 3) == b"abc"
        assert memory.writable != memoryview(data).readonly
    assert _memory.memory_of(b"").count == 0 and _memory.memory_of(np.zeros((0, 3))).count == 0
    assert _memory.memory_of(np.float32(3)).count == 1  # a scalar of numpy is read


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("name", ["int8", "uint64", "float16", "float32", "bool"])
def test_dlpack_is_taken_where_it_lies(name, versioned):
    data = np.zeros((2, 3), dtype=name)
    memory = _memory.memory_of(OnlyDLPack(data, versioned=versioned))
    assert (address(memory), memory.count, memory.writable) == (data.ctypes.data, 6, True)
    assert memory.dtype == getattr(_library, {"bool": "UINT8"}.get(name, name.upper())) and memory.boolean == (name == "bool")


@pytest.mark.parametrize("data, words", [
    (OnlyDLPack(np.zeros((4, 4))[:, 1]), ["(4,)", "C-contiguous"]),
    (OnlyDLPack(np.zeros(4), device=(2, 1)), ["(2, 1)", "CPU", "host"]),
    (OnlyDLPack(np.zeros(4, complex)), ["type code 5", "128 bits"]),
    (np.zeros((4, 4), ml_dtypes.bfloat16).T, ["C-contiguous"]),
    (np.array(["a", None]), ["'O'", "pointers"]),
    (np.zeros(2, [("when", "M8[s]"), ("object", "O")]), ["<M8[s]", "pointers"]),
    (np.zeros(2, np.dtypes.StringDType()), ["StringDType", "pointers"]),
    ((ctypes.c_char_p * 2)(b"a", b"b"), ["'<z'", "pointers"]),
    ((ctypes.c_wchar_p * 2)("a", "b"), ["'<Z'", "pointers"]),
    ((Texts * 2)(), ["'T{<z:", "pointers"]),
    ((WideTexts * 2)(), ["'T{<Z:", "pointers"]),
    (Refuses("device", ValueError("no such device")), ["no such device", "CPU", "detach()"]),
    (Refuses("capsule", BufferError("requires a gradient")), ["requires a gradient", "CPU", "detach()"]),
    (Refuses("capsule", TypeError("no tensor")), ["no tensor"]),
    (Tells(None), ["__dlpack_device__", "CPU"]),
    (Tells(None, device=()), ["does not give its memory out"]),
    (Tells(None, device=(1, 0)), ["gives no tensor of DLPack", "NoneType"]),
    (Tells("no capsule", device=(1, 0)), ["gives no tensor of DLPack", "str"]),
    (memoryview(b"abcdef")[::2], ["strides", "C-contiguous"]),
    (np.zeros(1, "V70000"), ["70000 bytes", "65536"]),
    (7, ["int", "buffer protocol"]),
    (np.ma.masked_array([1.0, 2.0], [True, False]), ["masked array", "mask is not in its memory", "array.filled()", "array.data"]),
    (np.ma.masked_array([1.0, 2.0]), ["masked array"]),
    (np.ma.masked_array(np.zeros(2, ml_dtypes.bfloat16), [True, False]), ["masked array"]),
    (np.ma.masked, ["masked array"]),
])
def test_what_cannot_be_taken_is_told(data, words):
    with pytest.raises(muster.InvalidError) as refused:
        _memory.memory_of(data, "buf")
    for word in ["buf", *words]:
        assert word in str(refused.value), refused.value


def test_a_masked_array_is_taken_without_its_mask():
    masked = np.ma.masked_array(np.array([1.0, 2.0]), [True, False], fill_value=-1)
    assert address(_memory.memory_of(masked.data)) == masked.ctypes.data
    assert _memory.memory_of(masked.filled()).owner.tolist() == [-1, 2]
    assert _memory.memory_of(np.zeros(2).view(type("Own", (np.ndarray,), {}))).count == 2  # another kind of numpy's arrays


@pytest.mark.parametrize("dtype", [">f4", complex, "datetime64[s]", "S5", [("O", "i2"), ("P", "f8")], ml_dtypes.float8_e4m3,
                                   "F", "G", np.dtype(ml_dtypes.bfloat16).newbyteorder(">"), [("z", "c16"), ("Z", "c8"), ("f", "i4")]])
def test_other_types_are_taken_by_their_size(dtype):
    data = np.zeros((2, 3), dtype)
    memory = _memory.memory_of(data)
    assert (address(memory), memory.count, memory.itemsize) == (data.ctypes.data, 6, data.itemsize)
    assert memory.dtype == _library.ELEMENT + data.itemsize and memory.writable
    assert np.dtype(_memory.name_of(memory.dtype)).itemsize == data.itemsize


TENSORS = """
    import json, warnings
    import torch, muster
    from muster import _memory
    warnings.simplefilter("ignore")  # of what torch has in beta
    lazy = torch.tensor([1 + 2j]).conj()
    tensors = {
        "detach": torch.zeros(3, requires_grad=True),
        "resolve_conj": lazy,
        "resolve_neg": lazy.imag,
        "to_dense": torch.eye(3).to_sparse(),
        "int_repr": torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
        "meta": torch.zeros(3, device="meta"),
        "mkldnn": torch.zeros(3).to_mkldnn(),
        "nested": torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    }
    told = {}
    for name, tensor in tensors.items():
        try:
            _memory.memory_of(tensor)
            told[name] = "was taken"
        except muster.InvalidError as refused:
            told[name] = str(refused)
    for name in ("detach", "resolve_neg", "to_dense", "int_repr"):
        _memory.memory_of(getattr(tensors[name], name)())
    print(json.dumps(told))
"""


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_tensors_of_torch_that_cannot_be_taken_are_told(version):
    command = [python(version), "-c", textwrap.dedent(TENSORS)]
    env = {"PYTHONPATH": str(BINDINGS), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    for name, sentence in json.loads(done.stdout).items():
        assert sentence.startswith("buf: a ") and (f".{name}()" in sentence or "on the CPU" in sentence), (name, sentence)


ARRAYS = """
    import jax, muster
    from muster import _memory
    for dtype in ("float32", "bfloat16", "bool"):
        array = jax.numpy.ones(3, dtype)
        assert _memory.memory_of(array).count == 3
        try:
            _memory.writable_memory_of(array)
            raise AssertionError(f"{dtype} was taken")
        except muster.InvalidError as refused:
            assert "may not be written" in str(refused), refused
"""


def test_arrays_of_jax_are_not_written_whatever_their_type():
    command = [python_with("JAX"), "-c", textwrap.dedent(ARRAYS)]
    done = subprocess.run(command, env={"PYTHONPATH": str(BINDINGS)}, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr


def test_dlpack_that_is_read_only_is_not_written():
    data = np.zeros(4)
    data.flags.writeable = False
    assert not _memory.memory_of(OnlyDLPack(data)).writable
    with pytest.raises(muster.InvalidError, match="may not be written"):
        _memory.writable_memory_of(OnlyDLPack(data))


def test_a_copy_that_dlpack_gives_out_is_read_and_not_written():
    assert _memory.memory_of(Copies(np.zeros(4))).count == 4
    with pytest.raises(muster.InvalidError, match="shows a copy"):
        _memory.writable_memory_of(Copies(np.zeros(4)))


@pytest.mark.parametrize("wrap", [lambda data: data, OnlyDLPack, memoryview])
def test_memory_lives_as_long_as_it_is_held_and_no_longer(wrap):
    data = np.zeros(1000)
    gone = weakref.ref(data)
    memory = _memory.memory_of(wrap(data))
    del data
    gc.collect()
    assert gone() is not None
    ctypes.memset(address(memory), 1, 8000)
    del memory
    gc.collect()
    assert gone() is None


def test_read_only_memory_is_let_go():
    data = bytearray(b"abc")
    memory = _memory.memory_of(memoryview(data).toreadonly())
    with pytest.raises(BufferError):
        data.append(1)
    del memory
    data.append(1)


def test_new_memory_is_like_the_old():
    assert _memory.empty_like(np.zeros(2, ml_dtypes.bfloat16), (3, 2)).dtype == ml_dtypes.bfloat16
    assert _memory.empty_like(array.array("h"), (3, 2)) == array.array("h", [0] * 6)
    assert _memory.empty_like(b"", (3, 2)) == bytearray(6)
    assert _memory.empty_like(memoryview(array.array("d")), (3,)).format == "d"
    with pytest.raises(muster.InvalidError, match="out: needed for a OnlyDLPack"):
        _memory.empty_like(OnlyDLPack(np.zeros(1)), (3,))


@pytest.mark.parametrize("data", [ctypes.c_int(5), OnlyDLPack(np.zeros(1))], ids=["a number of ctypes", "DLPack alone"])
@pytest.mark.parametrize("call", [
    lambda data: _calls.allgather(data, None, 1),
    lambda data: _calls.gather(data, None, 0, True, 1),
    lambda data: _calls.scatter(data, None, 0, True, 1),
    lambda data: _calls.reduce_scatter(data, None, "sum", 1),
    lambda data: _calls.alltoall(data, None, 1),
], ids=["allgather", "gather", "scatter", "reduce_scatter", "alltoall"])
def test_a_call_on_what_has_no_length_needs_out(call, data):
    with pytest.raises(muster.InvalidError, match=f"out: needed for a {type(data).__name__}, "):
        call(data)


def test_elements_of_unions_are_not_reduced_as_their_first_byte():
    with muster.init(environment=False) as alone:
        with pytest.raises(muster.InvalidError, match="elements of 8 bytes"):
            alone.world.allreduce((Number * 2)())
        assert alone.world.allreduce(array.array("b", [1])) == array.array("b", [1])


def test_half_floats_and_bools_are_reduced():
    lines = """
        import ml_dtypes, numpy as np
        with muster.init() as c:
            for dtype in (ml_dtypes.bfloat16, np.float16):
                x = np.full(3, c.rank + 0.5, dtype=dtype)
                out = c.world.allreduce(x)
                assert out is x and out.dtype == dtype and out.tolist() == [2.0] * 3, out
            assert c.world.allgather(np.array([c.rank], ml_dtypes.bfloat16)).tolist() == [[0], [1]]
            flags = np.array([True, c.rank == 0, False])
            assert c.world.allreduce(flags, op="min").tolist() == [True, False, False]
            say(ended=True)
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        assert all(said(worker)["ended"] for worker in cluster.succeed(timeout=60))
