"""Prefix combinations by an associative function, in a logarithmic number of steps (Blelloch's recursion)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..core.tensor import Tensor
from ..utils._pytree import tree_flatten, tree_unflatten


def associative_scan(combine_fn: Callable, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    """y[i] = combine(y[i - 1], x[i]) along `dim` of every tensor of the tree `xs`, with y[0] = x[0].

    `combine_fn(a, b)` takes and gives trees like `xs` and works on whole slices. Raises ValueError for tensors of different length along
    `dim`.
    """
    leaves, spec = tree_flatten(xs)
    if not leaves or not all(isinstance(x, Tensor) for x in leaves):
        raise ValueError(f"associative_scan: xs must hold tensors, got {[type(x).__name__ for x in leaves]}")
    if len({x.shape[dim] for x in leaves}) > 1:
        raise ValueError(f"associative_scan: All xs leaves must have the same size along dim {dim}, got {[list(x.shape) for x in leaves]}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"associative_scan: combine_mode must be 'pointwise' or 'generic', got {combine_mode!r}")

    def combine(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        return tree_flatten(combine_fn(tree_unflatten(a, spec), tree_unflatten(b, spec)))[0]

    moved = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        moved = [x.flip(0) for x in moved]
    scanned = _scan(combine, moved)
    if reverse:
        scanned = [x.flip(0) for x in scanned]
    return tree_unflatten([x.movedim(0, dim) for x in scanned], spec)


def _scan(combine: Callable, xs: list[Tensor]) -> list[Tensor]:
    """Scan along dimension 0: pairs first, then the odd places from the scan of the pairs."""
    n = xs[0].shape[0]
    if n < 2:
        return xs
    pairs = combine([x[: n - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _scan(combine, pairs)
    even = combine([y[: (n - 1) // 2] for y in odd], [x[2::2] for x in xs]) if n > 2 else [x[:0] for x in xs]
    even = [ops.cat([x[:1], e]) for x, e in zip(xs, even)]
    return [_interleaved(e, o) for e, o in zip(even, odd)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """even[0], odd[0], even[1], ...; `even` may be one longer."""
    n = odd.shape[0]
    paired = ops.stack([even[:n], odd], 1).reshape(2 * n, *odd.shape[1:])
    return paired if even.shape[0] == n else ops.cat([paired, even[n:]])


__all__ = ["associative_scan"]
