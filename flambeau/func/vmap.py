"""vmap: a function of one example as a function of a batch, called once for all of them (`autograd/batched.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd.batched import Level, entered
from ..core.tensor import Tensor, example_of
from ..ops.batching import spread
from ..ops.random import get_rng_state, set_rng_state
from ..ops.registry import OPERATORS
from . import tape
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
    anew for each example, "same" draws once for all, "error" raises RuntimeError. `chunk_size`: compute as many examples at once.
    Raises ValueError for dims that do not fit or sizes that differ.
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are {', '.join(RANDOMNESS)}. Got {randomness}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0, got {chunk_size}")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        dims = _spread(tuple(in_dims) if isinstance(in_dims, list) else in_dims, flatten(args)[1], "in_dims")
        dims += [0 if isinstance(v, Tensor) else None for v in leaves[len(dims):]]
        size = _batch_size(leaves, dims)
        run = _one_by_one if tape.is_compiling() else _at_once
        if chunk_size is None or chunk_size >= size:
            return run(func, leaves, spec, dims, size, out_dims, randomness)
        parts = [
            run(func, [_part(v, d, k, chunk_size) for v, d in zip(leaves, dims)], spec, dims, min(chunk_size, size - k), out_dims,
                randomness)
            for k in range(0, size, chunk_size)
        ]  # fmt: skip
        return _joined(parts, out_dims)

    return wrapped


def _part(value: Any, dim: int | None, start: int, count: int) -> Any:
    return value if dim is None else value.narrow(dim, start, min(count, value.shape[dim] - start))


def _joined(parts: list, out_dims: Any) -> Any:
    columns, spec = [flatten(part)[0] for part in parts], flatten(parts[0])[1]
    dims = _spread(out_dims, spec, "out_dims")
    return unflatten([OPERATORS["cat"](list(c), d) if d is not None else c[0] for c, d in zip(zip(*columns), dims)], spec)


def _at_once(func: Callable, leaves: list, spec: Spec, dims: list, size: int, out_dims: Any, randomness: str) -> Any:
    level = Level(size, randomness)
    batches = [v if d is None else v.movedim(d, 0) for v, d in zip(leaves, dims)]
    with entered([level]):
        args, kwargs = unflatten([v if d is None else example_of(v, level) for v, d in zip(batches, dims)], spec)
        results, out_spec = flatten(func(*args, **kwargs))
    return unflatten([_whole(r, d, level) for r, d in zip(results, _spread(out_dims, out_spec, "out_dims"))], out_spec)


def _whole(result: Any, dim: int | None, level: Level) -> Tensor:
    """What the function answered for one example, for all of them."""
    if not isinstance(result, Tensor):
        raise ValueError(f"vmap: expected the function to return Tensors, got {type(result).__name__}")
    batched = level.holds(result)
    if dim is None:
        if batched:
            raise ValueError("vmap: out_dims is None for a result that differs between examples; give the dimension for them")
        return result
    whole = spread(level.behind(result), batched, level.size)
    if not -whole.ndim <= dim < whole.ndim:
        raise IndexError(f"vmap: Dimension out of range: out_dims is {dim} for a result of {whole.ndim} dimensions, the batch's included")
    return whole.movedim(0, dim)


def _one_by_one(func: Callable, leaves: list, spec: Spec, dims: list, size: int, out_dims: Any, randomness: str) -> Any:
    """The meaning as a loop, which capture unrolls."""
    results = []
    drawn_from = get_rng_state() if randomness == "same" else None
    for i in range(size):
        if drawn_from is not None:
            set_rng_state(drawn_from)
        args, kwargs = unflatten([_slice(v, d, i) for v, d in zip(leaves, dims)], spec)
        results.append(func(*args, **kwargs))
    return _stacked(results, out_dims)


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
