"""Collectives that reduce by a function of Python.

The function runs on a thread of the library, also where the caller waits: on the main thread a signal's handler could
raise in the middle of it, and the element would be left as it was. The library's functions cannot fail. So all ranks
agree afterwards on whether anybody's has.
"""

from array import array
from typing import TYPE_CHECKING, Any

from . import _calls
from ._calls import Call
from ._errors import MusterError, ReductionError

if TYPE_CHECKING:
    from ._group_base import GroupBase


# A wait without a limit would carry the collective out on this thread.
_LONG_S = 1e9


def run(group: "GroupBase", name: str, call: Call) -> Any:
    """Carries a reduction out, and fails it on every rank where a function has raised on any."""
    operation = call.operation
    assert operation is not None  # this is what brings a call here
    with operation.watched() as heard:
        request = group._started(name, call)
        try:
            result = request.wait(_LONG_S)
        except BaseException as error:
            if not isinstance(error, MusterError):  # a signal's handler raised: as in any collective that is under way
                request.cancel()
            raise
    raised = heard[0] if heard else None
    lowest = array("q", [group._rank if raised is not None else group._size])
    group._run("allreduce", _calls.allreduce(lowest, None, "min"))
    if raised is not None:
        raise ReductionError(f"the function of the reduction raised {type(raised).__name__}: {raised}") from raised
    if lowest[0] < group._size:
        raise ReductionError(f"the function of the reduction raised on rank {lowest[0]}")
    return result
