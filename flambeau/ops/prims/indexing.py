"""Reading and writing by index: gather, scatter, advanced indexing, concatenation, flips and rolls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.cpu import native
from ...backends.cpu.conv import FROM_LAST, TO_LAST, is_channels_last
from ...core import dispatch
from ...core.dtypes import int64
from ...core.scalar import SCATTERED_BY, compute_dtype
from ...core.size import broadcast_shapes, contiguous_strides, elementwise_strides, is_contiguous
from ...core.symbolic import unknown_size
from ...core.tensor import Tensor, example_of
from ..batching import each, refused, spread
from ..primitives import InAten, channels_last_like, compiled, lies_like
from ..registry import General, Linear, Spec, primitive
from .views import pad_zeros


# -- concatenation -----------------------------------------------------------------------------------
def _cat_loop(o: Any, idx: Sequence, tensors: Sequence, dim: int) -> Any:
    """Piece by piece: the first whose end lies beyond the index."""
    ends: list = []
    total: Any = 0
    for t in tensors:
        total = total + t.shape[dim]
        ends.append(total)

    def piece(k: int) -> Any:
        start = ends[k] - tensors[k].shape[dim]
        load = lambda: tensors[k]([i - start if d == dim else i for d, i in enumerate(idx)])  # noqa: E731
        if k == len(tensors) - 1:
            return o.masked(o.index_le(start, idx[dim]), load, 0)
        here = o.index_lt(idx[dim], ends[k])
        mine = o.logical_and(here, o.index_le(start, idx[dim])) if k else here
        return o.where(here, o.masked(mine, load, 0), piece(k + 1))

    return piece(0) if len(tensors) > 1 else tensors[0](idx)


def _cat_grads(gs: Any, tensors_shapes: Sequence, dim: int) -> list:
    start: Any = 0
    grads = []
    for shape in tensors_shapes:
        grads.append(gs.narrow(dim, start, shape[dim]))
        start = start + shape[dim]
    return grads


def _cat_kernel(arrays: Sequence[np.ndarray], dim: int) -> np.ndarray:
    rank = arrays[0].ndim
    if all(map(is_channels_last, arrays)):
        last = TO_LAST[rank]
        return np.concatenate([a.transpose(last) for a in arrays], axis=last.index(dim)).transpose(FROM_LAST[rank])
    return np.concatenate(arrays, axis=dim)


@primitive("cat", kernel=_cat_kernel, loop=_cat_loop, tags=("linear", "recomputable"),
           derivative=Linear(tensors=lambda g, tensors_shape, dim: _cat_grads(g, tensors_shape, dim)),
           samples=lambda r: [([r.standard_normal((2, 3)), r.standard_normal((2, 1)), r.standard_normal((2, 2))], 1)])
def cat(tensors: Sequence[Tensor], dim: int) -> Spec:
    """The tensors one after another along `dim`; all of one dtype and, elsewhere, one shape."""
    first = tensors[0]
    shape = list(first._layout.shape)
    total: Any = 0
    for t in tensors:
        other = t._layout.shape
        if t.dtype is not first.dtype:
            raise RuntimeError(f"cat: tensors of one dtype are wanted here, got {first.dtype} and {t.dtype}")
        if len(other) != len(shape):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(shape)} and {len(other)}")
        for d, (a, b) in enumerate(zip(shape, other)):
            if d != dim and a is not b and a != b:
                raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}. Expected size {a} but got size {b} "
                                   f"for tensor with shape {list(other)} in the list.")
        total = total + other[dim]
    shape[dim] = total
    strides = channels_last_like(first, tuple(shape))
    if strides is not None and any(channels_last_like(t, tuple(shape)) is None for t in tensors):
        strides = None
    return Spec(tuple(shape), first.dtype, strides)


def _flip_loop(o: Any, idx: Sequence, x: Any, dims: Sequence[int]) -> Any:
    return x([x.shape[d] - 1 - i if d in dims else i for d, i in enumerate(idx)])


@primitive("flip", kernel=lambda x, dims: np.flip(x, dims).copy(), loop=_flip_loop, tags=("linear", "recomputable", "moving"),
           derivative=Linear(x=lambda g, dims: flip(g, dims)), samples=lambda r: [(r.standard_normal((2, 3)), (0, 1))])
def flip(x: Tensor, dims: tuple[int, ...]) -> Spec:
    """The elements in reverse order along `dims`, in x's memory order."""
    return Spec(x._layout.shape, x.dtype, lies_like([x]))


# -- assertions --------------------------------------------------------------------------------------
def _assured_kernel(holds: np.ndarray) -> np.ndarray:
    if not holds.all():
        raise RuntimeError("an operator was given values that it doesn't take")
    return holds


def _assured_loop(o: Any, idx: Sequence, holds: Any) -> Any:
    # the index 2 is refused
    return o.index_eq(o.indirect(o.where(holds(idx), o.constant(0, int64), o.constant(2, int64)), 2), 0)


@primitive("assured", kernel=_assured_kernel, loop=_assured_loop, tags=("refuses_values",), samples=lambda r: [(np.ones(3, bool),)],
           why_absent={"derivative": "a truth value is not differentiable"})
def assured(holds: Tensor) -> Spec:
    """True where `holds` is; an error where it is not. For `ops.checks.checked`, which see."""
    return Spec(holds._layout.shape, holds.dtype)


# -- gather and scatter --------------------------------------------------------------------------------
def _check_index(name: str, index: Tensor) -> None:
    if index.dtype.category != 1:
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, got {index.dtype}")


def _check_room(index: Tensor, shape: Sequence, dim: int, error: type[Exception] = IndexError) -> None:
    """Whatever its elements are, an index that has some is out of bounds for a dimension of none: also where no element of the
    result would be read there, and compiled code would have nothing to check."""
    if shape and shape[dim] == 0 and all(n != 0 for n in index._layout.shape):
        raise error(f"index of shape {list(index.shape)} is out of bounds for dimension {dim} with size 0")


def _stray(index: np.ndarray, low: int, size: int) -> int | None:
    """The largest or smallest index if it lies outside [low, size)."""
    if not index.size:
        return None
    least, most = int(index.min()), int(index.max())
    return most if most >= size else least if least < low else None


def _bounds(index: np.ndarray, size: int, dim: int) -> None:
    if (stray := _stray(index, 0, size)) is not None:
        raise RuntimeError(f"index {stray} is out of bounds for dimension {dim} with size {size}")


def _rows_in_range(index: np.ndarray, size: int, dim: int) -> None:
    if (stray := _stray(index, 0, size)) is not None:
        raise IndexError(f"index out of range in self: index {stray}, dimension {dim} of size {size}")


def _positions(index: np.ndarray, dim: int) -> tuple:
    """Full index arrays that let NumPy address `index` along `dim` and every other dimension by position."""
    grids = np.ogrid[tuple(slice(n) for n in index.shape)] if index.ndim else []
    return tuple(index if d == dim else g for d, g in enumerate(grids))


def _crop(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def _gather_kernel(x: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    if not x.ndim:
        return np.broadcast_to(x, index.shape).copy()
    if not index.ndim:
        return x[index].reshape(())
    _bounds(index, x.shape[dim], dim)
    out = compiled(gather, x, dim, index)
    if out is not NotImplemented:
        return out
    return np.take_along_axis(_crop(x, index, dim), index, dim)


def _gather_loop(o: Any, idx: Sequence, x: Any, dim: int, index: Any) -> Any:
    picked = o.indirect(index(idx), x.shape[dim])
    return x([picked if d == dim else i for d, i in enumerate(idx)])


@primitive("gather", kernel=_gather_kernel, loop=_gather_loop, tags=("positioned", "refuses_values"),
           derivative=Linear(x=lambda g, x_shape, dim, index: g.new_zeros(tuple(x_shape)).scatter_add(dim, index, g)),
           samples=lambda r: [(r.standard_normal((3, 4)), 1, r.integers(0, 4, (3, 2)))])
def gather(x: Tensor, dim: int, index: Tensor) -> Spec:
    """out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on; `index` is integer and of x's rank."""
    _check_index("gather", index)
    if len(index._layout.shape) != len(x._layout.shape) and x._layout.shape and index._layout.shape:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor, got "
                           f"{list(index.shape)} and {list(x.shape)}")
    for d, (n, m) in enumerate(zip(index._layout.shape, x._layout.shape)):
        if d != dim and n is not m and n > m:
            raise RuntimeError(f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than self "
                               f"{list(x.shape)} apart from dimension {dim}")
    _check_room(index, x._layout.shape, dim, RuntimeError)
    return Spec(index._layout.shape, x.dtype)


def _scatter_kernel(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray, reduce: str) -> np.ndarray:
    _bounds(index, x.shape[dim] if x.ndim else 1, dim)
    prim = scatter if reduce in ("set", "add") else scatter_reduce
    made = compiled(prim, x, dim, index, src, reduce) if x.ndim and index.ndim else NotImplemented
    if made is not NotImplemented:
        return made
    out = x.copy()
    if not out.ndim:
        out, index, src = out.reshape(1), index.reshape(-1), src.reshape(-1)
    where = _positions(index, dim)
    src = src[tuple(slice(n) for n in index.shape)]
    if reduce == "set":
        out[where] = src
    else:
        with np.errstate(all="ignore"):
            SCATTERED_BY[reduce].ufunc.at(out, where, src)
    return out.reshape(x.shape)


def read_part(src: Tensor, index: Tensor) -> Tensor:
    """The leading part of a source, for which there are indices."""
    for d, n in enumerate(index.shape):
        src = src.narrow(d, 0, n)
    return src


def _scatter_reduce_vjp(g: Tensor, x: Tensor, dim: int, index: Tensor, src: Tensor, out: Tensor, reduce: str) -> tuple:
    """Gradients of x, (index) and src; ties of an extremum share evenly."""
    picked = read_part(src, index)
    if reduce == "prod":
        return _product_grads(g, x, dim, index, picked, src.shape)
    mine, theirs = x == out, picked == out.gather(dim, index)
    share = g / mine.to(g.dtype).scatter_add(dim, index, theirs.to(g.dtype))
    return share.masked_fill(~mine, 0), None, grown(share.gather(dim, index).masked_fill(~theirs, 0), src.shape)


def _product_grads(g: Tensor, x: Tensor, dim: int, index: Tensor, picked: Tensor, src_shape: Sequence) -> tuple:
    """Of a product each factor gets the product of the others: of those that are not zero, where no other one is. Else it is zero, or
    NaN if one is not finite."""
    kind, wide = x.dtype, compute_dtype(x.dtype)
    g, x, picked = g.to(wide), x.to(wide), picked.to(wide)      # rounded once
    none, no_other = (x == 0).to(wide), (picked == 0).to(wide)
    zeros = none.scatter_add(dim, index, no_other)
    product = x.masked_fill(x == 0, 1).scatter_reduce(dim, index, picked.masked_fill(picked == 0, 1), "prod")

    nothing = (x * 0).scatter_add(dim, index, picked * 0)

    def others(factor: Tensor, is_zero: Tensor, product: Tensor, zeros: Tensor, nothing: Tensor) -> Tensor:
        return (product / factor.masked_fill(factor == 0, 1)).where(zeros == is_zero, nothing)
    grads = others(picked, no_other, *(t.gather(dim, index) for t in (product, zeros, nothing))).conj()
    return (g * others(x, none, product, zeros, nothing).conj()).to(kind), None, grown((g.gather(dim, index) * grads).to(kind), src_shape)


def grown(grad: Tensor, shape: Sequence) -> Tensor:
    """The gradient of a source of `shape`, of which only the leading part (the shape of `grad`) was read."""
    rest = tuple(n - m for n, m in zip(shape, grad.shape))
    if not any(type(n) is not int or n for n in rest):
        return grad
    zeros = (0,) * len(rest)
    return pad_zeros(grad, zeros, rest, zeros)


def _scatter_samples(*ways: str) -> Any:
    return lambda r: [(r.standard_normal((3, 4)), 1, r.permuted(np.tile(np.arange(4), (3, 1)), axis=1)[:, :2],
                       r.standard_normal((3, 2)), how) for how in ways]


def _scatter_axes(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> list:
    """Where index and source are as long as `x`, each slice is for itself; what is added may be split anywhere."""
    alike = [((d, d, d), d, None, ()) for d in range(x.ndim) if d != dim and x.shape[d] == index.shape[d] == src.shape[d]]
    adds = reduce == "add" and index.ndim and index.shape[dim] == src.shape[dim]
    return [*alike, ((None, dim, dim), None, "sum", (0,))] if adds else alike


@primitive("scatter", sharding=_scatter_axes, kernel=_scatter_kernel, loop="scatter", tensors=4, tags=("positioned", "refuses_values"),
           aten=InAten(call=lambda x, dim, index, src, reduce: ("scatter" if reduce == "set" else "scatter_add", (x, dim, index, src), {})),
           samples=_scatter_samples("set", "add"), derivative=Linear(
    x=lambda g, dim, index, reduce: g if reduce == "add" else g.scatter(dim, index, 0),
    src=lambda g, dim, index, src_shape: grown(g.gather(dim, index), src_shape)))
def scatter(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Spec:
    """A copy of `x` with `src` written ("set") or added ("add") at `index` along `dim`."""
    return _scattered(x, dim, index, src)


@primitive("scatter_reduce", sharding=_scatter_axes, kernel=_scatter_kernel, loop="scatter", tensors=4, tags=("positioned", "refuses_values"),
           samples=_scatter_samples("amax", "amin", "prod"), derivative=General(_scatter_reduce_vjp))
def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Spec:
    """`x` where, at `index` along `dim`, `src` is multiplied in ("prod") or the extremum taken ("amax", "amin")."""
    return _scattered(x, dim, index, src)


def of_one_rank(x: Tensor, index: Tensor, src: Tensor) -> bool:
    """Whether all have as many dimensions, of which a number has one like a vector."""
    return max(x.ndim, 1) == max(index.ndim, 1) == max(src.ndim, 1)


def _scattered(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Spec:
    _check_index("scatter", index)
    if src.dtype is not x.dtype:
        raise RuntimeError(f"scatter(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and {src.dtype}")
    if not of_one_rank(x, index, src):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as self and src tensor, got {list(index.shape)}, "
                           f"{list(x.shape)} and {list(src.shape)}")
    for d, (n, m) in enumerate(zip(index._layout.shape, src._layout.shape)):
        if (type(n) is int and type(m) is int and n > m) or (d != dim and n is not x.shape[d] and n > x.shape[d]):
            raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart from dimension "
                               f"{dim} and to be no larger size than src {list(src.shape)}")
    _check_room(index, x._layout.shape, dim, RuntimeError)
    return Spec(x._layout.shape, x.dtype)


scatter.tensor_positions = scatter_reduce.tensor_positions = (0, 2, 3)
gather.tensor_positions = (0, 2)


# -- whole slices by index -------------------------------------------------------------------------------
def _index_select_kernel(x: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    if not x.ndim:
        return x.reshape(1)[index].reshape(())
    _rows_in_range(index, x.shape[dim], dim)
    return native.take(x, index, dim)


def _index_select_loop(o: Any, idx: Sequence, x: Any, dim: int, index: Any) -> Any:
    rank = len(index.shape)
    picked = o.indirect(index(idx[dim:dim + rank]), x.shape[dim])
    return x([*idx[:dim], picked, *idx[dim + rank:]])


def _index_select_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, dim, at = args
    if x.ndim == (1 if has[0] else 0):
        return each(prim, size, args, has)
    if not has[2]:
        return index_select(x, dim + 1, at)
    if not has[0]:
        return index_select(x, dim, at).movedim(dim, 0)
    return _index_batch(index, size, (x, [None] * dim + [at]), (True, (False,) * dim + (True,)))


def _index_add_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, dim, at, src = args
    if x.ndim == (1 if has[0] else 0):
        return each(prim, size, args, has)
    if not has[2]:
        return index_add(spread(x, has[0], size), dim + 1, at, spread(src, has[3], size))
    return _index_put_batch(index_put, size, (x, [None] * dim + [at], src, True), (has[0], (False,) * dim + (True,), has[3], False))


@primitive("index_select", batch=_index_select_batch, kernel=_index_select_kernel, loop=_index_select_loop,
           tags=("positioned", "refuses_values"),
           aten=InAten(call=lambda x, dim, index: ("index_select", (x, dim, index), {}) if index.ndim == 1 else None),
           derivative=Linear(x=lambda g, x_shape, dim, index: index_add(g.new_zeros(tuple(x_shape)), dim, index, g)),
           samples=lambda r: [(r.standard_normal((3, 4)), 1, r.integers(0, 4, 5)),
                              (r.standard_normal((3, 4)), 0, r.integers(0, 3, (2, 2)))])
def index_select(x: Tensor, dim: int, index: Tensor) -> Spec:
    """The slices of `x` at `index` along `dim`; the dimensions of `index` (any rank) take the place of `dim`."""
    _check_index("index_select", index)
    shape = x._layout.shape
    _check_room(index, shape, dim)
    return Spec(shape[:dim] + index._layout.shape + shape[dim + 1:], x.dtype)


@np.errstate(all="ignore")
def _index_add_kernel(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray) -> np.ndarray:
    if not x.ndim:
        return np.asarray(x + src.sum(dtype=x.dtype), x.dtype)
    _rows_in_range(index, x.shape[dim], dim)
    if (added := native.index_add(x, dim, index, src)) is not None:
        return added
    made = compiled(index_add, x, dim, index, src)
    if made is not NotImplemented:
        return made
    out = x.copy()
    rank = index.ndim
    flat = src.reshape(src.shape[:dim] + (index.size,) + src.shape[dim + rank:])
    place: Any = (slice(None),) * dim + (index.reshape(-1),)
    np.add.at(out, place, flat)
    return out


def _index_add_axes(x: Tensor, dim: int, index: Tensor, src: Tensor) -> list:
    """Rows of `src` may be split with the index: each process adds up its own; other dimensions are those of `x`."""
    behind = index.ndim - 1
    whole = [((d, None, d + behind * (d > dim)), d, None, ()) for d in range(x.ndim) if d != dim]
    return [*whole, *[((None, i, dim + i), None, "sum", (0,)) for i in range(index.ndim)]]


@primitive("index_add", sharding=_index_add_axes, batch=_index_add_batch, kernel=_index_add_kernel, loop="scatter", tensors=4,
           tags=("linear", "positioned", "refuses_values"),
           derivative=Linear(x=lambda g: g, src=lambda g, dim, index: index_select(g, dim, index)),
           samples=lambda r: [(r.standard_normal((3, 4)), 1, r.integers(0, 4, 5), r.standard_normal((3, 5)))])
def index_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Spec:
    """A copy of `x` with the slices of `src` added at `index` along `dim` (the transpose of index_select)."""
    _check_index("index_add", index)
    shape = x._layout.shape
    _check_room(index, shape, dim)
    want = shape[:dim] + index._layout.shape + shape[dim + 1:]
    if tuple(src._layout.shape) != tuple(want) and len(shape):
        raise RuntimeError(f"index_add(): expected a source of shape {list(want)} for self {list(shape)}, dim {dim} and index "
                           f"{list(index.shape)}, got {list(src.shape)}")
    return Spec(shape, x.dtype)


index_select.tensor_positions = (0, 2)
index_add.tensor_positions = (0, 2, 3)


# -- advanced indexing -----------------------------------------------------------------------------------
def _advanced(indices: Sequence) -> tuple:
    return tuple(slice(None) if i is None else i for i in indices)


def _check_bounds(x: np.ndarray, indices: Sequence) -> None:
    for d, index in enumerate(indices):
        if index is not None and (stray := _stray(index, -x.shape[d], x.shape[d])) is not None:
            raise IndexError(f"index {stray} is out of bounds for dimension {d} with size {x.shape[d]}")


def _index_kernel(x: np.ndarray, indices: Sequence) -> np.ndarray:
    _check_bounds(x, indices)
    if x.ndim > 1 and len(used := _used(indices)) == 1:
        [(d, index)] = used.items()
        return native.take(x, np.where(index < 0, index + x.shape[d], index), d)
    return np.asarray(x[_advanced(indices)], order="C")


def _used(indices: Sequence) -> dict[int, Any]:
    """The indices by dimension, without those that take a dimension whole."""
    return {d: index for d, index in enumerate(indices) if index is not None}


def index_shape(shape: Sequence, indices: Sequence) -> tuple[tuple, int, int]:
    """(result shape, position of the index dimensions in it, their number) of NumPy-style advanced indexing."""
    used = [d for d, i in enumerate(indices) if i is not None]
    common = tuple(broadcast_shapes(*[indices[d].shape for d in used]))
    adjacent = used == list(range(used[0], used[-1] + 1))
    start = used[0] if adjacent else 0
    rest = [size for d, size in enumerate(shape) if d >= len(indices) or indices[d] is None]
    return tuple(rest[:start]) + common + tuple(rest[start:]), start, len(common)


def _index_loop(o: Any, idx: Sequence, x: Any, indices: Sequence) -> Any:
    _, start, rank = index_shape(x.shape, indices)
    mine, rest = idx[start:start + rank], iter([*idx[:start], *idx[start + rank:]])
    source = []
    for d, size in enumerate(x.shape):
        index = indices[d] if d < len(indices) else None
        if index is None:
            source.append(next(rest))
            continue
        own = mine[rank - len(index.shape):]
        at = [0 if type(n) is int and n == 1 else i for i, n in zip(own, index.shape)]
        source.append(o.indirect(index(at), size, wraps=True))
    return x(source)


def _one_example(indices: Sequence, has: tuple) -> list:
    return [example_of(i, None) if h else i for i, h in zip(indices, has, strict=True)]


def _adjacent(indices: Sequence) -> bool:
    used = [d for d, i in enumerate(indices) if i is not None]
    return used[-1] - used[0] + 1 == len(used)


def _wide(indices: Sequence, has: tuple, count: int) -> list:
    """Indices of which some have the batch: it comes before the `count` dimensions to which they broadcast."""
    return [_padded(i, count) if h else i for i, h in zip(indices, has, strict=True)]


def _padded(x: Tensor, rank: int) -> Tensor:
    """One example's dimensions filled up to `rank` from the left, behind the batch."""
    return x.reshape((x.shape[0],) + (1,) * (rank - x.ndim + 1) + tuple(x.shape[1:]))


def _behind(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(1 + first, 1 + first + count))


def _index_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    """What the indices select stands where they are, if they are adjacent, or else in front of all; there the batch belongs."""
    x, indices = args
    if not has[1]:
        out = index(x, [None, *indices])
        return out if _adjacent(indices) else out.movedim(index_shape(x.shape[1:], indices)[2], 0)
    _, start, count = index_shape(x.shape[has[0]:], _one_example(indices, has[1]))
    wide = _wide(indices, has[1], count)
    if not has[0]:
        return index(x, wide).movedim(start, 0)
    place = x.new_arange(size).reshape((size,) + (1,) * count)
    return index(x, [place, *wide]).movedim(_behind(0, count), _behind(start, count))


def _index_put_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, indices, values, accumulate = args
    x = spread(x, has[0], size)
    one = _one_example(indices, has[1]) if has[1] else indices
    shape, start, count = index_shape(x.shape[1:], one)
    if has[2]:
        values = _padded(values, len(shape))
    values = values.expand((size, *shape))
    if not has[1]:
        return index_put(x, [None, *indices], values if _adjacent(indices) else values.movedim(0, count), accumulate)
    place = x.new_arange(size).reshape((size,) + (1,) * count)
    return index_put(x, [place, *_wide(indices, has[1], count)], values.movedim(_behind(start, count), _behind(0, count)), accumulate)


@primitive("index", batch=_index_batch, kernel=_index_kernel, loop=_index_loop, tensors=2, tags=("positioned", "refuses_values"),
           derivative=General(lambda g, x_shape, indices: (index_put(g.new_zeros(tuple(x_shape)), indices, g, True), None)),
           samples=lambda r: [(r.standard_normal((3, 4, 2)), [r.integers(-3, 3, (2, 1)), r.integers(0, 4, 3)]),
                              (r.standard_normal((3, 4)), [None, r.integers(0, 4, 3)])])
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Spec:
    """NumPy's advanced indexing with integer tensors; None takes a dimension whole. Index dimensions stay in place if adjacent."""
    _check_rooms(indices, x)
    return Spec(shape := index_shape(x._layout.shape, indices)[0], x.dtype, _index_strides(x, indices, shape))


def _index_strides(x: Tensor, indices: Sequence[Tensor | None], shape: tuple) -> tuple | None:
    """The order of an elementwise result of `x`, which repeats along the index dimensions, and the indices, which repeat elsewhere."""
    used = [i for i in indices if i is not None]
    _, start, rank = index_shape(x._layout.shape, indices)
    tells_nothing = rank == len(shape) or x._layout.strides == contiguous_strides(x._layout.shape)
    if tells_nothing and all(is_contiguous(*i._layout[:2]) for i in used):
        return None
    kept = [s for d, s in enumerate(x._layout.strides) if d >= len(indices) or indices[d] is None]
    mine = [(*kept[:start], *(0,) * rank, *kept[start:])]
    for i in used:
        lead = rank - len(i._layout.shape)
        own = (0,) * lead + tuple([0 if n != m and n == 1 else s for n, s, m in zip(*i._layout[:2], shape[start + lead:])])
        before, after = (own[0] * shape[start], own[-1]) if own else (1, 1)     # as of the index reshaped: dimensions of one element
        mine.append((*[before if n == 1 else 0 for n in shape[:start]], *own, *[after if n == 1 else 0 for n in shape[start + rank:]]))
    return elementwise_strides(shape, mine)


def _check_rooms(indices: Sequence[Tensor | None], x: Tensor) -> None:
    for d, at in enumerate(indices):
        if at is not None:
            _check_room(at, x._layout.shape, d)


def _index_put_kernel(x: np.ndarray, indices: Sequence, values: np.ndarray, accumulate: bool) -> np.ndarray:
    _check_bounds(x, indices)
    made = _put_by_loops(x, indices, values, accumulate)
    if made is NotImplemented:
        made = x.copy()
        _put_by_numpy(made, indices, values, accumulate)
    return made


def write_index(out: np.ndarray, indices: Sequence, values: np.ndarray, accumulate: bool) -> None:
    """Write, or add, `values` at `indices` of the array `out`, in place."""
    _check_bounds(out, indices)
    made = _put_by_loops(out, indices, values, accumulate)
    if made is NotImplemented:
        _put_by_numpy(out, indices, values, accumulate)
    else:
        native.copy_strided(out, made)


@np.errstate(all="ignore")
def _put_by_numpy(out: np.ndarray, indices: Sequence, values: np.ndarray, accumulate: bool) -> None:
    if accumulate:  # NumPy reads past the end of values that it broadcasts over an index of several dimensions
        np.add.at(out, _advanced(indices), np.asarray(np.broadcast_to(values, index_shape(out.shape, indices)[0]), order="C"))
    else:
        out[_advanced(indices)] = values


def _put_by_loops(x: np.ndarray, indices: Sequence, values: np.ndarray, accumulate: bool) -> Any:
    """A new array by generated loops; NotImplemented where NumPy does as well: for few values, or whole rows without additions."""
    used = _used(indices)
    if accumulate and x.dtype == np.bool_:      # sums of truth values are their disjunction, which NumPy knows
        return NotImplemented
    if 4 * math.prod(index_shape(x.shape, indices)[0]) < x.size or not (accumulate or min(used)):
        return NotImplemented
    return compiled(_index_put_flat, x, values, accumulate, tuple(used), *used.values())


def _index_put_flat(x: Tensor, values: Tensor, accumulate: bool, dims: Sequence[int], *indices: Tensor) -> Tensor:
    by_dim = dict(zip(dims, indices))
    return index_put(x, [by_dim.get(d) for d in range(max(dims) + 1)], values, accumulate)


def _index_put_vjp(g: Tensor, indices: Sequence, values_shape: Sequence, accumulate: bool) -> tuple:
    g_values = index(g, indices).sum_to_size(tuple(values_shape))
    if accumulate:
        return g, None, g_values
    return index_put(g, indices, g.new_zeros(()).expand(tuple(values_shape)), False), None, g_values


def _broadcasts_to(shape: Sequence, wanted: Sequence) -> bool:
    lead = len(wanted) - len(shape)
    return lead >= 0 and all((type(n) is int and n == 1) or n is m or n == m for n, m in zip(shape, wanted[lead:]))


@primitive("index_put", batch=_index_put_batch, kernel=_index_put_kernel, loop="scatter", tensors=3,
           tags=("positioned", "refuses_values"), derivative=General(_index_put_vjp),
           samples=lambda r: [(r.standard_normal((3, 4)), [r.permutation(3)[:2], None], r.standard_normal((2, 4)), add)
                              for add in (False, True)] + [(r.standard_normal((3, 4)), [np.array([1, 1, 0]), None], np.ones((3, 4)), True)])
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Spec:
    """A copy of `x` with `values` (broadcast to the indexed shape) written, or added, at `indices`."""
    _check_rooms(indices, x)
    shape = index_shape(x._layout.shape, indices)[0]
    if not _broadcasts_to(values._layout.shape, shape):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
                           f"shape {list(shape)}")
    if values.dtype is not x.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {x.dtype} for the destination "
                           f"and {values.dtype} for the source.")
    return Spec(x._layout.shape, x.dtype)


def _nonzero_kernel(x: np.ndarray) -> np.ndarray:
    rest = np.flatnonzero(x if x.dtype.kind == "b" else x != 0)
    rows = np.empty((x.ndim, rest.size), np.int64).T    # as torch lays them: a dimension's indices side by side
    for d in range(x.ndim - 1, 0, -1):
        above = rest // x.shape[d] if x.size else rest
        rows[:, d] = rest - above * x.shape[d]
        rest = above
    if x.ndim:
        rows[:, 0] = rest
    return rows


@primitive("nonzero", batch=refused, kernel=_nonzero_kernel, tags=("data_dependent",),
           why_absent={"derivative": "an index is not differentiable", "loop": "the output's shape depends on the data"},
           samples=lambda r: [(r.standard_normal((3, 4)) > 0,)])
def nonzero(x: Tensor) -> Spec:
    """Indices of the elements that are not zero, one row each (i64). Its shape depends on the data."""
    if dispatch.untold(x):
        found = unknown_size("nonzero", x)
        return Spec((found, len(x.shape)), int64, (1, found))
    return Spec((-1, len(x.shape)), int64)


__all__ = ["assured", "cat", "flip", "gather", "scatter", "scatter_reduce", "index_select", "index_add", "index", "index_put",
           "index_shape", "write_index", "nonzero", "read_part", "grown"]
