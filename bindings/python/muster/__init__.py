"""muster turns processes into a cluster: ranks, collectives on host memory, messages, a store, recovery, TLS.

    import muster, numpy as np
    with muster.init() as cluster:
        x = np.full(5, cluster.rank + 1, dtype=np.float32)
        cluster.world.allreduce(x)
        everybody = cluster.world.allgather_object({"rank": cluster.rank})

Under `muster run` the settings come from the environment. Times are in seconds.
"""

from ._cluster import Cluster, HcclCm, init
from ._errors import (
    AbortedError,
    BindError,
    ConfigError,
    CorruptError,
    Failure,
    FencedError,
    ForkedError,
    InternalError,
    InvalidError,
    JournalError,
    LimitError,
    LinkError,
    MismatchError,
    MusterError,
    NotFoundError,
    OutOfMemoryError,
    PeerLeftError,
    PeerLostError,
    ReductionError,
    RejectedError,
    RevokedError,
    SecurityError,
    StateError,
    Status,
    SystemCallError,
    UnreachableError,
    UnsupportedError,
)

# Not in __all__, for a star would hide Python's own, which are more than these.
from ._errors import InterruptedError as InterruptedError
from ._errors import TimeoutError as TimeoutError
from ._group import Group, Member
from ._library import ANY_SOURCE, ANY_TAG, LIBRARY
from ._log import set_log
from ._mindspore import (
    create_group,
    destroy_group,
    get_group_rank_from_world_rank,
    get_group_size,
    get_local_rank,
    get_local_rank_size,
    get_process_group_ranks,
    get_rank,
    get_world_rank_from_group_rank,
    release,
)
from ._operations import Operation
from ._requests import Received, Request, wait_all, wait_any
from ._scheduler import Scheduler
from ._store import Store
from ._times import DEFAULT

__version__: str = LIBRARY.muster_version().decode()

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "DEFAULT",
    "AbortedError",
    "BindError",
    "Cluster",
    "ConfigError",
    "CorruptError",
    "Failure",
    "FencedError",
    "ForkedError",
    "Group",
    "HcclCm",
    "InternalError",
    "InvalidError",
    "JournalError",
    "LimitError",
    "LinkError",
    "Member",
    "MismatchError",
    "MusterError",
    "NotFoundError",
    "Operation",
    "OutOfMemoryError",
    "PeerLeftError",
    "PeerLostError",
    "Received",
    "ReductionError",
    "RejectedError",
    "Request",
    "RevokedError",
    "Scheduler",
    "SecurityError",
    "StateError",
    "Status",
    "Store",
    "SystemCallError",
    "UnreachableError",
    "UnsupportedError",
    "create_group",
    "destroy_group",
    "get_group_rank_from_world_rank",
    "get_group_size",
    "get_local_rank",
    "get_local_rank_size",
    "get_process_group_ranks",
    "get_rank",
    "get_world_rank_from_group_rank",
    "init",
    "release",
    "set_log",
    "wait_all",
    "wait_any",
]
