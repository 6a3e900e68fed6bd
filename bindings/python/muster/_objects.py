"""Collectives on Python objects, by pickle.

Unpickling runs what the sender says. So these calls are for ranks that trust each other, as the ranks of one job do. A
cluster whose port strangers can reach needs its job secret, or TLS.
"""

import pickle
from array import array
from typing import Any, List, Optional, Sequence

from ._collectives import Collectives
from ._errors import InvalidError
from ._library import ANY_SOURCE, ANY_TAG
from ._messages import Messages


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


class Objects(Collectives, Messages):
    """Collectives on objects that can be pickled. Each takes two collectives: one for the lengths, and one for the
    bytes. A message is one.

    Ranks must trust each other: unpickling runs what the sender says. Ranks may run different versions of Python, as
    far as pickle allows. Blocking and errors as the other collectives.
    """

    __slots__ = ()

    def _lengths(self, length: int) -> List[int]:
        return list(self.allgather(array("q", [length])))

    def allgather_object(self, value: Any) -> List[Any]:
        """Gives everyone every rank's object, in order of rank."""
        mine = _pickled(value)
        with self._together():
            counts = self._lengths(len(mine))
            everything = self.allgatherv(mine, counts)
        return _unpickled(everything, counts)

    def gather_object(self, value: Any, root: int = 0) -> Optional[List[Any]]:
        """Gives the root every rank's object, in order of rank; returns None on other ranks."""
        is_root, mine = self._is_root(root), _pickled(value)
        with self._together():
            counts = self._lengths(len(mine))
            everything = self.gatherv(mine, counts, root=root)
        return _unpickled(everything, counts) if is_root else None

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Gives everyone the root's object, and returns it. On other ranks `value` is not used. The root gets its own
        object back.
        """
        is_root = self._is_root(root)
        mine = _pickled(value) if is_root else b""
        with self._together():
            length = self.broadcast(array("q", [len(mine)]), root)[0]
            data = self.broadcast(mine if is_root else bytearray(length), root)
        return value if is_root else pickle.loads(data)

    def scatter_object(self, values: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
        """Gives each rank its object of the root's `values`, which has one for each member; `values` is used at the
        root only.
        """
        pickles: List[bytes] = []
        if self._is_root(root):
            if values is None or len(values) != self._size:
                raise InvalidError(f"values: {0 if values is None else len(values)} given, and the group has {self._size} members")
            pickles = [_pickled(value) for value in values]
        counts, everything = [len(one) for one in pickles], b"".join(pickles)
        with self._together():
            length = self.scatter(array("q", counts) if pickles else None, array("q", [0]), root)[0]
            data = self.scatterv(bytearray(length), everything, counts, root=root)
        return pickle.loads(data)

    def alltoall_object(self, values: Sequence[Any]) -> List[Any]:
        """Gives rank r the object `values[r]`, and returns what every rank has for this one, in order of rank."""
        if len(values) != self._size:
            raise InvalidError(f"values: {len(values)} given, and the group has {self._size} members")
        pickles = [_pickled(value) for value in values]
        goes, everything = [len(one) for one in pickles], b"".join(pickles)
        with self._together():
            comes = list(self.alltoall(array("q", goes)))
            data = self.alltoallv(everything, goes, comes)
        return _unpickled(data, comes)

    def send_object(self, value: Any, to: int, tag: int = 0) -> None:
        """Sends an object to the member with rank `to`: one message, its pickle, as `send` does. To the own rank it may
        have at most 64 KiB.
        """
        self.send(_pickled(value), to, tag)

    def recv_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        """Receives an object that `send_object` sent. Waits for the message, and then for its bytes: each at most for the
        group's time-out.

        Threads that receive objects at the same time must use different tags, or one may take the message for which
        another has made room. Raises `MismatchError` if the message is not of bytes; the message is then dropped.
        """
        found = self.probe(source, tag)
        data = bytearray(found.count)
        received = self.recv(data, found.source, found.tag)
        return pickle.loads(memoryview(data)[: received.count])


def _unpickled(data: Any, counts: Sequence[int]) -> List[Any]:
    view, values, begin = memoryview(data), [], 0
    for count in counts:
        values.append(pickle.loads(view[begin : begin + count]))
        begin += count
    return values
