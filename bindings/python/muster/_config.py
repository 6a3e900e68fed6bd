"""Settings: from keyword arguments and from the environment, into the library's configuration."""

import ctypes
import math
import os
from typing import Any, Dict, Optional

from . import _interrupt
from ._errors import ConfigError, InvalidError, check
from ._library import HEADER_VERSION, LIBRARY
from ._text import text_of
from ._times import DEFAULT

ROLES = {"worker": "MS_WORKER", "server": "MS_PSERVER", "scheduler": "MS_SCHED"}

# By these a process says who it is. Where they come from the environment, a child of this process inherits them.
_IDENTITY = ("role", "sched_host", "sched_port", "node_id", "rank_id")
CLAIM = "MUSTER_JOINED_BY"

# Times that may be without limit. The library has that as a negative number.
ENDLESS = ("cluster_timeout", "topo_timeout", "timeout", "store_timeout")


class Config:
    """The library's settings, to be used in a `with` statement, which frees them."""

    def __init__(self, settings: Dict[str, Any], environment: bool) -> None:
        self._handle = ctypes.c_void_p()
        check(LIBRARY.muster_config_new(HEADER_VERSION, ctypes.byref(self._handle)))
        try:
            for key, value in _given(settings).items():
                check(LIBRARY.muster_config_set(self._handle, text_of(key, "setting"), _text(key, value)))
            if environment:
                check(LIBRARY.muster_config_load_env(self._handle))
            _interrupt.arm(self._handle)
        except BaseException:
            self.free()
            raise

    @property
    def handle(self) -> int:
        return self._handle.value or 0

    def get(self, key: str) -> Optional[str]:
        """The value that counts; None where there is none."""
        buffer = ctypes.create_string_buffer(4096)
        if LIBRARY.muster_config_get(self._handle, key.encode(), buffer, len(buffer), None) < 0:
            return None
        return buffer.value.decode()

    def free(self) -> None:
        handle, self._handle = self._handle, ctypes.c_void_p()
        LIBRARY.muster_config_free(handle)

    def __enter__(self) -> "Config":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def _given(settings: Dict[str, Any]) -> Dict[str, Any]:
    """Without those that are left out. DEFAULT is this very object: another -1 is a value, which docs/settings.md explains."""
    return {key: value for key, value in settings.items() if value is not None and value is not DEFAULT}


def _text(key: str, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):  # which str() would show as Python writes them; they may be a secret
        raise InvalidError(f"{key}: is of the type {type(value).__name__}; a string is needed, as decode() makes it")
    if isinstance(value, bool):
        value = int(value)
    if key in ENDLESS and value == math.inf:
        value = -1
    text = os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)
    if key == "role":
        text = ROLES.get(text, text)
        if text not in ROLES.values():  # the library would name its own words
            *others, last = map(repr, ROLES)
            raise ConfigError(f"role is {text!r}: expected {', '.join(others)} or {last}")
    return text_of(text, key)


def _identity() -> str:
    with Config({}, environment=True) as config:
        values = [config.get(key) or "" for key in _IDENTITY]
    return " ".join(values) if any(values) else ""


def _has_identity(settings: Dict[str, Any]) -> bool:
    return any(key in _IDENTITY for key in _given(settings))


def refuse_inherited_identity(settings: Dict[str, Any]) -> None:
    """Raises where another process, whose environment this one has inherited, has joined as whoever the environment
    names.

    A child that multiprocessing spawns, and a forked one, would otherwise claim its parent's rank.
    """
    claim = os.environ.get(CLAIM)
    if not claim or _has_identity(settings):
        return
    pid, _, identity = claim.partition(" ")
    if pid != str(os.getpid()) and identity and identity == _identity():
        raise ConfigError(
            f"process {pid}, whose environment this process has inherited, has joined the cluster with these settings already "
            f"({', '.join(_IDENTITY)}: {identity}); give this process its own, such as node_id or rank_id, or remove {CLAIM} "
            "from its environment"
        )


def claim_identity(settings: Dict[str, Any]) -> bool:
    """Writes into the environment, for children, that this process has joined as whoever the environment names. Whether
    it names anybody.
    """
    identity = "" if _has_identity(settings) else _identity()
    if identity:
        os.environ[CLAIM] = f"{os.getpid()} {identity}"
    return bool(identity)


def drop_claim() -> None:
    """The environment names nobody who is taken any more."""
    if os.environ.get(CLAIM, "").partition(" ")[0] == str(os.getpid()):
        del os.environ[CLAIM]
