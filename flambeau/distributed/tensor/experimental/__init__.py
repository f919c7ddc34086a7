"""torch.distributed.tensor.experimental: context parallel, functions of parts."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ...._absent import absent_names
from ...._lazy import submodules
from ._attention import context_parallel
from ._local_map import local_map

_absent = absent_names("torch.distributed.tensor.experimental", ("register_sharding",),
                       "how an operator may be split follows from its record; call local_map() of a function of parts")
__getattr__ = submodules(__name__, "_attention", otherwise=_absent)


def implicit_replication() -> AbstractContextManager[None]:
    """Within, plain tensors beside DTensors are taken to be the same everywhere, as they are without."""
    return nullcontext()


__all__ = ["context_parallel", "implicit_replication", "local_map"]
