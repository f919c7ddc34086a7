"""vmap: a function of one example as a function of a batch, by calling it once for each element.

The meaning is vmap's; the speed is that of a loop. Each call sees slices of the inputs, and the results are stacked, so everything
inside works, gradients included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops.random import get_rng_state, set_rng_state
from ..ops.registry import OPERATORS
from .trees import Spec, flatten, unflatten

RANDOMNESS = ("error", "different", "same")


def _spread(dims: Any, spec: Spec, what: str) -> list:
    """`dims` (a number, None, or a tree that begins like the arguments) for each leaf."""
    if spec.kind is None or isinstance(dims, int) or dims is None:
        if not (dims is None or isinstance(dims, int)):
            raise ValueError(f"vmap: {what} does not fit the structure of the values: got {dims!r} for a leaf")
        return [dims] * len(_leaf_slots(spec))
    parts = list(dims.values()) if isinstance(dims, dict) else list(dims)
    if len(parts) != len(spec.children):
        raise ValueError(f"vmap: {what} has {len(parts)} entries where the values have {len(spec.children)}")
    return [d for part, child in zip(parts, spec.children) for d in _spread(part, child, what)]


def _leaf_slots(spec: Spec) -> list:
    return [None] if spec.kind is None else [slot for child in spec.children for slot in _leaf_slots(child)]


def _batch_size(leaves: list, dims: list) -> int:
    sizes = set()
    for leaf, dim in zip(leaves, dims):
        if dim is None:
            continue
        if not isinstance(leaf, Tensor):
            raise ValueError(f"vmap: in_dims asks to map over dimension {dim} of an input of type "
                             f"{type(leaf).__name__}, which is no Tensor")
        if not -leaf.ndim <= dim < leaf.ndim:
            raise ValueError(f"vmap: got in_dim={dim} for an input of shape {list(leaf.shape)}, but it must lie in "
                             f"[-{leaf.ndim}, {leaf.ndim})")
        sizes.add(leaf.shape[dim])
    if not sizes:
        raise ValueError("vmap: at least one input must be mapped over, but in_dims is None for all of them")
    if len(sizes) > 1:
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                         f"{sorted(sizes)} for the mapped dimension")
    return sizes.pop()


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable:
    """`func` over a batch: dimension `in_dims` of each input runs over the examples, and `out_dims` of each output.

    Dims are a number for all, None for what is not mapped, or a tree like the arguments' tuple. `randomness`: "different" draws
    anew for each example, "same" draws once; "error" is taken as "different" here, as nothing tells random operators apart.
    Raises ValueError for dims that do not fit or sizes that differ.
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are {', '.join(RANDOMNESS)}. Got {randomness}")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten(args)
        dims = _spread(tuple(in_dims) if isinstance(in_dims, list) else in_dims, spec, "in_dims")
        named, named_spec = flatten(kwargs)
        named_dims = [0 if isinstance(v, Tensor) else None for v in named]
        size = _batch_size(leaves + named, dims + named_dims)
        results = []
        drawn_from = get_rng_state() if randomness == "same" else None
        for i in range(size):
            if drawn_from is not None:
                set_rng_state(drawn_from)
            one = unflatten([_slice(v, d, i) for v, d in zip(leaves, dims)], spec)
            some = unflatten([_slice(v, d, i) for v, d in zip(named, named_dims)], named_spec)
            results.append(func(*one, **some))
        return _stacked(results, out_dims)

    return wrapped


def _slice(value: Any, dim: int | None, i: int) -> Any:
    return value if dim is None else value.select(dim, i)


def _stacked(results: list, out_dims: Any) -> Any:
    if not results:
        raise ValueError("vmap: the mapped dimension has size 0, and the shapes of the results cannot be known")
    columns = [flatten(r)[0] for r in results]
    spec = flatten(results[0])[1]
    dims = _spread(out_dims, spec, "out_dims")
    joined = []
    for k, dim in enumerate(dims):
        values = [c[k] for c in columns]
        if not isinstance(values[0], Tensor):
            raise ValueError(f"vmap: expected the function to return Tensors, got {type(values[0]).__name__}")
        joined.append(values[0] if dim is None else OPERATORS["stack"](values, dim))
    return unflatten(joined, spec)
