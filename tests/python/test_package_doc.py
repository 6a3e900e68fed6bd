"""Every block of Python in docs/python.md, and in the package's own README, runs on two ranks, and the package keeps what the page says of types."""

import os
import re
import subprocess
import sys

import pytest

from cluster import TREE, Cluster
from packaged import BINDINGS, packaged
from pages import Page

PAGE = Page("docs", "python.md").text
BLOCKS = Page("docs", "python.md").of("python") + Page("bindings", "python", "README.md").of("python")
AT_HAND = "import numpy as np\ncluster = muster.init()\nworld = cluster.world\n"


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_runs(number):
    block = BLOCKS[number]
    with Cluster(packaged(block if "import muster" in block else AT_HAND + block), workers=2) as cluster:
        cluster.succeed(timeout=60)


def test_every_call_of_a_group_is_on_the_page():
    sys.path.insert(0, str(BINDINGS))
    import muster

    for name in dir(muster.Group):
        if name.startswith("_") or name.startswith("i") and hasattr(muster.Group, name[1:]):
            continue
        assert re.search(rf"\b{name}\b", PAGE), name


def mypy(*words, **named):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(TREE / "target" / "mypy"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **named)


def test_mypy_has_nothing_to_say_of_the_package():
    done = mypy(cwd=BINDINGS)
    assert done.returncode == 0, done.stdout + done.stderr


TYPED = """
from array import array
from typing import List
import numpy as np
import muster

async def later(world: muster.Group) -> muster.Received:
    return await world.irecv(bytearray(4))

with muster.init(role="worker", worker_num=2) as cluster:
    x = np.zeros(3, dtype=np.float32)
    same: np.ndarray[tuple[int], np.dtype[np.float32]] = cluster.world.allreduce(x, op="max")
    letters: array[float] = cluster.world.broadcast(array("f", [1.0]))
    request: muster.Request[bytearray] = cluster.world.iallreduce(bytearray(8))
    try:
        done: bytearray = request.wait(timeout=1.5)
    except muster.TimeoutError as error:
        status: muster.Status = error.status
    values = {"key": "value"}
    cluster.store.multi_set(values)
    cluster.store.multi_set({"text": b"bytes", b"bytes": x})
    ranks: List[object] = cluster.world.allgather_object({"rank": cluster.rank})
    cluster.world.allreduce([1, 2])
"""


def test_the_types_serve_a_program(tmp_path):
    (tmp_path / "program.py").write_text(TYPED)
    done = mypy(tmp_path / "program.py", env={**os.environ, "MYPYPATH": str(BINDINGS)}, cwd=tmp_path)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    wrong = TYPED.splitlines().index("    cluster.world.allreduce([1, 2])") + 1
    assert len(errors) == 1 and errors[0].startswith(f"program.py:{wrong}:"), done.stdout + done.stderr


def test_python_3_9_reads_every_file():
    import ast

    for path in sorted((BINDINGS / "muster").rglob("*.py")):
        ast.parse(path.read_text(), feature_version=(3, 9))


def test_every_public_name_says_what_it_is():
    sys.path.insert(0, str(BINDINGS))
    import muster

    for name in muster.__all__:
        value = getattr(muster, name)
        if not callable(value):
            continue
        assert value.__doc__, name
        for method in vars(value).values() if isinstance(value, type) else []:
            named = getattr(method, "fget", method)
            if callable(named) and not named.__name__.startswith("_"):
                assert named.__doc__, f"{name}.{named.__name__}"
