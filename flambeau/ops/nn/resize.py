"""Padding in all modes, resizing images, pixel shuffles, and sampling at given positions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import FLOAT, bool_, dtype, float32, float64, int64, scalar_type, uint8
from ...core.size import known_zero
from ...core.symbolic import hint_of, is_symbolic, sym_max
from ...core.tensor import Tensor, from_array
from ...core.warned import warn
from .. import prims
from ..creation import constant_on
from ..ints import as_int, as_ints
from ..joining import stack
from ..order import in_rows
from ..pointwise import where
from ..primitives import InAten, channels_last_like
from ..promotion import apart, cast, fitting, of_one_dtype
from ..registry import operator
from .activations import check_float
from .windows import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, as_laid_out


# -- padding -----------------------------------------------------------------------------------------------
@operator(name="_surrounded", fused=True, aten=InAten(node="constant_pad_nd"), vjp=lambda g, low, high: (
    prims.pad_zeros(g, tuple(-n for n in low), tuple(-n for n in high), (0,) * len(low)),))
def _surrounded(input: Tensor, low: tuple, high: tuple, value: Any) -> Tensor:
    """`input` with `value` around it."""
    gaps = (0,) * input.ndim
    inside = prims.pad_zeros(prims.full(tuple(input.shape), True, bool_, input.device), low, high, gaps)
    return as_laid_out(prims.where(inside, prims.pad_zeros(input, low, high, gaps), fitting(value, input.dtype)), input)


def _source(mode: str, n: Any, low: int, high: int, like: Tensor) -> Tensor:
    """For each position of the padded dimension, the position that it repeats (i64)."""
    i = prims.iota(n + low + high, -low, 1, int64, like.device)
    if mode == "replicate":
        return i.clamp(0, n - 1)
    if mode == "circular":
        return prims.where(i < 0, i + n, prims.where(i < n, i, i - n))
    return n - 1 - (n - 1 - i.abs()).abs()


@operator(name="_edge_padded", fused=True, vjp=lambda g, low, high, mode: (_edges_folded(g, low, high, mode),))
def _edge_padded(input: Tensor, low: tuple, high: tuple, mode: str) -> Tensor:
    """`input` with its own elements around it: `low` before and `high` after, by dimension."""
    out = input
    for d, (before, after) in enumerate(zip(low, high)):
        if before or after:
            out = prims.index_select(out, d, _source(mode, input.shape[d], before, after, input))
    return _in_order(out, input, mode)


# Where the gradient of the elements before (`head`) and after (`tail`) goes, by mode: (piece, position) for each.
_FOLDS: dict[str, Callable[[Tensor, Tensor, int, Any], list]] = {
    "reflect": lambda head, tail, d, n: [(prims.flip(head, (d,)), 1), (prims.flip(tail, (d,)), n - 1 - tail.shape[d])],
    "replicate": lambda head, tail, d, n: [(head.sum(d, keepdim=True), 0), (tail.sum(d, keepdim=True), n - 1)],
    "circular": lambda head, tail, d, n: [(head, n - head.shape[d]), (tail, 0)],
}


@operator(name="_edges_folded", fused=True, vjp=lambda g, low, high, mode: (_edge_padded(g, low, high, mode),))
def _edges_folded(g_: Tensor, low: tuple, high: tuple, mode: str) -> Tensor:
    """The transpose of `_edge_padded`: the middle, to which both edges are added where their elements came from."""
    out, none = g_, (0,) * g_.ndim
    for d, (before, after) in enumerate(zip(low, high)):
        n = g_.shape[d] - before - after
        whole, out = out, out.narrow(d, before, n) if before or after else out
        pieces = _FOLDS[mode](whole.narrow(d, 0, before), whole.narrow(d, before + n, after), d, n)
        for (piece, at), count in zip(pieces, (before, after)):
            if count:
                start, rest = ([k if axis == d else 0 for axis in range(g_.ndim)] for k in (at, n - at - piece.shape[d]))
                out = prims.add(out, prims.pad_zeros(piece, tuple(start), tuple(rest), none))
    return _in_order(out, g_, mode)


def _in_order(out: Tensor, like: Tensor, mode: str) -> Tensor:
    """`out` in the memory order that torch gives it: circular padding forgets channels-last."""
    return out.contiguous() if mode == "circular" else as_laid_out(out, like)


def _check_extent(mode: str, n: Any, low: int, high: int, shape: Sequence) -> None:
    limit = {"reflect": n - 1, "circular": n}.get(mode)
    if limit is not None and max(low, high) > limit:
        raise RuntimeError("Argument #4: Padding size should be less than the corresponding input dimension, but got: "
                           f"padding ({low}, {high}) of mode {mode!r} at a dimension of size {n} of input {list(shape)}")
    if mode == "replicate" and n == 0:
        raise RuntimeError(f"replicate padding needs a non-empty dimension, got input {list(shape)}")


def _pad_node(input: Tensor, pad: Sequence[int], mode: str = "constant", *_: Any, **__: Any) -> str:
    """Edges by the number of dimensions that have some."""
    edges = {"reflect": "reflection", "replicate": "replication"}.get(mode)
    return f"{edges}_pad{len(pad) // 2}d" if edges else "constant_pad_nd" if mode == "constant" else ""


@operator(node=_pad_node)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`pad` gives (before, after) of the last dimension, then of the one before it, and so on; negative numbers crop.

    mode: 'constant' (with `value`), 'reflect', 'replicate' or 'circular'.
    """
    if not isinstance(mode, str):
        raise TypeError(f"pad(): argument 'mode' (position 3) must be str, not {type(mode).__name__}")
    if not isinstance(pad, (tuple, list)):
        raise TypeError(f"pad(): argument 'pad' (position 2) must be tuple of ints, not {type(pad).__name__}")
    amounts = as_ints(pad)
    if len(amounts) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {list(amounts)}")
    if len(amounts) // 2 > input.ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got padding length "
                           f"{len(amounts)} and input of dimension {input.ndim}")
    low, high = [0] * input.ndim, [0] * input.ndim
    for i in range(len(amounts) // 2):
        low[-1 - i], high[-1 - i] = amounts[2 * i], amounts[2 * i + 1]
    if mode == "constant" and all(map(known_zero, amounts)):
        return input.clone()
    if mode == "constant":
        return _surrounded(input, tuple(low), tuple(high), value) if value and max(amounts, default=0) > 0 else \
            prims.pad_zeros(input, tuple(low), tuple(high), (0,) * input.ndim)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    for d in range(input.ndim):
        if low[d] or high[d]:
            _check_extent(mode, input.shape[d], low[d], high[d], input.shape)
    if min(*low, *high) < 0:    # it crops as well; what is cropped away is still reflected, but does not go round
        out = input
        if mode == "circular":
            out = prims.pad_zeros(out, *(tuple(min(n, 0) for n in ends) for ends in (low, high)), (0,) * input.ndim)
            low, high = ([max(n, 0) for n in ends] for ends in (low, high))
        for d in range(input.ndim):
            if low[d] or high[d]:
                out = prims.index_select(out, d, _source(mode, out.shape[d], low[d], high[d], input))
        return _in_order(out, input, mode)
    if all(map(known_zero, amounts)):
        return _in_order(input.clone(), input, mode)
    return _edge_padded(input, tuple(low), tuple(high), mode)


# -- interpolation --------------------------------------------------------------------------------------------
Line = Any      # an array along a dimension, or a tensor where its size is symbolic


def _floor(x: Line) -> Line:
    return np.floor(x) if isinstance(x, np.ndarray) else x.floor()


def _position(i: Line, n: Any, out: Any, scale: float | None, align_corners: bool) -> Line:
    """Where in the input the centres of the output's elements `i` lie."""
    if align_corners:
        return i * ((n - 1) / (out - 1)) if out > 1 else i * 0
    step = n / out if scale is None else 1.0 / scale
    return (i + 0.5) * step - 0.5


def _cubic(t: Line, a: float) -> Line:
    """Keys' cubic convolution kernel (1981); by Horner's rule, which rounds alike in arrays and in tensors."""
    t = abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return near * (t <= 1) + far * ((t > 1) & (t < 2))


class _Taps(NamedTuple):
    """A sparse matrix that makes a dimension anew: element o is the sum of elements `source[k, o]` times `weight[k, o]` over
    the taps k. No weights: they are all one."""

    source: np.ndarray
    weight: np.ndarray | None

    def of(self, kind: type) -> _Taps:
        """The same with weights of this type."""
        return _Taps(self.source, None if self.weight is None else self.weight.astype(kind))

    def transposed(self, n: int) -> _Taps:
        """The matrix of the gradient, for an input of `n` elements; rows with fewer taps have some of weight 0."""
        size = self.source.shape[1]
        weight = np.ones(self.source.shape) if self.weight is None else self.weight
        dense, where = np.unique(self.source * size + np.arange(size), return_inverse=True)
        share = np.bincount(where.ravel(), weight.ravel(), len(dense))
        dense, share = dense[share != 0], share[share != 0]
        row = dense // size
        count = np.bincount(row, minlength=n)
        place = np.arange(len(row)) - (np.cumsum(count) - count)[row]
        source, back = np.zeros((max(count.max(), 1), n), np.int64), np.zeros((max(count.max(), 1), n))
        source[place, row], back[place, row] = dense % size, share
        return _Taps(source, None if (back == 1).all() else back)


def _linear_taps(x: Line, n: Any) -> list[tuple[Line, Line]]:
    x = x.clip(0, None)
    first = _floor(x).clip(None, n - 1)
    return [(first, 1 - (x - first)), ((first + 1).clip(None, n - 1), x - first)]


def _cubic_taps(x: Line, n: Any) -> list[tuple[Line, Line]]:
    first = _floor(x)
    return [((first + k).clip(0, n - 1), _cubic(x - (first + k), -0.75)) for k in (-1, 0, 1, 2)]


def _line_of_taps(mode: str, i: Line, n: Any, out: Any, scale: float | None, align_corners: bool) -> list[tuple[Line, Line | None]]:
    """(source, weight) of each tap of the elements `i`."""
    if mode.startswith("nearest"):      # in single precision, as everywhere
        step = n / out if scale is None else 1.0 / scale
        i = (i + 0.5 if mode == "nearest-exact" else i) * (np.float32(step) if isinstance(i, np.ndarray) else step)
        return [(_floor(i).clip(None, n - 1), None)]
    return (_linear_taps if mode == "linear" else _cubic_taps)(_position(i, n, out, scale, align_corners), n)


@functools.lru_cache(maxsize=256)
def _taps(mode: str, n: int, out: int, scale: float | None, align_corners: bool, kind: type) -> tuple[_Taps, _Taps]:
    """How a dimension of size `n` becomes one of size `out`, and how the gradient comes back, with weights of `kind`."""
    i = np.arange(out, dtype=np.float32 if mode.startswith("nearest") else np.float64)
    sources, weights = zip(*_line_of_taps(mode, i, n, out, scale, align_corners))
    there = _Taps(np.stack(sources).astype(np.int64), None if weights[0] is None else np.stack(weights))
    return there.of(kind), there.transposed(n).of(kind)


class _Axis(NamedTuple):
    """A dimension that is made anew: its `_Taps` as tensors, and those of the gradient. None: they depend on symbolic sizes,
    and the gradient is that of the body."""

    dim: int
    source: Tensor
    weight: Tensor | None
    back_source: Tensor | None
    back_weight: Tensor | None

    def reversed(self) -> _Axis:
        """The axis of the gradient."""
        assert self.back_source is not None
        return _Axis(self.dim, self.back_source, self.back_weight, self.source, self.weight)

    @property
    def taps(self) -> int:
        """The elements that are read for one."""
        return int(self.source.shape[0])

    def growth(self, input: Tensor) -> float:
        """How many times longer the dimension of `input` becomes."""
        return hint_of(self.source.shape[1]) / hint_of(input.shape[self.dim])


def _axis(dim: int, like: Tensor, mode: str, out: Any, scale: float | None, align_corners: bool) -> _Axis:
    """How dimension `dim` of `like` gets the size `out`."""
    n, kind = like.shape[dim], like.dtype if like.dtype is float64 else float32
    if not is_symbolic(n) and not is_symbolic(out):
        arrays = itertools.chain(*_taps(mode, n, out, scale, align_corners, kind.numpy))
        return _Axis(dim, *[None if array is None else constant_on(from_array(array), like.device) for array in arrays])  # type: ignore[arg-type]
    i = prims.iota(out, 0, 1, float32 if mode.startswith("nearest") else float64, like.device)
    sources, weights = zip(*_line_of_taps(mode, i, n, out, scale, align_corners))
    weight = None if weights[0] is None else cast(stack(weights), kind)
    return _Axis(dim, cast(stack(sources), int64), weight, None, None)


MOST_TAPS = 16  # that are written out for an element; more are a loop


def _remade(input: Tensor, axes: Sequence[_Axis], kind: dtype) -> Tensor:
    """`input` with some dimensions made anew, as `kind`: two at once where the channels are contiguous, else one by one, in an
    order that keeps what lies between small and spares the contiguous dimension."""
    left = sorted(axes, key=lambda axis: (axis.growth(input), axis.dim if axis.growth(input) < 1 else -axis.dim))
    while left:
        first, *left = left
        pair = [first]
        if left and abs(first.dim - left[0].dim) == 1 and first.taps * left[0].taps <= MOST_TAPS \
                and channels_last_like(input, tuple(input.shape)) is not None:
            pair = sorted([first, left.pop(0)], key=lambda axis: axis.dim)
        wide = float32 if left and kind.is_floating_point and kind.itemsize < 4 else kind
        remade = _resampled if all(axis.back_source is not None for axis in pair) else _resample
        input = remade(input, wide, *pair[0], *(pair[1] if len(pair) > 1 else ()))
    return input


def _resampled_vjp(g: Tensor, input_dtype: dtype, dim: int, source: Tensor, weight: Tensor | None, back_source: Tensor,
                   back_weight: Tensor | None, dim2: int | None, source2: Tensor | None, weight2: Tensor | None,
                   back_source2: Tensor | None, back_weight2: Tensor | None) -> tuple:
    axes = [_Axis(dim, source, weight, back_source, back_weight).reversed()]
    if dim2 is not None:
        axes.append(_Axis(dim2, source2, weight2, back_source2, back_weight2).reversed())     # type: ignore[arg-type]
    return (_remade(g, axes, input_dtype),)


def _resample(input: Tensor, kind: dtype, dim: int, source: Tensor, weight: Tensor | None, back_source: Tensor | None,
              back_weight: Tensor | None, dim2: int | None = None, source2: Tensor | None = None, weight2: Tensor | None = None,
              back_source2: Tensor | None = None, back_weight2: Tensor | None = None) -> Tensor:
    """Dimension `dim` made anew, and with it the one after it, `dim2`."""
    first = _Axis(dim, source, weight, back_source, back_weight)
    x = input if first.taps == 1 and input.dtype is kind else cast(input, _computed_in(input.dtype))
    if dim2 is None:
        out = _looped(x, first) if first.taps > MOST_TAPS else _weighted_sum(
            x, first, lambda at: prims.index_select(x, dim, at))
    else:
        second = _Axis(dim2, source2, weight2, back_source2, back_weight2)     # type: ignore[arg-type]
        whole: list[Tensor | None] = [None] * dim
        out = _weighted_sum(x, first, lambda at: _weighted_sum(
            x, second, lambda at2: prims.index(x, [*whole, prims.unsqueeze(at, 1), at2])))
    return as_laid_out(cast(out, kind), input)


_resampled = operator(_resample, name="_resampled", fused=True, vjp=_resampled_vjp)


def _computed_in(kind: dtype) -> dtype:
    return float32 if kind.is_floating_point and kind.itemsize < 4 else kind


def _weighted_sum(x: Tensor, axis: _Axis, read: Callable[[Tensor], Tensor]) -> Tensor:
    """What `read` gives for the positions of each tap, weighted and added up."""
    total: Any = None
    for k in range(axis.taps):
        part = read(prims.select(axis.source, 0, k))
        if axis.weight is not None:
            part = _share(part, prims.select(axis.weight, 0, k).reshape([-1 if d == axis.dim else 1 for d in range(x.ndim)]))
        total = part if total is None else total + part
    return total


def _share(part: Tensor, weight: Tensor) -> Tensor:
    """`part * weight`; 0 where the weight is, for then nobody reads the part, which may be infinite."""
    return where(weight != 0, part * weight, 0)


def _looped(x: Tensor, axis: _Axis) -> Tensor:
    """The same for many taps."""
    parts = prims.index_select(x, axis.dim, axis.source)     # the taps are a dimension before their own
    if axis.weight is not None:
        parts = _share(parts, axis.weight.reshape([1] * axis.dim + list(axis.weight.shape) + [1] * (x.ndim - axis.dim - 1)))
    return parts.sum(axis.dim)


@functools.lru_cache(maxsize=64)
def _antialias_matrix(mode: str, n: int, out: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """(out, n) weights of a triangle or cubic filter widened to the step, so that shrinking does not alias."""
    step = (n - 1) / (out - 1) if align_corners and out > 1 else n / out if scale is None else 1.0 / scale
    widen = max(step, 1.0)
    centre = step * (np.arange(out, dtype=np.float64) + 0.5)
    support = (1.0 if mode == "linear" else 2.0) * widen
    low = np.maximum(np.floor(centre - support + 0.5), 0)
    high = np.minimum(np.floor(centre + support + 0.5), n)
    j = np.arange(n, dtype=np.float64)
    t = (j[None] - centre[:, None] + 0.5) / widen
    weights = np.maximum(1 - np.abs(t), 0) if mode == "linear" else _cubic(t, -0.5)
    weights = np.where((j[None] >= low[:, None]) & (j[None] < high[:, None]), weights, 0)
    return weights / weights.sum(1, keepdims=True)


def _antialiased(input: Tensor, dim: int, matrix: np.ndarray) -> Tensor:
    weights = constant_on(from_array(matrix.copy()), input.device).to(input.dtype)
    return input.movedim(dim, -1).matmul(weights.t()).movedim(-1, dim)


_LINEAR_RANK = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}


def _output_sizes(input: Tensor, size: Any, scale_factor: Any, recompute: bool | None) -> tuple[tuple, tuple]:
    """Output sizes, and the scale to use per dimension (None: the ratio of the sizes)."""
    spatial = max(input.ndim - 2, 0)
    if (size is None) == (scale_factor is None):
        raise ValueError("either size or scale_factor should be defined" if size is None else
                         "only one of size or scale_factor should be defined")
    if size is not None and recompute is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if size is not None:
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * spatial
        if isinstance(size, bool):
            raise TypeError("interpolate(): argument 'size' (position 2) must be int or a tuple of ints, not bool")
        if len(sizes) != spatial:
            raise ValueError("Input and output must have the same number of spatial dimensions, but got input with "
                             f"spatial dimensions of {list(input.shape[2:])} and output size of {size}. Please provide "
                             "input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format.")
        sizes = tuple([n if is_symbolic(n) else as_int(n) for n in sizes])
        if any(not is_symbolic(n) and n >= 1 << 63 for n in sizes):
            raise TypeError(f"interpolate(): argument 'size' (position 2) must hold numbers of at most 64 bits, got {size}")
        return sizes, (None,) * spatial
    scales = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * spatial
    if len(scales) != spatial:
        raise ValueError("Input and scale_factor must have the same number of spatial dimensions, but got input with "
                         f"spatial dimensions of {list(input.shape[2:])} and scale_factor of shape {scale_factor}.")
    sizes = tuple(math.floor(n * s) for n, s in zip(input.shape[2:], scales))
    return sizes, (None,) * spatial if recompute else tuple(float(s) for s in scales)


_AREA: tuple[Callable, ...] = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)


def _interpolate_node(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *more: Any, **named: Any) -> str:
    """Of an area the pool has its name already."""
    smooth = "_aa" if named.get("antialias", len(more) > 2 and more[2]) else ""
    return "" if mode == "area" else f"upsample_{mode.replace('-', '_')}{input.ndim - 2}d{smooth}"


@operator(node=_interpolate_node)
def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool | None = False) -> Tensor:
    """Resize the spatial dimensions of (n, c, *sizes) to `size` or by `scale_factor`.

    mode: nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area; `antialias` (bilinear, bicubic) widens the
    filter when shrinking.
    """
    if not isinstance(mode, str):
        raise NotImplementedError(f"interpolate(): mode must be one of the names of modes, not {mode!r}")
    if align_corners is not None and mode in ("nearest", "area", "nearest-exact"):
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    if not isinstance(align_corners, (bool, NoneType)):
        raise TypeError(f"interpolate(): argument 'align_corners' must be bool, not {type(align_corners).__name__}")
    sizes, scales = _output_sizes(input, size, scale_factor, recompute_scale_factor)
    if input.ndim not in (3, 4, 5) or _LINEAR_RANK.get(mode, input.ndim) != input.ndim:
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the modes: nearest | "
                                  f"linear (3D) | bilinear (4D) | bicubic (4D) | trilinear (5D) | area | nearest-exact (got {mode})")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if mode == "area":
        return _AREA[input.ndim - 3](input, sizes)
    if any(n < 1 for n in (*input.shape[2:], *sizes)):
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} output {list(sizes)}")
    if mode.startswith("nearest"):
        if input.dtype.category != FLOAT and input.dtype is not uint8:
            raise NotImplementedError(f'"upsample_nearest" not implemented for {scalar_type(input.dtype)!r}; convert it with .float() first')
    else:
        if mode not in _LINEAR_RANK:
            raise NotImplementedError(f"interpolate() has no mode {mode!r}; it has nearest, nearest-exact, area, {', '.join(_LINEAR_RANK)}")
        if input.dtype is uint8 and input.ndim == 4:     # images, whose pixels are rounded
            out = interpolate(input.float(), size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
            return cast(out.round().clamp(0, 255), uint8)
        if not input.dtype.is_floating_point:
            raise NotImplementedError(f"interpolate(mode={mode!r}) weights elements, which {input.dtype} cannot: convert the input "
                                      "to a floating dtype first, or use mode='nearest'")
        mode = "cubic" if mode == "bicubic" else "linear"
    axes, out = [], input
    for d, (n, s) in enumerate(zip(sizes, scales), 2):
        if antialias:
            out = _antialiased(out, d, _antialias_matrix(mode, int(input.shape[d]), int(n), s, bool(align_corners)))
        elif s is not None or input.shape[d] != n:
            axes.append(_axis(d, input, mode, n, s, bool(align_corners)))
    out = as_laid_out(out, input) if antialias or not axes else _remade(out, axes, input.dtype)
    return apart(out, input)


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None) -> Tensor:
    """The old name of `interpolate`."""
    warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


# -- shuffles ---------------------------------------------------------------------------------------------------
def _merged(parts: Tensor, shape: tuple, like: Tensor, last: tuple) -> Tensor:
    """`parts` as `shape`, in memory as `like` is: `last` is the order of the parts that puts channels last."""
    if channels_last_like(like, shape) is None:
        return in_rows(apart(parts.reshape(shape), like))
    return apart(parts.permute(last).reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1), like)


@operator
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, c r^2, h, w) -> (*, c, h r, w r)."""
    r, c = upscale_factor, input.shape[-3]
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
    return _pixels_spread(input, r)


@operator(name="_pixels_spread", aten=InAten(node="pixel_shuffle"), vjp=lambda g, r: (_pixels_gathered(g, r),))
def _pixels_spread(input: Tensor, r: int) -> Tensor:
    *lead, c, h, w = input.shape
    parts = input.reshape(math.prod(lead), c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
    return _merged(parts, (*lead, c // (r * r), h * r, w * r), input, (0, 2, 3, 4, 5, 1))


@operator
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, c, h r, w r) -> (*, c r^2, h, w)."""
    if input.ndim < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)")
    if downscale_factor <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {downscale_factor}")
    r, (h, w) = downscale_factor, tuple(input.shape[-2:])
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but got {h}x{w} and {r}")
    return _pixels_gathered(input, r)


@operator(name="_pixels_gathered", aten=InAten(node="pixel_unshuffle"), vjp=lambda g, r: (_pixels_spread(g, r),))
def _pixels_gathered(input: Tensor, r: int) -> Tensor:
    *lead, c, h, w = input.shape
    parts = input.reshape(math.prod(lead), c, h // r, r, w // r, r).permute(0, 1, 3, 5, 2, 4)
    return _merged(parts, (*lead, c * r * r, h // r, w // r), input, (0, 4, 5, 1, 2, 3))


@operator(node=True)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(n, g k, *) -> channels read across the groups: (n, k g, *)."""
    shape = tuple(input.shape)
    if shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups.")
    parts = input.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    return _merged(parts.transpose(1, 2), shape, input, (0, *range(3, parts.ndim), 1, 2))


def _warn_of_default(align_corners: bool | None) -> None:
    if align_corners is None:
        warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
                      "align_corners=True if the old behavior is desired.")



# -- sampling ------------------------------------------------------------------------------------------------------
@operator
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Sampling positions for grid_sample under the affine maps `theta`.

    `theta` is (n, 2, 3) for a `size` of (n, c, h, w), (n, 3, 4) for (n, c, d, h, w).
    """
    _warn_of_default(align_corners)
    spatial = tuple(size)[2:]
    rank = len(spatial)
    if rank not in (2, 3):
        raise NotImplementedError(f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms. Got size {tuple(size)}.")
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (rank, rank + 1):
        raise ValueError(f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size {tuple(size)}. "
                         f"Got {theta.shape}.")
    if any(not is_symbolic(n) and n <= 0 for n in size):
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    if align_corners and any(not is_symbolic(n) and n == 1 for n in spatial):
        warn("affine_grid of a single position with align_corners=True: since 1.3.0 it is the middle, not the first, of its dimension.")
    axes = []
    for d, n in enumerate(spatial):
        line = prims.iota(n, 1 - n, 2, float64, theta.device) / (sym_max(n - 1, 1) if align_corners else n)
        axes.append(line.reshape([-1 if k == d else 1 for k in range(rank)]).expand(spatial))
    ones = prims.full(spatial, 1.0, float64, theta.device)
    points = cast(stack([*reversed(axes), ones], -1).reshape(-1, rank + 1), theta.dtype)
    return points.matmul(theta.transpose(1, 2)).reshape(size[0], *spatial, rank)


def _reflected(x: Tensor, n: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """Positions reflected into an image of `n` elements, and which way they go there as x goes up (1 or -1)."""
    low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
    span = high - low
    if (n - 1 if align_corners else n) <= 0:
        return x * 0, x * 0
    t = (x - low).abs().remainder(2 * span)
    return t.minimum(2 * span - t) + low, where((x < low) == (t >= span), 1.0, -1.0)


def _inside(x: Tensor, n: int, padding_mode: str, align_corners: bool) -> tuple[Tensor, Any]:
    """Positions brought into an image of `n` elements, and how fast they move there with x."""
    if padding_mode == "zeros":
        return x, 1.0
    at, speed = _reflected(x, n, align_corners) if padding_mode == "reflection" else (x, 1.0)
    return at.clamp(0, n - 1), where((at > 0) & (at < n - 1), speed, 0.0)


def _linear_weights(t: Tensor) -> tuple[list, list]:
    return [1 - t, t], [-1.0, 1.0]


def _cubic_weights(t: Tensor) -> tuple[list, list]:
    """Keys' kernel with a = -0.75 at distances t + 1, t, 1 - t and 2 - t, and how it changes with t."""
    a = -0.75

    def near(x: Tensor) -> tuple[Tensor, Tensor]:
        return ((a + 2) * x - (a + 3)) * x * x + 1, (3 * (a + 2) * x - 2 * (a + 3)) * x

    def far(x: Tensor) -> tuple[Tensor, Tensor]:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, (3 * a * x - 10 * a) * x + 8 * a

    weights, slopes = zip(far(t + 1), near(t), near(1 - t), far(2 - t))
    return list(weights), [slopes[0], slopes[1], -slopes[2], -slopes[3]]


_OFFSETS = {"nearest": (0,), "bilinear": (0, 1), "bicubic": (-1, 0, 1, 2)}     # of a point's taps along a dimension
_WEIGHTS: dict[str, Callable[[Tensor], tuple[list, list]]] = {
    "nearest": lambda t: ([prims.full((), 1.0, t.dtype, t.device)], [0.0]), "bilinear": _linear_weights, "bicubic": _cubic_weights}


class _Reach(NamedTuple):
    """What the taps of points read along a dimension; all (n, taps, points) or broadcast to it."""

    position: Tensor
    exists: Tensor      # does it lie in the image?
    weight: Tensor
    slope: Tensor       # of the weight, by the grid


def _reaches(grid: Tensor, sizes: Sequence, mode: str, padding_mode: str, corners: bool) -> Iterator[_Reach]:
    """By dimension of the image, what the taps of the points `grid` (n, points, rank) read."""
    offsets, rank = _OFFSETS[mode], len(sizes)
    number = prims.iota(len(offsets), 0, 1, int64, grid.device)
    for d, n in enumerate(sizes):
        x = cast(grid.select(-1, rank - 1 - d), _computed_in(grid.dtype)).unsqueeze(1)
        x = prims.where(prims.eq(x, x), x, -1.0)
        at, speed = (x + 1) * ((n - 1) / 2) if corners else ((x + 1) * n - 1) / 2, 1.0
        if mode != "bicubic":
            at, speed = _inside(at, n, padding_mode, corners)
        first = (at.round() if mode == "nearest" else at.floor()).detach()
        mine = number.reshape([-1 if axis == d else 1 for axis in range(rank)]).expand([len(offsets)] * rank).reshape(-1, 1)
        position = first + (mine + offsets[0])
        if mode == "bicubic":
            position, _ = _inside(position, n, padding_mode, corners)
        weights, slopes = _WEIGHTS[mode](at - first)
        yield _Reach(position, (position >= 0) & (position <= n - 1), _chosen(mine, weights),
                     _chosen(mine, slopes) * speed * ((n - 1 if corners else n) / 2))


def _chosen(number: Tensor, values: Sequence[Any]) -> Any:
    """`values[number]`, element by element."""
    return functools.reduce(lambda out, k: where(number == k, values[k], out), range(1, len(values)), values[0])


def _sample_taps_vjp(gs: tuple, grid: Tensor, input: Tensor, mode: str, padding_mode: str, corners: bool) -> tuple:
    return None if gs[1] is None else _points_gradient(gs[1], grid, input, mode, padding_mode, corners), None


@operator(name="_sample_taps", fused=True, vjp=_sample_taps_vjp)
def _sample_taps(grid: Tensor, input: Tensor, mode: str, padding_mode: str, corners: bool) -> tuple[Tensor, Tensor]:
    """For each point of `grid` (n, points, rank) the positions in the flattened image that its taps read (i64), and their
    weights: (n, taps, points) both."""
    flat: Any = 0
    weight: Any = 1.0
    for n, reach in zip(input.shape[2:], _reaches(grid, input.shape[2:], mode, padding_mode, corners)):
        flat = flat * n + where(reach.exists, reach.position, 0).to(int64)
        weight = where(reach.exists, weight * reach.weight, 0)
    return flat, weight


@operator(name="_points_gradient", fused=True)
def _points_gradient(g_: Tensor, grid: Tensor, input: Tensor, mode: str, padding_mode: str, corners: bool) -> Tensor:
    """The gradient of `_sample_taps` by `grid`, from that by its weights."""
    if mode == "nearest":       # which are ones
        return grid.new_zeros(tuple(grid.shape))
    reaches = list(_reaches(grid, input.shape[2:], mode, padding_mode, corners))
    by_dimension = []
    for mine in reversed(reaches):
        product: Any = g_ * mine.slope
        for reach in reaches:
            product = where(reach.exists, product if reach is mine else product * reach.weight, 0)
        by_dimension.append(product.sum(1).unsqueeze(-1))
    return cast(prims.cat(by_dimension, 2), grid.dtype)


def _rows_read_vjp(g: Tensor, rows: Tensor, index: Tensor, weight: Tensor, needs: tuple) -> tuple:
    g = g.contiguous()
    return (_rows_added(g, rows, index, weight) if needs[0] else None, None,
            _row_products(g, rows, index) if needs[2] else None)


def _places(index: Tensor) -> list[Tensor]:
    """Advanced indices of rows (n, all, channels): those at `index` (n, ...) of each image."""
    images = prims.iota(index.shape[0], 0, 1, int64, index.device)
    return [images.reshape(-1, *[1] * (index.ndim - 1)), index]


@operator(name="_rows_read", fused=True, vjp=_rows_read_vjp)
def _rows_read(rows: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums of `rows` (n, all, channels): of those at `index` (n, taps, points); (n, points, channels)."""
    total: Any = None
    for k in range(int(index.shape[1])):
        at = index.select(1, k).unsqueeze(2).expand(index.shape[0], index.shape[2], rows.shape[2])
        part = _share(prims.gather(rows, 1, at), weight.select(1, k).unsqueeze(2))
        total = part if total is None else total + part
    return cast(total, rows.dtype)


@operator(name="_rows_added", fused=True)
def _rows_added(g_: Tensor, rows: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """The transpose of `_rows_read` in `rows`: each point's gradient (n, points, channels) is added to the rows that it read."""
    parts = _share(g_.unsqueeze(1), weight.unsqueeze(3))
    zeros = prims.full(tuple(rows.shape), 0.0, parts.dtype, g_.device)
    return cast(prims.index_put(zeros, _places(index), parts, True), rows.dtype)


@operator(name="_row_products", fused=True)
def _row_products(g_: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """The gradient of `_rows_read` by its weights: products of a point's gradient with the rows that it read."""
    kind = _computed_in(rows.dtype)
    return (cast(prims.index(rows, _places(index)), kind) * cast(g_, kind).unsqueeze(1)).sum(3)


@operator(autocast={"cpu": "wide", "cuda": "promote"}, node=lambda input, *_, **__: f"grid_sampler_{input.ndim - 2}d")
def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = None) -> Tensor:
    """The input (n, c, *sizes) read at the positions `grid` (n, *out sizes, rank), given in [-1, 1] from the last dimension on; NaN
    stands for -1."""
    _warn_of_default(align_corners)
    if not isinstance(align_corners, (bool, NoneType)):
        raise TypeError(f"grid_sample(): argument 'align_corners' must be bool, not {type(align_corners).__name__}")
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != rank or grid.shape[0] != input.shape[0]:
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, batch size and a last "
                           f"dimension of {rank}, but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
                         f"'{padding_mode}'")
    if mode == "bicubic" and rank == 3:
        raise NotImplementedError("grid_sample(mode='bicubic') takes 4-D input only; use 'bilinear'")
    check_float(input, "grid_sampler_2d_cpu_kernel_impl" if rank == 2 else "grid_sampler3d_cpu")
    of_one_dtype(input, grid)
    index, weight = _sample_taps(grid.flatten(1, -2), input, mode, padding_mode, bool(align_corners))
    rows = input.flatten(2).transpose(1, 2).contiguous()
    out = _rows_read(rows, index, weight).transpose(1, 2).contiguous()
    return out.reshape(input.shape[0], input.shape[1], *grid.shape[1:-1])
