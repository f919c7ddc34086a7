"""Convolution and pooling operators: windows that slide over the trailing spatial dimensions.

Pooling is written as slices of the padded input, one per tap of the window, so that compiled code fuses it; eager calls
the backend's pooling kernel instead (`backends/cpu/pool.py`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends.cpu import conv as conv_kernels
from ...backends.cpu import pool as pool_kernels
from ...core import dispatch
from ...core.dtypes import FLOAT, bool_, float64, iinfo, int8, int32, int64
from ...core.memory_format import channels_last, channels_last_3d
from ...core.scalar import compute_dtype
from ...core.settings import alert_not_deterministic
from ...core.symbolic import is_symbolic
from ...core.tensor import Tensor
from ...core.windows import unwound, window_count
from .. import prims
from ..batching import merged
from ..order import as_images, has_images, in_rows
from ..pointwise import where
from ..primitives import InAten, channels_last_like
from ..prims.windows import convolution_flops, convolution_in_aten
from ..promotion import apart, cast, expand_to
from ..registry import COMPOSITES, Linear, on_tape, operator
from ..writing import with_out
from .activations import check_float

Sizes = int | Sequence[int]


def ntuple(value: Any, n: int, name: str = "argument") -> tuple:
    """`value` once per dimension; a sequence must hold 1 or `n` numbers."""
    if isinstance(value, (tuple, list)):
        if len(value) == 1:
            return tuple(value) * n
        if len(value) != n:
            raise RuntimeError(f"expected {name} to be a single integer value or a list of {n} values, got {list(value)}")
        return tuple(value)
    return (value,) * n


def counts(value: Any, n: int, name: str) -> tuple:
    """`ntuple` of integers, which numbers in tensors are too. TypeError for what is none."""
    if type(value) is int:
        return (value,) * n
    found = ntuple(value, n, name)
    wrong = next((v for v in found if not hasattr(type(v), "__index__") or isinstance(v, bool)), None)
    if wrong is not None or None in found:
        raise TypeError(f"{name} must be int or a sequence of {n} ints, but found element of type {type(wrong).__name__}")
    return tuple([v.__index__() if isinstance(v, (Tensor, np.integer)) else v for v in found])


def _check_window(name: str, padding: Sequence = (), **positive: Sequence) -> None:
    """RuntimeError for negative padding, or where a size, a step or a gap of the windows is not positive."""
    for what, values in positive.items():
        if min(values) <= 0:
            raise RuntimeError(f"{name}(): non-positive {what} is not supported: it must be greater than zero, got {list(values)}")
    if padding and min(padding) < 0:
        raise RuntimeError(f"{name}(): negative padding is not supported, got {list(padding)}")


def _check_filled(x: Tensor, name: str, first: int = 1) -> None:
    """RuntimeError for images (channels, sizes) of nothing; a batch may be empty."""
    if 0 in [n for n in x._layout.shape[first:] if type(n) is int]:
        raise RuntimeError(f"{name}(): Expected input's non-batch dimensions to have positive length, got {list(x.shape)}")


def _batched(input: Tensor, spatial: int, name: str) -> tuple[Tensor, bool]:
    """`input` with a batch dimension, and whether it lacked one."""
    if input.ndim == spatial + 1:
        return prims.unsqueeze(input, 0), True
    if input.ndim != spatial + 2:
        raise RuntimeError(f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to {name}, but got input of size: "
                           f"{list(input.shape)}")
    return input, False


# -- convolution ---------------------------------------------------------------------------------------------
@operator(name="_conv_bias", aten=InAten("convolution", steps=convolution_in_aten), batch=merged, flops=convolution_flops, vjp=Linear(
    input=lambda g, weight, input_shape, stride, padding, dilation, groups: prims.convolution_input_grad(
        g, prims.conjugated(weight), tuple(input_shape), stride, padding, dilation, groups),  # type: ignore[misc]
    weight=lambda g, input, weight_shape, stride, padding, dilation, groups: prims.convolution_weight_grad(
        g, prims.conjugated(input), tuple(weight_shape), stride, padding, dilation, groups),  # type: ignore[misc]
    bias=lambda g: prims.sum(g, (0, *range(2, g.ndim)))))
def _conv_bias(input: Tensor, weight: Tensor, bias: Tensor, stride: tuple, padding: tuple, dilation: tuple, groups: int) -> Tensor:
    out = prims.convolution(input, weight, stride, padding, dilation, groups)
    return prims.add(out, _per_channel(bias, out))


def _per_channel(bias: Tensor, out: Tensor) -> Tensor:
    for _ in range(out.ndim - 2):
        bias = prims.unsqueeze(bias, bias.ndim)
    return prims.expand(prims.unsqueeze(bias, 0), tuple(out.shape))


def _conv_bias_kernel(x: Any, w: Any, b: Any, *attrs: Any) -> Any:
    if x.dtype != w.dtype or x.dtype != b.dtype:
        return NotImplemented
    return conv_kernels.convolution(x, w, b, *attrs)


COMPOSITES["_conv_bias"].has_kernel("cpu", _conv_bias_kernel)


def _same_padding(input: Tensor, kernel: Sequence, stride: tuple, dilation: tuple) -> tuple[Tensor, tuple]:
    """Zeros so that the output has the input's size; an odd total pads one more at the end."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    if len(kernel) != input.ndim - 2:
        raise RuntimeError(f"padding='same': a kernel of {len(kernel)} dimensions does not fit an input of shape {list(input.shape)}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel)]
    if all(t % 2 == 0 for t in total):
        return input, tuple(t // 2 for t in total)
    low = (0, 0, *(t // 2 for t in total))
    high = (0, 0, *(t - t // 2 for t in total))
    return prims.pad_zeros(input, low, high, (0,) * input.ndim), (0,) * len(total)


def _check_conv(input: Tensor, weight: Tensor, bias: Tensor | None, name: str, channels_at: int) -> None:
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if bias is not None and (bias.ndim != 1 or (channels_at == 0 and bias.shape[0] != weight.shape[0])):
        raise RuntimeError(f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {weight.shape[0]} elements, "
                           f"but got bias of size {list(bias.shape)} instead")
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({input.dtype}) and weight type ({weight.dtype}) should be the same")
    if bias is not None and bias.dtype is not input.dtype:
        raise RuntimeError(f"Input type ({input.dtype}) and bias type ({bias.dtype}) should be the same")


def _conv_last(x: Tensor, weight: Tensor, single: bool) -> bool:
    """Whether a convolution's result lies channels last: as its weight does, or its batch of images."""
    if weight.ndim != x.ndim:
        return False    # which the shape rule refuses
    return has_images(weight) or (not single and has_images(x) and (x.ndim > 3 or x.is_contiguous()))


def _conv(spatial: int) -> Callable:
    name = f"conv{spatial}d"

    def fn(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0,
           dilation: Sizes = 1, groups: int = 1) -> Tensor:
        _check_conv(input, weight, bias, name, 0)
        x, single = _batched(input, spatial, name)
        last = _conv_last(x, weight, single)
        x = as_images(x, last)
        steps, gaps = counts(stride, spatial, "stride"), counts(dilation, spatial, "dilation")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise RuntimeError(f"Invalid padding string: {padding!r}; it is 'valid' or 'same'")
            x, pads = (x, (0,) * spatial) if padding == "valid" else _same_padding(x, tuple(weight.shape[2:]), steps, gaps)
        else:
            pads = counts(padding, spatial, "padding")
        _check_window(name, pads, stride=steps, dilation=gaps, groups=(groups,))
        if bias is not None:
            prims.convolution.specs((x, weight, steps, pads, gaps, groups))     # a library's kernel takes what it is given
        as_image = spatial == 1 and groups > 1 and weight.shape[1] == 1      # oneDNN has fast depthwise kernels for images only
        if as_image:
            x, weight = prims.unsqueeze(x, 2), prims.unsqueeze(weight, 2)
            steps, pads, gaps = (1, *steps), (0, *pads), (1, *gaps)
        out = prims.convolution(x, weight, steps, pads, gaps, groups) if bias is None else \
            _conv_bias(x, weight, bias, steps, pads, gaps, groups)
        out = as_images(prims.squeeze(out, (2,)) if as_image else out, last)
        return prims.squeeze(out, (0,)) if single else out

    fn.__name__ = name
    fn.__doc__ = (f"Cross-correlation over {spatial} spatial dimension(s): (n, c, *sizes) with (o, c / groups, *kernel) gives "
                  "(n, o, *sizes').")
    return operator(fn, autocast="narrow")


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def _conv_transpose(spatial: int) -> Callable:
    name = f"conv_transpose{spatial}d"

    def fn(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0,
           output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1) -> Tensor:
        _check_conv(input, weight, bias, name, 1)
        x, single = _batched(input, spatial, name)
        steps, pads = counts(stride, spatial, "stride"), counts(padding, spatial, "padding")
        more, gaps = counts(output_padding, spatial, "output_padding"), counts(dilation, spatial, "dilation")
        if weight.ndim != x.ndim:
            raise RuntimeError(f"Expected a weight of {x.ndim} dimensions for input of size {list(x.shape)}, got {list(weight.shape)}")
        if x.shape[1] != weight.shape[0]:
            raise RuntimeError(f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(x.shape)} to have "
                               f"{weight.shape[0]} channels, but got {x.shape[1]} channels instead")
        _check_window(name, pads, stride=steps, dilation=gaps, groups=(groups,))
        if any(extra < 0 for extra in more):
            raise RuntimeError(f"negative output_padding is not supported, got {list(more)}")
        if weight.shape[0] % groups:
            raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
                               f"size {list(weight.shape)} instead")
        for extra, s, d in zip(more, steps, gaps):
            if extra >= s and extra >= d and 0 not in x.shape[:2]:
                raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got output_padding: {list(more)} "
                                   f"stride: {list(steps)} dilation: {list(gaps)}")
        sizes = tuple(unwound(n, k, s, p, d) + extra for n, k, s, p, d, extra in
                      zip(x.shape[2:], weight.shape[2:], steps, pads, gaps, more))
        shape = (x.shape[0], weight.shape[1] * groups, *sizes)
        _check_sizes(x, sizes, name)
        last = _conv_last(x, weight, single)
        out = prims.convolution_input_grad(as_images(x, last), weight, shape, steps, pads, gaps, groups)
        if bias is not None:
            out = prims.add(out, _per_channel(bias, out))
        out = as_images(out, last)
        return prims.squeeze(out, (0,)) if single else out

    fn.__name__, fn.__doc__ = name, f"The transpose of conv{spatial}d in its input, applied to `input`."
    return operator(fn, autocast="narrow", node=lambda input, *_, **__: "convolution" if input.ndim == spatial + 2 else "squeeze.1")


conv_transpose1d, conv_transpose2d, conv_transpose3d = _conv_transpose(1), _conv_transpose(2), _conv_transpose(3)


# -- pooling windows ---------------------------------------------------------------------------------------------
def _taps(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(k) for k in kernel)))


def _tap(x: Tensor, offset: Sequence[int], sizes: Sequence, stride: Sequence[int]) -> Tensor:
    """The elements of the padded input that one tap of the window reads, window by window."""
    lead = x.ndim - len(sizes)
    for d, (start, n, step) in enumerate(zip(offset, sizes, stride)):
        x = prims.slice_(x, lead + d, start, start + (n - 1) * step + 1, step)
    return x


def _put(x: Tensor, start: Sequence[int], spatial: Sequence, stride: Sequence[int]) -> Tensor:
    """The transpose of `_tap`: zeros, with the elements of x from `start` on, `stride` apart."""
    lead, none = (0,) * (x.ndim - len(spatial)), (0,) * x.ndim
    high = [n - lo - (m - 1) * s - 1 for n, lo, m, s in zip(spatial, start, x.shape[len(lead):], stride)]
    if any(s > 1 for s in stride):
        x = prims.pad_zeros(x, none, none, lead + tuple(s - 1 for s in stride))
    return prims.pad_zeros(x, lead + tuple(start), lead + tuple(high), none)


def _padded(x: Tensor, low: Sequence[int], sizes: Sequence, kernel: Sequence[int], stride: Sequence[int],
            dilation: Sequence[int]) -> Tensor:
    """Zeros around the spatial dimensions as far as the windows reach (cropped where they stop short)."""
    lead = x.ndim - len(sizes)
    high = [(n - 1) * s + d * (k - 1) + 1 - lo - have for n, s, d, k, lo, have in zip(sizes, stride, dilation, kernel, low, x.shape[lead:])]
    return prims.pad_zeros(x, (0,) * lead + tuple(low), (0,) * lead + tuple(high), (0,) * x.ndim)


def _check_pool(x: Tensor, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, name: str) -> None:
    _check_filled(x, name)
    _check_window(name, kernel_size=kernel, stride=stride, dilation=dilation)
    if any(p < 0 or 2 * p > k for p, k in zip(padding, kernel)):
        raise RuntimeError(f"{name}: pad should be at most half of effective kernel size, but got pad={list(padding)} and "
                           f"kernel_size={list(kernel)}")


def _check_sizes(x: Tensor, sizes: Sequence, name: str) -> None:
    if any(n <= 0 for n in sizes):
        raise RuntimeError(f"Given input size: {list(x.shape[1:])}. Calculated output size: {[x.shape[1], *sizes]}. "
                           f"Output size is too small ({name})")


# -- max pooling -------------------------------------------------------------------------------------------------
def _flat_positions(like: Tensor, sizes: Sequence, stride: Sequence[int], start: Sequence[int], shape: Sequence) -> Tensor:
    """For each window, the position in the flattened spatial dimensions that the tap at `start` reads (i64)."""
    def along(d: int) -> Tensor:
        step = math.prod(shape[d + 1:])
        line = prims.iota(sizes[d], start[d] * step, stride[d] * step, int64, like.device)
        for _ in sizes[d + 1:]:
            line = prims.unsqueeze(line, line.ndim)
        return prims.expand(line, tuple(sizes))

    return functools.reduce(prims.add, map(along, range(len(sizes))))


def _max_pool_backward_vjp(g: Tensor, indices: Tensor) -> tuple:
    return (g.flatten(2).gather(2, indices.flatten(2)).reshape(indices.shape), None)


@operator(name="max_pool_backward", fused=True, vjp=_max_pool_backward_vjp)
def max_pool_backward(g_: Tensor, indices: Tensor, shape: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple) -> Tensor:
    """Gradient of max pooling: each window's gradient goes to the element it took, tap by tap."""
    rank = len(kernel)
    sizes, spatial = tuple(g_.shape[-rank:]), shape[-rank:]

    def share(tap: tuple[int, ...]) -> Tensor:
        start = [t * d - p for t, d, p in zip(tap, dilation, padding)]
        taken = prims.eq(indices, expand_to(_flat_positions(g_, sizes, stride, start, spatial), indices.shape))
        return _put(prims.where(taken, g_, 0.0), start, spatial, stride)

    return functools.reduce(prims.add, map(share, _taps(kernel)))


def _max_pool_vjp(gs: tuple, input_shape: tuple, out1: Tensor, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple) -> tuple:
    if gs[0] is None:
        return (None,)
    return (max_pool_backward(gs[0], out1, tuple(input_shape), kernel, stride, padding, dilation),)


@operator(name="_max_pool", fused=True, batch=merged, vjp=_max_pool_vjp, aten=InAten(
    "max_pool2d_with_indices", node=lambda x, kernel, *_: f"max_pool{len(kernel)}d_with_indices"))
def _max_pool(input: Tensor, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, ceil_mode: bool) -> tuple[Tensor, Tensor]:
    """(maxima, their positions in the flattened spatial dimensions); the first of equals, NaN wins."""
    rank = len(kernel)
    spatial = tuple(input.shape[-rank:])
    sizes = tuple(window_count(n, k, s, p, d, ceil_mode) for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation))
    padded = _padded(input, padding, sizes, kernel, stride, dilation)
    inside = _padded(prims.full(spatial, True, bool_, input.device), padding, sizes, kernel, stride, dilation)
    low = -math.inf if input.dtype.category == FLOAT else iinfo(input.dtype).min
    number = int8 if math.prod(kernel) <= iinfo(int8).max else int32
    best = taken = peak = None  # `peak` needs no positions: where they aren't wanted, nothing of them is left in a graph
    for k, tap in enumerate(_taps(kernel)):
        offset = tuple(t * d for t, d in zip(tap, dilation))
        here = _tap(padded, offset, sizes, stride)
        valid = expand_to(_tap(inside, offset, sizes, stride), here.shape)
        here = prims.where(valid, here, low)
        tap_number = prims.full(here.shape, k, number, input.device)
        if best is None:
            best = peak = here
            taken = prims.where(valid, tap_number, -1)
            continue
        peak = prims.maximum(peak, here)
        better = prims.gt(here, best)
        if input.dtype.category == FLOAT:
            better = prims.logical_or(better, prims.isnan(here))
        better = prims.logical_or(better, prims.logical_and(valid, prims.lt(taken, 0)))
        best, taken = prims.where(better, here, best), prims.where(better, tap_number, taken)
    return peak, _taken_positions(taken, kernel, sizes, stride, padding, dilation, spatial)     # type: ignore[return-value]


def _taken_positions(taken: Any, kernel: tuple, sizes: tuple, stride: tuple, padding: tuple, dilation: tuple, spatial: tuple) -> Tensor:
    """The flattened positions (i64) that the taps of these numbers read, window by window.

    A graph keeps the numbers for backward, which are eight times smaller, and finds the positions again.
    """
    start = _flat_positions(taken, sizes, stride, [-p for p in padding], spatial)
    total, rest = expand_to(start, taken.shape), prims.convert(taken, int64)
    for d, (size, gap) in enumerate(zip(kernel, dilation)):
        below, along = math.prod(kernel[d + 1:]), rest
        if size == 1:
            continue
        if below > 1:   # how far along this dimension: rest // below, which is cheap to compare for
            reached = [prims.convert(prims.ge(rest, row * below), int64) for row in range(1, size)]
            along = functools.reduce(prims.add, reached)
            rest = prims.sub(rest, prims.mul(along, below))
        total = prims.add(total, prims.mul(along, gap * math.prod(spatial[d + 1:])))
    return total


COMPOSITES["_max_pool"].has_kernel("cpu", pool_kernels.max_pool_with_indices, stays_whole=lambda args: True)
COMPOSITES["max_pool_backward"].has_kernel("cpu", lambda g, indices, shape, *window: pool_kernels.max_pool_backward(g, indices, shape),
                                           stays_whole=lambda args: True)


def window_maxima(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(maxima along `dim`, where they stand), as of windows: the first of equals, but the last NaN."""
    at = x.detach().argmax(dim, keepdim=True)
    if x.dtype.category == FLOAT:
        places = at.new_arange(x.shape[dim]).reshape((-1,) + (1,) * (x.ndim - 1 - dim))
        at = at.maximum(where(x.isnan(), places, -1).amax(dim, keepdim=True))
    return x.gather(dim, at).squeeze(dim), at.squeeze(dim)


def _max_pool_nd(spatial: int) -> Callable:
    name = f"max_pool{spatial}d"

    def fn(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
           ceil_mode: bool = False, return_indices: bool | None = False) -> Any:
        x, single = _batched(input, spatial, name)
        kernel = counts(kernel_size, spatial, "kernel_size")
        step = kernel if stride is None or (isinstance(stride, (tuple, list)) and not stride) else counts(stride, spatial, "stride")
        pad, gap = counts(padding, spatial, "padding"), counts(dilation, spatial, "dilation")
        _check_pool(x, kernel, step, pad, gap, name)
        _check_sizes(x, [window_count(n, k, s, p, d, ceil_mode) for n, k, s, p, d in zip(x.shape[2:], kernel, step, pad, gap)], name)
        recorded = dispatch.state.grad_enabled and x.requires_grad
        last = has_images(x) and (spatial > 1 or return_indices or recorded) if not single else \
            spatial == 3 and x.is_contiguous(memory_format=channels_last_3d) and not x.is_contiguous()
        x = as_images(x, True) if last else x
        values, indices = (as_images(out, last) for out in _max_pool(x, kernel, step, pad, gap, bool(ceil_mode)))
        if single:
            values, indices = prims.squeeze(values, (0,)), prims.squeeze(indices, (0,))
        return (values, indices) if return_indices else values

    fn.__name__ = name
    fn.__doc__ = f"Maximum over sliding windows of {spatial} dimension(s); with return_indices also where it stood."
    return operator(fn, autocast={"cpu": "wide"} if spatial == 3 else None, node=f"{name}_with_indices" if spatial > 1 else "squeeze.1")


max_pool1d, max_pool2d, max_pool3d = _max_pool_nd(1), _max_pool_nd(2), _max_pool_nd(3)


def _max_unpool(spatial: int) -> Callable:
    name = f"max_unpool{spatial}d"

    def fn(input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
           output_size: Sequence[int] | None = None) -> Tensor:
        alert_not_deterministic(f"max_unpooling{spatial}d_forward_out")
        kernel = counts(kernel_size, spatial, "kernel_size")
        step = counts(stride, spatial, "stride") if stride is not None else kernel
        pad = counts(padding, spatial, "padding")
        usual = tuple(map(unwound, input.shape[-spatial:], kernel, step, pad))
        sizes = usual if output_size is None else tuple(output_size)[-spatial:]
        if any(type(n) is int and type(m) is int and (n < 0 or not m - s < n < m + s) for n, m, s in zip(sizes, usual, step)):
            raise ValueError(f"{name}(): invalid output_size {tuple(sizes)}: sizes must not be negative, and differ by less than "
                             f"the stride {step} from {usual}")
        if input.shape != indices.shape:
            raise RuntimeError(f"{name}(): Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got "
                               f"{list(indices.shape)}")
        lead = tuple(input.shape[:-spatial])
        flat = input.new_zeros((*lead, math.prod(sizes)))
        filled = flat.scatter(-1, indices.flatten(-spatial), input.flatten(-spatial))
        filled = filled.reshape(*lead, *sizes)
        return as_laid_out(filled, input) if spatial == 2 else filled

    fn.__name__, fn.__doc__ = name, f"Zeros with the values of a max_pool{spatial}d back at their indices."
    return operator(fn, autocast={"cpu": "wide"} if spatial > 1 else None, node=True if spatial > 1 else "squeeze.1")


max_unpool1d, max_unpool2d, max_unpool3d = _max_unpool(1), _max_unpool(2), _max_unpool(3)


# -- average pooling ----------------------------------------------------------------------------------------------
def _divisor(like: Tensor, sizes: Sequence, kernel: tuple, stride: tuple, padding: tuple, spatial: Sequence,
             count_include_pad: bool) -> Tensor:
    """How many elements each window counts: a tensor over the windows."""
    total: Any = None
    for d, (n, k, s, p, size) in enumerate(zip(sizes, kernel, stride, padding, spatial)):
        start = prims.iota(n, -p, s, int64, like.device)
        end = (start + k).clamp(max=size + p)
        if not count_include_pad:
            start, end = start.clamp(min=0), end.clamp(max=size)
        line = (end - start).to(like.dtype).reshape((-1,) + (1,) * (len(sizes) - 1 - d))
        total = line if total is None else total * line
    return total


def _avg_pool_backward_vjp(g: Tensor, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool, count_include_pad: bool,
                           divisor: int | None) -> tuple:
    return (_avg_pool(g, kernel, stride, padding, ceil_mode, count_include_pad, divisor),)


@operator(name="avg_pool_backward", fused=True, vjp=_avg_pool_backward_vjp)
def avg_pool_backward(g_: Tensor, shape: tuple, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
                      count_include_pad: bool, divisor: int | None) -> Tensor:
    """Gradient of average pooling: each window's gradient, divided, goes to all its elements."""
    rank = len(kernel)
    sizes, spatial = tuple(g_.shape[-rank:]), shape[-rank:]
    g = _divided(cast(g_, compute_dtype(g_.dtype)), sizes, spatial, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    parts = (_put(g, [t - p for t, p in zip(tap, padding)], spatial, stride) for tap in _taps(kernel))
    return cast(functools.reduce(prims.add, parts), g_.dtype)


def _divided(total: Tensor, sizes: tuple, spatial: tuple, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
             count_include_pad: bool, divisor: int | None) -> Tensor:
    if divisor is not None:
        return prims.truediv(total, float(divisor))
    if (not any(padding) and not ceil_mode) or (count_include_pad and not ceil_mode):
        return prims.truediv(total, float(math.prod(kernel)))
    counts = _divisor(total, sizes, kernel, stride, padding, spatial, count_include_pad)
    return prims.truediv(total, expand_to(counts, total.shape))


def _avg_pool_vjp(g: Tensor, input_shape: tuple, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
                  count_include_pad: bool, divisor: int | None) -> tuple:
    return (avg_pool_backward(g, tuple(input_shape), kernel, stride, padding, ceil_mode, count_include_pad, divisor),)


@operator(name="_avg_pool", fused=True, batch=merged, vjp=_avg_pool_vjp,
          aten=InAten("avg_pool2d", node=lambda x, kernel, *_: f"avg_pool{len(kernel)}d"))
def _avg_pool(input: Tensor, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool, count_include_pad: bool,
              divisor: int | None) -> Tensor:
    rank = len(kernel)
    spatial = tuple(input.shape[-rank:])
    sizes = tuple(window_count(n, k, s, p, 1, ceil_mode) for n, k, s, p in zip(spatial, kernel, stride, padding))
    padded = _padded(cast(input, compute_dtype(input.dtype)), padding, sizes, kernel, stride, (1,) * rank)
    total: Any = 0.0        # from which a window of negative zeros comes to 0.0
    for tap in _taps(kernel):
        total = prims.add(_tap(padded, tap, sizes, stride), total)
    return cast(_divided(total, sizes, spatial, kernel, stride, padding, ceil_mode, count_include_pad, divisor), input.dtype)


MOST_TAPS = 9       # windows up to which generated code averages faster than the kernel

COMPOSITES["_avg_pool"].has_kernel("cpu", pool_kernels.avg_pool, stays_whole=lambda args: math.prod(args[1]) > MOST_TAPS)
COMPOSITES["avg_pool_backward"].has_kernel("cpu", pool_kernels.avg_pool_backward, stays_whole=lambda args: math.prod(args[2]) > MOST_TAPS)


def _averaged(x: Tensor, single: bool) -> tuple[Tensor, bool]:
    """What means, and maxima of adaptive windows, read, and whether they lie channels last: of batches of images that do, never in three
    dimensions."""
    last = x.ndim < 5 and not single and has_images(x)
    return as_images(x, True) if last else x, last


def _avg_pool_nd(spatial: int) -> Callable:
    name = f"avg_pool{spatial}d"
    told = name if spatial > 1 else "squeeze.1"

    def fn(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
           count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
        if input.dtype is int64:    # whose means are rounded towards zero
            mean = _averages[spatial - 1]
            return cast(mean(cast(input, float64), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), int64)
        x, single = _batched(check_float(input, name), spatial, name)
        kernel = counts(kernel_size, spatial, "kernel_size")
        step = kernel if stride is None or (isinstance(stride, (tuple, list)) and not stride) else counts(stride, spatial, "stride")
        pad = counts(padding, spatial, "padding")
        _check_pool(x, kernel, step, pad, (1,) * spatial, name)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        _check_sizes(x, [window_count(n, k, s, p, 1, ceil_mode) for n, k, s, p in zip(x.shape[2:], kernel, step, pad)], name)
        x, last = _averaged(x, single)
        out = as_images(_avg_pool(x, kernel, step, pad, bool(ceil_mode), bool(count_include_pad), divisor_override), last)
        return on_tape(told, prims.squeeze(out, (0,)) if single else out)

    fn.__name__, fn.__doc__ = name, f"Mean over sliding windows of {spatial} dimension(s)."
    return operator(with_out(fn) if spatial > 1 else fn, autocast={"cpu": "wide"} if spatial == 3 else None)


avg_pool1d, avg_pool2d, avg_pool3d = _averages = _avg_pool_nd(1), _avg_pool_nd(2), _avg_pool_nd(3)


def _lp_pool(spatial: int) -> Callable:
    average = (avg_pool1d, avg_pool2d, avg_pool3d)[spatial - 1]

    def fn(input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False) -> Tensor:
        kernel = counts(kernel_size, spatial, "kernel_size")
        total = average(input ** norm_type, kernel, stride, 0, ceil_mode) * math.prod(kernel)
        return (total.sign() * total.abs().relu()) ** (1.0 / norm_type)

    fn.__name__, fn.__doc__ = f"lp_pool{spatial}d", "The norm_type-norm over sliding windows."
    return operator(fn)


lp_pool1d, lp_pool2d, lp_pool3d = _lp_pool(1), _lp_pool(2), _lp_pool(3)


# -- adaptive pooling -----------------------------------------------------------------------------------------------
def _cells(n: int, out: int) -> list[tuple[int, int]]:
    """The `out` intervals that cover n elements: floor(i n / out) to ceil((i + 1) n / out)."""
    return [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]


def _wanted(output_size: Any, x: Tensor, spatial: int) -> tuple:
    if output_size is None:
        raise TypeError(f"output_size must be int or a sequence of {spatial} ints, some of which may be None, not None")
    given = ntuple(output_size, spatial, "output_size")
    sizes = tuple(x.shape[x.ndim - spatial + d] if n is None else n for d, n in enumerate(given))
    sizes = counts(sizes, spatial, "output_size")
    if any(type(n) is int and n < 0 for n in sizes):
        raise RuntimeError(f"adaptive pooling: elements of output_size must be greater than or equal to 0, got {list(sizes)}")
    return sizes


def _even(n: Any, out: Any) -> bool:
    """Whether the cells are windows of one size; symbolic sizes are not asked, for that would be a guard."""
    return n is out or (not is_symbolic(n) and not is_symbolic(out) and out > 0 and n % out == 0)


def _shares(n: Any, out: Any, like: Tensor) -> Tensor:
    """The matrix (n, out) that averages over symbolic cells."""
    i, o = (prims.iota(size, 0, 1, int64, like.device) for size in (n, out))
    first, end = o * n // out, ((o + 1) * n + (out - 1)) // out
    return cast((first <= i.unsqueeze(1)) & (i.unsqueeze(1) < end), like.dtype) / (end - first)


@operator(name="_adaptive_avg_backward", vjp=lambda g, g__shape: (_adaptive_avg_cells(g, tuple(g__shape[2:])),))
def _adaptive_avg_backward(g_: Tensor, shape: tuple) -> Tensor:
    """Gradient of uneven adaptive averaging: each cell's gradient, divided, goes to all its elements, one dimension at a time."""
    out = g_
    for d in range(2, len(shape)):
        if is_symbolic(shape[d]) or is_symbolic(g_.shape[d]):
            out = out.movedim(d, -1).matmul(_shares(shape[d], g_.shape[d], out).t()).movedim(-1, d)
            continue
        total: Any = None
        for i, (a, b) in enumerate(_cells(shape[d], g_.shape[d])):
            part = expand_to(out.narrow(d, i, 1) / (b - a), (*out.shape[:d], b - a, *out.shape[d + 1:]))
            low, high = ([n if at == d else 0 for at in range(out.ndim)] for n in (a, shape[d] - b))
            part = prims.pad_zeros(part, tuple(low), tuple(high), (0,) * out.ndim)
            total = part if total is None else prims.add(total, part)
        out = total
    return as_laid_out(out, g_)


@operator(name="_adaptive_avg_cells", batch=merged, aten=InAten(node=lambda x, wanted: f"adaptive_avg_pool{len(wanted)}d"),
          vjp=lambda g, input_shape: (_adaptive_avg_backward(g, tuple(input_shape)),))
def _adaptive_avg_cells(input: Tensor, wanted: tuple) -> Tensor:
    """The means of overlapping cells, one dimension at a time."""
    out = input
    for d, size in enumerate(wanted, 2):
        if is_symbolic(size) or is_symbolic(input.shape[d]):
            out = out.movedim(d, -1).matmul(_shares(input.shape[d], size, out)).movedim(-1, d)
            continue
        cells = [out.narrow(d, a, b - a).mean(d, keepdim=True) for a, b in _cells(input.shape[d], size)]
        out = prims.cat(cells, d)
    return as_laid_out(out, input)


def as_laid_out(out: Tensor, like: Tensor) -> Tensor:
    """`out` in the memory order that the kernels give: channels-last as `like` is, or contiguous."""
    if channels_last_like(like, tuple(out.shape)) is None:
        return out.contiguous()
    return out.contiguous(memory_format=channels_last if out.ndim == 4 else channels_last_3d)


def _check_adaptive(input: Tensor, output_size: Any, spatial: int) -> None:
    """Refuse a list of sizes that are more than the input's dimensions, or not one for each that is pooled."""
    if not (output_size.ndim if isinstance(output_size, Tensor) else isinstance(output_size, (tuple, list))):
        return
    count = len(output_size)
    if spatial > 1 and count >= input.ndim:
        raise ValueError(f"adaptive pooling: Input dimension should be at least {count + 1} for {count} sizes, got {list(input.shape)}")
    if count != spatial:
        raise RuntimeError(f"adaptive pooling: output_size should contain {spatial} int(s), got {count}: {list(output_size)}")


def _adaptive_avg(spatial: int) -> Callable:
    name = f"adaptive_avg_pool{spatial}d"

    def fn(input: Tensor, output_size: Any) -> Tensor:
        _check_adaptive(input, output_size, spatial)
        x, single = _batched(check_float(input, name), spatial, name)
        wanted = _wanted(output_size, x, spatial)
        have, (x, last) = tuple(x.shape[2:]), _averaged(x, single)
        whole = all(type(n) is int and n == 1 for n in wanted)
        if not whole:
            _check_filled(x, name, 2)
        if whole:
            out = x.mean(tuple(range(2, x.ndim)), keepdim=True)
        elif all(_even(n, m) for n, m in zip(have, wanted)):
            kernel = tuple(n // m for n, m in zip(have, wanted))
            out = on_tape(name, _avg_pool(x, kernel, kernel, (0,) * spatial, False, True, None))
        else:
            out = _adaptive_avg_cells(x, wanted)
        out = as_images(out, last)
        return prims.squeeze(out, (0,)) if single else out

    fn.__name__, fn.__doc__ = name, "Mean over windows that divide the input evenly into `output_size`."
    return operator(fn, autocast={"cpu": "wide"} if spatial == 3 else None, node="squeeze.1" if spatial == 1 else "")


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive_avg(1), _adaptive_avg(2), _adaptive_avg(3)


def _adaptive_max(spatial: int) -> Callable:
    name = f"adaptive_max_pool{spatial}d"

    def fn(input: Tensor, output_size: Any, return_indices: bool | None = False) -> Any:
        _check_adaptive(input, output_size, spatial)
        x, single = _batched(input, spatial, name)
        _check_filled(input, name)
        wanted = _wanted(output_size, x, spatial)
        have, (x, last) = tuple(x.shape[2:]), _averaged(x, single)
        if (x.is_cuda or any(map(is_symbolic, have))) and all(type(m) is int and m == 1 for m in wanted):
            values, indices = (out.reshape([*x.shape[:2], *wanted]) for out in window_maxima(x.flatten(2), 2))
        elif all(_even(n, m) for n, m in zip(have, wanted)):
            kernel = tuple(n // m for n, m in zip(have, wanted))
            values, indices = _max_pool(x, kernel, kernel, (0,) * spatial, (1,) * spatial, False)
        else:
            values, indices = _adaptive_max_cells(x, wanted)
        values, indices = as_images(values, last), as_images(indices, last)
        if single:
            values, indices = prims.squeeze(values, (0,)), prims.squeeze(indices, (0,))
        return (values, indices) if return_indices else values

    fn.__name__, fn.__doc__ = name, "Maximum over windows that divide the input evenly into `output_size`."
    return operator(fn, autocast={"cpu": "wide"} if spatial == 3 else None, node="squeeze.1" if spatial == 1 else name)


@operator(name="_adaptive_max_backward", vjp=_max_pool_backward_vjp)
def _adaptive_max_backward(g: Tensor, indices: Tensor, shape: tuple) -> Tensor:
    """Gradient of uneven adaptive maxima: each cell's gradient goes to the element it took."""
    lead = tuple(shape[:2])
    flat = g.new_zeros((*lead, math.prod(shape[2:])))
    out = flat.scatter_add(2, indices.flatten(2), g.flatten(2)).reshape(shape)
    return as_laid_out(out, g)


@operator(name="_adaptive_max_cells", batch=merged,
          vjp=lambda gs, input_shape, out1: (None if gs[0] is None else _adaptive_max_backward(gs[0], out1, tuple(input_shape)),))
def _adaptive_max_cells(input: Tensor, wanted: tuple) -> tuple[Tensor, Tensor]:
    """Cell by cell: the flattened positions of each cell, and the largest among them."""
    x, have = input, tuple(input.shape[2:])
    lead = tuple(x.shape[:2])
    flat = x.flatten(2)
    grid = prims.iota(math.prod(have), 0, 1, int64, x.device).reshape(have)
    values, indices = [], []
    for cell in itertools.product(*(_cells(n, m) for n, m in zip(have, wanted))):
        part = grid
        for d, (a, b) in enumerate(cell):
            part = part.narrow(d, a, b - a)
        positions = part.reshape(-1)
        best, at = window_maxima(flat.index_select(2, positions), 2)
        values.append(best.unsqueeze(2))
        indices.append(positions[at].unsqueeze(2))
    shape = (*lead, *wanted)
    return as_laid_out(prims.cat(values, 2).reshape(shape), x), as_laid_out(prims.cat(indices, 2).reshape(shape), x)


for _name, _kernel in (("_adaptive_avg_cells", pool_kernels.adaptive_avg_pool),
                       ("_adaptive_avg_backward", pool_kernels.adaptive_avg_pool_backward),
                       ("_adaptive_max_cells", pool_kernels.adaptive_max_pool_with_indices),
                       ("_adaptive_max_backward", pool_kernels.max_pool_backward)):
    COMPOSITES[_name].has_kernel("cpu", _kernel, stays_whole=lambda args: True)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _adaptive_max(1), _adaptive_max(2), _adaptive_max(3)


# -- windows as columns ---------------------------------------------------------------------------------------------
def _columns(sizes: Sequence, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple) -> tuple:
    return tuple(map(window_count, sizes, kernel, stride, padding, dilation))


@operator(name="_unfold_columns", aten=InAten(node="im2col"), vjp=lambda g, input_shape, kernel, dilation, padding, stride: (
    _fold_columns(g, tuple(input_shape[2:]), kernel, dilation, padding, stride),))
def _unfold_columns(input: Tensor, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> Tensor:
    sizes = _columns(input.shape[2:], kernel, stride, padding, dilation)
    padded = _padded(input, padding, sizes, kernel, stride, dilation)
    lead, steps, offset = tuple(padded.shape[:2]), padded._layout.strides, padded._layout.offset
    between_taps, between_windows = (tuple(n * s for n, s in zip(steps[2:], apart)) for apart in (dilation, stride))
    windows = prims.as_strided(padded, (*lead, *kernel, *sizes), (*steps[:2], *between_taps, *between_windows), offset)
    return apart(in_rows(windows).reshape(lead[0], lead[1] * math.prod(kernel), math.prod(sizes)), input)


@operator(name="_fold_columns", aten=InAten(node="col2im"), vjp=lambda g, target, kernel, dilation, padding, stride: (
    _unfold_columns(g, kernel, dilation, padding, stride),))
def _fold_columns(input: Tensor, target: tuple, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> Tensor:
    """The sum over the taps of where each puts its elements."""
    sizes, taps = _columns(target, kernel, stride, padding, dilation), math.prod(kernel)
    parts = input.reshape(input.shape[0], input.shape[1] // taps, taps, *sizes)
    starts = [[t * d - p for t, d, p in zip(tap, dilation, padding)] for tap in _taps(kernel)]
    return functools.reduce(prims.add, [_put(prims.select(parts, 2, n), start, target, stride) for n, start in enumerate(starts)])


def _columns_window(name: str, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> tuple[tuple, ...]:
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    for what, value in given.items():
        if isinstance(value, (tuple, list)) and len(value) != 2:
            raise RuntimeError(f"{name}(): It is expected {what} equals to 2, but got size {len(value)}: give a number, or two")
    kernel, gap, pad, step = (counts(value, 2, what) for what, value in given.items())
    _check_window(name, pad, kernel_size=kernel, dilation=gap, stride=step)
    return kernel, gap, pad, step


@operator(name="unfold_windows")
def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The sliding windows of a (n, c, h, w) input as columns: (n, c * taps, windows)."""
    kernel, gap, pad, step = _columns_window("unfold", kernel_size, dilation, padding, stride)
    if input.ndim < 3:
        raise IndexError(f"unfold(): Dimension out of range: expected a 3D (unbatched) or 4D (batched) input, got {list(input.shape)}")
    x, single = _batched(input, 2, "unfold")
    _check_filled(x, "unfold")
    _check_sizes(x, _columns(x.shape[2:], kernel, step, pad, gap), "unfold")
    out = _unfold_columns(x, kernel, gap, pad, step)
    return prims.squeeze(out, (0,)) if single else out


@operator
def fold(input: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The transpose of `unfold`: columns (n, c * taps, windows) added up into (n, c, *output_size)."""
    single = input.ndim == 2
    if input.ndim not in (2, 3):
        raise RuntimeError(f"Expected 2D (unbatched) or 3D (batched) input to fold, but got input of size: {list(input.shape)}")
    x = prims.unsqueeze(input, 0) if single else input
    kernel, gap, pad, step = _columns_window("fold", kernel_size, dilation, padding, stride)
    target = counts(output_size, 2, "output_size")
    sizes, taps = _columns(target, kernel, step, pad, gap), math.prod(kernel)
    if x.ndim != 3 or x.shape[1] % taps:
        raise RuntimeError("Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
                           f"input.size(1)={x.shape[1]} and kernel_size={kernel}.")
    if x.shape[2] != math.prod(sizes):
        raise RuntimeError(f"Given output_size={target}, kernel_size={kernel}, dilation={gap}, padding={pad}, stride={step}, expected size "
                           f"of input's dimension 2 to match the calculated number of sliding blocks {' * '.join(map(str, sizes))} = "
                           f"{math.prod(sizes)}, but got input.size(2)={x.shape[2]}.")
    out = _fold_columns(x, target, kernel, gap, pad, step)
    return prims.squeeze(out, (0,)) if single else out
