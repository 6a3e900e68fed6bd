"""What takes too long, or too much, for every run; `make soak` runs it. The helpers are those of tests/python."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
