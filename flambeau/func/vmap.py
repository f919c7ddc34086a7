"""vmap: a function of one example as a function of a batch, called once for all of them (`autograd/batched.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd.batched import Level, stripped
from ..core.tensor import Tensor, example_of, is_example
from ..ops.generators import all_states, set_all_states
from ..ops.registry import OPERATORS
from .higher_order import whole
from .trees import Spec, _broadcast_to_and_flatten, flatten, unflatten

RANDOMNESS = ("error", "different", "same")


def _spread(dims: Any, spec: Spec, what: str) -> list:
    """`dims` (a number, None, or a tree that begins like the arguments) for each leaf."""
    found = _broadcast_to_and_flatten(dims, spec)
    if found is None or not all(d is None or isinstance(d, int) for d in found):
        raise ValueError(f"vmap: {what} does not fit the structure of the values: got {dims!r} for {spec}")
    return found


def _batch_size(leaves: list, dims: list) -> int:
    sizes: list = []
    for leaf, dim in zip(leaves, dims):
        if dim is None:
            continue
        if not isinstance(leaf, Tensor) and not _is_collection(leaf):
            raise ValueError(f"vmap: in_dims asks to map over dimension {dim} of an input of type "
                             f"{type(leaf).__name__}, which is no Tensor")
        if not -leaf.ndim <= dim < leaf.ndim:
            raise ValueError(f"vmap: got in_dim={dim} for an input of shape {list(leaf.shape)}, but it must lie in "
                             f"[-{leaf.ndim}, {leaf.ndim})")
        sizes.append(leaf.shape[dim])
    if not sizes:
        raise ValueError("vmap: at least one input must be mapped over, but in_dims is None for all of them")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped "
                         "dimension")
    return sizes[0]


def _is_collection(leaf: Any) -> bool:
    """Whether `leaf` is no tensor but holds some, and does itself what torch.func does with tensors (tensordict's do)."""
    return not isinstance(leaf, Tensor) and hasattr(leaf, "_add_batch_dim") and hasattr(leaf, "_remove_batch_dim")


def add_batch_dim(tensor: Tensor, in_dim: int, level: Level) -> Tensor:
    """What stands for one example of `tensor`, whose dimension `in_dim` runs over them."""
    return example_of(tensor.movedim(in_dim, 0), level)


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether a tensor stands for an example."""
    return is_example(tensor)


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What stands behind an example within vmap: the whole batch, examples first; through all levels, or with `recurse=False` the innermost
    one. Other tensors are themselves. To look at in a debugger: what is computed from it is no part of the function."""
    levels = stripped(tensor)[1]
    if not levels:
        return tensor
    return stripped(tensor)[0] if recurse else stripped(tensor, levels[-1:])[0]


def remove_batch_dim(tensor: Tensor, level: Level, batch_size: int, out_dim: int) -> Tensor:
    """All examples of `tensor`, along a new dimension `out_dim`."""
    del batch_size  # the level knows it
    return level.spread(tensor).movedim(0, out_dim)


def _over_collections(func: Callable, leaves: list, dims: list, spec: Spec, size: int, out_dims: Any, randomness: str) -> Any:
    """The results where collections of tensors are among the arguments, each of which is asked for its examples."""
    level = Level(size, randomness)
    mine = [d is not None and not _is_collection(v) for v, d in zip(leaves, dims)]

    def call(*examples: Any) -> Any:
        given = [v._add_batch_dim(in_dim=d, vmap_level=level) if d is not None and not m else v for v, d, m in zip(examples, dims, mine)]
        return call_with(func, given, spec)

    results, out_spec = flatten(level.call(call, [v.movedim(d, 0) if m else v for v, d, m in zip(leaves, dims, mine)], tuple(mine)))
    made = []
    for result, d in zip(results, _spread(out_dims, out_spec, "out_dims")):
        if _is_collection(result) and d is not None:
            made.append(result._remove_batch_dim(vmap_level=level, batch_size=size, out_dim=d))
        else:
            found = whole(result, d is not None, level)
            made.append(found if d is None else found.movedim(0, _checked(d, found)))
    return unflatten(made, out_spec)


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable:
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
        dims += [0 if isinstance(v, Tensor) or _is_collection(v) else None for v in leaves[len(dims):]]
        size = _batch_size(leaves, dims)
        if any(map(_is_collection, leaves)):
            return _over_collections(func, leaves, dims, spec, size, out_dims, randomness)
        batches = [v if d is None else v.movedim(d, 0) for v, d in zip(leaves, dims)]
        has = tuple([d is not None for d in dims])
        if chunk_size is None or chunk_size >= size:
            return _placed(map_examples(func, batches, has, spec, size, out_dims, randomness), out_dims)
        parts, drawn = [], all_states() if randomness == "same" else None
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            if drawn is not None:
                set_all_states(drawn)
            chunk = [v.narrow(0, start, count) if h else v for v, h in zip(batches, has)]
            parts.append(map_examples(func, chunk, has, spec, count, out_dims, randomness))
        return _placed(_joined(parts, out_dims), out_dims)

    return wrapped


def _joined(parts: list, out_dims: Any) -> Any:
    columns, spec = [flatten(part)[0] for part in parts], flatten(parts[0])[1]
    dims = _spread(out_dims, spec, "out_dims")
    return unflatten([c[0] if d is None else OPERATORS["cat"](list(c)) for c, d in zip(zip(*columns), dims)], spec)


def _placed(results: Any, out_dims: Any) -> Any:
    """Results with the batch, which is in front, where it is wanted."""
    leaves, spec = flatten(results)
    return unflatten([v if d is None else v.movedim(0, _checked(d, v)) for v, d in zip(leaves, _spread(out_dims, spec, "out_dims"))], spec)


def _checked(dim: int, value: Tensor) -> int:
    if not -value.ndim <= dim < value.ndim:
        raise IndexError(f"vmap: Dimension out of range: out_dims is {dim} for a result of {value.ndim} dimensions, the batch's included")
    return dim


def call_with(func: Callable, leaves: list, spec: Spec) -> Any:
    """`func` of the arguments (args, kwargs) with these leaves."""
    args, kwargs = unflatten(leaves, spec)
    return func(*args, **kwargs)


def map_examples(func: Callable, batches: list, has: tuple, spec: Spec, size: int, out_dims: Any, randomness: str) -> Any:
    """The results of `func` for all examples, with the batch in front but where `out_dims` is None; so it is in the `batches` that
    have one. Capture has a graph for `func`, and calls `mapped`."""
    level = Level(size, randomness)
    results, out_spec = flatten(level.call(lambda *leaves: call_with(func, list(leaves), spec), batches, has))
    return unflatten([whole(r, d is not None, level) for r, d in zip(results, _spread(out_dims, out_spec, "out_dims"))], out_spec)
