"""torch.distributed.tensor.experimental: context parallel."""

from __future__ import annotations

from ...._absent import absent_names
from ...._lazy import submodules
from ._attention import context_parallel

_absent = absent_names("torch.distributed.tensor.experimental", ("local_map", "implicit_replication", "register_sharding"),
                       "call DTensor.to_local() and DTensor.from_local() around the function")
__getattr__ = submodules(__name__, "_attention", otherwise=_absent)

__all__ = ["context_parallel"]
