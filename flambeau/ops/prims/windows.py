"""Convolution and pooling: windows that slide over the trailing spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...backends.cpu import conv
from ...core.tensor import Tensor
from ...core.windows import window_count
from ..batching import of_none, spread
from ..primitives import InAten, channels_last_like
from ..registry import Linear, Spec, primitive
from .pointwise import conjugated
from .views import slice_


def _into_groups(x: Tensor) -> Tensor:
    """(batch, n, c, ...) as (n, batch * c, ...): each example's channels are groups of their own."""
    return x.movedim(0, 1).flatten(1, 2)


def _from_groups(x: Tensor, size: int) -> Tensor:
    return x.unflatten(1, (size, -1)).movedim(1, 0)


def _convolution_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, w, *attrs, groups = args
    if not has[1]:
        return prim(x.flatten(0, 1), w, *attrs, groups).unflatten(0, (size, x.shape[1]))
    if not size:
        return of_none(prim, args, has)
    if not has[0] and groups == 1:
        return _from_groups(prim(x, w.flatten(0, 1), *attrs, 1), size)
    return _from_groups(prim(_into_groups(spread(x, has[0], size)), w.flatten(0, 1), *attrs, size * groups), size)


def _input_grad_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    g, w, shape, *attrs, groups = args
    n, channels, *rest = shape
    if not has[1]:
        return prim(g.flatten(0, 1), w, (size * n, channels, *rest), *attrs, groups).unflatten(0, (size, n))
    if not size:
        return of_none(prim, args, has)
    g, w = _into_groups(spread(g, has[0], size)), w.flatten(0, 1)
    return _from_groups(prim(g, w, (n, size * channels, *rest), *attrs, size * groups), size)


def _weight_grad_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    g, x, shape, *attrs, groups = args
    if not size:
        return of_none(prim, args, has)
    g, x = _into_groups(spread(g, has[0], size)), _into_groups(spread(x, has[1], size))
    return prim(g, x, (size * shape[0], *shape[1:]), *attrs, size * groups).unflatten(0, (size, -1))


def convolution_flops(out: Sequence[int], x: Sequence[int], w: Sequence[int], *attrs: Any) -> int:
    """Each element of the result is a sum over a group's channels and the kernel."""
    return 2 * math.prod(out) * math.prod(w[1:])


def _sharded(letters: str, of_images: str, groups: int) -> str:
    """Groups of channels belong together: with them, images alone can be split."""
    return letters if groups == 1 else of_images


def convolution_in_aten(call: Callable, x: Tensor, w: Tensor, *rest: Any) -> Any:
    """`(x, w, [bias,] stride, padding, dilation, groups)` as ATen's convolution."""
    *bias, stride, padding, dilation, groups = rest
    return call("convolution", x, w, *(bias or [None]), list(stride), list(padding), list(dilation), False, [0] * len(stride), groups)


@primitive("convolution", aten=InAten(steps=convolution_in_aten),
           sharding=lambda x, w, *rest: _sharded("nc*,oc*->no*", "n*,**->n*", rest[-1]),
           batch=_convolution_batch, flops=convolution_flops,
           kernel=lambda x, w, *attrs: conv.convolution(x, w, None, *attrs), library="convolution", tensors=2,
           tags=("linear",), derivative=Linear(
               x=lambda g, w, x_shape, stride, padding, dilation, groups: convolution_input_grad(
                   g, conjugated(w), tuple(x_shape), stride, padding, dilation, groups),
               w=lambda g, x, w_shape, stride, padding, dilation, groups: convolution_weight_grad(
                   g, conjugated(x), tuple(w_shape), stride, padding, dilation, groups)),
           samples=lambda r: [(r.standard_normal((2, 4, 5, 5)), r.standard_normal((6, 2, 3, 3)), (2, 1), (1, 0), (1, 1), 2)])
def convolution(x: Tensor, w: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> Spec:
    """(n, c, *spatial) with (o, c / groups, *kernel) -> (n, o, *spatial'): cross-correlation with zero padding."""
    xs, ws = x._layout.shape, w._layout.shape
    if len(xs) != len(ws) or len(xs) != len(stride) + 2:
        raise RuntimeError(f"Expected {len(stride) + 2}D input and weight to convolution, but got input of size: {list(xs)} and "
                           f"weight of size {list(ws)}")
    if xs[1] != ws[1] * groups:
        raise RuntimeError(f"Given groups={groups}, weight of size {list(ws)}, expected input{list(xs)} to have {ws[1] * groups} "
                           f"channels, but got {xs[1]} channels instead")
    if type(ws[0]) is int and ws[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
                           f"{list(ws)} instead")
    if x.dtype is not w.dtype:
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({w.dtype}) should be the same")
    sizes = tuple(map(window_count, xs[2:], ws[2:], stride, padding, dilation))
    if any(type(n) is int and n <= 0 for n in sizes):
        raise RuntimeError(f"Calculated padded input size per channel: {[n + 2 * p for n, p in zip(xs[2:], padding)]}. Kernel size: "
                           f"{list(ws[2:])}. Kernel size can't be greater than actual input size")
    shape = (xs[0], ws[0], *sizes)
    return Spec(shape, x.dtype, channels_last_like(x, shape))


def _cropped(x: Tensor, shape: Sequence) -> Tensor:
    """As much of an image as there is in `shape`: an output padding beyond the stride leaves room for another window."""
    for d in range(2, x.ndim):
        if x._layout.shape[d] is not shape[d] and x._layout.shape[d] != shape[d]:
            x = slice_(x, d, 0, shape[d], 1)
    return x


@primitive("convolution_input_grad",
           sharding=lambda g, w, *rest: _sharded("no*,oc*->nc*", "n*,**->n*", rest[-1]),
           batch=_input_grad_batch, aten=InAten("convolution_backward", node="convolution"),
           flops=lambda out, g, w, *attrs: convolution_flops(g, out, w),
           kernel=lambda g, w, *attrs: conv.convolution_input_grad(g, w, *attrs), library="convolution",
           tensors=2, tags=("linear",), derivative=Linear(
               g_=lambda g, w, g__shape, x_shape, stride, padding, dilation, groups: _cropped(convolution(
                   g, conjugated(w), stride, padding, dilation, groups), g__shape),
               w=lambda g, g_, w_shape, stride, padding, dilation, groups: convolution_weight_grad(
                   conjugated(g_), g, tuple(w_shape), stride, padding, dilation, groups)),
           samples=lambda r: [(r.standard_normal((1, 3, 3, 3)), r.standard_normal((3, 2, 3, 3)),
                               (1, 2, 5, 5), (2, 2), (1, 1), (1, 1), 1)])
def convolution_input_grad(g_: Tensor, w: Tensor, x_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                           dilation: Sequence[int], groups: int) -> Spec:
    """The transpose of `convolution` in its input: also the transposed convolution."""
    return Spec(tuple(x_shape), g_.dtype, channels_last_like(g_, tuple(x_shape)))


@primitive("convolution_weight_grad",
           sharding=lambda g, x, *rest: _sharded("no*,nc*->oc*", "n*,n*->**", rest[-1]),
           batch=_weight_grad_batch, aten=InAten("convolution_backward"), flops=lambda out, g, x, *attrs: convolution_flops(g, x, out),
           kernel=lambda g, x, *attrs: conv.convolution_weight_grad(g, x, *attrs), library="convolution",
           tensors=2, tags=("linear",), derivative=Linear(
               g_=lambda g, x, stride, padding, dilation, groups: convolution(
                   conjugated(x), g, stride, padding, dilation, groups),
               x=lambda g, g_, x_shape, stride, padding, dilation, groups: convolution_input_grad(
                   conjugated(g_), g, tuple(x_shape), stride, padding, dilation, groups)),
           samples=lambda r: [(r.standard_normal((1, 3, 3, 3)), r.standard_normal((1, 2, 5, 5)),
                               (3, 2, 3, 3), (2, 2), (1, 1), (1, 1), 1)])
def convolution_weight_grad(g_: Tensor, x: Tensor, w_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                            dilation: Sequence[int], groups: int) -> Spec:
    """The transpose of `convolution` in its weight."""
    return Spec(tuple(w_shape), x.dtype)


__all__ = ["convolution", "convolution_input_grad", "convolution_weight_grad"]
