"""Convolutions over NumPy arrays, 1 to 3 spatial axes: oneDNN for f32, bf16 and f16; for other dtypes and without oneDNN,
windows gathered into matrices (im2col) and multiplied by BLAS.

x is (n, c, *sizes), w (o, c / groups, *kernel), the result (n, o, *sizes'). Results take the memory order of the input:
channels-last for a channels-last input, else contiguous. Gradients by the weight are contiguous.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ... import _C
from ...core.windows import ROLES, window_count
from .onednn import DTYPES, KINDS, available, end_padding

F32 = np.dtype(np.float32)
NARROW = frozenset(DTYPES) - {F32}  # computed in float32 where oneDNN does not take them
FORWARD, INPUT_GRAD, WEIGHT_GRAD = map(KINDS.__getitem__, ROLES)
# Which operands oneDNN may lay out as it likes (bits), reordering in each call. In channels-last order its kernels are fast and
# only the weight needs it; in plain order they are slow enough that reordering everything pays, but for 1 x 1 windows, which
# are matrix products (docs/onednn.md).
FREE_WEIGHT = {FORWARD: 0b010, INPUT_GRAD: 0b010, WEIGHT_GRAD: 0b100}
FREE_ALL = 0b111

# Axes of (n, c, ...) as (n, ..., c), and back, by the number of axes.
TO_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
FROM_LAST = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


@np.errstate(all="ignore")
def convolution(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, stride: Sequence[int], padding: Sequence[int],
                dilation: Sequence[int], groups: int) -> np.ndarray:
    """Cross-correlation of x with w, padded with zeros, plus `bias` (o,)."""
    sizes = tuple(map(window_count, x.shape[2:], w.shape[2:], stride, padding, dilation))
    out = _empty_like(x, (x.shape[0], w.shape[0], *sizes))
    if _onednn(FORWARD, (x, w, out), bias, x, w, out, stride, padding, dilation, groups):
        return out
    if x.dtype in NARROW:
        wide_bias = None if bias is None else bias.astype(F32)
        return convolution(x.astype(F32), w.astype(F32), wide_bias, stride, padding, dilation, groups).astype(x.dtype)
    windows = _windows(x, w.shape[2:], sizes, stride, padding, dilation)
    taps = tuple(range(2 + len(sizes), windows.ndim))
    for outs, ins in _groups(w.shape[0], x.shape[1], groups):
        product = np.tensordot(windows[:, ins], w[outs], axes=((1, *taps), tuple(range(1, w.ndim))))
        out[:, outs] = np.moveaxis(product, -1, 1)
    if bias is not None:
        out += bias.reshape(-1, *(1,) * len(sizes))
    return out


@np.errstate(all="ignore")
def convolution_input_grad(g: np.ndarray, w: np.ndarray, x_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                           dilation: Sequence[int], groups: int) -> np.ndarray:
    """The gradient of `convolution` by x, which has `x_shape`; g is the result's. Also the transposed convolution."""
    out = _empty_like(g, tuple(x_shape))
    if _onednn(INPUT_GRAD, (g, w, out), None, out, w, g, stride, padding, dilation, groups):
        return out
    if g.dtype in NARROW:
        return convolution_input_grad(g.astype(F32), w.astype(F32), x_shape, stride, padding, dilation, groups).astype(g.dtype)
    sizes, kernel = g.shape[2:], w.shape[2:]
    padded = np.zeros((*out.shape[:2], *(n + 2 * p for n, p in zip(out.shape[2:], padding))), g.dtype)
    for outs, ins in _groups(w.shape[0], out.shape[1], groups):
        columns = np.moveaxis(np.tensordot(w[outs], g[:, outs], axes=(0, 1)), 1 + len(kernel), 0)  # n, c, *kernel, *sizes
        for tap in np.ndindex(*kernel):
            at = tuple(slice(t * d, t * d + s * (n - 1) + 1, s) for t, d, s, n in zip(tap, dilation, stride, sizes))
            if all(sizes):
                padded[(slice(None), ins, *at)] += columns[(slice(None), slice(None), *tap)]
    inside = tuple(slice(p, p + n) for p, n in zip(padding, out.shape[2:]))
    out[...] = padded[(slice(None), slice(None), *inside)]
    return out


@np.errstate(all="ignore")
def convolution_weight_grad(g: np.ndarray, x: np.ndarray, w_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                            dilation: Sequence[int], groups: int) -> np.ndarray:
    """The gradient of `convolution` by w, which has `w_shape`; g is the result's."""
    out = np.empty(tuple(w_shape), x.dtype)
    if _onednn(WEIGHT_GRAD, (x, g, out), None, x, out, g, stride, padding, dilation, groups):
        return out
    if x.dtype in NARROW:
        return convolution_weight_grad(g.astype(F32), x.astype(F32), w_shape, stride, padding, dilation, groups).astype(x.dtype)
    sizes = g.shape[2:]
    windows = _windows(x, out.shape[2:], sizes, stride, padding, dilation)
    seen = (0, *range(2, 2 + len(sizes)))
    for outs, ins in _groups(out.shape[0], x.shape[1], groups):
        out[outs] = np.tensordot(g[:, outs], windows[:, ins], axes=(seen, seen))
    return out


def is_channels_last(x: np.ndarray) -> bool:
    """Whether x (n, c, h, w) or (n, c, d, h, w) lies in memory with its channels innermost, and not contiguous as it is."""
    return x.ndim in TO_LAST and not x.flags.c_contiguous and x.transpose(TO_LAST[x.ndim]).flags.c_contiguous


def _empty_like(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An uninitialised array of x's dtype and memory order."""
    if is_channels_last(x):
        return np.empty((shape[0], *shape[2:], shape[1]), x.dtype).transpose(FROM_LAST[x.ndim])
    return np.empty(shape, x.dtype)


def _onednn(kind: int, operands: tuple[np.ndarray, np.ndarray, np.ndarray], bias: np.ndarray | None, x: np.ndarray, w: np.ndarray,
            y: np.ndarray, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> bool:
    """Lets oneDNN write operands[2]; False where it does not take these."""
    if x.dtype not in DTYPES or not available():
        return False
    ends = end_padding(x.shape[2:], y.shape[2:], w.shape[2:], stride, padding, dilation)
    if any(-end >= step for end, step in zip(ends, stride)):    # the output padding of a dilated transpose: elements that nothing reaches
        return False
    if is_channels_last(x) or is_channels_last(y):
        free = FREE_WEIGHT[kind]
    else:
        free = FREE_ALL if max(w.shape[2:]) > 1 else 0
    return _C.onednn_conv(kind, *operands, bias, tuple(stride), tuple(dilation), tuple(padding), ends, groups, free)


def _groups(outs: int, ins: int, groups: int) -> Iterator[tuple[slice, slice]]:
    """The output and input channels of each group."""
    n_out, n_in = outs // groups, ins // groups
    return ((slice(i * n_out, (i + 1) * n_out), slice(i * n_in, (i + 1) * n_in)) for i in range(groups))


def _windows(x: np.ndarray, kernel: Sequence[int], sizes: Sequence[int], stride: Sequence[int], padding: Sequence[int],
             dilation: Sequence[int]) -> np.ndarray:
    """A view (n, c, *sizes, *kernel) of x padded with zeros: what each output position sees."""
    if any(padding):
        x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    last = [s * (n - 1) + d * (k - 1) for s, n, d, k in zip(stride, sizes, dilation, kernel)]
    if 0 not in (*sizes, *kernel) and any(at >= n for at, n in zip(last, x.shape[2:])):
        raise RuntimeError(f"a convolution with windows of {list(kernel)} at {list(sizes)} places (stride {list(stride)}, dilation "
                           f"{list(dilation)}) reaches beyond an input that is {list(x.shape[2:])} with its padding of {list(padding)}")
    strides = tuple(itertools.chain(x.strides[:2], (a * s for a, s in zip(x.strides[2:], stride)),
                                    (a * d for a, d in zip(x.strides[2:], dilation))))
    return np.lib.stride_tricks.as_strided(x, (*x.shape[:2], *sizes, *kernel), strides, writeable=False)
