"""The library through ctypes, for the tests' worker programs: what fails raises, with the status's name and the sentence.

Deliberately thin, and apart from the Python package: a test of the library must not depend on what is built on top.
"""

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

ABI_VERSION = 1
SCHEDULER_DONE = 2
UINT8, INT32, INT64, FLOAT32, FLOAT64 = 4, 2, 3, 10, 11
ELEMENT = 0x100000
SUM, PROD, MIN, MAX, AVG = range(5)
ROLES = {1: "worker", 2: "server"}
NO_LIMIT = 2**63 - 1


class Member(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("role", "rank", "local_rank", "pid", "state")),
        ("node_id", ctypes.c_char * 256),
        ("host", ctypes.c_char * 256),
        ("address", ctypes.c_char * 64),
    ]


class Failure(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("status", "role", "rank", "pid")),
        ("epoch", c_int64),
        ("group", c_int64),
        ("sequence", c_uint64),
        ("node_id", ctypes.c_char * 256),
        ("host", ctypes.c_char * 256),
        ("cause", ctypes.c_char * 512),
    ]


class HcclCm(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("chief_port", "chief_device", "worker_size")),
        ("chief_ip", ctypes.c_char * 64),
        ("worker_ip", ctypes.c_char * 64),
    ]


SIGNATURES = {
    "muster_status_string": (c_char_p, [c_int32]),
    "muster_last_error": (c_char_p, []),
    "muster_free": (None, [c_void_p]),
    "muster_config_new": (c_int32, [c_uint32, c_void_p]),
    "muster_config_load_env": (c_int32, [c_void_p]),
    "muster_config_set": (c_int32, [c_void_p, c_char_p, c_char_p]),
    "muster_config_free": (None, [c_void_p]),
    "muster_init": (c_int32, [c_void_p, c_void_p]),
    "muster_finalize": (c_int32, [c_void_p]),
    "muster_recover": (c_int32, [c_void_p, c_int64]),
    "muster_restarts": (c_int32, [c_void_p]),
    "muster_abort": (c_int32, [c_void_p, c_int32, c_char_p]),
    "muster_cluster_free": (None, [c_void_p]),
    "muster_node_id": (c_char_p, [c_void_p]),
    "muster_epoch": (c_int64, [c_void_p]),
    "muster_failure": (c_int32, [c_void_p, POINTER(Failure), c_size_t]),
    "muster_cluster_error": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "muster_rank_table": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "muster_hccl_cm": (c_int32, [c_void_p, POINTER(HcclCm), c_size_t]),
    "muster_failed_ranks": (c_int32, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_size_t)]),
    "muster_group_member": (c_int32, [c_void_p, c_int32, POINTER(Member), c_size_t]),
    "muster_group_failure": (c_int32, [c_void_p, POINTER(Failure), c_size_t]),
    "muster_group_set_timeout": (c_int32, [c_void_p, c_int64]),
    "muster_barrier": (c_int32, [c_void_p]),
    "muster_broadcast": (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    "muster_allreduce": (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    "muster_allgather": (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32]),
    "muster_send": (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int32]),
    "muster_recv": (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int32, c_void_p, c_size_t]),
    "muster_store_set": (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "muster_store_get": (c_int32, [c_void_p, c_char_p, c_int64, POINTER(c_void_p), POINTER(c_size_t)]),
    "muster_store_add": (c_int32, [c_void_p, c_char_p, c_int64, POINTER(c_int64)]),
    "muster_store_compare_set": (
        c_int32,
        [c_void_p, c_char_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)],
    ),
    "muster_store_delete": (c_int32, [c_void_p, c_char_p, POINTER(c_int32)]),
    "muster_store_wait": (c_int32, [c_void_p, POINTER(c_char_p), c_size_t, c_int64]),
    **{f"muster_{name}": (c_int32, [c_void_p]) for name in ("role", "rank", "size", "local_rank", "local_size")},
    **{f"muster_{name}": (c_void_p, [c_void_p]) for name in ("world", "servers", "universe")},
    "muster_group_create": (c_int32, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_void_p)]),
    "muster_group_split": (c_int32, [c_void_p, c_int32, c_int32, POINTER(c_void_p)]),
    "muster_group_free": (None, [c_void_p]),
    **{f"muster_group_{name}": (c_int32, [c_void_p]) for name in ("rank", "size")},
}


def load():
    tree = pathlib.Path(__file__).resolve().parents[2]
    library = ctypes.CDLL(os.environ.get("MUSTER_LIBRARY") or str(tree / "target" / "release" / "libmuster.so"))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


LIBRARY = load()


class MusterError(Exception):
    """A failed call: `status` is the name without ERR_, as "TIMEOUT"; `sentence` what the library says."""

    def __init__(self, code):
        name = LIBRARY.muster_status_string(code).decode().partition(":")[0]
        self.status = name.removeprefix("ERR_")
        self.sentence = LIBRARY.muster_last_error().decode()
        super().__init__(f"{self.status}: {self.sentence}")


def check(code):
    if code < 0:
        raise MusterError(code)
    return code


def take(value, length):
    """The bytes that the store gave out; frees its copy."""
    data = ctypes.string_at(value, length.value) if length.value else b""
    LIBRARY.muster_free(value)
    return data


def size_of(dtype):
    """Bytes of an uint8, or of an element of the caller's own."""
    return 1 if dtype == UINT8 else dtype - ELEMENT


class Group:
    def __init__(self, handle):
        self.handle = handle

    @property
    def rank(self):
        return LIBRARY.muster_group_rank(self.handle)

    @property
    def size(self):
        return check(LIBRARY.muster_group_size(self.handle))

    def member(self, rank):
        member = Member()
        check(LIBRARY.muster_group_member(self.handle, rank, byref(member), ctypes.sizeof(member)))
        return member

    def set_timeout(self, timeout_ms):
        check(LIBRARY.muster_group_set_timeout(self.handle, timeout_ms))

    def create(self, ranks):
        """A group of these ranks; None on a rank that is not among them."""
        handle = c_void_p()
        check(LIBRARY.muster_group_create(self.handle, (c_int32 * len(ranks))(*ranks), len(ranks), byref(handle)))
        return Group(handle) if handle else None

    def split(self, colour, key=0):
        """The group of the ranks that pass the same colour; None for a negative one."""
        handle = c_void_p()
        check(LIBRARY.muster_group_split(self.handle, colour, key, byref(handle)))
        return Group(handle) if handle else None

    def free(self):
        LIBRARY.muster_group_free(self.handle)

    def barrier(self):
        check(LIBRARY.muster_barrier(self.handle))

    def broadcast(self, data, root=0, dtype=UINT8):
        """The root's bytes; all must give as many."""
        buffer = ctypes.create_string_buffer(bytes(data), max(1, len(data)))
        check(LIBRARY.muster_broadcast(self.handle, buffer, len(data) // size_of(dtype), dtype, root))
        return buffer.raw[: len(data)]

    def allreduce(self, values, op=SUM):
        """Element by element over all ranks, as int64."""
        array = (c_int64 * len(values))(*values)
        check(LIBRARY.muster_allreduce(self.handle, array, array, len(values), INT64, op))
        return list(array)

    def allreduce_zeros(self, count):
        """An allreduce of so many float64, to keep ranks busy."""
        array = (c_double * count)()
        check(LIBRARY.muster_allreduce(self.handle, array, array, count, FLOAT64, SUM))

    def allgather(self, value):
        """One int64 of each rank."""
        mine, everyone = c_int64(value), (c_int64 * self.size)()
        check(LIBRARY.muster_allgather(self.handle, byref(mine), everyone, 1, INT64))
        return list(everyone)

    def send(self, data, to, tag=0):
        buffer = ctypes.create_string_buffer(bytes(data), max(1, len(data)))
        check(LIBRARY.muster_send(self.handle, buffer, len(data), UINT8, to, tag))

    def receive(self, length, sender, tag=0, dtype=UINT8):
        """So many bytes."""
        buffer = ctypes.create_string_buffer(max(1, length))
        check(LIBRARY.muster_recv(self.handle, buffer, length // size_of(dtype), dtype, sender, tag, None, 0))
        return buffer.raw[:length]


class Cluster:
    def __init__(self, handle):
        self.handle = handle
        self.world = Group(LIBRARY.muster_world(handle))
        self.servers = Group(LIBRARY.muster_servers(handle))
        self.universe = Group(LIBRARY.muster_universe(handle))

    role = property(lambda self: ROLES[check(LIBRARY.muster_role(self.handle))])
    rank = property(lambda self: check(LIBRARY.muster_rank(self.handle)))
    size = property(lambda self: check(LIBRARY.muster_size(self.handle)))
    local_rank = property(lambda self: check(LIBRARY.muster_local_rank(self.handle)))
    local_size = property(lambda self: check(LIBRARY.muster_local_size(self.handle)))
    epoch = property(lambda self: check(LIBRARY.muster_epoch(self.handle)))
    restarts = property(lambda self: check(LIBRARY.muster_restarts(self.handle)))
    node_id = property(lambda self: LIBRARY.muster_node_id(self.handle).decode())

    def failure(self):
        """The first cause, as a dictionary; the status by its name."""
        failure = Failure()
        check(LIBRARY.muster_failure(self.handle, byref(failure), ctypes.sizeof(failure)))
        values = {name: getattr(failure, name) for name, _ in Failure._fields_}
        values = {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
        name = LIBRARY.muster_status_string(failure.status).decode().partition(":")[0]
        return {**values, "status": name.removeprefix("ERR_")}

    def error(self):
        """The first cause, as a sentence."""
        buffer, needed = ctypes.create_string_buffer(4096), c_size_t()
        check(LIBRARY.muster_cluster_error(self.handle, buffer, len(buffer), byref(needed)))
        return buffer.value.decode()

    def rank_table(self):
        """The HCCL rank table, as text, asked for as the header says: the length first."""
        needed = c_size_t()
        check(LIBRARY.muster_rank_table(self.handle, None, 0, byref(needed)))
        buffer = ctypes.create_string_buffer(needed.value)
        check(LIBRARY.muster_rank_table(self.handle, buffer, len(buffer), byref(needed)))
        return buffer.value.decode()

    def hccl_cm(self):
        found = HcclCm()
        check(LIBRARY.muster_hccl_cm(self.handle, byref(found), ctypes.sizeof(found)))
        return found

    def failed_ranks(self):
        ranks, count = (c_int32 * 64)(), c_size_t()
        check(LIBRARY.muster_failed_ranks(self.handle, ranks, len(ranks), byref(count)))
        return list(ranks)[: count.value]

    def finalize(self):
        check(LIBRARY.muster_finalize(self.handle))

    def recover(self, timeout_ms=-1):
        check(LIBRARY.muster_recover(self.handle, timeout_ms))

    def abort(self, code, reason):
        check(LIBRARY.muster_abort(self.handle, code, reason.encode()))

    def free(self):
        LIBRARY.muster_cluster_free(self.handle)

    def leave(self):
        self.finalize()
        self.free()

    def store_set(self, key, value):
        check(LIBRARY.muster_store_set(self.handle, key.encode(), value, len(value)))

    def store_get(self, key, timeout_ms=-1):
        value, length = c_void_p(), c_size_t()
        check(LIBRARY.muster_store_get(self.handle, key.encode(), timeout_ms, byref(value), byref(length)))
        return take(value, length)

    def store_add(self, key, delta):
        total = c_int64()
        check(LIBRARY.muster_store_add(self.handle, key.encode(), delta, byref(total)))
        return total.value

    def store_compare_set(self, key, expected, desired):
        value, length = c_void_p(), c_size_t()
        sides = (expected, len(expected), desired, len(desired))
        check(LIBRARY.muster_store_compare_set(self.handle, key.encode(), *sides, byref(value), byref(length)))
        return take(value, length)

    def store_delete(self, key):
        existed = c_int32()
        check(LIBRARY.muster_store_delete(self.handle, key.encode(), byref(existed)))
        return bool(existed.value)

    def store_wait(self, keys, timeout_ms=-1):
        array = (c_char_p * len(keys))(*(key.encode() for key in keys))
        check(LIBRARY.muster_store_wait(self.handle, array, len(keys), timeout_ms))


def init(settings=None, environment=True):
    """Joins as the environment says, with `settings` set in code. None in a scheduler whose job has ended well."""
    config, cluster = c_void_p(), c_void_p()
    check(LIBRARY.muster_config_new(ABI_VERSION, byref(config)))
    try:
        for key, value in (settings or {}).items():
            check(LIBRARY.muster_config_set(config, key.encode(), str(value).encode()))
        if environment:
            check(LIBRARY.muster_config_load_env(config))
        done = check(LIBRARY.muster_init(config, byref(cluster))) == SCHEDULER_DONE
    finally:
        LIBRARY.muster_config_free(config)
    assert done == (not cluster.value)
    return None if done else Cluster(cluster)
