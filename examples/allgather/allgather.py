#!/usr/bin/env python3
"""The smoke test from Python: all-gather of [[rank]], as float32.

    muster run --worker_num 4 --join True --tail_worker_log 0 allgather.py

prints [[0.], [1.], [2.], [3.]]. It needs the wheel of muster (`make wheel`), or runs in the source tree after `make library`.
"""

import pathlib
import sys
from array import array

# Where the package is installed, that one counts.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))

import muster  # noqa: E402

with muster.init() as cluster:
    everyone = cluster.world.allgather(array("f", [cluster.rank]))
    print("[" + ", ".join(f"[{rank:.0f}.]" for rank in everyone) + "]", flush=True)
