"""Functions of plain tensors, on this process's parts of DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ....utils import _pytree as pytree
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor
from ..placement_types import Placement

Placements = Sequence[Placement] | None


def local_map(func: Callable | None = None, out_placements: Any = None, in_placements: tuple[Placements, ...] | None = None,
              in_grad_placements: tuple[Placements, ...] | None = None, device_mesh: DeviceMesh | None = None, *,
              redistribute_inputs: bool = False) -> Callable:
    """`func` for DTensors: it is given their parts, and its results are parts of tensors that lie as `out_placements`, one list of
    placements for all results or one for each; None leaves a result alone.

    DTensors among the arguments have to lie as `in_placements` says, or are brought there with `redistribute_inputs`; None says that one is
    no DTensor. Gradients of parts are taken to lie as `in_grad_placements`. Results lie over `device_mesh`, or the mesh of the arguments.
    """
    if func is None:
        return functools.partial(local_map, out_placements=out_placements, in_placements=in_placements,
                                 in_grad_placements=in_grad_placements, device_mesh=device_mesh, redistribute_inputs=redistribute_inputs)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, form = pytree.tree_flatten(args)
        _check_count("in_placements", in_placements, len(leaves), "inputs")
        _check_count("in_grad_placements", in_grad_placements, len(leaves), "inputs")
        mesh = device_mesh or next((leaf.device_mesh for leaf in leaves if isinstance(leaf, DTensor)), None)
        parts = [_part(leaf, mesh, None if in_placements is None else (in_placements[i],),
                       None if in_grad_placements is None else in_grad_placements[i], redistribute_inputs) for i, leaf in enumerate(leaves)]
        out = func(*pytree.tree_unflatten(parts, form), **kwargs)
        if mesh is None or not any(isinstance(leaf, DTensor) for leaf in leaves):
            return out
        outs, form = pytree.tree_flatten(out)
        several = isinstance(out_placements, tuple)
        if several:
            _check_count("out_placements", out_placements, len(outs), "outputs")
        made = [o if where is None else DTensor.from_local(o, mesh, where)
                for o, where in zip(outs, out_placements if several else [out_placements] * len(outs), strict=True)]
        return pytree.tree_unflatten(made, form)

    return mapped


def _check_count(name: str, placements: Any, count: int, what: str) -> None:
    if placements is not None and len(placements) != count:
        raise AssertionError(f"{name} length {len(placements)} does not match the number of {what}: {count}!")


def _part(value: Any, mesh: DeviceMesh | None, told: tuple[Placements] | None, of_gradient: Placements, moves: bool) -> Any:
    """This process's part of a DTensor that lies as it is told to (None: as it may)."""
    if not isinstance(value, DTensor):
        if told is not None and told[0] is not None:
            raise AssertionError(f"Non-DTensor inputs should have None placements, not {told[0]}, in local_map()")
        return value
    if told is not None:
        if told[0] is None:
            raise AssertionError(f"in_placements says None for a DTensor input, {value.placements}, in local_map()")
        wanted = tuple(told[0])
        if value.placements != wanted:
            if not moves:
                raise ValueError(f"in_placements {wanted} of local_map() do not match the input's {value.placements}; if that is wanted, "
                                 "say redistribute_inputs=True")
            value = value.redistribute(mesh, wanted)
    return value.to_local(grad_placements=of_gradient)
