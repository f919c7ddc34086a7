"""vmap: a function of one example as a function of a batch, called once for all of them (`autograd/batched.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import NoneType
from typing import Any

from ..autograd.batched import Level, stripped
from ..core.tensor import Tensor, example_of, is_example
from ..ops.generators import all_states, set_all_states
from ..ops.registry import OPERATORS
from .higher_order import whole
from .trees import Spec, _broadcast_to_and_flatten, flatten, unflatten

RANDOMNESS = ("error", "different", "same")


def _in_dims(in_dims: Any, spec: Spec, name: str) -> list:
    """`in_dims` (a number, or a tuple that begins like the arguments) for each leaf."""
    called = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{called}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
                         f"{type(in_dims)}.")
    if not spec.num_leaves:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function "
                         "with no inputs. The latter is unsupported.")
    found = _broadcast_to_and_flatten(in_dims, spec)
    if found is None:
        raise ValueError(f"{called}: in_dims is not compatible with the structure of `inputs`. in_dims has structure {flatten(in_dims)[1]} "
                         f"but inputs has structure {spec}.")
    for dim in found:
        if not isinstance(dim, (int, NoneType)):
            raise ValueError(f"{called}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None.")
    return found


def _out_dims(out_dims: Any, spec: Spec, name: str) -> list:
    """`out_dims` (a number, None, or a tree that begins like the results) for each leaf."""
    if not all(isinstance(d, (int, NoneType)) for d in flatten(out_dims)[0]):
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
                         "representing where in the outputs the vmapped dimension should appear.")
    # `(0,)` may be said of a lone result
    found = [out_dims[0]] if isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.is_leaf() else _broadcast_to_and_flatten(
        out_dims, spec)
    if found is None:
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. "
                         f"out_dims has structure {flatten(out_dims)[1]} but outputs has structure {spec}.")
    return found


def name_of(func: Callable) -> str:
    """What a function is called in messages."""
    return getattr(func, "__name__", None) or repr(func)


def _batch_size(leaves: list, dims: list, name: str, in_dims: Any) -> int:
    sizes: list = []
    called = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    for leaf, dim in zip(leaves, dims):
        if dim is None:
            continue
        if not isinstance(leaf, Tensor) and not _is_collection(leaf):
            raise ValueError(f"{called}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                             "non-Tensor arguments, please use None as the respective in_dim")
        if not -leaf.ndim <= dim < leaf.ndim:
            raise ValueError(f"{called}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.ndim} so "
                             f"expected in_dim to satisfy -{leaf.ndim} <= in_dim < {leaf.ndim}.")
        sizes.append(leaf.shape[dim])
    if not sizes:
        raise ValueError(f"{called}: Expected at least one Tensor to vmap over: in_dims is None for all inputs")
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
    for result, d in zip(results, _out_dims(out_dims, out_spec, name_of(func))):
        if _is_collection(result) and d is not None:
            made.append(result._remove_batch_dim(vmap_level=level, batch_size=size, out_dim=d))
        else:
            found = whole(result, d is not None, level, name_of(func))
            made.append(found if d is None else found.movedim(0, _checked(d, found)))
    return unflatten(made, out_spec)


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable:
    """`func` over a batch: dimension `in_dims` of each input runs over the examples, and `out_dims` of each output.

    Dims are a number for all, None for what is not mapped, or a tree like the arguments' tuple. `randomness`: "different" draws
    anew for each example, "same" draws once for all, "error" raises RuntimeError. `chunk_size`: compute as many examples at once.
    Raises ValueError for dims that do not fit or sizes that differ.
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        given = tuple(in_dims) if isinstance(in_dims, list) else in_dims
        dims = _in_dims(given, flatten(args)[1], name_of(func))
        dims += [None] * (len(leaves) - len(dims))      # what is given by name is the same for all examples
        size = _batch_size(leaves, dims, name_of(func), given)
        if any(map(_is_collection, leaves)):
            return _over_collections(func, leaves, dims, spec, size, out_dims, randomness)
        batches = [v if d is None else v.movedim(d, 0) for v, d in zip(leaves, dims)]
        has = tuple([d is not None for d in dims])
        if chunk_size is None or chunk_size >= size:
            return _placed(map_examples(func, batches, has, spec, size, out_dims, randomness), out_dims, name_of(func))
        parts, drawn = [], all_states() if randomness == "same" else None
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            if drawn is not None:
                set_all_states(drawn)
            chunk = [v.narrow(0, start, count) if h else v for v, h in zip(batches, has)]
            parts.append(map_examples(func, chunk, has, spec, count, out_dims, randomness))
        return _placed(_joined(parts, out_dims, name_of(func)), out_dims, name_of(func))

    return wrapped


def _joined(parts: list, out_dims: Any, name: str) -> Any:
    columns, spec = [flatten(part)[0] for part in parts], flatten(parts[0])[1]
    dims = _out_dims(out_dims, spec, name)
    return unflatten([c[0] if d is None else OPERATORS["cat"](list(c)) for c, d in zip(zip(*columns), dims)], spec)


def _placed(results: Any, out_dims: Any, name: str) -> Any:
    """Results with the batch, which is in front, where it is wanted."""
    leaves, spec = flatten(results)
    return unflatten([v if d is None else v.movedim(0, _checked(d, v)) for v, d in zip(leaves, _out_dims(out_dims, spec, name))], spec)


def _checked(dim: int, value: Tensor) -> int:
    if not -value.ndim <= dim < value.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{value.ndim}, {value.ndim - 1}], but got {dim}): out_dims of "
                         f"vmap for a result of {value.ndim} dimensions, the batch's included")
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
    name = name_of(func)
    dims = _out_dims(out_dims, out_spec, name)
    return unflatten([whole(r, d is not None, level, name) for r, d in zip(results, dims)], out_spec)
