"""Messages between two ranks."""

import ctypes
from typing import Optional

from . import _calls
from ._group_base import GroupBase
from ._library import ANY_SOURCE, ANY_TAG, IN_PROGRESS, LIBRARY, ReceivedStruct
from ._memory import Data
from ._requests import Received, Request, received_of
from ._text import source_of, wanted_tag_of


class Messages(GroupBase):
    """Messages between two members of a group. They have no place in the order of collectives, and go on beside them.

    A message meets a receive that asks for its sender, or any, and its tag, or any. Messages from one rank to another
    do not overtake each other. A message of up to 64 KiB is kept for its receiver; a longer one waits until a receive
    asks for it. A receiver keeps up to 16 MiB of one sender; a message beyond that waits as a longer one does. An error
    ends only the call, unless a peer is lost, data is damaged, or a link is broken.
    """

    __slots__ = ()

    def send(self, buf: Data, to: int, tag: int = 0) -> None:
        """Sends `buf` to the member with rank `to`. Blocks until the system has taken it, at most for the group's
        time-out. A message of more than 64 KiB waits until its receive asks for it. A shorter message waits, too, if
        the receiver already keeps 16 MiB of this rank's messages.

        A rank can send itself a message of more than 64 KiB only if the receive is posted; otherwise this raises
        `StateError`. It raises `LimitError` for a shorter message that has no room in the 16 MiB.
        """
        self._run("send", _calls.send(buf, to, tag))

    def recv(self, out: Data, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Received:
        """Receives a message of at most the length of `out`; the rest of `out` stays as it is. Blocks, at most for the
        group's time-out.

        Raises `MismatchError` if the message is longer, or of another type; the message is then dropped. `received` of
        the error describes the message, with its true count.
        """
        received: Received = self._run("recv", _calls.recv(out, source, tag))
        return received

    def sendrecv(
        self, buf: Data, to: int, out: Data, source: int = ANY_SOURCE, tag: int = 0, out_tag: int = ANY_TAG
    ) -> Received:
        """Sends `buf` under `tag` and receives into `out` under `out_tag` at once, so that ranks in a ring need not
        agree on who begins.
        """
        received: Received = self._run("sendrecv", _calls.sendrecv(buf, to, out, source, tag, out_tag))
        return received

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Received:
        """Waits for a message that a receive of this source and tag would get, and describes it without taking it."""
        received = ReceivedStruct()
        words = (source_of(source), wanted_tag_of(tag), ctypes.byref(received), ctypes.sizeof(received))
        self._checked(LIBRARY.muster_probe(self._handle, *words))
        return received_of(received)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Optional[Received]:
        """As `probe`, without waiting: None if there is no such message yet."""
        received = ReceivedStruct()
        words = (source_of(source), wanted_tag_of(tag), ctypes.byref(received), ctypes.sizeof(received))
        status = self._checked(LIBRARY.muster_iprobe(self._handle, *words))
        return None if status == IN_PROGRESS else received_of(received)

    def isend(self, buf: Data, to: int, tag: int = 0) -> Request[None]:
        """Starts a `send`."""
        return self._start("send", _calls.send(buf, to, tag))

    def irecv(self, out: Data, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request[Received]:
        """Starts a `recv`."""
        return self._start("recv", _calls.recv(out, source, tag))

    def isendrecv(
        self, buf: Data, to: int, out: Data, source: int = ANY_SOURCE, tag: int = 0, out_tag: int = ANY_TAG
    ) -> Request[Received]:
        """Starts a `sendrecv`: one request, which has ended when both have."""
        return self._start("sendrecv", _calls.sendrecv(buf, to, out, source, tag, out_tag))
