"""Runs torch's own cases for its backends on muster, one after another: torch_cases.py BACKEND RANKS NAME ...

They are the methods of `distributed_test.py`, which ships with torch. torch starts a process for each rank of each case, and
each loads torch anew. Here they are forked from this process, which loads it once. Prints a line for each case: its name, and
"ok", "failed", or "skipped" with the reason. Without a name it lists all cases.
"""

import multiprocessing
import os
import shutil
import sys
import tempfile
import unittest
from datetime import timedelta

FOLDER = tempfile.mkdtemp(prefix="muster-torch-cases-")
# The cases ask which backend they run on, and get the name of one of torch's own for the CPU: what runs on it is to run here.
os.environ.update(BACKEND=sys.argv[1], WORLD_SIZE=sys.argv[2], TEMP_DIR=FOLDER)

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  which a case would otherwise load in each rank
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

TIMEOUT_S = 300


class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **_):
        """What a rank does."""
        self = cls(test_name)
        self.rank, self.file_name = rank, file_name
        timeout = timedelta(seconds=distributed_test.CUSTOM_PG_TIMEOUT.get(test_name, TIMEOUT_S))
        size = int(self.world_size)
        dist.init_process_group("muster", init_method=self.init_method, world_size=size, rank=rank, timeout=timeout)
        self._barrier()
        self.run_test(test_name, pipe)
        self._barrier()
        dist.destroy_process_group()
        sys.exit(0)


class Told(unittest.TestResult):
    def addSuccess(self, case):  # noqa: N802
        print(case._testMethodName, "ok", flush=True)

    def addSkip(self, case, reason):  # noqa: N802
        print(case._testMethodName, "skipped", reason.splitlines()[0], flush=True)

    def addFailure(self, case, error):  # noqa: N802
        print(case._testMethodName, "failed", flush=True)
        print(f"--- {case._testMethodName}: {error[1]}", file=sys.stderr, flush=True)

    addError = addFailure  # noqa: N815


def every_name():
    return [name for name in dir(Cases) if name.startswith("test_")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if not sys.argv[3:]:
        print("\n".join(every_name()))
    try:
        for name in sys.argv[3:]:
            Cases(name).run(Told())
    finally:
        shutil.rmtree(FOLDER)
