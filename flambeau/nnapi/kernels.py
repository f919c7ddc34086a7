"""What each of NNAPI's operations means, by its documentation, on arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tables import enters
from ..core.tensor import Tensor
from ..nn import functional as F
from ..ops.creation import as_tensor
from .codes import Fuse, NnapiError, Operation
from .model import ARRAYS, Operand

Kernel = Callable[..., Any]
KERNELS: dict[Operation, Kernel] = {}


_kernel = functools.partial(enters, KERNELS)


def _t(x: np.ndarray) -> Tensor:
    return as_tensor(np.array(x))


def _n(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


BOUNDS: dict[Fuse, tuple[float | None, float | None]] = {
    Fuse.NONE: (None, None), Fuse.RELU: (0, None), Fuse.RELU1: (-1, 1), Fuse.RELU6: (0, 6)}
"""What fused activations clip to."""


def _fused(x: np.ndarray, fuse: int) -> np.ndarray:
    low, high = BOUNDS[Fuse(fuse)]
    return x if low is None else np.clip(x, low, high)


# -- elementwise -----------------------------------------------------------------------------------------------------------------------
def _binary(fn: Callable) -> Kernel:
    return lambda x, y, fuse=0: _fused(fn(x, y).astype(np.result_type(x)), fuse)


def _relation(fn: Callable) -> Kernel:
    return lambda x, y: fn(x, y).astype(np.uint8)


_fn: Callable[..., Any]
for _code, _fn in ((Operation.ADD, np.add), (Operation.SUB, np.subtract), (Operation.MUL, np.multiply), (Operation.DIV, np.divide),
                   (Operation.MAXIMUM, np.maximum), (Operation.MINIMUM, np.minimum), (Operation.POW, np.power)):
    KERNELS[_code] = _binary(_fn)
for _code, _fn in ((Operation.EQUAL, np.equal), (Operation.NOT_EQUAL, np.not_equal), (Operation.LESS, np.less),
                   (Operation.LESS_EQUAL, np.less_equal), (Operation.GREATER, np.greater), (Operation.GREATER_EQUAL, np.greater_equal),
                   (Operation.LOGICAL_AND, np.logical_and), (Operation.LOGICAL_OR, np.logical_or)):
    KERNELS[_code] = _relation(_fn)
KERNELS.update((
    (Operation.ABS, np.abs), (Operation.NEG, np.negative), (Operation.EXP, np.exp), (Operation.LOG, np.log),
    (Operation.SQRT, np.sqrt), (Operation.SIN, np.sin), (Operation.FLOOR, np.floor), (Operation.TANH, np.tanh),
    (Operation.RSQRT, lambda x: 1 / np.sqrt(x)), (Operation.LOGISTIC, lambda x: 1 / (1 + np.exp(-x))),
    (Operation.RELU, lambda x: np.maximum(x, 0)), (Operation.RELU1, lambda x: np.clip(x, -1, 1)),
    (Operation.RELU6, lambda x: np.clip(x, 0, 6)), (Operation.LOGICAL_NOT, lambda x: (x == 0).astype(np.uint8)),
    (Operation.HARD_SWISH, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    (Operation.ELU, lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))),
    (Operation.PRELU, lambda x, alpha: np.where(x > 0, x, alpha * x)),
    (Operation.SELECT, lambda c, x, y: np.where(c, x, y)), (Operation.CAST, lambda x, *, kind: x.astype(ARRAYS[kind])),
    (Operation.DEQUANTIZE, lambda x, *, of: (x.astype(np.float32) - of.zero_point) * np.float32(of.scale))))


@_kernel(Operation.SOFTMAX)
def _softmax(x: np.ndarray, beta: float, axis: int = -1) -> np.ndarray:
    e = np.exp(beta * (x - x.max(axis, keepdims=True)))
    return e / e.sum(axis, keepdims=True)


@_kernel(Operation.LOG_SOFTMAX)
def _log_softmax(x: np.ndarray, beta: float, axis: int = -1) -> np.ndarray:
    z = beta * (x - x.max(axis, keepdims=True))
    return z - np.log(np.exp(z).sum(axis, keepdims=True))


@_kernel(Operation.QUANTIZE)
def _quantize(x: np.ndarray, *, to: Operand) -> np.ndarray:
    limits = np.iinfo(ARRAYS[to.type])
    return np.clip(np.rint(x / np.float32(to.scale)) + to.zero_point, limits.min, limits.max)


# -- convolutions, pools, products ------------------------------------------------------------------------------------------------------
def _nchw(x: np.ndarray, nchw: int) -> np.ndarray:
    return x if nchw else x.transpose(0, 3, 1, 2)


def _back(x: np.ndarray, nchw: int) -> np.ndarray:
    return x if nchw else x.transpose(0, 2, 3, 1)


def _padded(x: np.ndarray, pads: Sequence[int], value: float = 0.0) -> np.ndarray:
    left, right, top, bottom = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def _convolved(x: Any, w: Any, b: Any, pads: Sequence[int], sx: int, sy: int, fuse: int, nchw: int = 0, dx: int = 1, dy: int = 1, *,
               groups: int = 1) -> np.ndarray:
    made = F.conv2d(_t(_padded(_nchw(x, nchw), pads)), _t(w), _t(b), (sy, sx), 0, (dy, dx), groups)
    return _fused(_back(_n(made), nchw), fuse)


# the first four of `how` are the padding; the next two the strides
KERNELS.update((
    (Operation.CONV_2D, lambda x, w, b, *how: _convolved(x, w.transpose(0, 3, 1, 2), b, how[:4], *how[4:])),
    (Operation.DEPTHWISE_CONV_2D, lambda x, w, b, *how: _convolved(
        x, w.transpose(3, 0, 1, 2), b, how[:4], *how[4:6], *how[7:], groups=w.shape[3] // how[6])),
    (Operation.GROUPED_CONV_2D, lambda x, w, b, *how: _convolved(x, w.transpose(0, 3, 1, 2), b, how[:4], *how[4:6], *how[7:], groups=how[6])),
    (Operation.FULLY_CONNECTED, lambda x, w, b, fuse: _fused(_n(F.linear(_t(x.reshape(-1, w.shape[1])), _t(w), _t(b))), fuse))))


@_kernel(Operation.TRANSPOSE_CONV_2D)
def _transposed(x: Any, w: Any, b: Any, left: int, right: int, top: int, bottom: int, sx: int, sy: int, fuse: int, nchw: int = 0) -> Any:
    made = _n(F.conv_transpose2d(_t(_nchw(x, nchw)), _t(w.transpose(3, 0, 1, 2)), _t(b), (sy, sx)))
    h, wide = made.shape[2:]
    return _fused(_back(made[:, :, top:h - bottom, left:wide - right], nchw), fuse)


@_kernel(Operation.MAX_POOL_2D)
def _max_pool(x: Any, left: int, right: int, top: int, bottom: int, sx: int, sy: int, kx: int, ky: int, fuse: int, nchw: int = 0) -> Any:
    padded = _padded(_nchw(x, nchw), (left, right, top, bottom), -math.inf)
    return _fused(_back(_n(F.max_pool2d(_t(padded), (ky, kx), (sy, sx))), nchw), fuse)


@_kernel(Operation.AVERAGE_POOL_2D)
def _average_pool(x: Any, left: int, right: int, top: int, bottom: int, sx: int, sy: int, kx: int, ky: int, fuse: int,
                  nchw: int = 0) -> np.ndarray:
    """Means of what is no padding."""
    x = _nchw(x, nchw)
    pads = (left, right, top, bottom)
    total, count = (F.avg_pool2d(_t(_padded(a, pads)), (ky, kx), (sy, sx)) for a in (x, np.ones_like(x)))
    return _fused(_back(_n(total / count), nchw), fuse)


@_kernel(Operation.INSTANCE_NORMALIZATION)
def _instance_norm(x: np.ndarray, gamma: float, beta: float, epsilon: float, nchw: int) -> np.ndarray:
    axes = (2, 3) if nchw else (1, 2)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon) * np.float32(gamma) + np.float32(beta)


def _resized(mode: str) -> Kernel:
    def kernel(x: Any, wide: Any, high: Any, nchw: int = 0, align: int = 0, centers: int = 0) -> np.ndarray:
        x = _nchw(x, nchw)
        size = [int(n * k) if isinstance(k, float) else k for n, k in zip(x.shape[2:], (high, wide))]
        if mode == "bilinear" and not align and not centers:
            raise NnapiError("the host resizes with half_pixel_centers or align_corners")
        how = {"align_corners": bool(align)} if mode == "bilinear" else {}
        name = "nearest-exact" if mode == "nearest" and centers else mode
        return _back(_n(F.interpolate(_t(x), size=size, mode=name, **how)), nchw)

    return kernel


KERNELS[Operation.RESIZE_BILINEAR] = _resized("bilinear")
KERNELS[Operation.RESIZE_NEAREST_NEIGHBOR] = _resized("nearest")


# -- shapes and folds --------------------------------------------------------------------------------------------------------------------
def _axes(axes: Any, rank: int) -> tuple[int, ...]:
    return tuple(sorted({int(a) % rank for a in np.atleast_1d(axes)}))


def _fold(fn: Callable) -> Kernel:
    return lambda x, axes, keep: fn(x, axis=_axes(axes, x.ndim), keepdims=bool(keep))


for _code, _fn in ((Operation.MEAN, np.mean), (Operation.REDUCE_SUM, np.sum), (Operation.REDUCE_MAX, np.max),
                   (Operation.REDUCE_MIN, np.min), (Operation.REDUCE_PROD, np.prod), (Operation.REDUCE_ANY, np.any),
                   (Operation.REDUCE_ALL, np.all)):
    KERNELS[_code] = _fold(_fn)
KERNELS.update((
    (Operation.RESHAPE, lambda x, shape: x.reshape([int(n) for n in shape])),
    (Operation.TRANSPOSE, lambda x, order: x.transpose([int(d) for d in order])),
    (Operation.CONCATENATION, lambda *args: np.concatenate(args[:-1], args[-1])),
    (Operation.SQUEEZE, lambda x, dims: x.squeeze(_axes(dims, x.ndim))), (Operation.EXPAND_DIMS, np.expand_dims),
    (Operation.ARGMAX, lambda x, axis: x.argmax(axis)), (Operation.ARGMIN, lambda x, axis: x.argmin(axis)),
    (Operation.PAD, lambda x, pads: np.pad(x, pads)), (Operation.SPLIT, lambda x, axis, n: np.split(x, n, axis)),
    (Operation.PAD_V2, lambda x, pads, value: np.pad(x, pads, constant_values=value)), (Operation.TILE, np.tile),
    (Operation.GATHER, lambda x, axis, places: np.take(x, places, axis)),
    (Operation.CHANNEL_SHUFFLE, lambda x, groups, axis: _shuffled(x, groups, axis))))


def _shuffled(x: np.ndarray, groups: int, axis: int) -> np.ndarray:
    shape = list(x.shape)
    wide = shape[:axis] + [groups, shape[axis] // groups] + shape[axis + 1:]
    return x.reshape(wide).swapaxes(axis, axis + 1).reshape(shape)


@_kernel(Operation.STRIDED_SLICE)
def _strided_slice(x: np.ndarray, begin: Any, end: Any, strides: Any, begins: int, ends: int, shrinks: int) -> np.ndarray:
    """A range of each dimension; a bit of the masks says that it begins at the start, goes to the end, or is one place."""
    index: list[Any] = []
    for d, (a, b, s) in enumerate(zip(begin, end, strides)):
        bit = 1 << d
        index.append(int(a) if shrinks & bit else slice(None if begins & bit else int(a), None if ends & bit else int(b), int(s)))
    return x[tuple(index)]


@_kernel(Operation.TOPK_V2)
def _topk(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.argsort(-x, -1, kind="stable")[..., :k]
    return np.take_along_axis(x, places, -1), places


@_kernel(Operation.DEPTH_TO_SPACE)
def _depth_to_space(x: np.ndarray, block: int, nchw: int = 0) -> np.ndarray:
    """Channels as pixels, the channel of a pixel innermost."""
    n, c, h, w = _nchw(x, nchw).shape
    parts = _nchw(x, nchw).reshape(n, block, block, c // block**2, h, w)
    return _back(parts.transpose(0, 3, 4, 1, 5, 2).reshape(n, c // block**2, h * block, w * block), nchw)
