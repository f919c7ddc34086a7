"""Losses. Cross entropy of class indices is one fused operator each way over the logits; the rest are short formulas."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.dtypes import bool_, int64, uint8
from ..core.tensor import Tensor
from . import prims
from .nn_activations import log_softmax, logsigmoid, widened
from .pointwise import where
from .promotion import broadcast, cast
from .registry import operator

_REDUCTIONS = ("none", "mean", "sum")


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """`loss` as it is, its mean or its sum."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction; expected one of {', '.join(_REDUCTIONS)}")
    return loss


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that torch's deprecated pair of flags means."""
    if size_average is None and reduce is None:
        return reduction
    found = "mean" if size_average is not False and reduce is not False else "none" if reduce is False else "sum"
    warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{found}' instead.", stacklevel=3)
    return found


# -- cross entropy -----------------------------------------------------------------------------------------
def _is_target(rows: int, columns: int, target: Tensor, shape: tuple) -> Tensor:
    """Where column c of row r is target[r]: a bool matrix."""
    classes = prims.iota(columns, 0, 1, int64, target.device)
    return prims.eq(prims.expand(prims.unsqueeze(classes, 0), shape), prims.expand(prims.unsqueeze(target, 1), shape))


@operator(fused=True)
def cross_entropy_rows_backward(g: Tensor, x: Tensor, target: Tensor, lse: Tensor) -> Tensor:
    """Gradient of the rows' losses for the logits: g * (softmax(x) - onehot(target))."""
    shape = tuple(x.shape)
    xw = widened(x)
    p = prims.exp(prims.sub(xw, prims.expand(prims.unsqueeze(lse, 1), shape)))
    hit = _is_target(shape[0], shape[1], target, shape)
    scale = prims.expand(prims.unsqueeze(widened(g), 1), shape)
    return cast(prims.mul(scale, prims.where(hit, prims.sub(p, 1.0), p)), x.dtype)


def _cross_entropy_rows_vjp(gs: tuple, input: Tensor, target: Tensor, out1: Tensor) -> tuple:
    x, lse = input, out1
    g_loss, g_lse = gs
    loss_part = cross_entropy_rows_backward(g_loss, x, target, lse) if g_loss is not None else None
    if g_lse is None:
        return (loss_part,)
    p = (x - lse.unsqueeze(1)).exp()
    lse_part = p * g_lse.unsqueeze(1)
    return (lse_part if loss_part is None else loss_part + lse_part,)


@operator(name="_cross_entropy_rows", fused=True, vjp=_cross_entropy_rows_vjp)
def _cross_entropy_rows(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(-log softmax(x)[target], logsumexp(x)) of each row of (n, classes) logits, in float32 at least."""
    x, shape = widened(input), tuple(input.shape)
    top = prims.amax(x, (1,))
    shifted = prims.sub(x, prims.expand(prims.unsqueeze(top, 1), shape))
    lse = prims.add(prims.log(prims.sum(prims.exp(shifted), (1,))), top)
    picked = prims.squeeze(prims.gather(x, 1, prims.unsqueeze(target, 1)), (1,))
    return prims.sub(lse, picked), lse


def _check_targets(target: Tensor, classes: Any, ignore_index: int) -> None:
    """IndexError naming the first class that does not exist. Tensors without data pass."""
    data = target._data
    if type(data) is not np.ndarray or not data.size or type(classes) is not int:
        return
    bad = (data != ignore_index) & ((data < 0) | (data >= classes))
    if bad.any():
        raise IndexError(f"Target {int(data[bad][0])} is out of bounds.")


def _rows(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(n, c, ...) logits and (n, ...) classes as a matrix and a vector."""
    if input.ndim == 1:
        return input.unsqueeze(0), target.reshape(1)
    if input.ndim == 2:
        return input, target
    classes = input.shape[1]
    return input.movedim(1, -1).reshape(-1, classes), target.reshape(-1)


def _check_shapes(input: Tensor, target: Tensor, name: str) -> None:
    expected = tuple(input.shape[:1] + input.shape[2:]) if input.ndim > 1 else ()
    if not input.ndim:
        raise RuntimeError(f"{name}: expected an input of at least 1 dimension, got a 0-dim tensor")
    if input.ndim > 1 and target.ndim and input.shape[0] != target.shape[0]:
        raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]}).")
    if tuple(target.shape) != expected:
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(target.shape)} ({name} with input of size "
                           f"{list(input.shape)})")
    if target.dtype is not int64 and target.dtype is not uint8:
        raise RuntimeError(f"expected scalar type Long or Byte but found {target.dtype} for the class indices; convert them with .long()")


def _check_weight(weight: Tensor | None, classes: Any) -> None:
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of "
                           f"shape: {list(weight.shape)}")


def _weighted(losses: Tensor, counts: Tensor, reduction: str, shape: tuple) -> Tensor:
    if reduction == "none":
        return losses.reshape(shape)
    if reduction == "sum":
        return losses.sum()
    if reduction != "mean":
        raise ValueError(f"{reduction} is not a valid value for reduction; expected one of {', '.join(_REDUCTIONS)}")
    return losses.sum() / counts.sum()


@operator(fused=True)
def mean_of_kept_backward(g: Tensor, kept: Tensor) -> Tensor:
    """Gradient of mean_of_kept for the losses: g over the number of kept ones, where kept."""
    count = prims.sum(prims.convert(kept, g.dtype), (0,))
    return prims.where(kept, prims.expand(prims.truediv(g, count), tuple(kept.shape)), 0.0)


@operator(fused=True, vjp=lambda g, kept: (mean_of_kept_backward(g, kept),))
def mean_of_kept(losses: Tensor, kept: Tensor) -> Tensor:
    """The mean of those of a row of losses that a mask keeps; NaN if it keeps none."""
    total = prims.sum(prims.where(kept, losses, 0.0), (0,))
    return prims.truediv(total, prims.sum(prims.convert(kept, losses.dtype), (0,)))


def _index_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
                         smoothing: float) -> Tensor:
    _check_shapes(input, target, "cross_entropy")
    classes = input.shape[1] if input.ndim > 1 else input.shape[0]
    _check_weight(weight, classes)
    _check_targets(target, classes, ignore_index)
    x, t = _rows(input, cast(target, int64))
    kept = t != ignore_index
    safe = t.masked_fill(~kept, 0)
    nll, lse = _cross_entropy_rows(x, safe)
    if weight is None and not smoothing and reduction == "mean":
        return cast(mean_of_kept(nll, kept), input.dtype)
    w = cast(weight, nll.dtype) if weight is not None else None
    counts = kept.to(nll.dtype) if w is None else w[safe] * kept
    losses = nll * counts if w is not None else nll.masked_fill(~kept, 0)
    if smoothing:
        wide = widened(x)
        if w is None:
            spread = lse * classes - wide.sum(1)
        else:
            spread = lse * w.sum() - (wide * w).sum(1)
        losses = losses * (1 - smoothing) + spread.masked_fill(~kept, 0) * (smoothing / classes)
    return cast(_weighted(losses, counts, reduction, tuple(target.shape)), input.dtype)


def _soft_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float) -> Tensor:
    if not target.dtype.is_floating_point:
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {target.dtype}")
    dim = 1 if input.ndim > 1 else 0
    classes = input.shape[dim]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    logp = log_softmax(input, dim)
    if weight is not None:
        logp = logp * weight.reshape((1, -1) + (1,) * (input.ndim - 2) if input.ndim > 1 else (-1,))
    losses = -(logp * target).sum(dim)
    if reduction == "mean":
        return losses.sum() / (input.numel() / classes)
    return reduced(losses, reduction)


@operator
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                  ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """-log softmax(input)[target] over the classes (dimension 1): target holds class indices, or probabilities of input's shape.

    `weight` weighs the classes, `ignore_index` leaves targets out, `label_smoothing` mixes in the uniform distribution.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if input.ndim and tuple(target.shape) == tuple(input.shape):
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    return _index_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


@operator
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-input[target] over the classes (dimension 1): input holds log-probabilities."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_shapes(input, target, "nll_loss")
    classes = input.shape[1] if input.ndim > 1 else input.shape[0]
    _check_weight(weight, classes)
    _check_targets(target, classes, ignore_index)
    x, t = _rows(input, cast(target, int64))
    kept = t != ignore_index
    safe = t.masked_fill(~kept, 0)
    picked = -x.gather(1, safe.unsqueeze(1)).squeeze(1)
    counts = kept.to(x.dtype) if weight is None else weight[safe] * kept
    losses = picked * counts if weight is not None else picked.masked_fill(~kept, 0)
    return _weighted(losses, counts, reduction, tuple(target.shape))


# -- binary cross entropy ------------------------------------------------------------------------------------
@operator(fused=True)
def _bce_backward(g: Tensor, x: Tensor, target: Tensor) -> Tensor:
    """g * (x - t) / (x (1 - x)), the denominator at least 1e-12."""
    variance = prims.mul(x, prims.sub(1.0, x))
    variance = prims.where(prims.lt(variance, 1e-12), 1e-12, variance)
    return prims.truediv(prims.mul(g, prims.sub(x, target)), variance)


def _bce_vjp(g: Tensor, input: Tensor, target: Tensor, needs: tuple) -> tuple:
    wanted = g * ((-input).log1p().clamp_min(-100) - input.log().clamp_min(-100)) if needs[1] else None
    return (_bce_backward(g, input, target) if needs[0] else None, wanted)


@operator(name="_bce", fused=True, vjp=_bce_vjp)
def _bce(input: Tensor, target: Tensor) -> Tensor:
    yes, no = prims.log(input), prims.log1p(prims.neg(input))
    yes, no = (prims.where(prims.lt(v, -100.0), -100.0, v) for v in (yes, no))
    return prims.sub(prims.mul(prims.sub(target, 1.0), no), prims.mul(target, yes))


@operator
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) of probabilities x, the logarithms limited to -100 from below."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
                         "Please ensure they have the same size.")
    if input._data is not None and input.numel() and not bool(((input >= 0) & (input <= 1)).all()):
        raise RuntimeError("all elements of input should be between 0 and 1")
    loss = _bce(input, cast(target, input.dtype))
    return reduced(loss if weight is None else loss * weight, reduction)


@operator(fused=True)
def _bce_with_logits_backward(g: Tensor, x: Tensor, target: Tensor) -> Tensor:
    return prims.mul(g, prims.sub(prims.sigmoid(x), target))


def _bce_with_logits_vjp(g: Tensor, input: Tensor, target: Tensor, needs: tuple) -> tuple:
    return (_bce_with_logits_backward(g, input, target) if needs[0] else None, -g * input if needs[1] else None)


@operator(name="_bce_with_logits", fused=True, vjp=_bce_with_logits_vjp)
def _bce_with_logits(input: Tensor, target: Tensor) -> Tensor:
    """max(x, 0) - x t + log(1 + e^-|x|)."""
    tail = prims.log1p(prims.exp(prims.neg(prims.abs(input))))
    return prims.add(prims.sub(prims.relu(input), prims.mul(input, target)), tail)


@operator
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                                     pos_weight: Tensor | None = None) -> Tensor:
    """binary_cross_entropy of sigmoid(input), without overflow; `pos_weight` weighs the positive targets."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    if pos_weight is None:
        loss = _bce_with_logits(input, cast(target, input.dtype))
    else:
        loss = (1 - target) * input - (1 + (pos_weight - 1) * target) * logsigmoid(input)
    return reduced(loss if weight is None else loss * weight, reduction)


# -- distances -------------------------------------------------------------------------------------------------
def _pair(input: Tensor, target: Tensor, name: str) -> tuple[Tensor, Tensor]:
    if input.shape != target.shape:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
                      f"This will likely lead "
                      f"to incorrect results due to broadcasting. Please ensure they have the same size. ({name})", stacklevel=4)
    x, t = broadcast(input, target)
    return x, t


@operator
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """(input - target)^2."""
    x, t = _pair(input, target, "mse_loss")
    loss = (x - t) ** 2
    return _weighted_mean(loss, weight, legacy_reduction(size_average, reduce, reduction))


def _weighted_mean(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduced(loss, reduction)
    weighted = loss * weight
    return weighted.sum() / weight.sum() if reduction == "mean" else reduced(weighted, reduction)


@operator
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """|input - target|."""
    x, t = _pair(input, target, "l1_loss")
    return _weighted_mean((x - t).abs(), weight, legacy_reduction(size_average, reduce, reduction))


@operator
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| is below beta, else d - beta / 2."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    x, t = _pair(input, target, "smooth_l1_loss")
    d = (x - t).abs()
    loss = d if beta == 0 else where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Tensor | None = None) -> Tensor:
    """d^2 / 2 where d = |input - target| is at most delta, else delta (d - delta / 2)."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    x, t = _pair(input, target, "huber_loss")
    d = (x - t).abs()
    return _weighted_mean(where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), weight, reduction)


# -- divergences ---------------------------------------------------------------------------------------------
@operator
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (log t - input): input holds log-probabilities, and so does the target with `log_target`."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0]
    if reduction == "mean":
        warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the support size."
                      "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
                      "'mean' will be changed to behave the same as 'batchmean' in the next major release.", stacklevel=2)
    return reduced(loss, reduction)


@operator
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """exp(input) - target * input (input - target log input without `log_input`); `full` adds Stirling's term."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """(log var + (input - target)^2 / var) / 2, the variance limited to eps from below without a gradient of its own."""
    if not isinstance(var, Tensor):
        var = input.new_full(input.shape, float(var))
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif not (tuple(input.shape[:-1]) == tuple(var.shape[:-1]) and var.shape[-1] == 1):
            raise ValueError("var is of incorrect size")
    if var._data is not None and bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    limited = var + (var.detach().clamp_min(eps) - var.detach())
    loss = 0.5 * (limited.log() + (input - target) ** 2 / limited)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# -- margins --------------------------------------------------------------------------------------------------
@operator
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    zero = input * 0
    loss = where(target != 1, (margin - input).clamp_min(0), zero) + where(target != -1, input, zero)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: "
                           f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} ")
    loss = (-target * (input1 - input2) + margin).clamp_min(0)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input))."""
    return reduced(-logsigmoid(target * input), legacy_reduction(size_average, reduce, reduction))


@operator
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`."""
    a, b = broadcast(x1, x2)
    norms = a.norm(2, dim, keepdim=True).clamp_min(eps), b.norm(2, dim, keepdim=True).clamp_min(eps)
    return ((a / norms[0]) * (b / norms[1])).sum(dim)


@operator
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
                          reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    dim = input1.ndim - 1
    eps = 1e-12
    dot = (input1 * input2).sum(dim)
    cos = dot / (((input1 * input1).sum(dim) + eps) * ((input2 * input2).sum(dim) + eps)).sqrt()
    zero = cos * 0
    loss = where(target == 1, 1 - cos, zero) + where(target == -1, (cos - margin).clamp_min(0), zero)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """norm_p(x1 - x2 + eps) over the last dimension."""
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


@operator
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((near - far + margin).clamp_min(0), legacy_reduction(size_average, reduce, reduction))


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable | None = None, margin: float = 1.0, swap: bool = False,
                                      reduction: str = "mean") -> Tensor:
    """triplet_margin_loss with a distance of your own."""
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp_min(0), reduction)


@operator
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
                      size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """Mean over the other classes i of max(0, margin - x[target] + x[i])^p."""
    x = input.unsqueeze(0) if input.ndim == 1 else input
    t = target.reshape(-1, 1)
    gap = (margin - x.gather(1, t) + x).clamp_min(0)
    gap = gap if p == 1 else gap ** p
    if weight is not None:
        gap = gap * weight[t]
    own = _is_target(x.shape[0], x.shape[1], t.reshape(-1), tuple(x.shape))
    loss = gap.masked_fill(own, 0).sum(1) / x.shape[1]
    return reduced(loss.reshape(()) if input.ndim == 1 else loss, legacy_reduction(size_average, reduce, reduction))


@operator
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                           reduction: str = "mean") -> Tensor:
    """Mean of max(0, 1 - x[y] + x[i]) over target classes y (up to the first -1 in each row) and other classes i."""
    x, t = (input.unsqueeze(0), target.unsqueeze(0)) if input.ndim == 1 else (input, target)
    listed = (t < 0).to(int64).cumsum(1) == 0
    safe = t.masked_fill(~listed, 0)
    hits = x.new_zeros(x.shape).scatter_add(1, safe, listed.to(x.dtype)) > 0
    gap = (1 - x.gather(1, safe).unsqueeze(2) + x.unsqueeze(1)).clamp_min(0)
    gap = gap.masked_fill(~listed.unsqueeze(2), 0).masked_fill(hits.unsqueeze(1), 0)
    loss = gap.sum((1, 2)) / x.shape[1]
    return reduced(loss.reshape(()) if input.ndim == 1 else loss, legacy_reduction(size_average, reduce, reduction))


@operator
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                                reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """Mean over the classes of the binary cross entropy with logits."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    loss = (loss if weight is None else loss * weight).sum(-1) / input.shape[-1]
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


# -- CTC --------------------------------------------------------------------------------------------------------
def _lengths(value: Any) -> list[int]:
    return value.tolist() if isinstance(value, Tensor) else [int(v) for v in value]


@operator
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006): -log of the probability of all alignments.

    log_probs is (time, batch, classes), or (time, classes); targets (batch, longest), or all of them in a row. The forward
    recursion runs over the labels with blanks between, in the logarithm; its gradient is the tape's.
    """
    single = log_probs.ndim == 2
    logp = log_probs.unsqueeze(1) if single else log_probs
    in_lengths, out_lengths = (_lengths(v) if not (isinstance(v, Tensor) and not v.ndim) else [int(v)]
                               for v in (input_lengths, target_lengths))
    _check_ctc(logp, targets, in_lengths, out_lengths, blank)
    rows = targets.reshape(-1).tolist() if targets.ndim < 2 or single else None
    losses, start = [], 0
    for b, (steps, length) in enumerate(zip(in_lengths, out_lengths, strict=True)):
        labels = rows[start:start + length] if rows is not None else targets[b, :length].tolist()
        start += length
        losses.append(_ctc_one(logp[:steps, b], labels, blank))
    loss = logp.new_cat([v.reshape(1) for v in losses], 0)
    if zero_infinity:
        loss = loss.masked_fill(loss.isinf(), 0)
    if reduction == "mean":
        return (loss / logp.new_tensor([float(max(n, 1)) for n in out_lengths])).mean()
    return reduced(loss.reshape(()) if single else loss, reduction)


def _check_ctc(logp: Tensor, targets: Tensor, in_lengths: list[int], out_lengths: list[int], blank: int) -> None:
    steps, batch, classes = logp.shape
    if len(in_lengths) != batch or len(out_lengths) != batch:
        raise RuntimeError(f"ctc_loss: expected input_lengths and target_lengths for a batch of {batch}, got {len(in_lengths)} and "
                           f"{len(out_lengths)} of them")
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range [0, {classes}), got {blank}")
    if max(in_lengths, default=0) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(in_lengths)} (log_probs has shape "
                           f"{list(logp.shape)})")
    room = targets.shape[1] if targets.ndim == 2 else targets.numel()
    needed = max(out_lengths, default=0) if targets.ndim == 2 else sum(out_lengths)
    if needed > room:
        raise RuntimeError(f"ctc_loss: target_lengths ask for {needed} labels, but targets of shape {list(targets.shape)} have {room}")


def _ctc_one(logp: Tensor, labels: list[int], blank: int) -> Tensor:
    path = [blank]
    for label in labels:
        path += [label, blank]
    emit = logp.index_select(1, logp.new_tensor(path).to(int64))
    size, low = len(path), -1e30
    skips = logp.new_tensor([i >= 2 and path[i] != blank and path[i] != path[i - 2] for i in range(size)]).to(bool_)
    start = logp.new_tensor([i < 2 for i in range(size)]).to(bool_)
    alpha = emit[0].masked_fill(~start, low)
    edge = logp.new_full((2,), low)
    for step in range(1, logp.shape[0]):
        padded = logp.new_cat([edge, alpha], 0)
        one, two = padded[1:1 + size], padded[:size].masked_fill(~skips, low)
        alpha = alpha.logaddexp(one).logaddexp(two) + emit[step]
    total = alpha[-1].logaddexp(alpha[-2]) if size > 1 else alpha[-1]
    return where(total < low / 2, math.inf, -total)
