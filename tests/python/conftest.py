"""What every test of this folder needs: the built programs, and one clear word when they are not there."""

import signal

import pytest

from cluster import EXAMPLES, LIBRARY, MUSTER


def interrupt(number, frame):
    raise KeyboardInterrupt


def pytest_sessionstart(session):
    signal.signal(signal.SIGTERM, interrupt)  # so that whoever stops the tests stops the processes that they started
    missing = [str(path) for path in (LIBRARY, MUSTER, EXAMPLES / "train_digits") if not path.exists()]
    if missing:
        pytest.exit(f"not built: {', '.join(missing)}; run `make build` first", returncode=3)
