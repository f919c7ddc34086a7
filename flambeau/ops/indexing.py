"""Reading and writing by index, joining, repeating, flipping and searching."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import FLOAT, bool_, float32, int32, int64, promote_types, scalar_type
from ..core.memory_format import channels_last, channels_last_3d, contiguous_format, preserve_format
from ..core.scalar import REDUCE, SCATTERED_BY
from ..core.settings import alert_not_deterministic
from ..core.shared import is_shared
from ..core.size import Size, canonical_dim, contiguous_strides, extent
from ..core.storage import view_of
from ..core.tensor import Layout, Tensor, bump_version, refuse_inference_write
from ..core.warned import warn_once
from . import batching, prims
from .checks import checked
from .creation import filled_where_asked
from .ints import as_ints
from .joining import stack
from .order import in_rows, like
from .pointwise import where
from .primitives import read
from .prims.indexing import grown, of_one_rank
from .prims.views import _diagonal_back, _inverse, _slice_back
from .promotion import as_tensor_operand, broadcast, cast, expand_to, fitting, is_number, prepare, together
from .registry import OPERATORS, Linear, Spec, method, on_tape, operator, primitive
from .subscript import _check_broadcast, _value_for, check_step, index_list, put_, slice_bounds
from .writing import assign, inplace, refuse_repeated, store_apart, with_out, with_out_apart, with_out_in_rows


# -- gather and scatter ----------------------------------------------------------------------------------------
def _index(index: Tensor, name: str) -> Tensor:
    if not isinstance(index, Tensor) or index.dtype not in (int64, int32):
        got = scalar_type(index.dtype) if isinstance(index, Tensor) else type(index).__name__
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {got}")
    return index


def _long(index: Tensor, name: str) -> None:
    if index.dtype is not int64:
        raise RuntimeError(f"{name}: Expected a long tensor for index, but got {scalar_type(index.dtype)}")


@operator(method=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, and likewise for other dims."""
    if sparse_grad:
        raise NotImplementedError("gather(sparse_grad=True): sparse gradients are not supported; use sparse_grad=False")
    d = canonical_dim(dim, input.ndim)
    index = _index(index, "gather") if 0 not in index._layout.shape else cast(index, int64)      # of what is empty no dtype is asked
    if 0 in index._layout.shape and not of_one_rank(input, index, index):
        result = input.new_empty(tuple(index.shape))
    elif input.ndim and index.ndim:
        result = prims.gather(input, d, index)
    else:
        result = on_tape("gather", prims.gather(_vector(input), d, _vector(index)).reshape(tuple(index.shape)))
    return result if out is None else store_apart(out, result, input, index)


def _vector(x: Tensor) -> Tensor:
    """A number as a vector of one element; others as they are."""
    return x if x._layout.shape != () else prims.unsqueeze(x, 0)


def _from_end(index: Tensor, size: Any) -> Tensor:
    """An index whose negative elements count from the end; those beyond stay as they are given, for errors to name."""
    return where((index < 0) & (index >= -size), index + size, index)


@operator(method=True)
@with_out
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather with `indices`, of which negative ones count from the end, broadcast against `input` along the other dimensions; in the
    flattened input without dim."""
    _long(indices, "torch.take_along_dim()")
    if dim is None:
        return prims.gather(input.reshape(-1), 0, indices.reshape(-1))
    if not input.ndim:
        raise IndexError(f"take_along_dim(): dimension specified as {dim} but tensor has no dimensions")
    if input.ndim != indices.ndim:
        raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
                           f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices")
    d = canonical_dim(dim, input.ndim)
    rest = [tuple(1 if i == d else n for i, n in enumerate(t.shape)) for t in (input, indices)]
    common = [n if m == 1 else m for n, m in zip(*rest)]
    source, index = (expand_to(t, [t.shape[d] if i == d else n for i, n in enumerate(common)]) for t in (
        input, _from_end(indices, input.shape[d])))
    return prims.gather(source, d, index)


def _extremes_vjp(g: Tensor, index: Tensor, src: Tensor, out: Tensor, dim: int) -> tuple:
    theirs = prims.read_part(src, index) == out.gather(dim, index)
    share = g / g.new_zeros(tuple(g.shape)).scatter_add(dim, index, theirs.to(g.dtype))
    return g.scatter(dim, index, 0), None, None, prims.grown(share.gather(dim, index).masked_fill(~theirs, 0), src.shape)


@operator(name="_extremes_of_sources", vjp=_extremes_vjp)
def _extremes_of_sources(input: Tensor, dim: int, index: Tensor, src: Tensor, mode: str) -> Tensor:
    """The extrema where `input` starts as low, or high, as can be: it shares no gradient with sources that are, too."""
    return prims.scatter_reduce(input, dim, index, src, mode)


def scattered_apart(input: Tensor, dim: int, index: Tensor, src: Tensor, mode: str) -> Tensor:
    """The sources combined by themselves, where there are any."""
    base = _scatter(input, dim, index, SCATTERED_BY[mode].nothing(input.dtype), "set")
    return _scatter(base, dim, index, src, mode, _extremes_of_sources if mode in ("amax", "amin") else None)


@operator(name="_scatter_add", vjp=Linear(x=lambda g: g, src=lambda g, dim, index, src_shape: grown(g.gather(dim, index), src_shape)))
def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor, mode: str) -> Tensor:
    """The primitive that adds, whose gradient for `x` needs no index."""
    return prims.scatter(x, dim, index, src, mode)


def _scatter(input: Tensor, dim: int, index: Tensor, src: Any, mode: str, by: Callable | None = None) -> Tensor:
    if not isinstance(src, Tensor):
        src = input.new_full(tuple(index.shape), src if index.numel() else 0)
    if src.dtype is not input.dtype:
        raise RuntimeError(f"scatter(): Expected self.dtype to be equal to src.dtype, got {input.dtype} and {src.dtype}")
    prim = by or {"set": prims.scatter, "add": _scatter_add}.get(mode, prims.scatter_reduce)
    d, index = canonical_dim(dim, input.ndim), _index(index, "scatter")
    if 0 in index._layout.shape and not of_one_rank(input, index, src):
        return input.clone()
    if input.ndim and index.ndim and src.ndim:
        return prim(input, d, index, src, mode)
    return prim(_vector(input), d, _vector(index), _vector(src), mode).reshape(tuple(input.shape))


@operator(method=True)
@with_out
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """A copy of `input` with `src` (a tensor or number) written at `index` along `dim`, or added or multiplied there."""
    dim = canonical_dim(dim, input.ndim)
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError(f"reduce argument must be either add or multiply, got {reduce!r}")
    if reduce is not None and isinstance(src, Tensor):
        warn_once("The reduce argument of torch.scatter with Tensor src is deprecated: torch.scatter_reduce has more reductions.")
    return _scatter(input, dim, index, value if src is None else src, "set" if reduce is None else REDUCE[reduce])


@operator(method=True, autocast={"cuda": "promote"}, node=True)
@with_out
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with `src` added at `index` along `dim`."""
    if not isinstance(src, Tensor):
        raise TypeError(f"scatter_add(): argument 'src' (position 4) must be Tensor, not {type(src).__name__}")
    return _scatter(input, dim, index, src, "add")


@operator(method=True, node=True)
@with_out
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy of `input` with `src` combined at `index` along `dim`: sum, prod, mean, amax or amin."""
    dim = canonical_dim(dim, input.ndim)
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce!r}")
    mode = "add" if reduce == "mean" else REDUCE[reduce]
    result = (_scatter if include_self else scattered_apart)(input, dim, index, src, mode)
    if reduce != "mean":
        return result
    kind = input.real.dtype if input.dtype.is_complex else input.dtype
    start = input.new_full(tuple(input.shape), 1 if include_self else 0, dtype=kind)
    count = _scatter(start, dim, index, input.new_full(tuple(index.shape), 1, dtype=kind), "add").clamp(min=1)
    return result / count if input.dtype.category >= FLOAT else cast(result.div(count, rounding_mode="floor"), input.dtype)


for _fn in (scatter, scatter_add, scatter_reduce):
    inplace(_fn, _fn.__name__ + "_")


# -- whole slices by index -----------------------------------------------------------------------------------------
@operator(method=True)
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The slices of `input` at the 1-D `index` along `dim`."""
    if index.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got shape {list(index.shape)}")
    d = canonical_dim(dim, input.ndim)
    result = prims.index_select(_vector(input), d, _vector(_index(index, "index_select")))
    if not input.ndim:
        result = on_tape("index_select", result.reshape(()))
    return result if out is None else store_apart(out, result, input, index)


def along_a_number(fn: Callable, alike: bool | None = None) -> Callable:
    """`fn(input, dim, index, values, ...)` for a number too: as a vector of one, of which dimension 0 is indexed. `alike`: the values
    are slices, one for each element of the index, of as many dimensions as the input (or, if False, a number where that is a vector)."""
    name = list(inspect.signature(fn).parameters)[3]

    @functools.wraps(fn)
    def call(input: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not args and name not in kwargs:
            raise TypeError(f"{fn.__name__.lstrip('_')}() missing 1 required argument: '{name}'")
        values, *rest = args or (kwargs.pop(name),)
        d = canonical_dim(dim, input.ndim)
        if alike is not None:
            _check_slices(fn.__name__.lstrip("_"), input, d, index, values, alike)
            index, values = _vector(index), _vector(values) if input.ndim < 2 else values
        if input._layout.shape != ():
            return fn(input, d, index, values, *rest, **kwargs)
        return fn(input.reshape(1), 0, index, values, *rest, **kwargs).reshape(())

    return call


def _check_slices(name: str, input: Tensor, d: int, index: Tensor, source: Tensor, alike: bool) -> None:
    """What is wrong with an index along a dimension and a source of slices for its elements, in torch's order."""
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but it has shape {list(index.shape)}")
    count = index.numel()
    several = not source.ndim and count != 1 and not (alike and d)
    fits = source.ndim == input.ndim or (not alike and source.ndim + input.ndim == 1)
    if alike or (fits and not several):
        _index(index, name) if alike else _long(index, f"{name}_()")
        if source.dtype is not input.dtype:
            raise RuntimeError(f"{name}_(): self ({scalar_type(input.dtype)}) and source ({scalar_type(source.dtype)}) must have "
                               "the same scalar type")
    shape, given = tuple(input.shape) or (1,), tuple(source.shape) or (1,)
    expected = (*shape[:d], count, *shape[d + 1:])
    if fits and all(n == m for n, m in zip(given, expected)):
        return
    sliced = fits and any(n != m for i, (n, m) in enumerate(zip(given, expected)) if i != d)
    runtime = sliced or not (source.ndim or several) or (source.ndim > 1 and not input.ndim) or (alike and not several)
    raise (RuntimeError if runtime else IndexError)(
        f"{name}(): source tensor shape must match self tensor shape, excluding the specified dimension: expected {list(expected)} for an "
        f"index of {count} elements along dimension {d} of shape {list(input.shape)}, got {list(source.shape)}")


@operator(method=True, node=True)
@with_out
@functools.partial(along_a_number, alike=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy of `input` with alpha * the slices of `source` added at `index` along `dim`."""
    return prims.index_add(input, dim, index, source * fitting(alpha, source.dtype) if alpha != 1 and source.numel() else source)


def _at(dim: int, index: Tensor) -> list:
    return [None] * dim + [index]


@operator(method=True, autocast="promote", node=True)
@with_out
@functools.partial(along_a_number, alike=False)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the slices of `source` written at `index` along `dim`."""
    return prims.index_put(input, _at(dim, index), source, False)


@operator(method=True, node=lambda input, dim, index, value: "index_fill.1" if isinstance(value, Tensor) else "index_fill")
@along_a_number
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with `value` in the slices at `index` along `dim`."""
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, got shape {list(value.shape)}")
    if index.dtype is not int64:
        raise IndexError(f"index_fill_(): Expected dtype int64 for index, got {index.dtype}.")
    if index.ndim > 1:
        raise RuntimeError(f"index_fill_(): Index has to be a vector/scalar, got shape {list(index.shape)}")
    value = fitting(value, input.dtype) if isinstance(value, Tensor) else input.new_full((), value)
    size = input.shape[dim]
    chosen = prims.index_put(input.new_zeros((size,), dtype=bool_), _at(0, index), input.new_full((), True, dtype=bool_), False)
    chosen = chosen.reshape([size if i == dim else 1 for i in range(input.ndim)])
    return like(where(chosen, value, input), input)     # an index that is there twice counts once


for _fn in (index_add, index_copy, index_fill):
    inplace(_fn, _fn.__name__ + "_")


# -- advanced indexing -----------------------------------------------------------------------------------------------
def _check_accumulate(name: str, accumulate: Any) -> None:
    if not isinstance(accumulate, bool):
        raise TypeError(f"{name}(): argument 'accumulate' (position 3) must be bool, not {type(accumulate).__name__}")


@operator(method=True, autocast={"cuda": "promote"})
def index_put(input: Tensor, indices: Sequence, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` written, or added, at `indices` (a tensor, mask or None for each dimension)."""
    _check_accumulate("index_put", accumulate)
    found = index_list(input, indices)
    _check_broadcast(found)
    return like(prims.index_put(input, found, together((input, values))[1], bool(accumulate)), input)


@operator(method=True)
def index_put_(self: Tensor, indices: Sequence, values: Tensor, accumulate: bool = False) -> Tensor:
    """Write, or add, `values` at `indices` in place."""
    _check_accumulate("index_put_", accumulate)
    found = index_list(self, indices)
    _check_broadcast(found)
    return put_(self, found, _value_for(self, values, False), bool(accumulate))


@operator(method=True)
@with_out
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero: one row each, or, as_tuple, a tensor for each dimension."""
    if as_tuple and not input.ndim:
        input = prims.unsqueeze(input, 0)
    rows = prims.nonzero(input)
    return tuple(prims.select(rows, 1, d) for d in range(input.ndim)) if as_tuple else rows


@operator(method=True)
@with_out
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of nonzero, filled up with rows of `fill_value` if there are fewer: a shape known beforehand."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    there = (input != 0).reshape(-1)
    row = (cast(there, int64).cumsum(0) - 1).clamp(max=size).masked_fill(~there, size)     # row `size` takes what isn't wanted
    places = prims.scatter(there.new_zeros((size + 1,), dtype=int64), 0, row, there.new_arange(there.shape[0]), "set")[:size]
    missing = there.new_arange(size) >= there.sum()
    columns = [column.masked_fill(missing, fill_value) for column in OPERATORS["unravel_index"](places, [max(n, 1) for n in input.shape])]
    return stack(columns, 1) if columns else places.new_zeros((size, 0))


@operator(method=True)
def argwhere(input: Tensor) -> Tensor:
    """nonzero: one row of indices for each element that is not zero."""
    return nonzero(input)


@operator(method=True, node=True)
@with_out_apart
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of `input` where `mask` (broadcast against it) is true, as a 1-D tensor."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    mask, input = broadcast(mask, input)
    return prims.index(input.reshape(-1), list(nonzero(mask.reshape(-1), as_tuple=True)))


@operator(method=True, node=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the elements of `source`, in order, where `mask` is true."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if source.dtype is not input.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {input.dtype} and {source.dtype}")
    mask, input = broadcast(mask, input)
    if (ones := sum(read(mask, "sum"))) > source.numel():
        raise RuntimeError(f"Number of elements of source < number of ones in mask: {source.numel()} elements for {ones} ones")
    order = prims.cumsum(cast(mask.reshape(-1), int64), 0, False) - 1
    count, flat = source.numel(), source.reshape(-1)
    if count == 0:
        flat = prims.cat([flat, source.new_zeros((1,))], 0)     # something to look at, which nothing takes
    picked = prims.index_select(flat, 0, order.clamp(0, max(count - 1, 0)))
    made = in_rows(prims.where(mask, picked.reshape(tuple(input.shape)), input))
    return made if mask._data is not None else checked(made, order[-1:] < count)


inplace(masked_scatter, "masked_scatter_")


@operator(method=True, node=True)
@with_out_apart
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at `index` of the flattened input."""
    _long(index, "take()")
    flat = input.reshape(-1)
    n = flat.shape[0]
    for outside in (k for k in read(index, "min", "max") if not -n <= k < n):
        raise IndexError(f"out of range: tried to access index {outside} on a tensor of {n} elements.")
    return prims.index(flat, [in_rows(index)])


@operator(name="put", method=True, node=True)
def put_elements(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with `source` written, or added, at `index` of the flattened tensor."""
    if not accumulate:
        alert_not_deterministic("put_")
    _long(index, "put_()")
    if source.dtype is not input.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got self.dtype = {scalar_type(input.dtype)} "
                           f"and source.dtype = {scalar_type(source.dtype)}")
    if source.numel() != index.numel():
        raise IndexError("put_(): Expected source and index to have the same number of elements, but got source.numel() = "
                         f"{source.numel()}, index.numel() = {index.numel()}")
    flat = prims.index_put(input.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return like(flat.reshape(tuple(input.shape)), input)


inplace(put_elements, "put_")


# -- searching -------------------------------------------------------------------------------------------------------------
def _searchsorted_kernel(edges: np.ndarray, values: np.ndarray, right: bool) -> np.ndarray:
    side: Any = "right" if right else "left"
    if edges.ndim == 1:
        return np.asarray(np.searchsorted(edges, values, side), np.int64)
    out = np.empty(values.shape, np.int64)
    for at in np.ndindex(edges.shape[:-1]):
        out[at] = np.searchsorted(edges[at], values[at], side)
    return out


def _searchsorted_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    edges, values, right = args
    if not has[0]:
        return prim(edges, values, right) if edges.ndim == 1 else batching.by_names(prim, size, args, has)
    values = batching.spread(values, has[1], size)
    return prim(edges, values.unsqueeze(-1).flatten(1) if edges.ndim == 2 else values, right).reshape(values.shape)


@primitive("searchsorted", tags=("ordered",), batch=_searchsorted_batch, kernel=_searchsorted_kernel, tensors=2,
           samples=lambda r: [(np.sort(r.standard_normal(5)), r.standard_normal((2, 3)), True)], why_absent={
    "derivative": "an index is not differentiable", "loop": "a search is not a fixed number of scalar steps"})
def _searchsorted(edges: Tensor, values: Tensor, right: bool) -> Spec:
    """Where each value would be inserted in the sorted last dimension of `edges`."""
    return Spec(values._layout.shape, int64)


@operator
@with_out
def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Tensor | None = None) -> Tensor:
    """Insertion points of `input` into the innermost dimension of `sorted_sequence`; right: after equal elements."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True")
    right = right or side == "right"
    values = input if isinstance(input, Tensor) else as_tensor_operand(input)
    if sorter is not None:
        sorted_sequence = prims.gather(sorted_sequence, sorted_sequence.ndim - 1, sorter)
    if sorted_sequence.ndim > 1 and sorted_sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
                           "boundaries tensor and input value tensor must match, but we got boundaries tensor "
                           f"{list(sorted_sequence.shape)} and input value tensor {list(values.shape)}")
    found = _searchsorted(sorted_sequence, values, right)
    return cast(found, int32) if out_int32 else found


@operator
@with_out
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """searchsorted with the arguments the other way round."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@operator
@with_out
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among `test_elements`."""
    if is_number(elements):
        elements = as_tensor_operand(elements)
    if is_number(test_elements):
        found = in_rows(elements) == test_elements
    else:
        kind = promote_types(elements.dtype, test_elements.dtype)
        kind = float32 if kind.is_floating_point and kind.itemsize < 4 else kind
        x, tests = cast(elements, kind), cast(test_elements.reshape(-1), kind)
        if type(tests.shape[0]) is int and tests.shape[0] > 8 and kind is not bool_ and not kind.is_complex:
            ordered = prims.sort(tests, 0, False, True)[0]
            place = _searchsorted(ordered, x, False).clamp(max=tests.shape[0] - 1)
            found = prims.eq(prims.index_select(ordered, 0, place), x)
        else:
            found = prims.any(prims.eq(*prepare(prims.unsqueeze(x, x.ndim), tests)), (x.ndim,))
    return ~found if invert else found


# -- writing through views, functionally ---------------------------------------------------------------------------------------
def _range_mask(like: Tensor, dim: int, rank: int, size: Any, test: Callable[[Tensor], Tensor]) -> Tensor:
    """`test` of the positions along `dim`, shaped to broadcast over `rank` dimensions."""
    mask = test(like.new_arange(size))
    return prims.view_(mask, tuple(size if d == dim else 1 for d in range(rank)))


def _blend(mask: Tensor, x: Tensor, value: Tensor) -> Tensor:
    return prims.where(expand_to(mask, tuple(x.shape)), value, x)


def _put_slice(x: Tensor, value: Tensor, dim: int, start: Any, stop: Any, step: int) -> Tensor:
    if step == 1 and start == 0 and (stop is x.shape[dim] or stop == x.shape[dim]):
        return value
    placed = _slice_back(value, x.shape, dim, start, stop, step)

    def inside(i: Tensor) -> Tensor:
        hit = (i >= start) & (i < stop)
        return hit if step == 1 else hit & ((i - start) % step == 0)

    return _blend(_range_mask(x, dim, x.ndim, x.shape[dim], inside), x, placed)


def _put_select(x: Tensor, value: Tensor, dim: int, index: Any) -> Tensor:
    mask = _range_mask(x, dim, x.ndim, x.shape[dim], lambda i: i == index)
    return _blend(mask, x, expand_to(prims.unsqueeze(value, dim), tuple(x.shape)))


def _put_diagonal(x: Tensor, value: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    rows, columns = (_range_mask(x, d, x.ndim, x.shape[d], lambda i: i) for d in (dim1, dim2))
    return _blend(columns - rows == offset, x, _diagonal_back(value, x.shape, offset, dim1, dim2))


def _put_strided(x: Tensor, value: Tensor, size: Sequence, stride: Sequence, offset: Any) -> Tensor:
    lay = x._layout
    within = _known_within(size, stride, offset - lay.offset, extent(lay.shape, lay.strides))
    if x._data is None and not within:
        raise NotImplementedError(f"writing through as_strided({tuple(size)}, {tuple(stride)}, {offset}) around a traced tensor of shape "
                                  f"{list(x.shape)}: nobody knows how much memory there is; call it outside of the compiled function")
    if lay.strides != contiguous_strides(lay.shape):
        return _put_in_memory(x, value, size, stride, offset)
    places = prims.views.positions(x, size, stride, offset).reshape(-1) - lay.offset
    count, flat = x.numel(), prims.view_(x, (x.numel(),))
    if within:
        flat = prims.index_put(flat, [places], value.reshape(-1), False)
    else:       # memory around `x` is an element too many
        places = prims.where((places < 0) | (places >= count), count, places)
        flat = prims.index_put(prims.pad_zeros(flat, (0,), (1,), (0,)), [places], value.reshape(-1), False)[:count]
    return prims.view_(flat, tuple(lay.shape))


def _put_in_memory(x: Tensor, value: Tensor, size: Sequence, stride: Sequence, offset: Any) -> Tensor:
    """The same for an `x` that does not lie in rows: by what memory holds afterwards."""
    lay = x._layout
    memory, mine = prims.views.in_memory(x, lay, prims.views.reach(size, stride, offset))
    places = prims.views.positions(x, size, stride, offset).reshape(-1)
    memory = prims.index_put(memory, [places], value.reshape(-1), False)
    return memory.index_select(0, mine.reshape(-1)).reshape(tuple(lay.shape))


@operator(name="_lay_out")
def _lay_out(input: Tensor, layout: tuple) -> Tensor:
    """`input` in a layout (shape, strides, offset) of memory of its own."""
    return input if input._layout == layout else prims.as_strided(prims.views.in_memory(input, layout)[0], *layout)


def _known_within(size: Sequence, stride: Sequence, start: Any, count: Any) -> bool:
    """Whether such a layout stays within so many elements, as far as is known of its numbers."""
    end = start + extent(size, stride)
    return type(end) is not int or type(count) is not int or (start >= 0 and end <= count)


def _put_by_position(x: Tensor, chain: Sequence, value: Tensor) -> Tensor:
    """The same for any chain, by the positions that it leads to."""
    seen = prims.view_(x.new_arange(x.numel()), tuple(x.shape))
    for prim, attrs in chain:
        seen = prim(seen, *attrs)
    refuse_repeated(seen)
    flat = prims.index_put(x.reshape(-1), [seen.reshape(-1)], value.reshape(-1), False)
    return prims.view_(flat, tuple(x.shape))


# By view primitive: x with what the view shows replaced by `value`.
_PUT: dict[str, Callable] = {
    "slice": _put_slice, "select": _put_select, "diagonal": _put_diagonal, "as_strided": _put_strided,
    "permute": lambda x, value, dims: prims.permute(value, _inverse(dims)),
    "view": lambda x, value, shape: value.reshape(tuple(x.shape)),
    "squeeze": lambda x, value, dims: value.reshape(tuple(x.shape)),
    "unsqueeze": lambda x, value, dim: prims.squeeze(value, (dim,)),
    "alias": lambda x, value: value,
    "unfold": lambda x, value, *window: _put_by_position(x, ((prims.unfold, window),), value),
    "view_dtype": lambda x, value, kind: prims.view_dtype(value.contiguous(), x.dtype),
    "view_as_real": lambda x, value: prims.view_as_complex(value.contiguous()),
    "view_as_complex": lambda x, value: prims.view_as_real(value),
    "conj_view": lambda x, value: prims.conj(value), "neg_view": lambda x, value: prims.neg(value),
}


@operator
def view_scatter(input: Tensor, chain: Sequence, src: Tensor) -> Tensor:
    """`input` with what the chain of (view primitive, attributes) shows of it replaced by `src`; nothing is written."""
    if not chain:
        return src
    (prim, attrs), rest = chain[0], chain[1:]
    if prim.name == "expand":
        return _put_by_position(input, chain, src)
    if rest:
        src = view_scatter(prim(input, *attrs), rest, src)
    put = _PUT.get(prim.name)
    if put is None:
        raise NotImplementedError(f"writing through the view {prim.name!r} in functional form; clone() the view before writing")
    return put(input, src, *attrs)


def _same_region(src: Tensor, view: Tensor, name: str) -> Tensor:
    if src.shape != view.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
                           f"{list(view.shape)} ({name})")
    return cast(src, view.dtype)


@operator(method=True, node=True)
@with_out_in_rows
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """A copy of `input` with input[start:end:step] along `dim` replaced by `src`."""
    d = canonical_dim(dim, input.ndim)
    check_step(step)
    attrs = (d, *slice_bounds(slice(start, end, step), input.shape[d]))
    src = _same_region(src, prims.slice_(input, *attrs), "slice_scatter")
    out = view_scatter(input, ((prims.slice_, attrs),), src)
    if out is src:      # all of it: what is left of `input` is a gradient of zeros
        out = prims.where(src.new_full(tuple(src.shape), True, dtype=bool_), src, input)
    return like(out, input)


@operator(method=True, node=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with the slice at `index` along `dim` replaced by `src`."""
    d = canonical_dim(dim, input.ndim)
    i = index + input.shape[d] if index < 0 else index
    return like(view_scatter(input, ((prims.select, (d, i)),), _same_region(src, input.select(d, index), "select_scatter")), input)


@operator(method=True, node=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with a diagonal replaced by `src`."""
    attrs = (offset, canonical_dim(dim1, input.ndim), canonical_dim(dim2, input.ndim))
    out = view_scatter(input, ((prims.diagonal, attrs),), _same_region(src, prims.diagonal(input, *attrs), "diagonal_scatter"))
    return like(out, input)


# -- filling and relaying in place -----------------------------------------------------------------------------------------------
def _once(x: Tensor) -> Tensor:
    """`x`; of what was expanded, a view of each element once: all of them may get one number."""
    for d, (size, stride) in enumerate(zip(*x._layout[:2])):
        if type(stride) is int and stride == 0 and not (type(size) is int and size <= 1):
            x = prims.slice_(x, d, 0, 1, 1)
    return x


@operator(method=True, tags=("inplace",))
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element set to `value` (a number or 0-dim tensor)."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        return assign(self, expand_to(cast(value, self.dtype), tuple(self.shape)), anew=True)
    assign(_once(self), fitting(value, self.dtype), anew=True)
    return self


@operator(method=True, tags=("inplace",))
def zero_(self: Tensor) -> Tensor:
    """Every element set to zero."""
    assign(_once(self), cast(0, self.dtype), anew=True)
    return self


@operator(node=lambda input, value: "fill.1" if isinstance(value, Tensor) else "fill")
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like `input` filled with `value`."""
    return input.clone().fill_(value)   # so that input gets a gradient: of zeros


@operator(method=True, tags=("inplace",))
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The main diagonal set to a number; wrap: starting again below a tall matrix's end."""
    if self.ndim == 2 and wrap and self.shape[0] > self.shape[1] > 0:     # it begins anew every columns + 1 rows
        rows, step = self.shape[0], self.shape[1] + 1
        whole = rows - rows % step
        prims.diagonal(prims.slice_(self, 0, 0, whole, 1).unflatten(0, (rows // step, step)), 0, 1, 2).fill_(fill_value)
        prims.diagonal(prims.slice_(self, 0, whole, rows, 1), 0, 0, 1).fill_(fill_value)
        return self
    if self.ndim < 2 or (any(n != self.shape[0] for n in self.shape[1:]) and self.ndim > 2):
        raise RuntimeError(f"fill_diagonal_: all dimensions must be of equal length and at least 2, got {list(self.shape)}")
    diagonal = self
    while diagonal.ndim > 1:
        diagonal = prims.diagonal(diagonal, 0, 0, 1)
    diagonal.fill_(fill_value)
    return self


@method("resize_")
def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Another shape over the same storage, which grows if it must; new elements are uninitialised. In rows, or in `memory_format`."""
    shape = as_ints(sizes if size is None else (size,))
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    refuse_inference_write(self)
    if memory_format is preserve_format:
        raise RuntimeError("resize_(): Unsupported memory format: preserve_format; give contiguous_format or channels_last")
    strides = contiguous_strides(shape) if memory_format is None else memory_format.strides(shape) or contiguous_strides(shape)
    if shape == tuple(self.shape) and (memory_format is None or strides == tuple(self.stride())):
        return self
    storage, size = self._storage, self.dtype.itemsize
    lay = Layout(shape, strides, self.storage_offset())
    need = (lay.offset + Size(shape).numel()) * size
    if self._data is not None and need > storage.nbytes:
        if self.device.type == "cpu" and is_shared(storage):
            raise RuntimeError("Trying to resize storage that is not resizable: it is shared with other processes")
        grown = np.empty_like(storage.buffer, shape=need)       # on its device
        grown[:storage.nbytes] = storage.buffer
        storage.buffer, storage.nbytes = grown, need
    held = self.numel()
    if self._data is not None:
        self._data = view_of(storage.buffer, self.dtype.numpy, lay.shape, lay.strides, lay.offset)
    self._lay = lay
    if self.numel() > held:
        filled_where_asked(prims.as_strided(self, (self.numel() - held,), (1,), lay.offset + held))
    bump_version(self)
    return self


@method("resize_as_")
def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """resize_(the_template.shape); preserve_format: in the format of `the_template`."""
    if memory_format is preserve_format:
        formats = (contiguous_format, channels_last, channels_last_3d)
        memory_format = next((f for f in formats if f.matches(the_template.shape, the_template.stride())), contiguous_format)
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)
