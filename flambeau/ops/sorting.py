"""Order: sorting, selection, quantiles, modes, unique elements and histograms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import dispatch
from ..core.dtypes import FLOAT, bool_, float32, float64, int64, scalar_type
from ..core.size import canonical_dim, known_zero
from ..core.symbolic import unknown_size
from ..core.tensor import Tensor
from . import batching, prims
from .checks import checked
from .counting import linspace
from .pointwise import where
from .primitives import InAten
from .promotion import apart, cast
from .reductions import _is_zero, _pick, keep_dims
from .registry import OPERATORS, Absent, General, Spec, on_tape, operator, primitive
from .return_types import named
from .writing import with_out, with_out_apart, with_out_in_rows


@operator(method=True, node=lambda input, *args, stable=None, **_: "sort" if stable is None and len(args) < 3 else "sort.1")
@with_out
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False) -> Any:
    """(values, indices) in order along `dim`; NaN counts as the largest. Always stable."""
    return named("sort", *prims.sort(input, canonical_dim(dim, input.ndim), bool(descending), True))


@operator(method=True)
@with_out
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Indices that put `input` in order along `dim`."""
    return sort(input, dim, descending, stable)[1]


@operator(method=True)
@with_out
def msort(input: Tensor) -> Tensor:
    """The values in ascending order along the first dimension."""
    return sort(input, 0)[0]


@operator(method=True)
@with_out
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The `k` largest (or smallest) values along `dim`, in order, and their indices."""
    d = canonical_dim(dim, input.ndim)
    if isinstance(k, int) and not 0 <= k <= (input.shape[d] if input.ndim else 1):
        raise RuntimeError(f"selected index k out of range: k = {k}, dimension {d} of shape {list(input.shape)}")
    return named("topk", *prims.topk(input, k, d, bool(largest), bool(sorted)))


def _needs_elements(input: Tensor, dim: int, name: str) -> None:
    if input.ndim and _is_zero(input.shape[dim]):
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


@operator(method=True, node=True)
@with_out_apart
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest value along `dim` (k counts from 1) and its index."""
    d = canonical_dim(dim, input.ndim)
    _needs_elements(input, d, "kthvalue")
    if not 1 <= k <= (input.shape[d] if input.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}: k = {k}, shape {list(input.shape)}")
    if not input.ndim:
        return named("kthvalue", input.clone(), input.new_zeros((), dtype=int64))
    return named("kthvalue", *_pick(input, d, _nth(input, k - 1, d), keepdim))


def _nth(input: Tensor, place: Any, dim: int) -> Tensor:
    """Index along `dim` of what would stand at `place` (a number, or a tensor of one for each row) in ascending order."""
    if not isinstance(place, Tensor):
        place = input.new_full((), place, dtype=int64).expand(_without(input.shape, dim))
    return prims.nth(input.detach(), place, dim)


def _median(input: Tensor, dim: int | None, keepdim: bool, name: str) -> Any:
    if dim is None:
        flat = input.reshape(-1)
        if _is_zero(flat.shape[0]):
            return input.sum() + math.nan if input.dtype.category >= FLOAT else input.new_full((), _lowest(input))
        return _median_of_all(flat, name)
    d = canonical_dim(dim, input.ndim)
    if not input.ndim:
        return named(name, on_tape(f"{name}.1", input.clone()), input.new_full((), 0, dtype=int64))
    _needs_elements(input, d, name)
    if input.dtype is bool_:
        raise NotImplementedError(f'"{name}_out" not implemented for \'Bool\': convert the input to a number type first')
    place: Any = (input.shape[d] - 1) // 2
    if input.dtype.is_floating_point:
        nans = prims.isnan(input.detach()).sum(d)
        if name == "nanmedian":
            place = ((input.shape[d] - nans - 1) // 2).clamp(min=0)
        else:
            place = nans.new_full((), place).expand(nans.shape).masked_fill(nans > 0, input.shape[d] - 1)
    values, places = _pick(input, d, _nth(input, place, d), keepdim)
    return named(name, on_tape(f"{name}.1", values), places)


def _shared_by_equals(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    """The gradient of a median of everything, in equal shares to the elements that equal it."""
    equal = (input == out) | (prims.isnan(input) & prims.isnan(out))
    return (g / equal.sum()).expand(tuple(input.shape)).masked_fill(~equal, 0)     # be `g` NaN


@operator(name="_median_of_all", aten=InAten(node=lambda x, name: name), vjp=lambda g, input, out: (_shared_by_equals(g, input, out),))
def _median_of_all(input: Tensor, name: str) -> Tensor:
    return _median(input, 0, False, name)[0]


def _without(shape: Sequence, dim: int) -> tuple:
    return tuple(n for d, n in enumerate(shape) if d != dim)


def _lowest(x: Tensor) -> int:
    return 1 if x.dtype is bool_ else int(np.iinfo(x.dtype.numpy).min)


@operator(method=True)
@with_out
def median(input: Tensor, dim: int | Absent = None, keepdim: bool = False) -> Any:
    """The lower median of everything, or (values, indices) along `dim`; a NaN makes the answer NaN."""
    return _median(input, dim, keepdim, "median")


@operator(method=True)
@with_out
def nanmedian(input: Tensor, dim: int | Absent = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN."""
    return _median(input, dim, keepdim, "nanmedian")


def _quantile(input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool) -> Tensor:
    if input.dtype not in (float32, float64):
        raise RuntimeError(f"quantile() input tensor must be either float or double dtype, got {input.dtype}")
    if interpolation not in _BETWEEN:
        raise RuntimeError(f"quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}")
        q = input.new_full((), float(q))
    if q.ndim > 1:
        raise RuntimeError(f"quantile() q must be a scalar or 1D tensor, got shape {list(q.shape)}")
    if q._data is not None and q.numel() and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError("quantile() q values must be in the range [0, 1]")
    if any(map(known_zero, input.shape)):
        raise RuntimeError(f"quantile() input tensor must be non-empty, got shape {list(input.shape)}")
    x = input.reshape(-1) if dim is None or not input.ndim else input
    d = 0 if dim is None else canonical_dim(dim, x.ndim)
    ordered = prims.sort(x, d, False, True)[0].movedim(d, -1)
    nans = prims.isnan(ordered).sum(-1, True)
    last = ordered.shape[-1] - 1 - nans if skip_nan else ordered.shape[-1] - 1
    rank = q.reshape(-1) * (last.clamp(min=0) if isinstance(last, Tensor) else last)
    rank = rank.expand((*ordered.shape[:-1], rank.shape[-1]))
    low, high, weight = _BETWEEN[interpolation](rank)
    below, above = (prims.gather(ordered, ordered.ndim - 1, i.to(int64)) for i in (low, high))
    here = prims.isinf(below) & (above == below) if isinstance(weight, Tensor) or weight else None  # infinities stay what they are
    result = below if here is None else where(here, below, below + (above - below) * weight)
    if not skip_nan:
        result = result.masked_fill(nans > 0, math.nan)
    result = result.movedim(-1, 0)
    if keepdim:
        result = keep_dims(result, range(1, input.ndim + 1) if dim is None or not input.ndim else (d + 1,))
    return result if q.ndim else result[0]


_BETWEEN: dict[str, Any] = {
    "linear": lambda r: (r.floor(), r.ceil(), r - r.floor()),
    "lower": lambda r: (r.floor(), r.floor(), 0),
    "higher": lambda r: (r.ceil(), r.ceil(), 0),
    "midpoint": lambda r: (r.floor(), r.ceil(), 0.5),
    "nearest": lambda r: (r.round(), r.round(), 0),
}


@operator(method=True, autocast={"cpu": "wide"})
@with_out_in_rows
def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """The q-th quantiles (q in [0, 1], a number or 1-D tensor) along `dim` or of everything."""
    return _quantile(input, q, dim, keepdim, interpolation, False)


@operator(method=True, autocast={"cpu": "wide"})
@with_out_in_rows
def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """The quantiles of the elements that are not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


# -- modes and unique elements -------------------------------------------------------------------------------
def _mode_index_kernel(x: np.ndarray, dim: int) -> np.ndarray:
    """Per row: the last position of the smallest among the most frequent values."""
    rows = np.moveaxis(x, dim, -1)
    out = np.empty(rows.shape[:-1], np.int64)
    for at in np.ndindex(out.shape):
        values, counts = np.unique(rows[at], return_counts=True, equal_nan=False)
        best = values[counts.argmax()]
        out[at] = np.flatnonzero(rows[at] == best)[-1] if best == best else 0      # nothing but NaN
    return out


@primitive("mode_index", kernel=_mode_index_kernel, tags=("ordered",), samples=lambda r: [(r.integers(0, 3, (2, 7)), 1)], why_absent={
    "derivative": "an index is not differentiable", "loop": "counting equal values is not a loop over independent elements"})
def mode_index(x: Tensor, dim: int) -> Spec:
    """Index along `dim` of the most frequent value (the smallest of equally frequent ones; its last position)."""
    return Spec(_without(x._layout.shape, dim), int64)


@operator(method=True, node=True)
@with_out
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value along `dim` and an index where it stands."""
    d = canonical_dim(dim, input.ndim)
    if not input.ndim:
        return named("mode", input.clone(), input.new_full((), 0, dtype=int64))
    _needs_elements(input, d, "mode")
    return named("mode", *_pick(input, d, mode_index(input, d), keepdim))


def _unique_kernel(x: np.ndarray, dim: int | None, consecutive: bool) -> tuple:
    """(values, inverse, counts) of the flattened input, or of its slices along `dim`."""
    if x.dtype.kind not in "biufc":  # NumPy sorts the narrow floats of ml_dtypes by their bits
        values, inverse, counts = _unique_kernel(x.astype(np.float32), dim, consecutive)
        return values.astype(x.dtype), inverse, counts
    if not consecutive:
        values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, axis=dim, equal_nan=False)
        if dim is not None:
            values = _slices_in_rows(values, dim)
        return values, inverse.reshape(x.shape if dim is None else -1).astype(np.int64), counts.astype(np.int64)
    rows = x.reshape(-1) if dim is None else np.moveaxis(x, dim, 0)
    n = rows.shape[0]
    new = np.ones(n, bool)
    if n > 1:
        apart = rows[1:] != rows[:-1]
        new[1:] = apart if rows.ndim == 1 else apart.reshape(n - 1, -1).any(1)
    starts = np.flatnonzero(new)
    inverse = (np.cumsum(new) - 1).reshape(x.shape if dim is None else -1)
    values = rows[starts] if dim is None else _slices_in_rows(np.moveaxis(rows[starts], 0, dim), dim)
    return values, inverse.astype(np.int64), np.diff(np.append(starts, n)).astype(np.int64)


def _slices_in_rows(x: np.ndarray, dim: int) -> np.ndarray:
    """`x`, one of its slices along `dim` after the other in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, dim, 0)), 0, dim)


def _unique_vjp(gs: tuple) -> tuple:
    raise NotImplementedError("the derivative of unique is not implemented: which of several equal elements a value was is not told; "
                              "detach() what it gives, or index with argsort()")


_unique_vjp.refuses = True  # type: ignore[attr-defined]


@primitive("unique", batch=batching.refused, kernel=_unique_kernel, tags=("data_dependent",),
           samples=lambda r: [(r.integers(0, 5, 9), None, False)],
           derivative=General(_unique_vjp), why_absent={"loop": "the output's shape depends on the data"})
def unique_prim(x: Tensor, dim: int | None, consecutive: bool) -> tuple[Spec, Spec, Spec]:
    """Sorted distinct values (or runs of equal neighbours), the index of each element's value, and their counts."""
    if x._data is None or dispatch.state.fake:
        found, shape = unknown_size("unique", x), x._layout.shape
        if dim is None:
            return Spec((found,), x.dtype), Spec(shape, int64), Spec((found,), int64)
        return Spec((*shape[:dim], found, *shape[dim + 1:]), x.dtype), Spec((shape[dim],), int64), Spec((found,), int64)
    return Spec((-1,), x.dtype), Spec((-1,), int64), Spec((-1,), int64)


def _slices_of(input: Tensor, dim: int | None) -> int | None:
    """`dim` counted from the front, if there are slices along it to be told apart."""
    if dim is None:
        return None
    d = canonical_dim(dim, input.ndim)
    if not input.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if any(map(known_zero, _without(input.shape, d))):
        raise RuntimeError(f"unique: there are no elements in the slices along dimension {d} of shape {list(input.shape)}")
    return d


def _chosen(answers: tuple, return_inverse: bool, return_counts: bool) -> Any:
    values, inverse, counts = answers
    chosen = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return chosen if len(chosen) > 1 else values


@operator(method=True, node=lambda *args, dim=None, **_: "_unique2" if dim is None and len(args) < 5 else "unique_dim")
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """Distinct values in ascending order (of slices along `dim`), with inverse indices and counts on request."""
    return _chosen(unique_prim(input, _slices_of(input, dim), False), return_inverse, return_counts)


@operator(method=True, node=True)
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The first of each run of equal neighbours, with inverse indices and counts on request."""
    return _chosen(unique_prim(input, _slices_of(input, dim), True), return_inverse, return_counts)


# -- counting ------------------------------------------------------------------------------------------------
@operator(method=True)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer occurs in a 1-D tensor of non-negative ones, or the sums of its `weights`."""
    if input.dtype.category >= FLOAT:
        raise NotImplementedError(f'"bincount_cpu" not implemented for \'{scalar_type(input.dtype)}\'; it takes integers')
    traced = input._data is None or dispatch.state.fake
    if input.ndim != 1 or (input.shape[0] and not traced and int(input.min()) < 0):
        raise RuntimeError(f"bincount only supports 1-d non-negative integral inputs, got shape {list(input.shape)}.")
    if minlength < 0:
        raise RuntimeError(f"bincount(): minlength should be >= 0, got {minlength}")
    if not input.shape[0]:
        return input.new_zeros((minlength,), dtype=int64)
    input = checked(input, input >= 0) if traced else input
    size = unknown_size("bincount", input) if traced else max(int(input.max()) + 1, minlength)
    if weights is None:
        ones = input.new_full(input.shape, 1, dtype=int64)
        return prims.index_add(ones.new_zeros((size,)), 0, cast(input, int64), ones)
    if weights.shape != input.shape:
        raise RuntimeError(f"weights should be 1-d and have the same length as input, got {list(weights.shape)} and {list(input.shape)}")
    weights = weights if weights.dtype is float32 else cast(weights, float64)
    return prims.index_add(weights.new_zeros((size,)), 0, cast(input, int64), weights)


def _histc_kernel(x: np.ndarray, bins: int, low: float, high: float) -> np.ndarray:
    kind: Any = np.float32 if x.itemsize <= 4 else np.float64
    flat = x.reshape(-1).astype(kind)
    if low == high and flat.size:
        low, high = float(flat.min()), float(flat.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    if (high - low) * bins > float(np.finfo(kind).max):
        kind, flat, low, high = np.float64, flat / 2.0**64, low / 2.0**64, high / 2.0**64
    start, end = kind(low), kind(high)
    flat = flat[(flat >= start) & (flat <= end)]
    if start == end:        # equal ones are in the middle, as far as rounding lets them
        start, end = start - kind(1), end + kind(1)
    place = (flat - start) * kind(bins) / (end - start) if start < end else np.full(flat.shape, bins / 2)
    return np.bincount(np.minimum(place, bins - 1).astype(np.int64), minlength=bins).astype(x.dtype)


@primitive("histc", library="counts", batch=batching.each, kernel=_histc_kernel, tags=("ordered", "refuses_values"),
           samples=lambda r: [(r.standard_normal(20), 5, -1.0, 1.0), (r.standard_normal(20), 5, 0.0, 0.0)], why_absent={
    "derivative": "a count is not differentiable"})
def _histc(x: Tensor, bins: int, low: float, high: float) -> Spec:
    """Counts of the elements in `bins` equal intervals of [low, high]."""
    return Spec((bins,), x.dtype)


@operator(method=True)
@with_out
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts in `bins` equal intervals of [min, max] (of the data's range if both are 0), in input's dtype."""
    if bins <= 0:
        raise RuntimeError(f"bins must be > 0, got {bins}")
    if max < min:
        raise RuntimeError(f"max must be larger than min, got min={min}, max={max}")
    if input.dtype.category != FLOAT and not input.is_cuda:
        raise NotImplementedError(f'"histogram_cpu" not implemented for {scalar_type(input.dtype)!r}; convert the input with .float()')
    return _histc(input, bins, float(min), float(max))


def _edges(x: Tensor, bins: Any, span: Sequence[float] | None, where: str) -> Tensor:
    """The edges of the bins for the points `x` of one dimension: given, or equally spaced over `span` or what the points span."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or bins.dtype is not x.dtype:
            raise RuntimeError(f"torch.{where}: bins must be one-dimensional and of input's dtype {x.dtype}, but got shape "
                               f"{list(bins.shape)} and {bins.dtype}")
        return bins
    if bins <= 0:
        raise RuntimeError(f"torch.{where}: bins must be > 0, but got {bins}")
    low, high = span if span is not None else (x.min().item(), x.max().item()) if x.numel() else (0.0, 1.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{where}: the range [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"torch.{where}: min should not exceed max, but got min {low} max {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, int(bins) + 1, dtype=x.dtype, device=x.device)


def _count(points: Tensor, edges: list[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """The sums of weights (1 unless given) of the rows of `points` in each cell of the grid; the last bins are closed."""
    shape = tuple(e.shape[0] - 1 for e in edges)
    cell, inside = points.new_zeros((points.shape[0],), dtype=int64), points.new_full((points.shape[0],), True, dtype=bool_)
    for d, e in enumerate(edges):
        x = prims.select(points, 1, d).contiguous()
        bin = OPERATORS["searchsorted"](e, x, right=True) - 1
        cell = cell * shape[d] + bin.clamp(0, shape[d] - 1)
        inside = inside & (x >= prims.select(e, 0, 0)) & (x <= prims.select(e, 0, shape[d]))
    amount = inside.to(points.dtype) if weight is None else weight.reshape(-1).masked_fill(~inside, 0)
    counts = prims.index_add(points.new_zeros((math.prod(shape),)), 0, cell.masked_fill(~inside, 0), amount).reshape(shape)
    if density:
        counts = counts / counts.sum()
        for d, e in enumerate(edges):
            counts = counts / e.diff().reshape([-1 if i == d else 1 for i in range(len(shape))])
    return counts


def _histogram(input: Tensor, bins: Sequence, range: Sequence[float] | None, weight: Tensor | None, density: bool,
               where: str) -> tuple[Tensor, list[Tensor]]:
    """Counts and edges for an input whose last dimension holds the coordinates of points."""
    n = input.shape[-1]
    if input.dtype not in (float32, float64):
        raise NotImplementedError(f'"histogramdd" not implemented for \'{scalar_type(input.dtype)}\'; it takes float32 and float64')
    if len(bins) != n:
        raise RuntimeError(f"{where}: The size of bins must be equal to the innermost dimension of the input, {n}, but got {len(bins)}.")
    if range is not None and len(range) != 2 * n:
        raise RuntimeError(f"torch.{where}: for a {n}-dimensional histogram range should have {2 * n} elements, but got {len(range)}")
    if weight is not None and (weight.shape != input.shape[:-1] or weight.dtype is not input.dtype):
        raise RuntimeError(f"torch.{where}: if weight tensor is provided it should have the same dtype and shape as the input tensor "
                           f"excluding its innermost dimension, but got input with shape {list(input.shape)} and weight with shape "
                           f"{list(weight.shape)}")
    points = input.reshape(-1, n)
    spans = itertools.repeat(None) if range is None else zip(range[::2], range[1::2])
    edges = [_edges(prims.select(points, 1, d), b, span, where) for d, (b, span) in enumerate(zip(bins, spans))]
    return _count(points, edges, weight, density), edges


@operator(method=True)
@with_out
def histogram(input: Tensor, bins: Any = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
              density: bool = False) -> Any:
    """(hist, bin_edges): how many elements, or how much `weight`, lie in each bin: [a, b), and [a, b] for the last one.

    `bins`: a tensor of edges, or how many equal ones there are in `range` (the data's unless given). `density`: the counts
    divided so that the integral is 1.
    """
    counts, edges = _histogram(prims.unsqueeze(input.reshape(-1), 1), [bins], range,
                               None if weight is None else weight.reshape(-1), density, "histogram")
    return named("histogram", counts, apart(edges[0], bins) if isinstance(bins, Tensor) else edges[0])


@operator
def histogramdd(input: Tensor, bins: Any, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
                density: bool = False) -> Any:
    """histogram of points (..., n) in n dimensions: (hist, bin_edges) with a tensor of edges for each; `bins` and `range`
    (lowest and highest by turns) hold one after the other."""
    if input.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    each = list(bins) if isinstance(bins, (tuple, list)) else [bins] * int(input.shape[-1])
    counts, edges = _histogram(input, each, range, weight, density, "histogramdd")
    return named("histogramdd", counts, tuple(edges))
