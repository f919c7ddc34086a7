"""torch.distributed.tensor: names to import and to test values against; no tensor is distributed yet."""

from __future__ import annotations

from ..._absent import absent_names
from ..._lazy import submodules
from .placement_types import Partial, Placement, Replicate, Shard

_absent = absent_names(
    "torch.distributed.tensor",
    ("DTensor", "DeviceMesh", "init_device_mesh", "distribute_tensor", "distribute_module"),
    "nothing is sharded yet: use DistributedDataParallel, or collectives",
)
__getattr__ = submodules(__name__, "placement_types", "_utils", "parallel", otherwise=_absent)
