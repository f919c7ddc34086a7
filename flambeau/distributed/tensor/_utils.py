"""torch.distributed.tensor._utils: where a process's part lies."""

from __future__ import annotations

from collections.abc import Sequence

from ..device_mesh import DeviceMesh
from .placement_types import Placement
from .redistribute import global_offset, local_shape


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
                                          ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this process's part, and where in the whole it begins."""
    return local_shape(global_shape, mesh, placements), global_offset(global_shape, mesh, placements)
