"""What runs on a simulated processor: `make aarch64` runs it. The helpers are those of tests/python."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
