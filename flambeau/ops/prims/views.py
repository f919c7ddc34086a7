"""View primitives: the shape rule's layout is the whole computation; the loop facet maps output to input indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.cpu.conv import FROM_LAST, TO_LAST, is_channels_last
from ...core.dtypes import float32, float64, int64
from ...core.expr import maximum
from ...core.size import contiguous_strides, elementwise_strides, extent, known_zero, may_overlap
from ...core.symbolic import SymInt, expr_of
from ...core.tensor import Tensor
from ..primitives import InAten, channels_last_like
from ..registry import Linear, Spec, primitive, view


def _view_loop_permute(o: Any, idx: Sequence, x: Any, dims: Sequence[int]) -> Any:
    source: list = [None] * len(dims)
    for position, d in enumerate(dims):
        source[d] = idx[position]
    return x(source)


def _permute_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    return permute(args[0], (0, *[d + 1 for d in args[1]]))


@view("permute", tags=("moving",),
      batch=_permute_batch, derivative=Linear(x=lambda g, dims: permute(g, _inverse(dims))), loop=_view_loop_permute,
      aten=InAten(node=lambda x, dims: "t" if tuple(dims) == (1, 0) else
                  "transpose" if sum(i != d for i, d in enumerate(dims)) == 2 else "permute"),
           samples=lambda r: [(r.standard_normal((2, 3, 4)), (2, 0, 1))])
def permute(x: Tensor, dims: tuple[int, ...]) -> Spec:
    """The dimensions in the order `dims` (a permutation of all of them)."""
    shape, strides, offset = x._layout
    return Spec(tuple([shape[d] for d in dims]), x.dtype, tuple([strides[d] for d in dims]), offset)


def _inverse(dims: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(dims)
    for position, d in enumerate(dims):
        inverse[d] = position
    return tuple(inverse)


def _expand_loop(o: Any, idx: Sequence, x: Any, shape: Sequence) -> Any:
    lead = len(shape) - len(x.shape)
    return x([0 if _is_one(size) else i for i, size in zip(idx[lead:], x.shape)])


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _expand_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, shape = args
    for _ in range(len(shape) - x.ndim + 1):
        x = unsqueeze(x, 1)
    return expand(x, (size, *shape))


@view("expand", tags=("moving",), batch=_expand_batch, derivative=Linear(x=lambda g, x_shape: _sum_to(g, x_shape)), loop=_expand_loop,
           samples=lambda r: [(r.standard_normal((3, 1)), (2, 3, 4)), (r.standard_normal(()), (2,))])
def expand(x: Tensor, shape: tuple[int, ...]) -> Spec:
    """Broadcast to `shape`: new leading dimensions and dimensions of size 1 repeat with stride 0."""
    old, strides, offset = x._layout
    lead = len(shape) - len(old)
    new = [0] * lead
    for size, want, stride in zip(old, shape[lead:], strides):
        if type(size) is SymInt and size is not want and size.expr != expr_of(want):  # repeated: no later stage may see another size
            size = size.env.symint(size.env.pinned_if_one(size.expr))
        if type(size) is int and type(want) is int and size != want and size != 1:
            raise RuntimeError(f"a tensor of shape {list(old)} does not broadcast to shape {list(shape)}")
        new.append(0 if _is_one(size) and not _is_one(want) else stride)
    return Spec(tuple(shape), x.dtype, tuple(new), offset)


def _sum_to(g: Tensor, shape: Sequence) -> Tensor:
    """Sum `g` over the dimensions along which `shape` was broadcast to g's shape."""
    lead = g.ndim - len(shape)
    dims = tuple(range(lead)) + tuple(lead + i for i, size in enumerate(shape) if _is_one(size) and not _is_one(g.shape[lead + i]))
    if dims:
        g = g.sum(dims, keepdim=True)
    return g.reshape(tuple(shape)) if lead else g


def _reshape_loop(o: Any, idx: Sequence, x: Any, shape: Sequence) -> Any:
    """Through the linear index: the loop IR simplifies the divisions away where the shapes allow it."""
    linear: Any = 0
    for i, stride in zip(idx, contiguous_strides(shape)):
        linear = linear + i * stride
    source = []
    for size, stride in zip(x.shape, contiguous_strides(x.shape)):
        source.append(0 if type(size) is int and size <= 1 else (linear // stride) % size)
    return x(source)


def _reshape_axes(x: Tensor, shape: Sequence) -> list:
    """Dimensions that begin alike: runs of old and of new ones with as many elements, of which the outermost correspond."""
    old, axes, i, j = x._layout.shape, list[tuple](), 0, 0
    if 0 in old:
        return axes     # of nothing there are no runs, and nothing is moved
    while i < len(old) and j < len(shape):
        if old[i] == 1 or shape[j] == 1:
            i, j = i + (old[i] == 1), j + (shape[j] == 1 and old[i] != 1)
            continue
        axes.append(((i,), j, None, ()))
        a, b, i, j = old[i], shape[j], i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * shape[j], j + 1
    return axes


@view("view", sharding=_reshape_axes, tags=("moving",), derivative=Linear(x=lambda g, x_shape: g.reshape(tuple(x_shape))),
           loop=_reshape_loop, samples=lambda r: [(r.standard_normal((2, 6)), (3, 4)), (r.standard_normal((1, 6)), (6,))])
def view_(x: Tensor, shape: tuple[int, ...]) -> Spec:
    """The same elements in row-major order under another shape; RuntimeError if no strides can express it."""
    old, strides, offset = x._layout
    new = reshaped_strides(old, strides, shape)
    if new is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans "
                           f"across two contiguous subspaces). Use .reshape(...) instead. (size {list(old)}, stride "
                           f"{list(strides)}, asked for {list(shape)})")
    return Spec(tuple(shape), x.dtype, new, offset)


def reshaped_strides(old: Sequence, strides: Sequence, shape: Sequence) -> tuple | None:
    """Strides under which `shape` reads the same elements in the same order; None if there are none.

    Old dimensions merge into runs that are contiguous among themselves; each run must be split by whole new dimensions.
    """
    if 0 in [s for s in (*old, *shape) if type(s) is int]:
        return tuple(strides) if tuple(old) == tuple(shape) else contiguous_strides(shape)
    runs: list[list] = []                       # [size, innermost stride] of each run, outermost first
    for size, stride in zip(old, strides):
        if _is_one(size):
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    new: list = [1] * len(shape)
    run = len(runs) - 1
    left, step = (runs[run][0], runs[run][1]) if runs else (1, 1)
    for position in range(len(shape) - 1, -1, -1):
        size = shape[position]
        if _is_one(size):
            new[position] = step
            continue
        quotient = left // size
        if quotient * size != left:
            run -= 1
            if run < 0 or left != 1:
                return None
            left, step = runs[run]
            quotient = left // size
            if quotient * size != left:
                return None
        new[position] = step
        left, step = quotient, step * size
    return tuple(new) if left == 1 else None


@view("slice", tags=("moving",),
      derivative=Linear(x=lambda g, x_shape, dim, start, stop, step: _slice_back(g, x_shape, dim, start, stop, step)),
      loop=lambda o, idx, x, dim, start, stop, step: x([i * step + start if d == dim else i for d, i in enumerate(idx)]),
           samples=lambda r: [(r.standard_normal((3, 7)), 1, 1, 6, 2), (r.standard_normal((3, 7)), 0, 1, 3, 1)])
def slice_(x: Tensor, dim: int, start: int, stop: int, step: int) -> Spec:
    """Elements start, start+step, ... before stop along `dim`; 0 <= start <= stop <= size, step >= 1."""
    shape, strides, offset = x._layout
    size = (stop - start + (step - 1)) // step if step != 1 else stop - start
    new_shape, new_strides = list(shape), list(strides)
    new_shape[dim], new_strides[dim] = size, strides[dim] * step
    return Spec(tuple(new_shape), x.dtype, tuple(new_strides), offset + start * strides[dim])


def _slice_back(g: Tensor, shape: Sequence, dim: int, start: int, stop: int, step: int) -> Tensor:
    size = shape[dim]
    low, high = [0] * g.ndim, [0] * g.ndim
    inner = [0] * g.ndim
    low[dim], inner[dim] = start, step - 1
    covered = start + (g.shape[dim] - 1) * step + 1 if step != 1 else stop
    high[dim] = size - covered
    if step != 1 and g.shape[dim] == 0:
        return g.new_zeros(tuple(shape))
    return pad_zeros(g, tuple(low), tuple(high), tuple(inner))


def _select_back(g: Tensor, shape: Sequence, dim: int, index: Any) -> Tensor:
    if isinstance(index, Tensor):
        return g.new_zeros(tuple(shape)).index_add(dim, index.unsqueeze(0), g.unsqueeze(dim))
    return _slice_back(g.unsqueeze(dim), shape, dim, index, index + 1, 1)


@view("select", tags=("moving",),
      derivative=Linear(x=lambda g, x_shape, dim, index: _select_back(g, x_shape, dim, index)),
      loop=lambda o, idx, x, dim, index: x([*idx[:dim], o.indirect(index([]), x.shape[dim]) if callable(index) else index, *idx[dim:]]),
           samples=lambda r: [(r.standard_normal((3, 4)), 1, 2)])
def select(x: Tensor, dim: int, index: int | Tensor) -> Spec:
    """The slice at `index` (>= 0) along `dim`, without that dimension. While tracing it may be a 0-dim tensor: where the slice begins
    is known when the graph runs."""
    shape, strides, offset = x._layout
    least = 1     # of no examples, vmap shows one
    if isinstance(index, Tensor):
        least, index = 0, 0 if index._data is None else int(index)
    if index >= shape[dim] and shape[dim] >= least:
        raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {shape[dim]}")
    return Spec(shape[:dim] + shape[dim + 1:], x.dtype, strides[:dim] + strides[dim + 1:], offset + index * strides[dim])


def _squeeze_loop(o: Any, idx: Sequence, x: Any, dims: Sequence[int]) -> Any:
    rest = iter(idx)
    return x([0 if d in dims else next(rest) for d in range(len(x.shape))])


@view("squeeze", tags=("moving",), aten=InAten(node=lambda x, dims: "squeeze.1" if len(dims) == 1 else "squeeze"),
      derivative=Linear(x=lambda g, x_shape: g.reshape(tuple(x_shape))), loop=_squeeze_loop,
           samples=lambda r: [(r.standard_normal((3, 1, 2, 1)), (1, 3))])
def squeeze(x: Tensor, dims: tuple[int, ...]) -> Spec:
    """Without the dimensions `dims`, each of size 1."""
    shape, strides, offset = x._layout
    keep = [d for d in range(len(shape)) if d not in dims]
    return Spec(tuple([shape[d] for d in keep]), x.dtype, tuple([strides[d] for d in keep]), offset)


@view("unsqueeze", tags=("moving",), derivative=Linear(x=lambda g, dim: squeeze(g, (dim,))),
      loop=lambda o, idx, x, dim: x([*idx[:dim], *idx[dim + 1:]]),
           samples=lambda r: [(r.standard_normal((3, 2)), 1)])
def unsqueeze(x: Tensor, dim: int) -> Spec:
    """With a dimension of size 1 before dimension `dim`."""
    shape, strides, offset = x._layout
    stride = shape[dim] * strides[dim] if dim < len(shape) else 1
    return Spec(shape[:dim] + (1,) + shape[dim:], x.dtype, strides[:dim] + (stride,) + strides[dim:], offset)


def _diagonal_loop(o: Any, idx: Sequence, x: Any, offset: int, dim1: int, dim2: int) -> Any:
    rest = iter(idx[:-1])
    first = {dim1: maximum(-offset, 0), dim2: maximum(offset, 0)}
    return x([idx[-1] + first[d] if d in first else next(rest) for d in range(len(x.shape))])


@view("diagonal", tags=("moving",),
      derivative=Linear(x=lambda g, x_shape, offset, dim1, dim2: _diagonal_back(g, x_shape, offset, dim1, dim2)), loop=_diagonal_loop,
           samples=lambda r: [(r.standard_normal((3, 4, 2)), 1, 0, 1), (r.standard_normal((4, 3)), -1, 0, 1)])
def diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> Spec:
    """The diagonal `offset` of the planes (dim1, dim2), as a new last dimension."""
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape, strides, start = x._layout
    rows, columns = shape[dim1], shape[dim2]
    size = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    keep = [d for d in range(len(shape)) if d not in (dim1, dim2)]
    if size:
        start = start + (offset * strides[dim2] if offset >= 0 else -offset * strides[dim1])
    return Spec(tuple([shape[d] for d in keep] + [size]), x.dtype,
                tuple([strides[d] for d in keep] + [strides[dim1] + strides[dim2]]), start)


def _diagonal_back(g: Tensor, shape: Sequence, offset: int, dim1: int, dim2: int) -> Tensor:
    """Zeros but for `g` on the diagonal, where two triangles meet."""
    keep = [d for d in range(len(shape)) if d not in (dim1, dim2)]
    rows, columns = shape[dim1], shape[dim2]
    size = g.shape[-1]
    full = g.unsqueeze(-1).expand(*g.shape, columns)
    above = max(-offset, 0)
    below = rows - above - size
    if not (known_zero(above) and known_zero(below)):
        lead, zeros = (0,) * (g.ndim - 1), (0,) * (g.ndim + 1)
        full = pad_zeros(full, (*lead, above, 0), (*lead, below, 0), zeros)
    placed = full.triu(offset).tril(offset)
    back = _inverse(tuple(keep) + (dim1, dim2))
    return permute(placed, back)


def _pad_kernel(x: np.ndarray, low: Sequence[int], high: Sequence[int], inner: Sequence[int]) -> np.ndarray:
    if is_channels_last(x):
        last = TO_LAST[x.ndim]
        moved = ([sizes[d] for d in last] for sizes in (low, high, inner))
        return _pad_kernel(x.transpose(last), *moved).transpose(FROM_LAST[x.ndim])
    shape = [lo + n + hi + max(n - 1, 0) * gap for n, lo, hi, gap in zip(x.shape, low, high, inner)]
    source = [slice(max(-lo, 0) if not gap else 0, n - max(-hi, 0)) for n, lo, hi, gap in zip(x.shape, low, high, inner)]
    target = [slice(max(lo, 0), size - max(hi, 0), gap + 1) for size, lo, hi, gap in zip(shape, low, high, inner)]
    if any(inner):
        out = np.zeros(shape, x.dtype)
    else:  # zeros only where nothing else will be written
        out = np.empty(shape, x.dtype)
        for d, (inside, size) in enumerate(zip(target, shape)):
            before = tuple(target[:d])
            out[(*before, slice(0, inside.start))] = 0
            out[(*before, slice(max(inside.stop, 0), size))] = 0
    out[tuple(target)] = x[tuple(source)]
    return out


def _pad_loop(o: Any, idx: Sequence, x: Any, low: Sequence, high: Sequence, inner: Sequence) -> Any:
    mask, source = None, []
    for i, lo, hi, gap, size in zip(idx, low, high, inner, x.shape):
        position = i - lo
        source.append(position if not gap else position // (gap + 1))
        if not (known_zero(lo) and known_zero(hi) and not gap):
            inside = o.logical_and(o.index_le(0, position), o.index_lt(position, size + (size - 1) * gap))
            if gap:
                inside = o.logical_and(inside, o.index_eq(position % (gap + 1), 0))
            mask = inside if mask is None else o.logical_and(mask, inside)
    return x(source) if mask is None else o.masked(mask, lambda: x(source), 0)


@primitive("pad_zeros", aten=InAten(node="constant_pad_nd"), kernel=_pad_kernel, loop=_pad_loop, tags=("recomputable", "linear"),
           derivative=Linear(x=lambda g, x_shape, low, high, inner: _pad_back(g, x_shape, low, inner)),
           samples=lambda r: [(r.standard_normal((2, 3)), (1, 0), (0, 2), (0, 0)),
                              (r.standard_normal((3, 3)), (0, 1), (1, 0), (1, 2)),
                              (r.standard_normal((4, 5)), (-1, 0), (1, -2), (0, 0))])
def pad_zeros(x: Tensor, low: tuple[int, ...], high: tuple[int, ...], inner: tuple[int, ...]) -> Spec:
    """Zeros around (`low` before, `high` after; negative ones crop, where `inner` is 0) and `inner` between the elements."""
    shape = [lo + n + hi + (n - 1) * gap if gap else lo + n + hi for n, lo, hi, gap in zip(x._layout.shape, low, high, inner)]
    if any(type(n) is int and n < 0 for n in shape):
        raise RuntimeError(f"The input size {list(x.shape)}, plus negative padding {list(low)} and {list(high)}, resulted in a "
                           "negative output size")
    crops = not any(inner) and all(type(n) is int and n <= 0 for n in (*low, *high))    # the copy of a view
    return Spec(tuple(shape), x.dtype, elementwise_strides(shape, [x._layout.strides]) if crops and not x.is_contiguous() else
                channels_last_like(x, tuple(shape)))


def _pad_back(g: Tensor, shape: Sequence, low: Sequence, inner: Sequence) -> Tensor:
    crop_low = tuple(-lo for lo in low)
    if not any(inner):
        return pad_zeros(g, crop_low, tuple(n - (m - lo) for n, m, lo in zip(shape, g.shape, low)), tuple(inner))
    for d, (n, lo, gap) in enumerate(zip(shape, low, inner)):
        if gap or lo or g.shape[d] != n:
            g = slice_(g, d, lo, lo + (n - 1) * (gap + 1) + 1, gap + 1)
    return g


def _as_strided_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, shape, stride, offset = args
    return as_strided(x, (size, *shape), (x.stride(0), *stride), x.storage_offset() + offset)


def _extent(x: Tensor) -> Any:
    """How many elements the storage has; of a fake tensor, as many as the tensor reaches that it is a view of."""
    if x._storage.buffer is not None:
        return x._storage.nbytes // x.dtype.itemsize
    base = x if x._base is None else x._base
    return reach(*base._layout) * base.dtype.itemsize // x.dtype.itemsize


def check_pairs(size: Sequence, stride: Sequence) -> None:
    """RuntimeError unless there is a stride for each size."""
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(size)}, stride {list(stride)}")


@view("as_strided", tags=("overlapping", "in_memory"), batch=_as_strided_batch,
      derivative=Linear(x=lambda g, x_spec, size, stride, offset: _as_strided_back(g, x_spec, size, stride, offset)),
      loop="strided", samples=lambda r: [(r.standard_normal((3, 4)), (2, 2), (5, 1), 1)])
def as_strided(x: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Spec:
    """The storage seen with this size, stride and offset (elements); RuntimeError if it reaches past the end."""
    if x._data is None:
        x._storage.asked_where = True
    check_pairs(size, stride)
    have = _extent(x)
    if all(type(v) is int for v in (*size, *stride, offset, have)) and 0 not in size:
        need = reach(size, stride, offset)
        if need > have or offset < 0 or min(stride, default=0) < 0:
            raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} need "
                               f"{need} elements, but the storage has {have}")
    return Spec(tuple(size), x.dtype, tuple(stride), offset)


def _as_strided_back(g: Tensor, spec: Spec, size: Sequence, stride: Sequence, offset: int) -> Tensor:
    """Add each element of `g` back to the storage position it was read from, then read the input's own layout. Elements of the input
    that are one place in memory share its gradient, so that it arrives once at what they were expanded from."""
    strides = spec.strides or contiguous_strides(spec.shape)
    flat = g.new_zeros(max(reach(spec.shape, strides, spec.offset), reach(size, stride, offset)))
    flat = flat.index_add(0, positions(g, size, stride, offset).reshape(-1), g.reshape(-1))
    mine = positions(g, spec.shape, strides, spec.offset).reshape(-1)
    if may_overlap(spec.shape, strides):
        shared = g.new_zeros(flat.shape).index_add(0, mine, g.new_ones(mine.shape))
        flat = flat / (shared + (shared == 0))
    return flat.index_select(0, mine).reshape(spec.shape)


def reach(shape: Sequence, strides: Sequence, offset: Any) -> Any:
    """How many elements of memory a layout reaches, from the memory's first."""
    return offset + extent(shape, strides)


def positions(like: Tensor, size: Sequence, stride: Sequence, offset: int) -> Tensor:
    """Where in memory each element of such a layout is, on the device of `like`."""
    total: Any = offset
    for d, (n, s) in enumerate(zip(size, stride)):
        shape = [1] * len(size)
        shape[d] = n
        total = like.new_arange(n).reshape(shape) * s + total
    return total if isinstance(total, Tensor) else like.new_arange(1).reshape(()) + offset


def in_memory(x: Tensor, layout: tuple, least: int = 0) -> tuple[Tensor, Tensor]:
    """Memory of at least so many elements in which `x` lies in this layout, zeros around it; and where its elements are."""
    mine = positions(x, *layout)
    memory = x.new_zeros(max(reach(*layout), least))
    return memory.index_put((mine,), x), mine


def _unfold_back(g: Tensor, shape: Sequence, dim: int, size: int, step: int) -> Tensor:
    """Each element gets what came to the windows that show it."""
    count = g.shape[dim]
    rows = tuple(shape[:dim]) + (count * size,) + tuple(shape[dim + 1:])
    taps = permute(g, (*range(dim + 1), g.ndim - 1, *range(dim + 1, g.ndim - 1))).reshape(rows)
    places = g.new_arange(count).reshape((count, 1)) * step + g.new_arange(size)
    return g.new_zeros(tuple(shape)).index_add(dim, places.reshape((count * size,)), taps)


@view("unfold", tags=("overlapping",), batch=lambda prim, size, args, has: unfold(args[0], args[1] + 1, *args[2:]),
      loop=lambda o, idx, x, dim, size, step: x([i * step + idx[-1] if d == dim else i for d, i in enumerate(idx[:-1])]),
      derivative=Linear(x=lambda g, x_shape, dim, size, step: _unfold_back(g, x_shape, dim, size, step)),
      samples=lambda r: [(r.standard_normal((2, 7, 3)), 1, 3, 2), (r.standard_normal(6), 0, 2, 3)])
def unfold(x: Tensor, dim: int, size: int, step: int) -> Spec:
    """All windows of `size` along `dim`, `step` apart, as a new last dimension."""
    shape, strides, offset = x._layout
    count = (shape[dim] - size) // step + 1
    return Spec(shape[:dim] + (count,) + shape[dim + 1:] + (size,), x.dtype,
                strides[:dim] + (strides[dim] * step,) + strides[dim + 1:] + (strides[dim],), offset)


@view("view_dtype", derivative=Linear(x=lambda g, x_dtype: view_dtype(g, x_dtype)),
      why_absent={"loop": "changes what an element is; inductor realises the input"},
           samples=lambda r: [(r.standard_normal((2, 3)), int64)])
def view_dtype(x: Tensor, dtype: Any) -> Spec:
    """The same bytes as another dtype; the last dimension scales with the item sizes and must then be contiguous."""
    shape, strides, offset = x._layout
    ours, theirs = x.dtype.itemsize, dtype.itemsize
    if ours == theirs:
        return Spec(shape, dtype, strides, offset)
    if not shape or strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 to view {x.dtype} as {dtype} (different element sizes), "
                           f"but got {strides[-1] if shape else 'a 0-dim tensor'}")
    if ours > theirs:
        k = ours // theirs
        return Spec(shape[:-1] + (shape[-1] * k,), dtype, tuple(s * k for s in strides[:-1]) + (1,), offset * k)
    k = theirs // ours
    if shape[-1] % k or offset % k or any(s % k for s in strides[:-1]):
        raise RuntimeError(f"self.size(-1) must be divisible by {k} to view {x.dtype} as {dtype} "
                           f"(different element sizes), but got size {list(shape)}, stride {list(strides)}")
    return Spec(shape[:-1] + (shape[-1] // k,), dtype, tuple(s // k for s in strides[:-1]) + (1,), offset // k)


@view("view_as_real", derivative=Linear(x=lambda g: view_as_complex(g.contiguous())),
      loop=lambda o, idx, x: o.where(o.index_eq(idx[-1], 0), o.real(x(idx[:-1])), o.imag(x(idx[:-1]))),
           samples=lambda r: [(r.standard_normal((2, 3)) + 1j,)])
def view_as_real(x: Tensor) -> Spec:
    """A complex tensor as pairs of real numbers in a new last dimension of size 2."""
    shape, strides, offset = x._layout
    return Spec(shape + (2,), x.dtype.to_real(), tuple(2 * s for s in strides) + (1,), 2 * offset)


@view("view_as_complex", derivative=Linear(x=lambda g: view_as_real(g)), loop=lambda o, idx, x: o.complex(x([*idx, 0]), x([*idx, 1])),
           samples=lambda r: [(r.standard_normal((3, 2)),)])
def view_as_complex(x: Tensor) -> Spec:
    """Pairs of real numbers in the last dimension (size 2, stride 1) as complex numbers."""
    shape, strides, offset = x._layout
    if x.dtype not in (float32, float64):
        raise RuntimeError(f"view_as_complex is only supported for float and double tensors, but got a tensor of scalar type: {x.dtype}")
    if not shape or shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, got size {list(shape)}")
    if strides[-1] != 1 or offset % 2 or any(s % 2 and n != 1 for n, s in zip(shape, strides[:-1])):
        raise RuntimeError(f"Tensor must have a last dimension with stride 1 and even other strides, got {list(strides)}")
    return Spec(shape[:-1], x.dtype.to_complex(), tuple(s // 2 for s in strides[:-1]), offset // 2)


@view("alias", tags=("moving",), derivative=Linear(x=lambda g: g), loop=lambda o, idx, x: x(idx),
           samples=lambda r: [(r.standard_normal((2, 3)),)])
def alias(x: Tensor) -> Spec:
    """The same layout over the same memory: a new tensor object that autograd can tell from its source."""
    shape, strides, offset = x._layout
    return Spec(shape, x.dtype, strides, offset)


@view("conj_view", aten=InAten(node="conj"), derivative=Linear(x=lambda g: g.conj()), loop=lambda o, idx, x: o.conj(x(idx)),
      samples=lambda r: [(r.standard_normal((2, 3)) + 1j * r.standard_normal((2, 3)),)])
def conj_view(x: Tensor) -> Spec:
    """The conjugates of a complex tensor's elements, in the same memory."""
    return Spec(x._layout.shape, x.dtype, x._layout.strides, x._layout.offset)


@view("neg_view", derivative=Linear(x=lambda g: -g), loop=lambda o, idx, x: o.neg(x(idx)), samples=lambda r: [(r.standard_normal((2, 3)),)])
def neg_view(x: Tensor) -> Spec:
    """The negatives of a tensor's elements, in the same memory."""
    return Spec(x._layout.shape, x.dtype, x._layout.strides, x._layout.offset)


conj_view.turns, neg_view.turns = (True, False), (False, True)
conj_view.copies, neg_view.copies = "conj", "neg"


__all__ = ["conj_view", "neg_view", "permute", "expand", "view_", "slice_", "select", "squeeze", "unsqueeze", "diagonal", "as_strided",
           "unfold", "view_dtype",
           "view_as_real", "view_as_complex", "alias", "pad_zeros", "reshaped_strides"]
