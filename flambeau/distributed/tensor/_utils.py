"""torch.distributed.tensor._utils: names to import."""

from __future__ import annotations

from ..._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed.tensor._utils",
    ("compute_local_shape_and_global_offset",),
    "nothing is sharded yet: use DistributedDataParallel, or collectives",
)
