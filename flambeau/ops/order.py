"""Memory order of results, where a body's own steps would leave another: one rule a word.

Shape rules of primitives answer with strides (`Spec`); these are for operators, whose results come from several primitives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..core.memory_format import channels_last, channels_last_3d, contiguous_format
from ..core.size import elementwise_strides, looks_channels_last, memory_order, permuted_strides
from ..core.tensor import Tensor
from .registry import PRIMITIVES


def laid(x: Tensor, strides: Sequence[Any]) -> Tensor:
    """`x`, copied if it does not lie with these strides, which are dense."""
    shape, have, _ = x._layout
    if all(a is b or n == 1 or a == b for a, b, n in zip(have, strides, shape)) or 0 in shape:
        return x
    return PRIMITIVES["clone"](x, memory_order(strides, shape))


def repeated(x: Tensor, shape: Sequence[Any]) -> tuple:
    """Strides of `x` over `shape`, to which it is broadcast: 0 where it repeats."""
    own, strides, _ = x._layout
    more = len(shape) - len(own)
    return (0,) * more + tuple([0 if n == 1 and m != 1 else s for s, n, m in zip(strides, own, shape[more:])])


def elementwise(fn: Callable) -> Callable:
    """Mark the body of an operator: its result lies as that of one elementwise primitive of the same tensors."""
    @functools.wraps(fn)
    def in_order(*args: Any, **kwargs: Any) -> Tensor:
        out = fn(*args, **kwargs)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        for t in tensors:
            if not t.is_contiguous():
                break
        else:
            return out
        shape = out._layout.shape
        return laid(out, elementwise_strides(shape, [repeated(t, shape) for t in tensors]))

    return in_order


def in_rows(x: Tensor) -> Tensor:
    """`x` in row-major order, for operators whose result is."""
    return x if x.is_contiguous() else x.contiguous()


def in_images(x: Tensor) -> Tensor:
    """`x` in channels-last order if it lies so, gaps or not, else in row-major order."""
    format = {4: channels_last, 5: channels_last_3d}.get(x.ndim, contiguous_format)
    if x.is_contiguous() or x.is_contiguous(memory_format=format):
        return x
    return as_images(x, x.ndim in (4, 5) and has_images(x))


def has_images(x: Tensor) -> bool:
    """Whether `x` (n, c, ...) lies channels last, as far as its strides tell."""
    return looks_channels_last(*x._layout[:2])


def as_images(x: Tensor, last: bool) -> Tensor:
    """`x` (n, c, ...) in channels-last order if it is to be `last`, else in row-major order."""
    shape = x._layout.shape
    return laid(x, permuted_strides(shape, (0, *range(2, len(shape)), 1))) if last else in_rows(x)


def like(x: Tensor, source: Tensor) -> Tensor:
    """`x` in the memory order of `source`, of the same shape."""
    if x.is_contiguous() and source.is_contiguous():
        return x
    return laid(x, elementwise_strides(source._layout.shape, [source._layout.strides]))

