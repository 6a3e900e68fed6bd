"""A scheduler inside a program."""

import ctypes
from typing import Any, Optional

from . import _life
from ._config import Config
from ._errors import TimeoutError, check
from ._library import IN_PROGRESS, LIBRARY
from ._times import milliseconds


class Scheduler(_life.OfThisProcess):
    """A scheduler on a thread of this process, for programs that start their workers themselves. Its calls may come
    from any thread.

    Keyword arguments are settings, as for `muster.init`: `worker_num`, and, if wanted, `sched_host` (127.0.0.1) and
    `sched_port` (0: the system chooses, and `address` tells). Returns when the port is bound. At the end of a `with`
    block the scheduler is stopped.
    """

    def __init__(self, *, environment: bool = False, **settings: Any) -> None:
        handle = ctypes.c_void_p()
        with Config(settings, environment) as config:
            check(LIBRARY.muster_scheduler_start(config.handle, ctypes.byref(handle)))
        self._owner = _life.Handle(handle.value or 0, LIBRARY.muster_scheduler_free)

    @property
    def address(self) -> str:
        """Where it listens, as "host:port" with a numeric host."""
        buffer = ctypes.create_string_buffer(256)
        check(LIBRARY.muster_scheduler_address(self._owner.value, buffer, len(buffer), None))
        return buffer.value.decode()

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the job has ended, and raises the job's error. `timeout` is in seconds. When it is up,
        `TimeoutError` is raised, and the program may wait again.
        """
        with _life.waited_for_at_the_end():
            status = LIBRARY.muster_scheduler_wait(self._owner.value, milliseconds(timeout))
        if check(status) == IN_PROGRESS:
            raise TimeoutError(f"the job still goes on after {timeout} s")

    def stop(self) -> None:
        """Ends the job for all nodes that are still in it: their calls raise `AbortedError`. Waits until the
        scheduler has ended.
        """
        check(LIBRARY.muster_scheduler_stop(self._owner.value))

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
