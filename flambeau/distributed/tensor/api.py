"""Making DTensors: of tensors, of modules, and anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.memory_format import refuse_layout, strided
from ...core.tensor import Tensor
from ...ops import creation, random
from .. import graph_operators as operators
from ..device_mesh import DeviceMesh, current_mesh
from .dtensor import DTensor, dtensor
from .placement_types import Partial, Placement, Replicate
from .redistribute import canonical, local_shape, redistributed


def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                      src_data_rank: int | None = 0) -> DTensor:
    """The tensor of the mesh's first process over all. With `src_data_rank=None` each process takes its part of its own; of `Partial()`, the
    tensor or zeros. A process that is not in the mesh has nothing of it, nor of what is computed with it."""
    mesh = current_mesh() if device_mesh is None else device_mesh
    where = canonical(placements, mesh, tensor.ndim)
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != where:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} over {tensor.device_mesh} to {where} over "
                             f"{mesh}; use redistribute()")
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    with no_grad():
        local = tensor.detach()
        for m in range(mesh.ndim) if src_data_rank is not None and mesh._coordinate is not None else ():
            local = operators.broadcast(local, src_data_rank if mesh.ndim == 1 else 0, mesh.get_group(m).group_name)
        local = redistributed(local, mesh, (Replicate(),) * mesh.ndim, where, tensor.shape)
        local = local.new_empty(0) if mesh._coordinate is None else local
        made = dtensor(local.detach(), mesh, where, tuple(tensor.shape))
    made.requires_grad = tensor.requires_grad
    return made


def _made(make: Callable[[tuple], Tensor], size: tuple, mesh: DeviceMesh | None, placements: Sequence[Placement] | None,
          requires_grad: bool, layout: Any, alike: bool) -> DTensor:
    """The tensor that `make` makes: each process's part alone where all elements are alike, else all, of which each takes its part."""
    if layout is not strided:
        refuse_layout(layout)
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    mesh = current_mesh() if mesh is None else mesh
    where = canonical(placements, mesh, len(shape), IndexError)
    if any(isinstance(p, Partial) for p in where):
        raise RuntimeError(f"a tensor is made with Shard and Replicate, not {where}")
    with no_grad():
        local = make((0,)) if mesh._coordinate is None else make(local_shape(shape, mesh, where)) if alike else (
            redistributed(make(shape), mesh, (Replicate(),) * mesh.ndim, where, shape))
    made = dtensor(local, mesh, where, shape)
    made.requires_grad = requires_grad
    return made


def _factory(make: Callable[..., Tensor], doc: str, alike: bool) -> Callable[..., DTensor]:
    def made(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = strided, device_mesh: DeviceMesh | None = None,
             placements: Sequence[Placement] | None = None) -> DTensor:
        return _made(lambda s: make(s, dtype=dtype), size, device_mesh, placements, requires_grad, layout, alike)

    made.__name__, made.__doc__ = make.__name__, doc
    return made


zeros, ones = _factory(creation.zeros, "Zeros.", True), _factory(creation.ones, "Ones.", True)
empty = _factory(creation.empty, "A tensor that holds anything.", True)
randn = _factory(random.randn, "Normal random numbers: those that one process would draw, if all have the same seed.", False)
rand = _factory(random.rand, "Random numbers from 0 to 1: those that one process would draw, if all have the same seed.", False)


def full(size: Any, fill_value: Any, *, requires_grad: bool = False, dtype: Any = None, layout: Any = strided,
         device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None) -> DTensor:
    """`fill_value` everywhere."""
    return _made(lambda s: creation.full(s, fill_value, dtype=dtype), (size,), device_mesh, placements, requires_grad, layout, True)
