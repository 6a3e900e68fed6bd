"""The package under the other versions of CPython that this machine has, free-threaded ones among them."""

import os
import pathlib
import re
import shutil
import signal
import sys
import time

import pytest

from cluster import Cluster
from nodes import said
from packaged import packaged

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.15"]

LINES = """
    import gc, signal, threading
    from array import array
    c = muster.init()
    w = c.world
    total = w.allreduce(array("d", [c.rank + 1.0] * 3))
    assert total.tolist() == [3.0] * 3
    assert w.allgather_object({"rank": c.rank}) == [{"rank": 0}, {"rank": 1}]
    assert w.iallgather(b"ab").wait() == b"abab"
    frozen = memoryview(bytearray(b"frozen")).toreadonly()
    assert w.allgather(frozen).tobytes() == b"frozenfrozen"
    def add(lower, inout, dtype):
        for index, value in enumerate(lower):
            inout[index] += value
    assert w.allreduce(array("i", [4, 5]), op=c.operation(add)).tolist() == [8, 10]
    groups = [w.split(0) for _ in range(4)]
    sums = []
    def work(group):
        for _ in range(200):
            sums.append(group.allreduce(array("q", [1]))[0])
    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [2] * 800
    child = os.fork()
    if child == 0:
        os._exit(told(lambda: w.size)["error"] != "ForkedError")
    assert os.waitpid(child, 0)[1] == 0
    w.irecv(bytearray(3), tag=5)
    gc.collect()
    say(waits=True, free_threaded=not getattr(sys, "_is_gil_enabled", lambda: True)())
    try:
        w.recv(bytearray(1), tag=6)
    except KeyboardInterrupt:
        say(interrupted=True)
    w.barrier()
    c.finalize()
"""


def interpreter(version):
    """The interpreter of this version, from PATH or from pyenv; skips where there is none."""
    found = shutil.which(f"python{version}")
    root = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    exact = re.compile(re.escape(version.rstrip("t")) + r"\.\d+" + ("t" if version.endswith("t") else ""))
    for folder in sorted((root / "versions").glob("*")):
        if exact.fullmatch(folder.name):
            return folder / "bin" / "python"
    if found is None or "shims" in found:
        pytest.skip(f"there is no CPython {version} here")
    return found


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != f"{sys.version_info[0]}.{sys.version_info[1]}"])
def test_this_version(version):
    program = [interpreter(version), "-W", "ignore::DeprecationWarning", *packaged(LINES)]  # of 3.12 on: os.fork beside threads
    with Cluster(program, workers=2, scheduler=packaged(LINES)) as cluster:
        for worker in cluster.workers:
            worker.wait_for('"waits"', timeout=90)
            time.sleep(0.2)  # so that it mostly waits inside the call; just before it, the test holds as well
            worker.signal(signal.SIGINT)
        for worker in cluster.succeed(timeout=90):
            assert said(worker)["interrupted"] and worker.stderr == ""
            assert said(worker)["free_threaded"] == version.endswith("t")
