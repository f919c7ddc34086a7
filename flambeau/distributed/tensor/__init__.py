"""torch.distributed.tensor: tensors that lie over the processes of a mesh. `docs/distributed.md` tells how."""

from __future__ import annotations

from ..._lazy import submodules
from ...serialization.api import add_own_globals
from ..device_mesh import DeviceMesh, init_device_mesh, mesh_of
from .api import distribute_tensor, empty, full, ones, rand, randn, zeros
from .dtensor import DTensor, _again
from .parallel import distribute_module
from .placement_types import Partial, Placement, Replicate, Shard

add_own_globals([(_again, "torch.distributed.tensor.dtensor._again"), (mesh_of, "torch.distributed.device_mesh.mesh_of"), *(
    (kind, f"torch.distributed.tensor.placement_types.{kind.__name__}") for kind in (Shard, Replicate, Partial))])

__getattr__ = submodules(__name__, "placement_types", "_utils", "parallel", "experimental", "debug")

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
           "init_device_mesh", "ones", "rand", "randn", "zeros"]
