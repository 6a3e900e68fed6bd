"""What builds everything anew, or installs into a system: `make test-install` runs it. The helpers are those of tests/python."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
