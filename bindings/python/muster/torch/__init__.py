"""muster in PyTorch: a backend of `torch.distributed`, and its store on muster's.

    torch.distributed.init_process_group("muster")

needs no import of this module where the package is installed: torch finds the backend by its entry point. The backend works
with torch 2.14 and 2.15, on tensors on the CPU. `Store` works with torch 1.13 and newer:

    from muster.torch import Store
    store = Store()
    torch.distributed.init_process_group("gloo", store=store, rank=store.cluster.rank, world_size=store.cluster.size)

The guide is docs/pytorch.md.
"""

from ._store import Store
from ._versions import check_backend

__all__ = ["Store", "register"]


def register() -> None:
    """Makes the backend "muster" known to `torch.distributed`. torch calls this by itself where the package is installed.

    Raises `muster.UnsupportedError` with a version of torch for which the backend is not made. A second call does nothing.
    """
    check_backend()
    from torch.distributed import Backend

    from ._joining import make_backend

    if not hasattr(Backend, "MUSTER"):
        Backend.register_backend("muster", make_backend, extended_api=True, devices=["cpu"])
