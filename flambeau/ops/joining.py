"""Joining tensors, repeating and reordering their parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import dispatch
from ..core.dtypes import can_cast, int64, promote_types, scalar_type
from ..core.memory_format import contiguous_format
from ..core.size import canonical_dim, canonical_dims, known_zero
from ..core.symbolic import unknown_size
from ..core.tensor import Tensor
from . import batching, prims
from .creation import from_data
from .ints import Ints, as_int, as_ints
from .order import as_images, has_images
from .patterns import meshgrid
from .primitives import read
from .promotion import apart, cast
from .registry import Spec, operator, primitive
from .views import _by_name
from .writing import a_tensor_as_out, refuse_shared, store_out, with_out


def _stacked(given: Any, name: str) -> list[Tensor]:
    tensors = _tensors(given, name)
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return tensors


def _tensors(given: Any, name: str) -> list[Tensor]:
    if isinstance(given, (Tensor, str)) or not hasattr(type(given), "__iter__"):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(given).__name__}")
    tensors = list(given)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__} ({name})")
    return tensors


@operator(autocast="promote")
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """The tensors one after another along `dim`, promoted to their common dtype."""
    parts = _tensors(tensors, "cat")
    if not parts:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    dim = dim if axis is None else axis
    for i, t in enumerate(parts):
        if not t.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    kind, rank = parts[0].dtype, parts[0].ndim
    alike = out is None
    for t in parts:
        alike = alike and t.dtype is kind and t.ndim == rank
    if rank == 1 and dim and all(t.shape == (0,) for t in parts):   # stands for what is yet to come, along whatever dimension
        dim = 0
    if alike:
        return prims.cat(parts, canonical_dim(dim, rank))
    for t in parts[1:]:
        kind = promote_types(kind, t.dtype) if t.dtype is not kind else kind
    shape = max((t.shape for t in parts), key=len)
    d = canonical_dim(dim, len(shape))
    none = (*shape[:d], 0, *shape[d + 1:])      # what a tensor of shape (0,) beside others stands for
    result = prims.cat([prims.view_(t, none) if t.ndim == 1 != len(shape) and known_zero(t.shape[0]) else t
                        for t in (cast(t, kind) for t in parts)], d)
    if out is None:
        return result
    if not can_cast(result.dtype, a_tensor_as_out(out).dtype):
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {scalar_type(out.dtype)}")
    refuse_shared(out, parts)
    return store_out(out, result)


@operator(autocast="promote")
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """The tensors, all of one shape, along a new dimension."""
    parts = _tensors(tensors, "stack")
    if not parts:
        raise RuntimeError("stack expects a non-empty TensorList")
    dim = dim if axis is None else axis
    for i, t in enumerate(parts[1:], 1):
        if t.shape != parts[0].shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at entry 0 and "
                               f"{list(t.shape)} at entry {i}")
    d = canonical_dim(dim, parts[0].ndim + 1)
    kind = parts[0].dtype
    if any(t.dtype is not kind for t in parts):
        return cat([prims.unsqueeze(t, d) for t in parts], d, out=out)
    if d == parts[0].ndim or all(t.is_contiguous() for t in parts):
        result = _stack(parts, d)
    else:
        result = prims.cat(parts, d).unflatten(d, (len(parts), parts[0].shape[d]))      # in the order that cat gives images
    return result if out is None else store_out(out, result)


@operator(name="_stack", fused=True, vjp=lambda g, dim: (list(g.unbind(dim)),))
def _stack(tensors: Sequence[Tensor], dim: int) -> Tensor:
    return prims.cat([prims.unsqueeze(t, dim) for t in tensors], dim)


def _at_least(x: Tensor, rank: int) -> Tensor:
    if x.ndim >= rank:
        return x
    if rank == 3 and x.ndim == 2:
        return prims.unsqueeze(x, 2)
    x = prims.unsqueeze(x, 0)
    return _at_least(x, rank)


def _at_least_operator(rank: int) -> Callable:
    def fn(*tensors: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
        if given is tensors and len(tensors) == 1:
            return _at_least(tensors[0], rank)
        return tuple(_at_least(t, rank) for t in given)

    fn.__name__, fn.__doc__ = f"atleast_{rank}d", f"The tensors with at least {rank} dimensions."
    return operator(fn)


atleast_1d, atleast_2d, atleast_3d = (_at_least_operator(n) for n in (1, 2, 3))


@operator
@with_out
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side: along dim 1, or dim 0 for vectors."""
    parts = [_at_least(t, 1) for t in _stacked(tensors, "hstack")]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@operator
@with_out
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One above another: along dim 0, vectors as rows."""
    return cat([_at_least(t, 2) for t in _stacked(tensors, "vstack")], 0)




@operator
@with_out
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """One behind another: along dim 2."""
    return cat([_at_least(t, 3) for t in _stacked(tensors, "dstack")], 2)


@operator
@with_out
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side, vectors as columns."""
    return cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in _stacked(tensors, "column_stack")], 1)


# -- repeating and reordering --------------------------------------------------------------------------------------------
@operator(method=True, node=True)
def repeat(self: Tensor, *sizes: Ints, **named: Any) -> Tensor:
    """The tensor repeated that many times along each dimension (leading dimensions are added)."""
    times = as_ints(_by_name(sizes, named, "repeat", "repeats"))
    lead = len(times) - self.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
                           f"{list(times)} for shape {list(self.shape)}")
    shape = (1,) * lead + tuple(self.shape)
    if any(type(r) is int and r < 0 for r in times):    # of nothing there may be any number
        if any(type(r) is int and type(n) is int and r * n < 0 for r, n in zip(times, shape)):
            raise RuntimeError(f"Trying to create tensor with negative dimension: repeat(): the number of repeats of each dimension must "
                               f"be non-negative, got {list(times)} for shape {list(self.shape)}")
        times = tuple(max(r, 0) if type(r) is int else r for r in times)
    if all(type(r) is int and r == 1 for r in times):
        return self.reshape(shape).clone(memory_format=contiguous_format)
    inner = [n for pair in zip((1,) * len(shape), shape) for n in pair]
    outer = [n for pair in zip(times, shape) for n in pair]
    wide = prims.expand(self.reshape(inner), tuple(outer))
    return wide.clone(memory_format=contiguous_format).view([r * n for r, n in zip(times, shape)])  # never a view of `self`


@operator(method=True, node="repeat")
def tile(input: Tensor, *dims: Ints, **named: Any) -> Tensor:
    """repeat, with missing leading repeats taken as 1."""
    times = as_ints(_by_name(dims, named, "tile", "dims"))
    return repeat(input, *((1,) * (input.ndim - len(times)) + times))


@primitive("repeat_positions", batch=batching.refused, kernel=lambda repeats: np.repeat(np.arange(len(repeats)), repeats).astype(np.int64),
           tags=("data_dependent", "refuses_values"), samples=lambda r: [(r.integers(0, 4, 5),)], why_absent={
               "derivative": "an index is not differentiable", "loop": "the output's shape depends on the data"})
def repeat_positions(repeats: Tensor) -> Spec:
    """0 repeats[0] times, 1 repeats[1] times, and so on."""
    if dispatch.untold(repeats):
        return Spec((unknown_size("repeat_interleave", repeats),), int64)
    if min(read(repeats, "min"), default=0) < 0:
        raise RuntimeError("repeats can not be negative")
    return Spec((-1,), int64)


@operator(method=True)
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element (or slice along `dim`) repeated in place: a number for all, or a tensor with one for each."""
    counts = input if repeats is None else repeats
    if isinstance(counts, Tensor) and (counts.ndim > 1 or (repeats is None and not counts.ndim)):
        raise RuntimeError(f"repeat_interleave only accept 1D vector as repeat, got shape {list(counts.shape)}")
    if repeats is None:
        return cast(repeat_positions(input), input.dtype)
    if dim is None:
        input, dim = input.reshape(-1), 0
    if not input.ndim:
        raise IndexError(f"repeat_interleave(): Dimension out of range: {dim} of a tensor without dimensions; leave dim out")
    d = canonical_dim(dim, input.ndim)
    if isinstance(repeats, Tensor) and repeats.numel() != 1:
        if repeats.shape != (input.shape[d],):
            raise RuntimeError("repeats must have the same size as input along dim, but got repeats.size(0) = "
                               f"{repeats.shape[0]} and input.size({d}) = {input.shape[d]}")
        return prims.index_select(input, d, repeat_positions(repeats))
    n = repeats.item() if isinstance(repeats, Tensor) else repeats
    if n < 0:
        raise RuntimeError(f"repeat_interleave(): Repeats must be non-negative, got {n}")
    shape = tuple(input.shape)
    if output_size is not None and output_size != shape[d] * n:
        raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {shape[d] * n} but got {output_size}")
    wide = prims.expand(prims.unsqueeze(input, d + 1), (*shape[:d + 1], n, *shape[d + 1:]))
    return wide.clone(memory_format=contiguous_format).view((*shape[:d], shape[d] * n, *shape[d + 1:]))


@operator(method=True)
def flip(input: Tensor, *dims: Ints, **named: Any) -> Tensor:
    """The elements in reverse order along `dims`."""
    given = as_ints(_by_name(dims, named, "flip", "dims"))
    return prims.flip(input, tuple(canonical_dims(given, input.ndim)) if given else ())


@operator(method=True)
def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order."""
    if input.ndim < 2:
        raise RuntimeError(f"fliplr(): Input must be >= 2-d. Got shape {list(input.shape)}")
    return flip(input, 1)


@operator(method=True)
def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order."""
    if input.ndim < 1:
        raise RuntimeError("flipud(): Input must be >= 1-d. Got a 0-dim tensor")
    return flip(input, 0)


@operator(method=True, node=True)
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """The elements shifted cyclically along `dims` (the flattened input without dims)."""
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        return roll(input.reshape(-1), shifts, 0).reshape(tuple(input.shape))
    moves = [n if type(n) is int else as_int(n) for n in (shifts if isinstance(shifts, (tuple, list)) else (shifts,))]
    along = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(moves) != len(along):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(along)}")
    if along and not input.ndim:
        raise IndexError(f"Dimension specified as {along[0]} but tensor has no dimensions")
    x, images = input, input.ndim in (4, 5) and has_images(input)
    for n, dim in zip(moves, along):
        d = canonical_dim(dim, x.ndim)
        size = x.shape[d]
        if type(size) is int and size == 0:
            continue
        cut = (size - n) % size
        if type(cut) is int and cut == 0:
            images = False
            continue
        x = prims.cat([prims.slice_(x, d, cut, size, 1), prims.slice_(x, d, 0, cut, 1)], d)
    return as_images(apart(x, input), images)


@operator(method=True, node=True)
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by k quarter turns in the plane of `dims`, from the first towards the second."""
    if input.ndim < 2:
        raise RuntimeError(f"rot90(): expected total dims >= 2, but got total dims = {input.ndim}")
    if len(as_ints((dims,))) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(as_ints((dims,)))}")
    a, b = (canonical_dim(d, input.ndim) for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    k = k % 4
    if k == 2:
        return flip(input, a, b)
    if k == 0:
        return input.clone(memory_format=contiguous_format)
    return flip(input, b if k == 1 else a).transpose(a, b)


@operator
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of 1-D tensors, one row each."""
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"cartesian_prod(): expected Tensor as element {i}, but got {type(t).__name__}")
        if t.ndim != 1:
            raise RuntimeError(f"cartesian_prod(): Expect a 1D vector, but got shape {list(t.shape)}")
    return tensors[0] if len(tensors) == 1 else stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


@operator
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All r-subsets of a 1-D tensor's elements, one row each."""
    if r < 0:
        raise RuntimeError(f"combinations(): Expect a non-negative number, but got {r}")
    if input.ndim != 1:
        raise RuntimeError(f"combinations(): Expect a 1D vector, but got shape {list(input.shape)}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.fromiter(itertools.chain.from_iterable(choose(range(input.shape[0]), r)), np.int64).reshape(-1, r)
    return prims.index(input, [from_data(places, int64)])
