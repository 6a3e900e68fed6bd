"""Short programs on the package `muster`, for its tests.

    with Cluster(packaged("with muster.init() as c: say(rank=c.rank)"), workers=2) as cluster:
        assert [said(worker)["rank"] for worker in cluster.succeed(timeout=60)] == [0, 1]
"""

import pathlib
import sys
import textwrap

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "packaged.py"
BINDINGS = pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"


def packaged(lines):
    """The command that runs these lines in programs/packaged.py."""
    return [PROGRAM, textwrap.dedent(lines)]


def the_package():
    """The package itself, in the process of the tests."""
    if str(BINDINGS) not in sys.path:
        sys.path.insert(0, str(BINDINGS))
    import muster

    return muster
