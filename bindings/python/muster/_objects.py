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
    bytes.

    Ranks must trust each other: unpickling runs what the sender says. Ranks may run different versions of Python, as
    far as pickle allows. Blocking and errors as the other collectives.
    """

    __slots__ = ()

    def _lengths(self, length: int) -> List[int]:
        return list(self.allgather(array("q", [length])))

    def allgather_object(self, value: Any) -> List[Any]:
        """Gives everyone every rank's object, in order of rank."""
        mine = _pickled(value)
        counts = self._lengths(len(mine))
        return _unpickled(self.allgatherv(mine, counts), counts)

    def gather_object(self, value: Any, root: int = 0) -> Optional[List[Any]]:
        """Gives the root every rank's object, in order of rank; returns None on other ranks."""
        mine = _pickled(value)
        counts = self._lengths(len(mine))
        everything = self.gatherv(mine, counts, root=root)
        return _unpickled(everything, counts) if everything is not None else None

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Gives everyone the root's object, and returns it. On other ranks `value` is not used. The root gets its own
        object back.
        """
        mine = _pickled(value) if root == self._rank else b""
        length = self.broadcast(array("q", [len(mine)]), root)[0]
        data = self.broadcast(mine if root == self._rank else bytearray(length), root)
        return value if root == self._rank else pickle.loads(data)

    def scatter_object(self, values: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
        """Gives each rank its object of the root's `values`, which has one for each member; `values` is used at the
        root only.
        """
        pickles: List[bytes] = []
        if root == self._rank:
            if values is None or len(values) != self._size:
                raise InvalidError(f"values: {len(values or [])} given, and the group has {self._size} members")
            pickles = [_pickled(value) for value in values]
        counts = [len(one) for one in pickles]
        length = self.scatter(array("q", counts) if pickles else None, array("q", [0]), root)[0]
        return pickle.loads(self.scatterv(bytearray(length), b"".join(pickles), counts, root=root))

    def alltoall_object(self, values: Sequence[Any]) -> List[Any]:
        """Gives rank r the object `values[r]`, and returns what every rank has for this one, in order of rank."""
        if len(values) != self._size:
            raise InvalidError(f"values: {len(values)} given, and the group has {self._size} members")
        pickles = [_pickled(value) for value in values]
        goes = [len(one) for one in pickles]
        comes = list(self.alltoall(array("q", goes)))
        return _unpickled(self.alltoallv(b"".join(pickles), goes, comes), comes)

    def send_object(self, value: Any, to: int, tag: int = 0) -> None:
        """Sends an object to the member with rank `to`: two messages, its length and its bytes.

        Threads that send or receive objects at the same time must use different tags, or their messages mix.
        """
        data = _pickled(value)
        self.send(array("q", [len(data)]), to, tag)
        self.send(data, to, tag)

    def recv_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        """Receives an object that `send_object` sent."""
        length = array("q", [0])
        received = self.recv(length, source, tag)
        data = bytearray(length[0])
        self.recv(data, received.source, received.tag)
        return pickle.loads(data)


def _unpickled(data: Any, counts: Sequence[int]) -> List[Any]:
    view, values, begin = memoryview(data), [], 0
    for count in counts:
        values.append(pickle.loads(view[begin : begin + count]))
        begin += count
    return values
