"""What every test of this folder needs: the built programs, and one clear word when they are not there."""

import signal

import pytest

from cluster import EXAMPLES, LIBRARY, MUSTER


def interrupt(number, frame):
    raise KeyboardInterrupt


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The tests of a file share fixtures and programs: one process runs them, as it runs files that say they are of one group."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_sessionstart(session):
    signal.signal(signal.SIGTERM, interrupt)  # so that stopping the tests stops the processes that they started
    missing = [str(path) for path in (LIBRARY, MUSTER, EXAMPLES / "train_digits") if not path.exists()]
    if missing:
        pytest.exit(f"not built: {', '.join(missing)}; run `make build` first", returncode=3)
