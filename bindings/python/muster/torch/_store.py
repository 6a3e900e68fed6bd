"""torch's store on the cluster's."""

import datetime
from typing import Any, List, Optional, Sequence, Union

import torch.distributed

from .. import _life
from .._cluster import Cluster, init
from .._errors import InvalidError, MusterError, TimeoutError
from .._times import milliseconds
from ._versions import check_store

check_store()

# A class of its own since torch 2.1; a RuntimeError there, too.
_StoreError = getattr(torch.distributed, "DistStoreError", RuntimeError)

_DEFAULT = datetime.timedelta(seconds=300)

# torch's own objects call a store, and do not keep it as an object of Python.
_alive: List["Store"] = []


def _seconds(timeout: datetime.timedelta) -> Optional[float]:
    """As torch has it: 0 is no limit."""
    return timeout.total_seconds() or None


class Store(torch.distributed.Store):
    """A store of `torch.distributed` that the cluster's scheduler keeps, for any backend.

    `cluster` is a cluster that the program has joined. Without it the store uses the cluster that was joined last, or
    `muster.init()` joins one. `timeout` is how long `get`, `wait` and `multi_get` wait, and 0 is no limit; `set_timeout`
    changes it, also that of a `PrefixStore` on it. Keys and values are those of `cluster.store`, where programs in other languages find
    them, too. The object lives until the process ends.

    Calls may come from any thread, and wait for the scheduler's answer. When the time is up they raise torch's
    `DistStoreError` (a `RuntimeError`), as they do where the cluster is broken.
    """

    def __init__(self, cluster: Optional[Cluster] = None, timeout: datetime.timedelta = _DEFAULT) -> None:
        super().__init__()
        if cluster is None:
            cluster = _life.open_clusters[-1] if _life.open_clusters else init()
        self.cluster = cluster
        """The cluster whose store it is."""
        self.set_timeout(timeout)
        _alive.append(self)

    def clone(self) -> "Store":
        """This store: its calls may come from any thread."""
        return self

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long `get`, `wait` and `multi_get` wait from now on. 0 is no limit."""
        milliseconds(_seconds(timeout))  # raises InvalidError where it is negative
        super().set_timeout(timeout)

    def set(self, key: str, value: Union[str, bytes]) -> None:
        """Sets a key."""
        self._told(self.cluster.store.set, key, value)

    def get(self, key: str) -> bytes:
        """The value of a key; waits until somebody sets it."""
        value: bytes = self._told(self.cluster.store.get, key, _seconds(self.timeout))
        return value

    def add(self, key: str, value: int) -> int:
        """Adds to the number in a key, and returns the sum. A key that is not there counts as 0."""
        total: int = self._told(self.cluster.store.add, key, value)
        return total

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there. It does not wait for the keys."""
        return all(self._told(self.cluster.store.check, keys))

    def compare_set(self, key: str, expected_value: Union[str, bytes], desired_value: Union[str, bytes]) -> bytes:
        """Sets a key to the desired value if its value is the expected one, and returns the value afterwards. A key
        that is not there is set only if the expected value is empty; otherwise the call returns the expected value.
        """
        # Up to torch 1.13 a PrefixStore passes values on as lists of numbers.
        words = (key, *(bytes(value) if isinstance(value, list) else value for value in (expected_value, desired_value)))
        value: bytes = self._told(lambda: self.cluster.store.compare_set(*words, c10d=True))
        return value

    def delete_key(self, key: str) -> bool:
        """Deletes a key, and returns whether it was there."""
        existed: bool = self._told(self.cluster.store.delete, key)
        return existed

    def num_keys(self) -> int:
        """How many keys the cluster has."""
        count: int = self._told(self.cluster.store.count)
        return count

    def list_keys(self) -> List[str]:
        """All keys of the cluster, which must be text; `cluster.store.list()` gives any. A `PrefixStore` of torch does not pass it on."""
        return [key.decode() for key in self._told(self.cluster.store.list)]

    def wait(self, keys: Sequence[str], timeout: Optional[datetime.timedelta] = None) -> None:
        """Waits until all keys are there. `timeout` is in place of the store's; 0 is no limit."""
        self._told(self.cluster.store.wait, keys, _seconds(self.timeout if timeout is None else timeout))

    def append(self, key: str, value: Union[str, bytes]) -> None:
        """Appends bytes to the value of a key."""
        self._told(self.cluster.store.append, key, value)

    def multi_get(self, keys: Sequence[str]) -> List[bytes]:
        """The values of several keys; waits for all of them."""
        values: List[bytes] = self._told(self.cluster.store.multi_get, keys, _seconds(self.timeout))
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[Union[str, bytes]]) -> None:
        """Sets several keys at once, all or none."""
        if len(keys) != len(values):
            raise InvalidError(f"multi_set: has {len(keys)} keys and {len(values)} values; expected as many")
        self._told(self.cluster.store.multi_set, dict(zip(keys, values)))

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get` and `multi_set` are there: yes."""
        return True

    # By these names torch's own objects call a store in Python, some by one of the two.
    compareSet = compare_set  # noqa: N815
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815
    multiGet = multi_get  # noqa: N815
    multiSet = multi_set  # noqa: N815
    hasExtendedApi = has_extended_api  # noqa: N815

    def _told(self, call: Any, *words: Any) -> Any:
        try:
            return call(*words)
        except ValueError:  # a wrong key or value: the caller's
            raise
        except TimeoutError as error:
            raise _StoreError(f"wait timeout: {error}") from error
        except MusterError as error:
            raise _StoreError(str(error)) from error
