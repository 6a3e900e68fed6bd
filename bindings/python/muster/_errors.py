"""What goes wrong: one exception class per status of the library, with the first cause.

Every class is a `MusterError`. Those that mean what one of Python's own exceptions means are that, too, so that
`except TimeoutError` catches a `muster.TimeoutError`.
"""

import builtins
import ctypes
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Optional, Type

from . import _interrupt
from ._library import LIBRARY, FailureStruct
from ._life import free_late, late

if TYPE_CHECKING:
    from ._group_base import GroupBase
    from ._requests import Received


class Status(enum.IntEnum):
    """The result of a call of the library: 0 is success, a positive value a state, a negative value an error."""

    OK = 0
    IN_PROGRESS = 1
    SCHEDULER_DONE = 2
    INVALID = -1
    CONFIG = -2
    STATE = -3
    UNSUPPORTED = -4
    LIMIT = -5
    NOT_FOUND = -6
    REJECTED = -7
    BIND = -8
    UNREACHABLE = -9
    TIMEOUT = -10
    PEER_LOST = -11
    PEER_LEFT = -12
    LINK = -13
    CORRUPT = -14
    MISMATCH = -15
    REVOKED = -16
    ABORTED = -17
    FENCED = -18
    SECURITY = -19
    JOURNAL = -20
    SYSTEM = -21
    MEMORY = -22
    INTERNAL = -23
    FORKED = -24
    INTERRUPTED = -25


@dataclass(frozen=True)
class Failure:
    """What broke a cluster or a group: the first cause, which every rank tells alike."""

    status: Status
    """The status of the error that the failing calls raised."""
    role: Optional[str]
    """"worker" or "server": the role of the culprit, the node that caused the failure; None if there is no culprit."""
    rank: Optional[int]
    """The culprit's rank among the nodes of its role; None if it has none."""
    pid: Optional[int]
    """The culprit's process id; None if there is no culprit."""
    epoch: int
    """The epoch in which the failure happened."""
    group: Optional[int]
    """The group that the failure broke: 0 world, 1 servers, 2 universe, from 3 on a group that the program made; None
    for the whole cluster. A lost node breaks the whole cluster: then this is the group in which the node was heard
    last.
    """
    sequence: Optional[int]
    """The number of the group's collective in which the failure was noticed, from 1; None if there was none. If a node
    was lost, this is the collective in which, or after which, the node was heard last.
    """
    node_id: str
    """The culprit's node id; empty if there is no culprit."""
    host: str
    """The name of the culprit's host."""
    cause: str
    """What happened, in words."""


ROLES: Dict[int, str] = {1: "worker", 2: "server"}


def failure_of(struct: FailureStruct) -> Failure:
    return Failure(
        status=Status(struct.status),
        role=ROLES.get(struct.role),
        rank=struct.rank if struct.rank >= 0 else None,
        pid=struct.pid or None,
        epoch=struct.epoch,
        group=struct.group if struct.group >= 0 else None,
        sequence=struct.sequence or None,
        node_id=struct.node_id.decode(errors="replace"),
        host=struct.host.decode(errors="replace"),
        cause=struct.cause.decode(errors="replace"),
    )


class MusterError(Exception):
    """A call of the library that failed. `str()` is the library's sentence: which input was wrong, what it was, what
    would be right.

    Exceptions can be pickled, as between processes of `multiprocessing`.
    """

    code = Status.INTERNAL

    def __init__(self, sentence: str, status: Optional[Status] = None, failure: Optional[Failure] = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.status: Status = self.code if status is None else status
        """What the library returned."""
        self.failure: Optional[Failure] = failure
        """The first cause of the group or cluster that is broken; None if only this call failed."""

    @property
    def rank(self) -> Optional[int]:
        """The rank of the node that caused the failure; None if no such node is known."""
        return self.failure.rank if self.failure else None

    @property
    def node_id(self) -> Optional[str]:
        """The id of the node that caused the failure; None if no such node is known."""
        return (self.failure.node_id or None) if self.failure else None

    @property
    def cause(self) -> str:
        """What happened, in words: the first cause, or this call's own sentence."""
        return self.failure.cause if self.failure else self.sentence


class InvalidError(MusterError, ValueError):
    """An argument is not valid. Nothing has happened."""

    code = Status.INVALID


class ConfigError(MusterError, ValueError):
    """A setting is not valid. The sentence names the variable, its value, and what would be right."""

    code = Status.CONFIG


class StateError(MusterError, RuntimeError):
    """Not possible at this moment, for instance after `finalize`."""

    code = Status.STATE


class UnsupportedError(MusterError, NotImplementedError):
    """The setting `shm` is `require`, but memory cannot be shared; or this version lacks the function."""

    code = Status.UNSUPPORTED


class LimitError(MusterError):
    """A limit is exceeded. The sentence says which."""

    code = Status.LIMIT


class NotFoundError(MusterError, LookupError):
    """There is no such key, or no such thing."""

    code = Status.NOT_FOUND


class RejectedError(MusterError):
    """The scheduler refused this node. The sentence names both sides of the disagreement."""

    code = Status.REJECTED


class BindError(MusterError, OSError):
    """An address could not be bound."""

    code = Status.BIND


class UnreachableError(MusterError, ConnectionError):
    """The scheduler, or a peer, could not be reached."""

    code = Status.UNREACHABLE


class TimeoutError(MusterError, builtins.TimeoutError):
    """The time is up. The sentence names the missing nodes, or the rank for which this process waits."""

    code = Status.TIMEOUT


class PeerLostError(MusterError, ConnectionError):
    """A process of the cluster was lost."""

    code = Status.PEER_LOST


class PeerLeftError(MusterError, ConnectionError):
    """A process that the call needs has left the cluster, or freed the group."""

    code = Status.PEER_LEFT


class LinkError(MusterError, ConnectionError):
    """Two live processes cannot reach each other. The sentence names both."""

    code = Status.LINK


class CorruptError(MusterError):
    """Bytes were damaged on the way."""

    code = Status.CORRUPT


class MismatchError(MusterError):
    """Ranks called different collectives, or a message does not fit its receive. The sentence tells both sides."""

    code = Status.MISMATCH
    received: Optional["Received"] = None
    """The message that did not fit, with its true count and type; None if the call failed for another reason."""


class RevokedError(MusterError):
    """A node has called `recover`, which ends the epoch for every group."""

    code = Status.REVOKED


class AbortedError(MusterError):
    """A rank aborted the job, or its scheduler was stopped; or a request was cancelled."""

    code = Status.ABORTED


class FencedError(MusterError):
    """A newer process of this node has taken its place, or the others took this process for lost."""

    code = Status.FENCED


class SecurityError(MusterError):
    """Authentication or encryption failed: a certificate, or the proof of the job secret, was not accepted."""

    code = Status.SECURITY


class JournalError(MusterError):
    """The journal, or what a node keeps beside it, could not be read or written, or the journal is an older copy."""

    code = Status.JOURNAL


class SystemCallError(MusterError, OSError):
    """The operating system refused something."""

    code = Status.SYSTEM


class OutOfMemoryError(MusterError, MemoryError):
    """Out of memory, for memory whose size a caller or the network gives."""

    code = Status.MEMORY


class InternalError(MusterError):
    """A bug in the library."""

    code = Status.INTERNAL


class ForkedError(MusterError, RuntimeError):
    """The cluster belongs to the parent of this forked process."""

    code = Status.FORKED


class InterruptedError(MusterError, builtins.InterruptedError):
    """A wait was ended from outside, and no signal's handler has raised. This happens when the interpreter ends."""

    code = Status.INTERRUPTED


class ReductionError(MusterError):
    """A Python function that reduces has raised, on this rank (its exception is `__cause__`) or on another."""

    code = Status.INVALID
    rank: Optional[int] = None
    """The lowest rank, among the nodes of its role, on which the function raised. It is the same on every rank."""


_CLASSES: Dict[int, Type[MusterError]] = {
    kind.code: kind for kind in MusterError.__subclasses__() if kind is not ReductionError
}


def _first_cause(status: int, sentence: str, ask: Any, handle: Optional[int]) -> Optional[Failure]:
    """The first cause of a cluster or group, where it is what this call failed with: then its sentence has that in it."""
    struct = FailureStruct()
    if ask(handle, ctypes.byref(struct), ctypes.sizeof(struct)) != Status.OK or struct.status != status:
        return None
    failure = failure_of(struct)
    # A long one is cut, perhaps in the middle of a letter.
    return failure if failure.cause.rstrip("\ufffd") in sentence else None


def error_of(status: int, group: Optional["GroupBase"] = None, cluster: Optional[int] = None) -> MusterError:
    """The exception for this thread's last failing call. The group, or the cluster's handle, says whose first cause may be
    behind it.
    """
    sentence = (LIBRARY.muster_last_error() or b"").decode(errors="replace")
    failure = None
    if group is not None:
        failure = group._asked(lambda handle: _first_cause(status, sentence, LIBRARY.muster_group_failure, handle))
    elif cluster is not None:
        failure = _first_cause(status, sentence, LIBRARY.muster_failure, cluster)
    kind = _CLASSES.get(status, MusterError)
    known = Status(status) if status in Status.__members__.values() else Status.INTERNAL
    return kind(sentence or f"the library returned {status}", known, failure)


def check(status: int, group: Optional["GroupBase"] = None, cluster: Optional[int] = None) -> int:
    """Raises what a signal handler raised meanwhile, or the error of a status; a state or a number goes through. Every call comes
    through here, and then frees what had to wait for the next call.
    """
    if _interrupt.pending and _interrupt.is_main_thread():
        raise _interrupt.pending.pop(0)
    if status < 0:
        raise error_of(status, group, cluster)
    if late:
        free_late()
    return status


def worded(error: BaseException) -> str:
    """An exception in words, as "ValueError: disk full". Only its type's name where it has no words, or raises when it is asked
    for them. Raises nothing.
    """
    name = type(error).__name__
    try:
        words = str(error)
        return f"{name}: {words}" if words else name
    except BaseException:
        return name
