"""Folds over dimensions, orders and running folds, in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.dtypes import bool_, dtype, float32, float64, int32, int64
from ..ops.registry import PRIMITIVES
from .forms import form, short
from .writer import Value, Writer

_DIRECT = (float32, float64, int32, int64)      # what runtimes fold themselves


def _axes(x: Value, dim: Any) -> list[int]:
    dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return [d % max(x.rank, 1) for d in dims]


def _folded(o: Writer, op: str, x: Value, dim: Any, keepdim: bool, kind: dtype | None = None) -> Value:
    """A fold in a dtype that runtimes have."""
    kind = kind or x.dtype
    if x.rank == 0:
        dim = None
    inner = kind if kind in _DIRECT else float32 if kind.is_floating_point else int64 if kind is not bool_ else int32
    axes = _axes(x, dim)
    made = o.step(op, o.cast(x, inner), axes or None, keepdims=int(keepdim))
    return o.cast(made, o.out.dtype if not isinstance(o.out, tuple) else kind)


def _fold(op: str) -> Callable:
    def write(o: Writer, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, **_: Any) -> Value:
        return _folded(o, op, x, dim, keepdim, o.out.dtype)

    return write


form("mean")(_fold("ReduceMean"))
form("max.default")(_fold("ReduceMax"))
form("min.default")(_fold("ReduceMin"))


short({
    "operator:_sum_as": lambda o, x, dims, keepdim, kind: _folded(o, "ReduceSum", x, dims, keepdim, kind),  # A sum in a dtype
    "operator:_mean": lambda o, x, dims, keepdim=False, *_: _folded(o, "ReduceMean", x, dims, keepdim, o.out.dtype),  # A mean
    # The logarithm of the sum of exponentials
    "logsumexp": lambda o, x, dim, keepdim=False: _folded(o, "ReduceLogSumExp", x, dim, keepdim, o.out.dtype),
})


def _truths(op: str) -> Callable:
    def write(o: Writer, x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
        held = o.cast(o.cast(x, bool_), int32)
        made = o.step(op, held, (_axes(x, dim) or None) if x.rank else None, keepdims=int(keepdim))
        return o.cast(made, o.out.dtype)

    return write


for _prim in PRIMITIVES.values():
    if _prim.fold:      # ONNX has those of numbers by their names
        form(_prim.name, f"primitive:{_prim.name}")(
            (_truths if _prim.fold.of_truths else _fold)(f"Reduce{_prim.fold.of_numbers.name.capitalize()}"))


def _spread(root: bool, with_mean: bool, by_bias: bool) -> Callable:
    def write(o: Writer, x: Value, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None) -> Any:
        if by_bias and isinstance(dim, bool):
            dim, unbiased = None, dim
        fix = correction if correction is not None else int(unbiased) if by_bias else 1
        axes = _axes(x, dim) or list(range(x.rank))
        middle = o.ReduceMean(x, axes or None, keepdims=1)
        apart = o.Sub(x, middle)
        count = _count(o, x, axes)
        rest = o.Max(o.Sub(count, o.constant(fix, x.dtype)), o.constant(0, x.dtype))
        out = o.Div(o.ReduceSum(o.Mul(apart, apart), axes or None, keepdims=int(keepdim)), rest)
        out = o.Sqrt(out) if root else out
        if not with_mean:
            return out
        return out, (middle if keepdim else o.Squeeze(middle, axes) if axes else middle)

    return write


def _count(o: Writer, x: Value, axes: Sequence[int]) -> Value:
    """How many elements a fold takes, as a number of x's dtype."""
    sizes = [o.size(x, d) for d in axes]
    fixed = 1
    for n in sizes:
        fixed *= n if isinstance(n, int) else 1
    out: Value = o.constant(fixed, x.dtype)
    for n in sizes:
        if isinstance(n, Value):
            out = o.Mul(out, o.cast(o.Squeeze(n, [0]), x.dtype))
    return out


for _name in ("var", "std", "var_mean", "std_mean"):
    _made = (_name.startswith("std"), _name.endswith("mean"))
    form(f"{_name}.default", f"{_name}.dim")(_spread(*_made, True))


def _corrected(root: bool, with_mean: bool) -> Callable:
    write = _spread(root, with_mean, False)
    return lambda o, x, dim=None, *, correction=None, keepdim=False: write(o, x, dim, 1, keepdim, correction=correction)


for _name in ("var", "std", "var_mean", "std_mean"):
    form(f"{_name}.correction")(_corrected(_name.startswith("std"), _name.endswith("mean")))


# -- places and orders -----------------------------------------------------------------------------------------------------------------
def _ordered(o: Writer, x: Value) -> Value:
    """As a dtype in which runtimes compare; its order is the same."""
    if x.dtype in (float32, float64, int32, int64):
        return x
    return o.cast(x, float32 if x.dtype.is_floating_point else int32 if x.dtype is bool_ or x.dtype.itemsize < 4 else int64)


def _place(op: str) -> Callable:
    def write(o: Writer, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        source = _ordered(o, x)
        if source.dtype is int64:
            return _place_of_wide(o, source, x, dim, keepdim, op)
        if dim is None:
            made = o.step(op, o.Reshape(source, [-1]), axis=0, keepdims=0)
            return o.Reshape(made, [1] * x.rank) if keepdim else made
        if x.rank == 0:
            return o.constant(0, int64)
        return o.step(op, source, axis=dim % x.rank, keepdims=int(keepdim))

    return write


def _place_of_wide(o: Writer, source: Value, x: Value, dim: int | None, keepdim: bool, op: str) -> Value:
    """ArgMax of int64, which runtimes lack, by TopK."""
    if x.rank == 0:
        return o.constant(0, int64)
    flat = o.Reshape(source, [-1]) if dim is None else source
    axis = 0 if dim is None else dim % x.rank
    _, places = o.step("TopK", flat, [1], axis=axis, largest=int(op == "ArgMax"), _outputs=2)
    places = Value(places.name, int64)
    if dim is None:
        return o.Reshape(places, [1] * x.rank) if keepdim else o.Squeeze(places, [0])
    return places if keepdim else o.Squeeze(places, [axis])


form("argmax")(_place("ArgMax"))
form("argmin")(_place("ArgMin"))
form("primitive:argmax")(_place("ArgMax"))
form("primitive:argmin")(_place("ArgMin"))


def _extremum(fold: str, place: str) -> Callable:
    def write(o: Writer, x: Value, dim: int, keepdim: bool = False) -> tuple:
        return _folded(o, fold, x, dim, keepdim, x.dtype), _place(place)(o, x, dim, keepdim)

    return write


form("max.dim")(_extremum("ReduceMax", "ArgMax"))
form("min.dim")(_extremum("ReduceMin", "ArgMin"))


def _top(o: Writer, x: Value, k: Any, dim: int, largest: bool, in_order: bool = True) -> tuple[Value, Value]:
    if x.rank == 0:
        return x, o.constant(0, int64)
    values, places = o.step("TopK", _ordered(o, x), o.sizes([k]), axis=dim % x.rank, largest=int(largest), sorted=int(in_order), _outputs=2)
    return o.cast(values, x.dtype), Value(places.name, int64)


short({
    # The k largest or smallest, and their places
    "topk primitive:topk": lambda o, x, k, dim=-1, largest=True, sorted=True: _top(o, x, k, dim, largest, sorted),
    "argsort": lambda o, x, dim=-1, descending=False, **_: sort(o, x, dim, descending)[1],  # The places of all in order
    "argsort.stable": lambda o, x, *, stable, dim=-1, descending=False: sort(o, x, dim, descending)[1],  # Likewise
})


@form("sort.default", "sort")
def sort(o: Writer, x: Value, dim: int = -1, descending: bool = False) -> tuple:
    """All in order, and their places: TopK keeps those that are equal in order."""
    return _top(o, x, 1 if x.rank == 0 else o.size(x, dim % x.rank), dim, descending)


@form("sort.stable", "primitive:sort")
def sort_stable(o: Writer, x: Value, *args: Any, stable: Any = True, dim: int = -1, descending: bool = False) -> tuple:
    """Likewise."""
    dim, descending = (*args, dim, descending)[:2] if args else (dim, descending)
    return sort(o, x, dim, descending)


@form("primitive:nth")
def nth(o: Writer, x: Value, place: Value, dim: int) -> Value:
    """Which element would stand at a place if all were in ascending order."""
    if x.rank == 0:
        return o.constant(0, int64)
    axis = dim % x.rank
    _, places = _top(o, x, o.size(x, axis), axis, False)
    return o.Squeeze(o.GatherElements(places, o.Unsqueeze(place, [axis]), axis=axis), [axis])


@form("primitive:searchsorted")
def searchsorted(o: Writer, edges: Value, x: Value, right: bool, *_: Any) -> Value:
    """How many edges lie below each element, or not above it."""
    kind = edges.dtype if edges.dtype in _DIRECT else float32 if edges.dtype.is_floating_point else int64
    ends = o.cast(edges, kind)
    ends = o.Unsqueeze(ends, [edges.rank - 1]) if edges.rank > 1 else ends
    held = o.step("LessOrEqual" if right else "Less", ends, o.Unsqueeze(o.cast(x, kind), [x.rank]))
    return o.ReduceSum(o.cast(held, int64), [-1], keepdims=0)


@form("primitive:histc", takes=lambda x, bins, low, high: low < high)
def histc(o: Writer, x: Value, bins: int, low: float, high: float) -> Value:
    """Counts in equal intervals; the last one has its end too."""
    flat = o.Reshape(o.cast(x, float32), [-1])
    place = o.Floor(o.Mul(o.Sub(flat, low), bins / (high - low)))
    place = o.Where(o.Equal(flat, high), o.constant(bins - 1, float32), place, _dtype=float32)
    hits = o.Equal(o.Unsqueeze(place, [0]), o.constant([[n] for n in range(bins)], float32))
    return o.cast(o.ReduceSum(o.cast(hits, float32), [1], keepdims=0), o.out.dtype)


# -- running folds ---------------------------------------------------------------------------------------------------------------------
@form("cumsum", "primitive:cumsum")
def cumsum(o: Writer, x: Value, dim: int, reverse: bool = False, *, dtype: Any = None) -> Value:
    """The sum of what comes before and the element itself."""
    kind = o.out.dtype
    if x.rank == 0:
        return o.cast(x, kind)
    inner = kind if kind in _DIRECT else float32 if kind.is_floating_point else int64
    return o.cast(o.CumSum(o.cast(x, inner), o.constant(dim % x.rank, int64), reverse=int(reverse)), kind)


def _triangle(o: Writer, x: Value, axis: int, filler: Any) -> Value:
    """A copy of x for each place along an axis, last, with `filler` beyond the place."""
    order = [d for d in range(x.rank) if d != axis] + [axis]
    rows = o.Unsqueeze(o.Transpose(x, perm=order), [x.rank - 1])
    size = o.size(x, axis)
    places = o.Range(o.constant(0, int64), o.scalar(size), o.constant(1, int64), _dtype=int64)
    beyond = o.Greater(o.Unsqueeze(places, [0]), o.Unsqueeze(places, [1]))
    return o.Where(beyond, o.cast(filler, x.dtype), rows, _dtype=x.dtype)


def _back(o: Writer, x: Value, made: Value, axis: int) -> Value:
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return o.Transpose(made, perm=order)


@form("cumprod", "primitive:cumprod")
def cumprod(o: Writer, x: Value, dim: int, *, dtype: Any = None) -> Value:
    """The product of what comes before and the element itself: ONNX has none, so rows of a triangle are multiplied."""
    shape, x = x.shape, o.cast(x, o.out.dtype)
    x.shape = shape
    if x.rank == 0:
        return x
    axis = dim % x.rank
    return _back(o, x, o.ReduceProd(_triangle(o, x, axis, 1), [-1], keepdims=0), axis)


@form("logcumsumexp", "primitive:logcumsumexp", takes=lambda x, dim, reverse=False: not reverse)
def logcumsumexp(o: Writer, x: Value, dim: int, reverse: bool = False) -> Value:
    """The logarithm of running sums of exponentials."""
    if x.rank == 0:
        return x
    axis = dim % x.rank
    return _back(o, x, o.ReduceLogSumExp(_triangle(o, x, axis, float("-inf")), [-1], keepdims=0), axis)


@form("cummax", "primitive:cummax", takes=lambda x, dim: x.dtype.is_floating_point)
def cummax(o: Writer, x: Value, dim: int) -> tuple:
    """Running maxima and their places."""
    return _running(o, x, dim, "ReduceMax", "ArgMax", float("-inf"))


@form("cummin", "primitive:cummin", takes=lambda x, dim: x.dtype.is_floating_point)
def cummin(o: Writer, x: Value, dim: int) -> tuple:
    """Running minima and their places."""
    return _running(o, x, dim, "ReduceMin", "ArgMin", float("inf"))


def _running(o: Writer, x: Value, dim: int, fold: str, place: str, filler: float) -> tuple:
    if x.rank == 0:
        return x, o.constant(0, int64)
    axis = dim % x.rank
    wide = o.cast(x, float32) if x.dtype.itemsize < 4 else x
    wide.shape = x.shape
    rows = _triangle(o, wide, axis, filler)
    values, places = o.step(fold, rows, [-1], keepdims=0), o.step(place, rows, axis=-1, keepdims=0, select_last_index=1)
    return o.cast(_back(o, x, values, axis), x.dtype), _back(o, x, places, axis)
