"""The shared library: where it is found, its constants, and the signatures of its calls.

`LIBRARY` releases the interpreter's lock during each call, as every `ctypes.CDLL` does. Nothing here interprets a
status. Tests hold the tables of this file to `include/muster.h`.
"""

import ctypes
import os
import pathlib
from ctypes import c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple

ABI_VERSION = 1
# The version of the header after which this file is written.
HEADER_VERSION = 1
NO_LIMIT = 2**63 - 1

OK = 0
IN_PROGRESS = 1
SCHEDULER_DONE = 2

INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = range(12)
# A type of the caller's own: this, and the element's size in bytes.
ELEMENT = 1048576
ELEMENT_BYTES_MAX = 65536
SUM, PROD, MIN, MAX, AVG, AND, OR, XOR, SUM_EXACT = range(9)

ANY_SOURCE = -1
ANY_TAG = -1
# The source in what a receive tells, before it tells anything.
NOBODY = -1

LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG = range(1, 5)

NAME_BYTES, ADDRESS_BYTES, CAUSE_BYTES = 256, 64, 512


class FailureStruct(ctypes.Structure):
    """`muster_failure_t`."""

    _fields_ = [
        ("status", c_int32),
        ("role", c_int32),
        ("rank", c_int32),
        ("pid", c_int32),
        ("epoch", c_int64),
        ("group", c_int64),
        ("sequence", c_uint64),
        ("node_id", c_char * NAME_BYTES),
        ("host", c_char * NAME_BYTES),
        ("cause", c_char * CAUSE_BYTES),
    ]


class MemberStruct(ctypes.Structure):
    """`muster_member_t`."""

    _fields_ = [
        ("role", c_int32),
        ("rank", c_int32),
        ("local_rank", c_int32),
        ("pid", c_int32),
        ("state", c_int32),
        ("node_id", c_char * NAME_BYTES),
        ("host", c_char * NAME_BYTES),
        ("address", c_char * ADDRESS_BYTES),
    ]


class ReceivedStruct(ctypes.Structure):
    """`muster_received_t`."""

    _fields_ = [("source", c_int32), ("tag", c_int32), ("count", c_uint64), ("dtype", c_int32)]


class BytesStruct(ctypes.Structure):
    """`muster_bytes_t`."""

    _fields_ = [("data", c_void_p), ("len", c_size_t)]


class HcclCmStruct(ctypes.Structure):
    """`muster_hccl_cm_t`."""

    _fields_ = [
        ("chief_port", c_int32),
        ("chief_device", c_int32),
        ("worker_size", c_int32),
        ("chief_ip", c_char * ADDRESS_BYTES),
        ("worker_ip", c_char * ADDRESS_BYTES),
    ]


LOG_FN = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_char_p, c_void_p)
REDUCE_FN = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_int32, c_void_p)
NOTIFY_FN = ctypes.CFUNCTYPE(None, c_int32, c_void_p)
# The library passes a `ctx`, too, which is left where it is.
INTERRUPT_FN = ctypes.CFUNCTYPE(c_int32)

_P, _I, _N = c_void_p, c_int32, c_size_t

# Each collective's arguments between the group and, in the form that does not wait, the request.
_COLLECTIVES: Dict[str, List[Any]] = {
    "barrier": [],
    "broadcast": [_P, _N, _I, _I],
    "allreduce": [_P, _P, _N, _I, _I],
    "allreduce_addends": [_P, _N, _P, _N, _I],
    "reduce": [_P, _P, _N, _I, _I, _I],
    "allgather": [_P, _P, _N, _I],
    "allgatherv": [_P, _N, _P, _P, _P, _I],
    "gather": [_P, _P, _N, _I, _I],
    "gatherv": [_P, _N, _P, _P, _P, _I, _I],
    "scatter": [_P, _P, _N, _I, _I],
    "scatterv": [_P, _P, _P, _P, _N, _I, _I],
    "reduce_scatter": [_P, _P, _N, _I, _I],
    "reduce_scatterv": [_P, _P, _P, _I, _I],
    "allgather_list": [_P, _N, _P, _P, _I],
    "reduce_scatter_list": [_P, _P, _P, _N, _I, _I],
    "alltoall": [_P, _P, _N, _I],
    "alltoallv": [_P, _P, _P, _P, _P, _P, _I],
    "send": [_P, _N, _I, _I, _I],
    "recv": [_P, _N, _I, _I, _I, _P, _N],
    "sendrecv": [_P, _N, _I, _I, _I, _P, _N, _I, _I, _I, _P, _N],
}

SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "status_string": (c_char_p, [_I]),
    "last_error": (c_char_p, []),
    "free": (None, [_P]),
    "set_log_callback": (_I, [_I, LOG_FN, _P]),
    "config_new": (_I, [c_uint32, _P]),
    "config_load_env": (_I, [_P]),
    "config_set": (_I, [_P, c_char_p, c_char_p]),
    "config_get": (_I, [_P, c_char_p, _P, _N, _P]),
    "config_set_interrupt": (_I, [_P, INTERRUPT_FN, _P]),
    "config_free": (None, [_P]),
    "init": (_I, [_P, _P]),
    "finalize": (_I, [_P]),
    "abort": (_I, [_P, _I, c_char_p]),
    "recover": (_I, [_P, c_int64]),
    "cluster_free": (None, [_P]),
    "scheduler_start": (_I, [_P, _P]),
    "scheduler_address": (_I, [_P, _P, _N, _P]),
    "scheduler_wait": (_I, [_P, c_int64]),
    "scheduler_stop": (_I, [_P]),
    "scheduler_free": (None, [_P]),
    **{name: (_I, [_P]) for name in ("role", "rank", "size", "local_rank", "local_size", "restarts")},
    "epoch": (c_int64, [_P]),
    "node_id": (c_char_p, [_P]),
    "failed_ranks": (_I, [_P, _P, _N, _P]),
    "failure": (_I, [_P, _P, _N]),
    "cluster_error": (_I, [_P, _P, _N, _P]),
    "hccl_cm": (_I, [_P, _P, _N]),
    "rank_table": (_I, [_P, _P, _N, _P]),
    **{name: (_P, [_P]) for name in ("world", "servers", "universe")},
    "group_rank": (_I, [_P]),
    "group_size": (_I, [_P]),
    "group_to_world": (_I, [_P, _I]),
    "group_from_world": (_I, [_P, _I]),
    "group_member": (_I, [_P, _I, _P, _N]),
    "group_failure": (_I, [_P, _P, _N]),
    "group_set_timeout": (_I, [_P, c_int64]),
    "group_create": (_I, [_P, _P, _N, _P]),
    "group_create_members": (_I, [_P, _P, _N, c_char_p, c_int64, _P]),
    "group_split": (_I, [_P, _I, _I, _P]),
    "group_free": (None, [_P]),
    "store_set_bytes": (_I, [_P, _P, _N, _P, _N]),
    "store_get_bytes": (_I, [_P, _P, _N, c_int64, _P, _P]),
    "store_add_bytes": (_I, [_P, _P, _N, c_int64, _P]),
    "store_append": (_I, [_P, _P, _N, _P, _N, _P]),
    "store_compare_set_bytes": (_I, [_P, _P, _N, _P, _N, _P, _N, _I, _P, _P]),
    "store_delete_bytes": (_I, [_P, _P, _N, _P]),
    "store_wait_bytes": (_I, [_P, _P, _N, c_int64]),
    "store_check": (_I, [_P, _P, _N, _P]),
    "store_count": (_I, [_P, _P]),
    "store_list": (_I, [_P, _P, _N, _P, _P]),
    "store_multi_set": (_I, [_P, _P, _P, _N]),
    "store_multi_get": (_I, [_P, _P, _N, c_int64, _P]),
    **{name: (_I, [_P, *arguments]) for name, arguments in _COLLECTIVES.items()},
    **{"i" + name: (_I, [_P, *arguments, _P]) for name, arguments in _COLLECTIVES.items()},
    "probe": (_I, [_P, _I, _I, _P, _N]),
    "iprobe": (_I, [_P, _I, _I, _P, _N]),
    "op_create": (_I, [_P, REDUCE_FN, _P, _I, _P]),
    "op_free": (_I, [_P, _I]),
    "request_test": (_I, [_P]),
    "request_wait": (_I, [_P, c_int64]),
    "request_wait_any": (_I, [_P, _N, c_int64, _P]),
    "request_wait_all": (_I, [_P, _N, c_int64]),
    "request_descriptor": (_I, [_P]),
    "request_notify": (_I, [_P, NOTIFY_FN, _P]),
    "request_cancel": (_I, [_P]),
    "request_free": (None, [_P]),
}


def _place() -> str:
    """Where the library is.

    MUSTER_LIBRARY beats everything. A wheel has the library in the package. In the source tree it is what `make
    library` builds. Where a system's package has brought this one, the loader finds the library by its SONAME.
    """
    named = os.environ.get("MUSTER_LIBRARY")
    if named:
        return named
    here = pathlib.Path(__file__).resolve().parent
    if (here / "lib").is_dir():
        return str(here / "lib" / "libmuster.so.1")
    for tree in list(here.parents)[2:3]:  # there is none where the package lies near the root
        if (tree / "Cargo.toml").exists():
            return str(tree / "target" / "release" / "libmuster.so")
    return "libmuster.so.1"


def _open() -> Tuple[str, ctypes.CDLL]:
    """The library at its place. One at another place is not taken for it: it may have another version."""
    path = _place()
    try:
        return path, ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"{path} could not be loaded: {error}. Name another libmuster.so.1 with MUSTER_LIBRARY, install the wheel again, "
            "or run `make library` in the source tree"
        ) from error


def _declare(library: ctypes.CDLL, path: str) -> None:
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(library, "muster_" + name)
        except AttributeError:
            raise ImportError(f"{path} has no muster_{name}: it is older than this package") from None
        function.restype, function.argtypes = result, arguments
    if library.muster_abi_version() != ABI_VERSION:
        raise ImportError(f"{path} has ABI {library.muster_abi_version()}, and this package is made for ABI {ABI_VERSION}")


PATH, LIBRARY = _open()
_declare(LIBRARY, PATH)
