"""Shapes, parts of tensors, and tensors put together, in ONNX."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import bool_, float32, int32, int64
from ..core.scalar import REDUCE, SCATTERED_BY
from ..core.symbolic import hint_of, is_symbolic
from ..core.tensor import Tensor
from ..ops import prims
from .elementwise import SAME, Scalars
from .forms import form, short
from .writer import Value, Writer

LAST = 2**63 - 1


def _dim(x: Value, dim: int) -> int:
    return dim % max(x.rank, 1)


def as_numbers(o: Writer, x: Value, folded: bool = False) -> Value:
    """Truth values as int32, for what ONNX's runtimes have only for numbers; narrow floats that are to be folded as float32."""
    wide = folded and x.dtype.is_floating_point and x.dtype.itemsize < 4
    return o.cast(x, int32) if x.dtype is bool_ else o.cast(x, float32) if wide else x


# -- the same elements in another shape ---------------------------------------------------------------------------------------------
@form("view.default", "reshape", "_unsafe_view", "view_copy.default")
def reshape(o: Writer, x: Value, shape: Sequence[Any]) -> Value:
    """The elements in order in another shape; sizes of the result that are fixed are said so."""
    shape = list(shape)
    known = o.out._layout.shape if isinstance(o.out, Tensor) and len(o.out._layout.shape) == len(shape) else [None] * len(shape)
    shape = [n if isinstance(n, int) and not is_symbolic(n) else m for n, m in zip(known, shape)]
    vary = [d for d, n in enumerate(shape) if isinstance(n, Value)]
    if len(vary) == 1 and -1 not in shape and 0 not in shape:
        shape[vary[0]] = -1
    return o.Reshape(x, o.sizes(shape), allowzero=1 if 0 in shape else None)


@form("flatten")
def flatten(o: Writer, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Some dimensions as one."""
    if x.rank == 0:
        return o.Reshape(x, [1])
    start, end = _dim(x, start_dim), _dim(x, end_dim)
    shape = [*o.shape(x)[:start], -1, *o.shape(x)[end + 1:]]
    return reshape(o, x, shape)


@form("unflatten")
def unflatten(o: Writer, x: Value, dim: int, sizes: Sequence[Any]) -> Value:
    """One dimension as several."""
    dim = _dim(x, dim)
    return reshape(o, x, [*o.shape(x)[:dim], *sizes, *o.shape(x)[dim + 1:]])


@form("permute", "permute_copy", "primitive:permute")
def permute(o: Writer, x: Value, dims: Sequence[int]) -> Value:
    """Dimensions in another order."""
    order = [_dim(x, d) for d in dims]
    return x if order == sorted(order) else o.Transpose(x, perm=order)


@form("transpose.int", "swapaxes", "swapdims")
def transpose(o: Writer, x: Value, a: int, b: int) -> Value:
    """Two dimensions exchanged."""
    order = list(range(x.rank))
    if order:
        order[a], order[b] = order[b], order[a]
    return permute(o, x, order)


@form("t")
def t(o: Writer, x: Value) -> Value:
    """A matrix transposed."""
    return permute(o, x, list(range(x.rank))[::-1])


short({
    "unsqueeze unsqueeze_copy primitive:unsqueeze": lambda o, x, dim: o.Unsqueeze(x, [dim % (x.rank + 1)]),  # A dimension of one element more
    # Conversion to the dtype that comes out; of floats to integers, truncated
    "to _to_copy": lambda o, x, *args, dtype=None, **_: o.cast(x, o.out.dtype),
    "copy": lambda o, x, source, *_: expand(o, o.cast(source, x.dtype), o.shape(x)),  # `source` in the shape and dtype of `x`
})


@form("squeeze", "squeeze_copy", "primitive:squeeze")
def squeeze(o: Writer, x: Value, dim: Any = None) -> Value:
    """Without dimensions of one element."""
    assert x.shape is not None
    dims = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    found = sorted({_dim(x, d) for d in dims} & {d for d, n in enumerate(x.shape) if isinstance(n, int) and n == 1})
    return o.Squeeze(x, found) if found else x


@form("expand", "broadcast_to", "expand_copy", "primitive:expand")
def expand(o: Writer, x: Value, size: Sequence[Any], **_: Any) -> Value:
    """Dimensions of one element repeated; -1 leaves one as it is."""
    assert x.shape is not None
    if all(isinstance(n, int) and n in (-1, m) for n, m in zip(size, x.shape)) and len(size) == x.rank:
        return x
    return o.Expand(x, o.sizes([1 if not isinstance(n, Value) and n == -1 else n for n in size]))


@form("alias", "clone", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "alias_copy", "detach_copy", "positive", "resolve_conj",
      "resolve_neg", "primitive:alias", "primitive:clone", "primitive:to_device", "primitive:assured", "operator:_lay_out")
def same(o: Writer, x: Value, *_: Any, **__: Any) -> Value:
    """The tensor itself."""
    return x


# -- parts ---------------------------------------------------------------------------------------------------------------------------
@form("select.int", "select_copy", "primitive:select")
def select(o: Writer, x: Value, dim: int, index: Any) -> Value:
    """One place along a dimension."""
    return o.Gather(x, o.scalar(index), axis=_dim(x, dim))


@form("slice.Tensor", "slice_copy.Tensor", "primitive:slice")
def slice_(o: Writer, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    """A range of a dimension."""
    start, end = 0 if start is None else start, LAST if end is None else end
    if not isinstance(start, Value) and start == 0 and not isinstance(end, Value) and step == 1 and (
            end == LAST or (x.shape is not None and isinstance(n := x.shape[dim], int) and end >= n)):
        return x
    return o.Slice(x, [start], [end], [_dim(x, dim)], [step])


@form("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split", "unsafe_split_with_sizes", "chunk",
      "unsafe_chunk", "tensor_split")
def split(o: Writer, x: Value, how: Any, dim: int = 0) -> tuple:
    """Consecutive parts."""
    axis = _dim(x, dim)
    sizes = [part._layout.shape[axis] for part in o.out]
    if len(sizes) == 1:
        return (x,)
    if not all(isinstance(n, int) for n in sizes):
        total = o.size(x, axis)
        given = how if isinstance(how, (list, tuple)) else [how] * (len(sizes) - 1)
        ends = np.cumsum([g if isinstance(g, int) else 0 for g in given]).tolist()
        if any(isinstance(g, Value) for g in given) or not isinstance(how, (int, list, tuple)):
            raise NotImplementedError("torch.onnx.export: split by sizes that vary; give sizes that are fixed")
        edges = [0, *ends][:len(sizes)] + [total]
        return tuple([o.Slice(x, [a], [b], [axis], [1]) for a, b in itertools.pairwise(edges)])
    return o.step("Split", x, sizes, axis=axis, _outputs=len(sizes))


@form("unbind", "unbind_copy")
def unbind(o: Writer, x: Value, dim: int = 0) -> tuple:
    """Each place of a dimension by itself."""
    axis = _dim(x, dim)
    return tuple([o.Gather(x, o.constant(i, int64), axis=axis) for i in range(len(o.out))])


@form("diagonal", "diagonal_copy", "primitive:diagonal")
def diagonal(o: Writer, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Where two dimensions have equal places, `offset` apart."""
    a, b = _dim(x, dim1), _dim(x, dim2)
    rest = [d for d in range(x.rank) if d not in (a, b)]
    moved = permute(o, x, [*rest, a, b])
    rows, columns = o.size(x, a), o.size(x, b)
    low, high = max(-offset, 0), max(offset, 0)
    flat = o.Reshape(moved, o.sizes([*[o.size(x, d) for d in rest], -1]))
    count = o.out._layout.shape[-1]
    if not isinstance(count, int):
        count = Scalars(o).minimum(o.Sub(o.sizes([rows]), low), o.Sub(o.sizes([columns]), high))
    places = o.Add(o.Mul(_range(o, count), o.Add(o.scalar(columns), o.constant(1, int64))),
                   o.Add(o.Mul(o.scalar(columns), o.constant(low, int64)), o.constant(high, int64)))
    return o.Gather(flat, places, axis=len(rest))


def _range(o: Writer, count: Any, start: int = 0) -> Value:
    """0, 1, ... as int64."""
    if not isinstance(count, Value):
        return o.constant(np.arange(start, start + count))
    return o.Range(o.constant(start, int64), o.Squeeze(count, [0]), o.constant(1, int64))


@form("unfold", "unfold_copy", "primitive:unfold")
def unfold(o: Writer, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension, as a last one."""
    if x.rank == 0:
        return o.Reshape(x, [1])
    axis, length = _dim(x, dim), o.size(x, _dim(x, dim))
    if not isinstance(length, int):
        count: Any = o.Div(o.Sub(length, o.constant([size - step], int64)), o.constant([step], int64))
    else:
        count = (length - size) // step + 1
    starts = o.Mul(_range(o, count), o.constant(step, int64))
    places = o.Add(o.Unsqueeze(starts, [1]), o.constant(np.arange(size)[None]))
    made = o.Gather(x, places, axis=axis)
    order = [d for d in range(x.rank + 1) if d != axis + 1] + [axis + 1]
    return o.Transpose(made, perm=order)


def _in_memory(x: Tensor) -> list[int] | None:
    """The dimensions of a tensor in the order in which they lie in memory; None if there are gaps."""
    strides = x._layout.strides
    order = sorted(range(x.ndim), key=lambda d: -hint_of(strides[d]))
    return order if prims.permute(x, tuple(order)).is_contiguous() else None


@form("as_strided", "as_strided_copy", "primitive:as_strided", takes=lambda x, *_, **__: _in_memory(x) is not None)
def as_strided(o: Writer, x: Value, size: Sequence[Any], stride: Sequence[Any], offset: Any = 0) -> Value:
    """Elements by their places in memory: of each dimension the steps, added up."""
    order = _in_memory(o.given[0])
    assert order is not None
    x = permute(o, x, order)
    places = o.scalar(offset or 0)
    for d, (n, step) in enumerate(zip(size, stride)):
        steps = o.Mul(_range(o, n), o.scalar(step))
        places = o.Add(places, o.Unsqueeze(steps, list(range(1, len(size) - d))) if d + 1 < len(size) else steps)
    return o.Gather(o.Reshape(x, [-1]), places, axis=0)


# -- put together --------------------------------------------------------------------------------------------------------------------
@form("cat", "concat", "concatenate", "primitive:cat")
def cat(o: Writer, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One after another along a dimension."""
    parts = [o.cast(t, o.out.dtype) for t in tensors if t.rank == o.out.ndim]
    return parts[0] if len(parts) == 1 else o.Concat(*parts, axis=dim % o.out.ndim)


@form("stack", "_stack", "operator:_stack")
def stack(o: Writer, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One after another along a new dimension."""
    axis = dim % o.out.ndim
    return o.Concat(*[o.Unsqueeze(o.cast(t, o.out.dtype), [axis]) for t in tensors], axis=axis)


@form("repeat", "tile")
def repeat(o: Writer, x: Value, repeats: Sequence[Any]) -> Value:
    """The whole several times along each dimension."""
    rank = max(len(repeats), x.rank)
    if x.rank < rank:
        x = reshape_to(o, x, [*[1] * (rank - x.rank), *o.shape(x)])
    return o.Tile(x, o.sizes([*[1] * (rank - len(repeats)), *repeats]))


def reshape_to(o: Writer, x: Value, shape: Sequence[Any]) -> Value:
    """Reshape to what is not the result's own shape."""
    made = o.Reshape(x, o.sizes(shape))
    made.shape = tuple([n if isinstance(n, int) else None for n in shape])
    return made


@form("flip", "primitive:flip")
def flip(o: Writer, x: Value, dims: Sequence[int]) -> Value:
    """Dimensions backwards."""
    axes = [_dim(x, d) for d in dims]
    return o.Slice(x, [-1] * len(axes), [-LAST] * len(axes), axes, [-1] * len(axes)) if axes else x


@form("roll")
def roll(o: Writer, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Elements moved on along dimensions; what leaves at the end comes in at the start."""
    if not dims:
        flat = o.Reshape(x, [-1])
        flat.shape = (None,)
        return o.Reshape(roll(o, flat, shifts, [0]), o.Shape(x))
    for shift, dim in zip(shifts, dims):
        axis = _dim(x, dim)
        parts = [o.Slice(x, [-shift], [LAST], [axis], [1]), o.Slice(x, [0], [-shift], [axis], [1])]
        length = x.shape[axis] if x.shape is not None else None
        if shift == 0 or length == 0:
            continue
        if isinstance(length, int):
            at = -shift % length
            parts = [o.Slice(x, [at], [LAST], [axis], [1]), o.Slice(x, [0], [at], [axis], [1])]
        made = o.Concat(*parts, axis=axis)
        made.shape = x.shape
        x = made
    return x


short({
    # More elements at the ends of the last dimensions, or fewer
    "constant_pad_nd": lambda o, x, pad, value=0: _pad(o, x, pad, "constant", value),
    # The elements mirrored at the ends
    "reflection_pad1d reflection_pad2d reflection_pad3d": lambda o, x, padding: _pad(o, x, padding, "reflect"),
    # The last elements repeated at the ends
    "replication_pad1d replication_pad2d replication_pad3d": lambda o, x, padding: _pad(o, x, padding, "edge"),
})


def _pad(o: Writer, x: Value, pad: Sequence[Any], mode: str, value: Any = None) -> Value:
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        low[-1 - i], high[-1 - i] = pad[2 * i], pad[2 * i + 1]
    if all(not isinstance(n, Value) and n == 0 for n in (*low, *high)):
        return x
    source = as_numbers(o, x)
    filler = None if value is None else o.cast(value, source.dtype)
    return o.cast(o.step("Pad", source, o.sizes([*low, *high]), filler, mode=mode), x.dtype)


@form("pad")
def pad(o: Writer, x: Value, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    """More elements at the ends, by a mode."""
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return _pad(o, x, pad, names[mode], (value or 0) if mode == "constant" else None)


@form("primitive:pad_zeros")
def pad_zeros(o: Writer, x: Value, low: Sequence[Any], high: Sequence[Any], inner: Sequence[int]) -> Value:
    """Zeros at the ends of all dimensions, and `inner` of them between the elements."""
    rank, sizes, made = x.rank, o.shape(x), as_numbers(o, x)
    for d, between in enumerate(inner):
        if between:     # behind each element, and those behind the last one away again
            wide = o.Pad(o.Unsqueeze(made, [d + 1]), [0] * (rank + 1) + [between * (i == d + 1) for i in range(rank + 1)], mode="constant")
            sizes[d] = o.Mul(sizes[d], o.constant([1 + between], int64)) if isinstance(sizes[d], Value) else sizes[d] * (1 + between)
            made = o.Slice(o.Reshape(wide, o.sizes(sizes)), [0], [-between], [d], [1])
            sizes[d] = o.Sub(sizes[d], o.constant([between], int64)) if isinstance(sizes[d], Value) else sizes[d] - between
    return o.cast(o.Pad(made, o.sizes([*low, *high]), mode="constant"), x.dtype)


def _triangle(upper: int) -> Callable:
    def write(o: Writer, x: Value, diagonal: Any = 0) -> Value:
        made = o.Trilu(as_numbers(o, x), o.scalar(diagonal), upper=upper)
        return o.cast(made, x.dtype)

    return write


form("tril")(_triangle(0))
form("triu")(_triangle(1))


# -- by indices ----------------------------------------------------------------------------------------------------------------------
@form("gather", "primitive:gather")
def gather(o: Writer, x: Value, dim: int, index: Value, **_: Any) -> Value:
    """x where the index says along one dimension."""
    if x.rank == 0:
        return x
    return o.GatherElements(x, o.cast(index, int64), axis=_dim(x, dim))


@form("index_select", "primitive:index_select")
def index_select(o: Writer, x: Value, dim: int, index: Value) -> Value:
    """Places along a dimension."""
    if x.rank == 0:
        return x
    return o.Gather(x, index if index.rank or x.rank != o.out.ndim else o.Unsqueeze(index, [0]), axis=_dim(x, dim))


short({
    "embedding operator:_embedding": lambda o, weight, indices, *_, **__: o.Gather(weight, indices, axis=0),  # Rows of a table
    # Values put where the index says along a dimension
    "scatter.src scatter.value primitive:scatter": lambda o, x, dim, index, source, reduce=None: _scatter(o, x, dim, index, source, reduce),
    # Values folded into where the index says
    "scatter.reduce scatter.value_reduce": lambda o, x, dim, index, source, *, reduce: _scatter(o, x, dim, index, source, reduce),
    "scatter_add": lambda o, x, dim, index, source: _scatter(o, x, dim, index, source, "sum"),  # Values added where the index says
    "primitive:scatter_reduce": lambda o, x, dim, index, source, reduce: _scatter(o, x, dim, index, source, reduce),  # Likewise
    "masked_fill": lambda o, x, mask, value: where(o, mask, value, x),  # x with a value where the mask holds
    "take": lambda o, x, index: o.Gather(o.Reshape(x, [-1]), index, axis=0),  # Elements by their places in the flat tensor
})


def _as_places(o: Writer, indices: Sequence[Value | None], x: Value) -> tuple[list[int], list[Value]]:
    """The dimensions that are indexed, and by which tensors; a mask stands for several."""
    dims: list[int] = []
    values: list[Value] = []
    d = 0
    for index in indices:
        if index is None:
            d += 1
        elif index.dtype is bool_ or index.dtype.name == "uint8":
            places = o.NonZero(o.cast(index, bool_), _dtype=int64)
            for i in range(index.rank):
                dims.append(d)
                row = o.Gather(places, o.constant(i, int64), axis=0)
                row.shape = (None,)
                values.append(row)
                d += 1
        else:
            dims.append(d)
            values.append(o.cast(index, int64))
            d += 1
    return dims, values


def _together(o: Writer, values: Sequence[Value]) -> Value:
    """Indices broadcast to one shape, as the last dimension of one tensor."""
    rank = max(v.rank for v in values)
    if len(values) == 1:
        return o.Unsqueeze(values[0], [rank])
    if any(v.shape != values[0].shape for v in values):
        common = o.Mul(values[0], 0)
        for v in values[1:]:
            common = o.Add(common, o.Mul(v, 0))
        values = [o.Expand(v, o.Shape(common)) for v in values]
    return o.Concat(*[o.Unsqueeze(v, [rank]) for v in values], axis=rank)


@form("index.Tensor", "primitive:index")
def index(o: Writer, x: Value, indices: Sequence[Value | None]) -> Value:
    """x[indices]: along one dimension a Gather; else GatherND of the indexed dimensions, moved to the front."""
    dims, values = _as_places(o, indices, x)
    if len(dims) == 1:
        return o.Gather(x, values[0], axis=dims[0])
    rest = [d for d in range(x.rank) if d not in dims]
    moved = permute(o, x, [*dims, *rest])
    made = o.GatherND(moved, _together(o, values))
    wide = max(v.rank for v in values)
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    order = [*range(wide, wide + first), *range(wide), *range(wide + first, wide + len(rest))]
    return o.Transpose(made, perm=order) if order != sorted(order) else made


@form("index_put", "_unsafe_index_put", "primitive:index_put")
def index_put(o: Writer, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """x with values at indices: ScatterND on the indexed dimensions, moved to the front."""
    dims, places = _as_places(o, indices, x)
    rest = [d for d in range(x.rank) if d not in dims]
    order = [*dims, *rest]
    moved = permute(o, x, order)
    at = _together(o, places)
    wide = max(v.rank for v in places)
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    where = o.Slice(o.Shape(at), [0], [-1], [0], [1])
    tail = o.sizes([o.size(x, d) for d in rest]) if rest else None
    shape = where if tail is None else o.Concat(where, tail, axis=0)
    values = o.cast(values, x.dtype)
    if first and wide:      # the values have the indices' dimensions in the middle
        ahead = o.sizes([o.size(x, d) for d in rest[:first]])
        behind = [o.size(x, d) for d in rest[first:]]
        middle = o.Concat(ahead, where, *([o.sizes(behind)] if behind else []), axis=0)
        full = o.Expand(values, middle)
        values = o.Transpose(full, perm=[*range(first, first + wide), *range(first), *range(first + wide, len(rest) + wide)])
    else:
        values = o.Expand(values, shape)
    base = as_numbers(o, moved, accumulate)
    made = o.ScatterND(base, at, o.cast(values, base.dtype), reduction="add" if accumulate else None)
    back = [order.index(d) for d in range(x.rank)]
    made.shape = tuple([x.shape[d] for d in order]) if x.shape is not None else None
    return o.cast(permute(o, made, back), x.dtype)


def _scatter(o: Writer, x: Value, dim: int, index: Value, source: Any, reduce: str | None = None) -> Value:
    if not isinstance(source, Value) or (source.rank == 0 and index.rank):
        source = o.Expand(o.cast(source, x.dtype), o.Shape(index))
    elif source.shape != index.shape:       # what lies beyond the index is not read
        source = o.Slice(source, [0] * index.rank, o.Shape(index), list(range(index.rank)), [1] * index.rank)
    if x.rank == 0:
        return o.cast(scatter_of_one(o, x, index, source, reduce), x.dtype)
    fold = SCATTERED_BY[REDUCE[reduce]] if reduce not in (None, "set") else None
    reduction = SAME[fold.op].lower() if fold else None
    base = as_numbers(o, x, reduction is not None)
    made = o.ScatterElements(base, o.cast(index, int64), o.cast(source, base.dtype), axis=_dim(x, dim), reduction=reduction)
    return o.cast(made, x.dtype)


def scatter_of_one(o: Writer, x: Value, index: Value, source: Value, reduce: str | None) -> Value:
    """A scatter into a tensor of no dimension."""
    wide = o.Unsqueeze(x, [0])
    wide.shape = (1,)
    made = _scatter(o, wide, 0, o.Reshape(index, [-1]), o.Reshape(source, [-1]), reduce)
    return o.Squeeze(made, [0])


@form("scatter_reduce.two", takes=lambda x, dim, index, src, reduce, include_self=True: include_self and reduce != "mean")
def scatter_reduce(o: Writer, x: Value, dim: int, index: Value, source: Value, reduce: str, **_: Any) -> Value:
    """Values folded into where the index says."""
    return _scatter(o, x, dim, index, source, reduce)


@form("index_add", "primitive:index_add")
def index_add(o: Writer, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    """Rows of `source` added to those of x that the index says."""
    if alpha != 1:
        shape, source = source.shape, o.Mul(source, o.cast(alpha, source.dtype))
        source.shape = shape
    if x.rank == 0:
        return o.Add(x, o.ReduceSum(source, keepdims=0))
    axis = _dim(x, dim)
    index = index if index.rank else _with_shape(o.Unsqueeze(index, [0]), (1,))
    return index_put(o, x, [*[None] * axis, index], source, True)


def _with_shape(x: Value, shape: tuple) -> Value:
    x.shape = shape
    return x


def _into(o: Writer, x: Value, source: Value, axis: int, places: Value) -> Value:
    """x with `source` at places along an axis."""
    places.shape = (None,)
    return index_put(o, x, [*[None] * axis, places], source)


@form("select_scatter")
def select_scatter(o: Writer, x: Value, source: Value, dim: int, index: Any) -> Value:
    """x with `source` at one place along a dimension."""
    axis = _dim(x, dim)
    wide = o.Unsqueeze(source, [axis])
    where = index if isinstance(index, Value) else o.constant([index], int64)
    return _into(o, x, wide, axis, Value(where.name, int64))


@form("slice_scatter")
def slice_scatter(o: Writer, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    """x with `source` in a range of a dimension."""
    axis = _dim(x, dim)
    places = o.Slice(_range(o, o.size(x, axis)), [0 if start is None else start], [LAST if end is None else end], [0], [step])
    return _into(o, x, source, axis, places)


@form("masked_select")
def masked_select(o: Writer, x: Value, mask: Value) -> Value:
    """The elements where the mask holds."""
    if mask.shape != x.shape:
        zero = o.cast(x, bool_)
        mask = o.Or(mask, o.And(zero, o.Not(zero)))
        x = o.Expand(x, o.Shape(mask))
    return o.Compress(o.Reshape(x, [-1]), o.Reshape(mask, [-1]), axis=0)


@form("masked_scatter", takes=lambda x, mask, source: list(x.shape) == list(mask.shape))
def masked_scatter(o: Writer, x: Value, mask: Value, source: Value) -> Value:
    """x with the elements of `source`, one after another, where the mask holds."""
    places = o.Transpose(o.NonZero(mask), perm=[1, 0])
    count = o.Shape(places, start=0, end=1)
    values = o.Slice(o.Reshape(source, [-1]), [0], count, [0], [1])
    return o.ScatterND(x, places, values)


@form("nonzero", "argwhere", "primitive:nonzero")
def nonzero(o: Writer, x: Value) -> Value:
    """The places of what is not zero, one a row."""
    return o.Transpose(o.NonZero(x if x.dtype in (bool_, float32, int32, int64) else o.cast(x, bool_)), perm=[1, 0])


@form("where.default", takes=lambda condition: True)
def where_of_one(o: Writer, x: Value) -> tuple:
    """The places of what is not zero, a tensor for each dimension."""
    places = o.NonZero(o.cast(x, bool_))
    return tuple([o.Gather(places, o.constant(i, int64), axis=0) for i in range(x.rank)])


@form("where", takes=lambda condition, *values: len(values) == 2)
def where(o: Writer, condition: Value, x: Any, y: Any) -> Value:
    """x where the condition holds, else y."""
    kind = o.out.dtype
    return Scalars(o).where(o.cast(condition, bool_), o.cast(x, kind), o.cast(y, kind))


@form("pixel_shuffle", takes=lambda x, factor: x.ndim == 4)
def pixel_shuffle(o: Writer, x: Value, factor: int) -> Value:
    """Channels as pixels."""
    return o.DepthToSpace(x, blocksize=factor, mode="CRD")
