"""What every test of this folder needs: the built programs, and one clear word when they are not there."""

import pytest

from cluster import EXAMPLES, LIBRARY, MUSTER


def pytest_sessionstart(session):
    missing = [str(path) for path in (LIBRARY, MUSTER, EXAMPLES / "train_digits") if not path.exists()]
    if missing:
        pytest.exit(f"not built: {', '.join(missing)}; run `make build` first", returncode=3)
