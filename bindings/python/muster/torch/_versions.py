"""Which versions of torch this is made for.

A backend written in Python rests on parts of torch that are not public. So it is tried with each version, and refuses the
others by name, for there it could fail in a way that nobody can read.
"""

import re
from typing import Tuple

import torch

from .._errors import UnsupportedError

BACKEND = ((2, 14), (2, 15))
STORE_FROM = (1, 13)


def _version() -> Tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return tuple(map(int, match.groups())) if match else (0, 0)


def check_backend() -> None:
    """Raises where the backend has not been tried with this torch."""
    if _version() not in BACKEND:
        tried = " and ".join(".".join(map(str, version)) for version in BACKEND)
        raise UnsupportedError(
            f"torch: this is version {torch.__version__}, and muster's backend works with {tried}; with any from 1.13 on, "
            'init_process_group("gloo", store=muster.torch.Store(), ...) runs'
        )


def check_store() -> None:
    """Raises where torch is older than its stores in Python are known to work."""
    if _version() < STORE_FROM:
        raise UnsupportedError(f"torch: this is version {torch.__version__}, and muster.torch.Store needs 1.13 or newer")
