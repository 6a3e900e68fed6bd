"""Collectives that reduce by a function of Python.

The function runs on a thread of the library, also where the caller waits: on the main thread a signal's handler could
raise in the middle of it, and the element would be left as it was. The library's functions cannot fail. So all ranks
agree afterwards on whether anybody's has.
"""

from array import array
from typing import TYPE_CHECKING, Any, List

from . import _calls
from ._calls import Call
from ._errors import InvalidError, MusterError, ReductionError, worded
from ._library import LIBRARY

if TYPE_CHECKING:
    from ._group_base import GroupBase


# A wait without a limit would carry the collective out on this thread.
_LONG_S = 1e9

# In place of the rank on which a function has raised: more than any.
_NOWHERE = 1 << 31


def run(group: "GroupBase", name: str, call: Call) -> Any:
    """Carries a reduction out, and fails it on every rank where a function has raised on any."""
    operation = call.operation
    assert operation is not None  # this is what brings a call here
    if operation._cluster is not group._cluster:  # another function may have its number there
        raise InvalidError("op: an operation of another cluster; operation() of this group's cluster makes one for it")
    heard: List[BaseException] = []
    lowest = array("q", [_NOWHERE])

    def agreement() -> Call:
        if heard:
            lowest[0] = LIBRARY.muster_rank(group._cluster.value)
        return _calls.allreduce(lowest, None, "min")

    with group._together("allreduce", agreement):
        with operation.watched(heard):
            request = group._started(name, call)
            try:
                result = request.wait(_LONG_S)
            except BaseException as error:
                if not isinstance(error, MusterError):  # a signal's handler raised: as in any collective that is under way
                    request.cancel()
                raise
        group._run("allreduce", agreement())
    if lowest[0] == _NOWHERE:
        return result
    raised = heard[0] if heard else None
    what = f"on rank {lowest[0]}" if raised is None else worded(raised)
    failed = ReductionError(f"the function of the reduction raised {what}")
    failed.rank = lowest[0]
    raise failed from raised
