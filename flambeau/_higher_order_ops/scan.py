"""Loops over a dimension of tensors: `scan`, which carries something from step to step, and `map`, which doesn't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..func.higher_order import scan_rows
from ..func.trees import flatten, unflatten


def scan(combine_fn: Callable, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """(the last carry, the results stacked along `dim`) of `carry, y = combine_fn(carry, x)` over the slices x of `xs` along `dim`.

    `init`, `xs` and y are trees of tensors; `carry` keeps the structure, shapes and dtypes of `init`. With `reverse` it goes from the
    last slice to the first. Compiled code holds the step once. RuntimeError for what does not fit.
    """
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    carried, carried_spec = flatten(init)
    rows, rows_spec = flatten(xs)
    for name, leaves in (("init", carried), ("xs", rows)):
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"All {name} leaves must be a Tensor but got {leaf}")
    if not carried:
        raise RuntimeError("scan() operator requires init leaves.")
    if not rows:
        return init, []
    moved = _of_one_length("scan", [x.movedim(dim, 0) for x in rows])
    last, made = scan_rows(combine_fn, carried, carried_spec, moved, rows_spec, reverse)
    results, spec = flatten(made)
    place = dim % rows[0].ndim
    return unflatten(last, carried_spec), unflatten([y.movedim(0, min(place, y.ndim - 1)) for y in results], spec)


def map(f: Callable, xs: Any, *args: Any) -> Any:
    """The results of `f(x, *args)` for all slices x of the tree `xs` along the first dimension, stacked. Compiled code holds `f` once."""
    rows, spec = flatten(xs)
    for leaf in rows:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"map: xs must hold tensors, but got {type(leaf).__name__}")
    if not rows:
        raise RuntimeError("map: xs must hold tensors, and holds none")

    def step(carry: list, x: Any) -> tuple[list, Any]:
        return carry, f(x, *args)

    return scan_rows(step, [], flatten([])[1], _of_one_length("map", rows), spec, False)[1]


def _of_one_length(name: str, rows: list[Tensor]) -> list[Tensor]:
    if any(x.ndim == 0 or x.shape[0] != rows[0].shape[0] for x in rows):
        raise RuntimeError(f"{name}: the tensors of xs must have one length in the dimension that it goes over, got shapes "
                           f"{[list(x.shape) for x in rows]} with that dimension in front")
    if rows[0].shape[0] == 0:
        raise RuntimeError(f"{name}: xs must have one slice at least, got shapes {[list(x.shape) for x in rows]} with the dimension that "
                           "it goes over in front")
    return rows


__all__ = ["map", "scan"]
