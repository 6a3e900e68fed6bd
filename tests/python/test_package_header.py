"""The package says of the library what the header says: constants, statuses, structs, and the signature of each call."""

import ctypes
import re

import pytest

from cluster import TREE
from packaged import the_package

the_package()
from muster import _config, _errors, _library, _operations  # noqa: E402

HEADER = (TREE / "include" / "muster.h").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
CONSTANTS = {name: int(value) for name, value in re.findall(r"#define MUSTER_(\w+) \(?(-?\d+)\)?\n", CODE)}
WORDS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
         "size_t": ctypes.c_size_t, "muster_status_t": ctypes.c_int32, "char*": ctypes.c_char_p, "void": None,
         "muster_reduce_fn": _library.REDUCE_FN, "muster_log_fn": _library.LOG_FN,
         "muster_interrupt_fn": _library.INTERRUPT_FN, "muster_notify_fn": _library.NOTIFY_FN}


def kind(words):
    """The ctypes class of a type in C: `words` is a declaration, with or without the name of a parameter."""
    name, stars = re.match(r"(\w+)(\**)", re.sub(r"\s+(?=\*)", "", re.sub(r"\bconst\b", "", words).strip())).groups()
    if not stars:
        return WORDS[name]
    return ctypes.c_char_p if (name, stars) == ("char", "*") else ctypes.c_void_p


def prototypes():
    for result, stars, name, words in re.findall(r"^((?:const )?\w+) (\*?)muster_(\w+)\(([^)]*)\);", CODE, re.MULTILINE):
        arguments = [] if words.strip() == "void" else [kind(word) for word in words.split(",")]
        yield name, kind(result + stars), arguments


def test_every_call_has_the_headers_signature():
    known = {name: (result, arguments) for name, result, arguments in prototypes()}
    assert len(known) > 80
    for name, (result, arguments) in _library.SIGNATURES.items():
        wanted = known[name]
        # A text that goes out is written to a buffer.
        there = [ctypes.c_void_p if (mine, its) == (ctypes.c_void_p, ctypes.c_char_p) else its
                 for mine, its in zip(arguments, wanted[1])]
        assert (result, arguments) == (wanted[0], there), name
        assert len(arguments) == len(wanted[1]), name


def test_constants_are_the_headers():
    for name in ("ABI_VERSION", "HEADER_VERSION", "OK", "IN_PROGRESS", "SCHEDULER_DONE", "ANY_SOURCE", "ANY_TAG", "ELEMENT", "ELEMENT_BYTES_MAX", "NAME_BYTES", "ADDRESS_BYTES",
                 "CAUSE_BYTES", "LOG_ERROR", "LOG_WARNING", "LOG_INFO", "LOG_DEBUG"):
        assert getattr(_library, name) == CONSTANTS[name], name
    for name in [name for name in CONSTANTS if re.fullmatch(r"(U?INT|B?FLOAT)\d+", name)]:
        assert getattr(_library, name) == CONSTANTS[name], name
    for name, number in _operations.OPERATIONS.items():
        assert number == CONSTANTS[name.upper()], name
    for number, role in _errors.ROLES.items():
        assert CONSTANTS[f"ROLE_{role.upper()}"] == number


def test_settings_are_made_for_the_headers_version(monkeypatch):
    """So that an older library says so."""
    monkeypatch.setattr(_config, "HEADER_VERSION", _library.HEADER_VERSION + 0x10000)
    with pytest.raises(_errors.InvalidError, match="abi_version is that of muster "):
        _config.Config({}, environment=False)


def test_every_status_has_an_exception_of_its_own():
    errors = {name[4:]: value for name, value in CONSTANTS.items() if name.startswith("ERR_")}
    known = {status.name: status.value for status in _errors.Status if status < 0}
    assert {name: known.get(name) for name in errors} == errors
    for name, value in errors.items():
        assert _errors._CLASSES[value].code.name == name


def test_structs_are_the_headers():
    structs = (_library.FailureStruct, _library.MemberStruct, _library.ReceivedStruct, _library.BytesStruct, _library.HcclCmStruct)
    for struct in structs:
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", struct.__name__.removesuffix("Struct")).lower()
        body = re.search(r"typedef struct (?:\w+ )?\{([^}]*)\} muster_" + name + "_t;", CODE)[1]
        fields = re.findall(r"(\w+) (\*?)(\w+)(?:\[MUSTER_(\w+)\])?;", body)
        for (field, mine), (its, star, wanted, length) in zip(struct._fields_, fields):
            assert field == wanted
            assert mine is kind(its + star) if not length else ctypes.sizeof(mine) == CONSTANTS[length], field
        assert len(struct._fields_) == len(fields)
