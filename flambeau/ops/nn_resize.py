"""Padding in all modes, resizing images, pixel shuffles, and sampling at given positions."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import bool_, int64
from ..core.tensor import Tensor, from_array
from . import prims
from .nn_windows import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .promotion import cast
from .registry import operator


# -- padding -----------------------------------------------------------------------------------------------
def _constant(input: Tensor, low: tuple, high: tuple, value: Any) -> Tensor:
    gaps = (0,) * input.ndim
    out = prims.pad_zeros(input, low, high, gaps)
    if not value:
        return out
    inside = prims.pad_zeros(prims.full(tuple(input.shape), True, bool_, input.device), low, high, gaps)
    return prims.where(inside, out, cast(value, input.dtype))


def _source(mode: str, n: Any, low: int, high: int, like: Tensor) -> Tensor:
    """For each position of the padded dimension, the position that it repeats (i64)."""
    i = prims.iota(n + low + high, -low, 1, int64, like.device)
    if mode == "replicate":
        return i.clamp(0, n - 1)
    if mode == "circular":
        return i.remainder(n)
    if n == 1:
        return i.clamp(0, 0)
    distance = i.remainder(2 * (n - 1))
    return distance.minimum(2 * (n - 1) - distance)


def _check_extent(mode: str, n: Any, low: int, high: int, shape: Sequence) -> None:
    limit = {"reflect": n - 1, "circular": n}.get(mode)
    if limit is not None and max(low, high) > limit:
        raise RuntimeError("Argument #4: Padding size should be less than the corresponding input dimension, but got: "
                           f"padding ({low}, {high}) of mode {mode!r} at a dimension of size {n} of input {list(shape)}")
    if mode == "replicate" and n == 0:
        raise RuntimeError(f"replicate padding needs a non-empty dimension, got input {list(shape)}")


@operator
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`pad` gives (before, after) of the last dimension, then of the one before it, and so on; negative numbers crop.

    mode: 'constant' (with `value`), 'reflect', 'replicate' or 'circular'.
    """
    amounts = tuple(pad)
    if len(amounts) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {list(amounts)}")
    if len(amounts) // 2 > input.ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got padding length "
                           f"{len(amounts)} and input of dimension {input.ndim}")
    low, high = [0] * input.ndim, [0] * input.ndim
    for i in range(len(amounts) // 2):
        low[-1 - i], high[-1 - i] = amounts[2 * i], amounts[2 * i + 1]
    if mode == "constant":
        return _constant(input, tuple(low), tuple(high), value or 0)
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    out = input
    for d in range(input.ndim):
        if low[d] or high[d]:
            _check_extent(mode, input.shape[d], low[d], high[d], input.shape)
            out = prims.index_select(out, d, _source(mode, input.shape[d], low[d], high[d], input))
    return out


# -- interpolation --------------------------------------------------------------------------------------------
def _position(out: int, n: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """Where in the input the centres of the output's elements lie (f64)."""
    i = np.arange(out, dtype=np.float64)
    if align_corners:
        return i * ((n - 1) / (out - 1)) if out > 1 else i * 0
    step = n / out if scale is None else 1.0 / scale
    return (i + 0.5) * step - 0.5


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel (1981)."""
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


@functools.lru_cache(maxsize=256)
def _taps(mode: str, n: int, out: int, scale: float | None, align_corners: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """(source index, weight) of each tap, per output element."""
    x = _position(out, n, scale, align_corners)
    if mode == "linear":
        x = np.maximum(x, 0)
        first = np.minimum(np.floor(x).astype(np.int64), n - 1)
        t = x - first
        return [(first, 1 - t), (np.minimum(first + 1, n - 1), t)]
    first = np.floor(x).astype(np.int64)
    return [(np.clip(first + k, 0, n - 1), _cubic(x - first - k, -0.75)) for k in (-1, 0, 1, 2)]


def _along(input: Tensor, dim: int, taps: list, out: int) -> Tensor:
    """The weighted sum of the taps' elements along one dimension."""
    total: Any = None
    for index, weight in taps:
        part = prims.index_select(input, dim, from_array(index.copy(), int64, input.device))
        shape = [1] * input.ndim
        shape[dim] = out
        part = part * from_array(weight.astype(np.float64), None, input.device).to(part.dtype).reshape(shape)
        total = part if total is None else total + part
    return total


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
    weights = from_array(matrix.copy(), None, input.device).to(input.dtype)
    return input.movedim(dim, -1).matmul(weights.t()).movedim(-1, dim)


def _nearest(input: Tensor, dim: int, out: int, scale: float | None, exact: bool) -> Tensor:
    n = input.shape[dim]
    step = np.float32(n / out if scale is None else 1.0 / scale)
    at = (np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step
    index = np.minimum(np.floor(at).astype(np.int64), n - 1)
    return prims.index_select(input, dim, from_array(index, int64, input.device))


_LINEAR_RANK = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}


def _output_sizes(input: Tensor, size: Any, scale_factor: Any, recompute: bool | None) -> tuple[tuple, tuple]:
    """Output sizes, and the scale to use per dimension (None: the ratio of the sizes)."""
    spatial = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("either size or scale_factor should be defined" if size is None else
                         "only one of size or scale_factor should be defined")
    if size is not None:
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * spatial
        if len(sizes) != spatial:
            raise ValueError("Input and output must have the same number of spatial dimensions, but got input with "
                             f"spatial dimensions of {list(input.shape[2:])} and output size of {size}. Please provide "
                             "input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format.")
        return tuple(int(n) for n in sizes), (None,) * spatial
    scales = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * spatial
    if len(scales) != spatial:
        raise ValueError("Input and scale_factor must have the same number of spatial dimensions, but got input with "
                         f"spatial dimensions of {list(input.shape[2:])} and scale_factor of shape {scale_factor}.")
    sizes = tuple(math.floor(float(n) * s) for n, s in zip(input.shape[2:], scales))
    return sizes, (None,) * spatial if recompute else tuple(float(s) for s in scales)


_AREA: tuple[Callable, ...] = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)


@operator
def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor:
    """Resize the spatial dimensions of (n, c, *sizes) to `size` or by `scale_factor`.

    mode: nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area; `antialias` (bilinear, bicubic) widens the
    filter when shrinking.
    """
    if align_corners is not None and mode in ("nearest", "area", "nearest-exact"):
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | "
                         "bicubic | trilinear")
    sizes, scales = _output_sizes(input, size, scale_factor, recompute_scale_factor)
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    out = input
    if mode in ("nearest", "nearest-exact"):
        for d, (n, s) in enumerate(zip(sizes, scales)):
            out = _nearest(out, 2 + d, n, s, mode == "nearest-exact") if n != out.shape[2 + d] or s is not None else out
        return out if out is not input else input.clone()
    if mode == "area":
        return _AREA[input.ndim - 3](input, sizes)
    if _LINEAR_RANK.get(mode) != input.ndim:
        raise NotImplementedError("Input Error: Only 3D, 4D and 5D input Tensors supported (got "
                                  f"{input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | "
                                  f"nearest-exact (got {mode})")
    kind = "cubic" if mode == "bicubic" else "linear"
    for d, (n, s) in enumerate(zip(sizes, scales)):
        have = int(out.shape[2 + d])
        if antialias:
            out = _antialiased(out, 2 + d, _antialias_matrix(kind, have, n, s, bool(align_corners)))
        elif have != n or s is not None:
            out = _along(out, 2 + d, _taps(kind, have, n, s, bool(align_corners)), n)
    return out if out is not input else input.clone()


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: bool | None = None) -> Tensor:
    """The old name of `interpolate`."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


# -- shuffles ---------------------------------------------------------------------------------------------------
@operator
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, c r^2, h, w) -> (*, c, h r, w r)."""
    r, (c, h, w) = upscale_factor, tuple(input.shape[-3:])
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
    lead = tuple(input.shape[:-3])
    parts = input.reshape(-1, c // (r * r), r, r, h, w)
    return parts.permute(0, 1, 4, 2, 5, 3).reshape(*lead, c // (r * r), h * r, w * r)


@operator
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, c, h r, w r) -> (*, c r^2, h, w)."""
    r, (c, h, w) = downscale_factor, tuple(input.shape[-3:])
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but got {h}x{w} and {r}")
    lead = tuple(input.shape[:-3])
    parts = input.reshape(-1, c, h // r, r, w // r, r)
    return parts.permute(0, 1, 3, 5, 2, 4).reshape(*lead, c * r * r, h // r, w // r)


@operator
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(n, g k, *) -> channels read across the groups: (n, k g, *)."""
    shape = tuple(input.shape)
    if shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups.")
    parts = input.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    return parts.transpose(1, 2).reshape(shape)


# -- sampling ------------------------------------------------------------------------------------------------------
@operator
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Sampling positions for grid_sample under the affine maps `theta`.

    `theta` is (n, 2, 3) for a `size` of (n, c, h, w), (n, 3, 4) for (n, c, d, h, w).
    """
    spatial = tuple(size)[2:]
    rank = len(spatial)
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (rank, rank + 1):
        raise ValueError(f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size {tuple(size)}. "
                         f"Got {theta.shape}.")
    axes = []
    for d, n in enumerate(spatial):
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        line = line if align_corners else line * (n - 1) / n
        axes.append(np.broadcast_to(line.reshape([-1 if k == d else 1 for k in range(rank)]), spatial))
    base = np.stack([*reversed(axes), np.ones(spatial)], -1).reshape(-1, rank + 1)
    points = from_array(base.copy(), None, theta.device).to(theta.dtype)
    return points.matmul(theta.transpose(1, 2)).reshape(size[0], *spatial, rank)


def _unnormalise(x: Tensor, n: int, align_corners: bool) -> Tensor:
    return (x + 1) * ((n - 1) / 2) if align_corners else ((x + 1) * n - 1) / 2


def _reflected(x: Tensor, n: int, align_corners: bool) -> Tensor:
    low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
    span = high - low
    if span <= 0:
        return x * 0
    t = (x - low).abs().remainder(2 * span)
    return t.minimum(2 * span - t) + low


def _inside(x: Tensor, n: int, padding_mode: str, align_corners: bool) -> Tensor:
    if padding_mode == "border":
        return x.clamp(0, n - 1)
    if padding_mode == "reflection":
        return _reflected(x, n, align_corners).clamp(0, n - 1)
    return x


def _fetch(flat: Tensor, positions: list[Tensor], sizes: Sequence[int]) -> Tensor:
    """(n, c, points) values at integer positions; 0 outside."""
    valid: Any = None
    linear: Any = 0
    for p, n in zip(positions, sizes):
        ok = (p >= 0) & (p <= n - 1)
        valid = ok if valid is None else valid & ok
        linear = linear * n + p.clamp(0, n - 1).to(int64)
    batch, channels, points = flat.shape[0], flat.shape[1], linear.reshape(linear.shape[0], -1).shape[1]
    index = linear.reshape(batch, 1, points).expand(batch, channels, points)
    values = flat.gather(2, index)
    return values * valid.reshape(batch, 1, points).to(values.dtype)


@operator
def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = None) -> Tensor:
    """The input (n, c, *sizes) read at the positions `grid` (n, *out sizes, rank), given in [-1, 1] from the last dimension on."""
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != rank or grid.shape[0] != input.shape[0]:
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, batch size and a last "
                           f"dimension of {rank}, but got input with sizes {list(input.shape)} and grid with sizes "
                           f"{list(grid.shape)}")
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
                         f"'{padding_mode}'")
    if mode == "bicubic" and rank == 3:
        raise NotImplementedError("grid_sample(mode='bicubic') takes 4-D input only; use 'bilinear'")
    sizes, corners = tuple(input.shape[2:]), bool(align_corners)
    at = [_unnormalise(grid.select(-1, rank - 1 - d), n, corners) for d, n in enumerate(sizes)]
    if mode != "bicubic":
        at = [_inside(x, n, padding_mode, corners) for x, n in zip(at, sizes)]
    flat = input.reshape(input.shape[0], input.shape[1], -1)
    out_shape = (input.shape[0], input.shape[1], *grid.shape[1:-1])
    if mode == "nearest":
        return _fetch(flat, [x.round() for x in at], sizes).reshape(out_shape)
    if mode == "bicubic":
        return _bicubic_sample(flat, at, sizes, padding_mode, corners).reshape(out_shape)
    return _linear_sample(flat, at, sizes).reshape(out_shape)


def _linear_sample(flat: Tensor, at: list[Tensor], sizes: Sequence[int]) -> Tensor:
    low = [x.floor().detach() for x in at]
    total: Any = None
    for corner in range(1 << len(at)):
        positions, weight = [], None
        for d, (x, lo) in enumerate(zip(at, low)):
            up = corner >> d & 1
            positions.append(lo + up)
            w = (x - lo) if up else (1 - (x - lo))
            weight = w if weight is None else weight * w
        part = _fetch(flat, positions, sizes) * weight.reshape(weight.shape[0], 1, -1)      # type: ignore[union-attr]
        total = part if total is None else total + part
    return total


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Keys' kernel with a = -0.75 at distances t + 1, t, 1 - t and 2 - t."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bicubic_sample(flat: Tensor, at: list[Tensor], sizes: Sequence[int], padding_mode: str, corners: bool) -> Tensor:
    low = [x.floor().detach() for x in at]
    weights = [_cubic_weights(x - lo) for x, lo in zip(at, low)]
    total: Any = None
    for i in range(4):
        for j in range(4):
            positions = [_inside(lo + (k - 1), n, padding_mode, corners) for lo, k, n in zip(low, (i, j), sizes)]
            weight = weights[0][i] * weights[1][j]
            part = _fetch(flat, positions, sizes) * weight.reshape(weight.shape[0], 1, -1)
            total = part if total is None else total + part
    return total


