"""torch.distributed.tensor: tensors that lie over the processes of a mesh. `docs/distributed.md` tells how."""

from __future__ import annotations

from ..._lazy import submodules
from ..device_mesh import DeviceMesh, init_device_mesh
from .api import distribute_module, distribute_tensor, empty, full, ones, rand, randn, zeros
from .dtensor import DTensor
from .placement_types import Partial, Placement, Replicate, Shard

__getattr__ = submodules(__name__, "placement_types", "_utils", "parallel")

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
           "init_device_mesh", "ones", "rand", "randn", "zeros"]
