"""Dropout: a random mask, and one fused pass that applies it."""

from __future__ import annotations

from collections.abc import Callable

from ...core.dtypes import FLOAT
from ...core.size import elementwise_order, is_contiguous
from ...core.symbolic import sym_float
from ...core.tensor import Tensor
from .. import prims
from ..primitives import InAten
from ..promotion import cast, expand_to
from ..random import coins
from ..registry import operator
from ..writing import assign
from .activations import SELU_ALPHA, SELU_SCALE


@operator(fused=True, aten=InAten(node="mul"), vjp=lambda g, mask, scale: (masked_scale(g, mask, scale),))
def masked_scale(input: Tensor, mask: Tensor, scale: float) -> Tensor:
    """input * scale * mask: what is dropped is a zero with its sign, and NaN where it was not finite. Saves the mask alone for backward."""
    return prims.mul(prims.mul(input, scale), cast(mask, input.dtype))


def keep_mask(shape: tuple, p: float, like: Tensor) -> Tensor:
    """True with probability 1 - p, independently over `shape`, which broadcasts to that of `like`, in whose order of memory it lies."""
    sizes, strides, _ = like._layout
    if is_contiguous(sizes, strides):
        return coins(shape, p, like.device)
    order = elementwise_order(sizes, [strides])
    drawn = coins([shape[d] for d in order], p, like.device)
    return prims.permute(drawn, sorted(range(len(order)), key=order.__getitem__))


def _masked(input: Tensor, shape: tuple, p: float) -> Tensor:
    """Zero with probability p, independently over `shape`, which broadcasts to the input's; the rest grows by 1 / (1 - p)."""
    mask = keep_mask(shape, p, input)
    return masked_scale(input, expand_to(mask, tuple(input.shape)), 1.0 / (1.0 - p))


def _alpha(input: Tensor, shape: tuple, p: float) -> Tensor:
    """Dropped elements become selu's negative limit; an affine map restores mean 0 and variance 1 (Klambauer et al. 2017)."""
    low = -SELU_ALPHA * SELU_SCALE
    keep = 1.0 - p
    a = (keep + low * low * keep * p) ** -0.5
    mask = expand_to(keep_mask(shape, p, input), tuple(input.shape))
    return prims.add(prims.where(mask, prims.mul(input, a), a * low), -a * p * low)


def _dropped(input: Tensor, p: float, training: bool, inplace: bool | None, by: Callable, channels: bool = False) -> Tensor:
    """What `by` draws makes of the input in training; `channels`: one draw for each (sample, channel). The input itself where there
    is nothing to drop."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not isinstance(input, Tensor):
        raise TypeError(f"dropout: argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if not training or p == 0.0 or not input.numel():
        return input
    if p == 1.0:
        out = prims.mul(input, 0.0 if input.dtype.category >= FLOAT else False)
    elif channels and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    elif input.dtype.category < FLOAT:
        raise RuntimeError(f"result type Float can't be cast to the desired output type {input.dtype} (dropout of an integer tensor)")
    else:
        shape = tuple(input.shape)
        out = by(input, shape[:2] + (1,) * (len(shape) - 2) if channels else shape, sym_float(p))
    return assign(input, out) if inplace else out


@operator
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool | None = False) -> Tensor:
    """In training, zero each element with probability p and scale the rest by 1 / (1 - p)."""
    return _dropped(input, p, training, inplace, _masked)


@operator(tags=("from_generator",))
def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool | None = False) -> Tensor:
    """dropout of whole channels: one draw for each (sample, channel)."""
    return _dropped(input, p, training, inplace, _masked, channels=True)


@operator(tags=("from_generator",))
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool | None = False) -> Tensor:
    """Dropout that keeps mean and variance of selu's outputs."""
    return _dropped(input, p, training, inplace, _alpha)


@operator(tags=("from_generator",))
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool | None = False) -> Tensor:
    """alpha_dropout of whole channels."""
    return _dropped(input, p, training, inplace, _alpha, channels=True)
