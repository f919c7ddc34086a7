"""Losses. Cross entropy of class indices is one fused operator each way over the logits; the rest are short formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends.cpu import ctc as ctc_kernels
from ...core.dtypes import FLOAT, bool_, int64, uint8
from ...core.size import broadcast_shapes
from ...core.symbolic import sym_float
from ...core.tensor import Tensor
from ...core.warned import warn
from .. import prims
from ..checks import checked
from ..order import like
from ..pointwise import where
from ..primitives import InAten
from ..promotion import broadcast, cast, fitting, prepare
from ..registry import COMPOSITES, on_tape, operator
from .activations import log_softmax, logsigmoid, widened

_REDUCTIONS = ("none", "mean", "sum")


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """`loss` as it is, its mean or its sum."""
    _check_reduction(reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _check_reduction(reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction; expected one of {', '.join(_REDUCTIONS)}")


def _refuse_other(weight: Any) -> None:
    if weight is not None and not isinstance(weight, Tensor):
        raise TypeError(f"argument 'weight' must be Tensor, not {type(weight).__name__}")


def _weighed(loss: Tensor, weight: Tensor | None, shape: Sequence | None = None) -> Tensor:
    """`loss` with a weight for each element, given in `shape` or, without, in one that broadcasts to the loss's."""
    _refuse_other(weight)
    if weight is None:
        return loss
    if shape is not None and weight.shape != shape:
        raise ValueError(f"Weights and input must have the same size, got {list(weight.shape)} and {list(shape)}")
    _check_spread("weight", weight, loss)
    return loss * weight


def _check_spread(name: str, weight: Tensor, loss: Tensor) -> None:
    """RuntimeError for weights that would make a loss larger, one of several for each element."""
    shape = broadcast_shapes(loss.shape, weight.shape)
    if shape != loss.shape:
        raise RuntimeError(f"output with shape {list(loss.shape)} doesn't match the broadcast shape {list(shape)}: the {name} has shape "
                           f"{list(weight.shape)}")


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that torch's deprecated pair of flags means."""
    if size_average is None and reduce is None:
        return reduction
    summed, reduced_at_all = size_average is not None and not size_average, reduce is None or reduce
    found = "none" if not reduced_at_all else "sum" if summed else "mean"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{found}' instead.")
    return found


# -- cross entropy -----------------------------------------------------------------------------------------
def _is_target(target: Tensor, shape: tuple) -> Tensor:
    """Where the class (dimension 1) is the target."""
    classes = prims.unsqueeze(prims.iota(shape[1], 0, 1, int64, target.device), 0)
    classes = prims.unsqueeze(classes, 2) if len(shape) > 2 else classes
    return prims.eq(prims.expand(classes, shape), prims.expand(prims.unsqueeze(target, 1), shape))


@operator(fused=True)
def cross_entropy_rows_backward(g: Tensor, x: Tensor, target: Tensor, top: Tensor, above: Tensor) -> Tensor:
    """Gradient of the rows' losses for the logits: g * (softmax(x) - onehot(target))."""
    shape = tuple(x.shape)
    p = _softmax_rows(x, top, above)
    hit = _is_target(target, shape)
    scale = prims.expand(prims.unsqueeze(widened(g), 1), shape)
    return cast(prims.mul(scale, prims.where(hit, prims.sub(p, 1.0), p)), x.dtype)


def _softmax_rows(x: Tensor, top: Tensor, above: Tensor) -> Tensor:
    """softmax(x) of rows, from their largest logit and what logsumexp(x) is above it: their sum loses digits that large logits need."""
    shape = tuple(x.shape)
    shifted = prims.sub(widened(x), prims.expand(prims.unsqueeze(top, 1), shape))
    return prims.exp(prims.sub(shifted, prims.expand(prims.unsqueeze(above, 1), shape)))


def _cross_entropy_rows_vjp(gs: tuple, input: Tensor, target: Tensor, out1: Tensor, out2: Tensor) -> tuple:
    """Each result is taken to hang on the largest logit in no way of its own: it cancels."""
    g_loss, _, g_above = gs
    loss_part = cross_entropy_rows_backward(g_loss, input, target, out1, out2) if g_loss is not None else None
    if g_above is None:
        return (loss_part,)
    above_part = cast(_softmax_rows(input, out1, out2) * g_above.unsqueeze(1), input.dtype)
    return (above_part if loss_part is None else loss_part + above_part,)


@operator(name="_cross_entropy_rows", fused=True, vjp=_cross_entropy_rows_vjp)
def _cross_entropy_rows(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(-log softmax(x)[target], max(x), logsumexp(x) - max(x)) of (n, classes) or (n, classes, positions) logits, in float32 at least."""
    x, shape = widened(input), tuple(input.shape)
    top = prims.amax(x, (1,))
    shifted = prims.sub(x, prims.expand(prims.unsqueeze(top, 1), shape))
    above = prims.log(prims.sum(prims.exp(shifted), (1,)))
    picked = prims.squeeze(prims.gather(x, 1, prims.unsqueeze(target, 1)), (1,))
    return prims.add(above, prims.sub(top, picked)), top, above


def _check_targets(target: Tensor, classes: Any, ignore_index: int) -> None:
    """IndexError naming the first class that does not exist. Tensors without data pass."""
    data = target._checked_array
    if type(data) is not np.ndarray or not data.size or type(classes) is not int:
        return
    bad = (data != ignore_index) & ((data < 0) | (data >= classes))
    if bad.any():
        raise IndexError(f"Target {int(data[bad][0])} is out of bounds.")


def _rows(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(n, c, ...) logits and (n, ...) classes with at most one dimension after the classes."""
    if input.ndim == 1:
        return input.unsqueeze(0), target.reshape(1)
    if input.ndim == 2:
        return input, target
    n, classes, *sizes = input.shape
    positions = math.prod(sizes)
    return input.reshape(n, classes, positions), target.reshape(n, positions)


def _check_shapes(input: Tensor, target: Tensor, name: str) -> None:
    if input.ndim == 1 and target.ndim == 1 and target.shape[0] != 1:
        raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]} ({name})")
    expected = tuple(input.shape[:1] + input.shape[2:]) if input.ndim > 1 else tuple(target.shape[:1])
    if not input.ndim:
        raise RuntimeError(f"{name}: expected an input of at least 1 dimension, got a 0-dim tensor")
    if input.ndim > 1 and input.shape[0] != (batch := target.shape[0] if target.ndim else 0):
        raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({batch}).")
    if tuple(target.shape) != expected:
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(target.shape)} ({name} with input of size "
                           f"{list(input.shape)})")
    if target.dtype is not int64 and target.dtype is not uint8:
        raise RuntimeError(f"expected scalar type Long or Byte but found {target.dtype} for the class indices; convert them with .long()")


def _check_weight(weight: Tensor | None, classes: Any) -> None:
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of "
                           f"shape: {list(weight.shape)}")


def _kept_rows(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """The checked `input` by rows or planes, the class of each position (0 where it is ignored), and which ones are not ignored."""
    _check_shapes(input, target, name)
    classes = input.shape[1] if input.ndim > 1 else input.shape[0]
    _check_weight(weight, classes)
    _check_targets(target, classes, ignore_index)
    x, t = _rows(input, cast(target, int64))
    kept = t != ignore_index
    return x, t.masked_fill(~kept, 0), kept


def _nll_node(input: Tensor, *args: Any, **kwargs: Any) -> str:
    """What ATen makes of it: planes of classes, into which other dimensions are flattened, or rows."""
    unreduced = (args[5] if len(args) > 5 else kwargs.get("reduction")) == "none"
    return "nll_loss" if input.ndim < 3 else "view" if input.ndim != 4 and unreduced else "nll_loss2d"


def _weighted(losses: Tensor, counts: Tensor, reduction: str, shape: tuple) -> Tensor:
    return losses.sum() / counts.sum() if reduction == "mean" else reduced(losses.reshape(shape), reduction)


@operator(fused=True)
def mean_of_kept_backward(g: Tensor, kept: Tensor) -> Tensor:
    """Gradient of mean_of_kept for the losses: g over the number of kept ones, where kept."""
    count = prims.sum(prims.convert(kept, g.dtype), (0,))
    return prims.where(kept, prims.expand(prims.truediv(g, count), tuple(kept.shape)), 0.0)


@operator(fused=True, aten=InAten(node="nll_loss"), vjp=lambda g, kept: (mean_of_kept_backward(g, kept),))
def mean_of_kept(losses: Tensor, kept: Tensor) -> Tensor:
    """The mean of those of a row of losses that a mask keeps; NaN if it keeps none."""
    total = prims.sum(prims.where(kept, losses, 0.0), (0,))
    return prims.truediv(total, prims.sum(prims.convert(kept, losses.dtype), (0,)))


def _index_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
                         smoothing: float) -> Tensor:
    x, safe, kept = _kept_rows(input, target, weight, ignore_index, "cross_entropy")
    classes = x.shape[1]
    nll, top, above = _cross_entropy_rows(x, safe)
    if weight is None and not smoothing and reduction == "mean":
        mean = cast(mean_of_kept(nll.reshape(-1), kept.reshape(-1)), input.dtype)
        return mean if input.ndim < 3 else on_tape("nll_loss2d", mean)
    w = cast(weight, nll.dtype) if weight is not None else None
    counts = kept.to(nll.dtype) if w is None else w[safe] * kept
    losses = (nll if w is None else nll * counts).masked_fill(~kept, 0)
    if smoothing:
        below = top.unsqueeze(1) - widened(x)
        if w is None:
            spread = above * classes + below.sum(1)
        else:
            spread = above * w.sum() + (below * (w if x.ndim == 2 else w.unsqueeze(1))).sum(1)
        losses = losses * (1 - smoothing) + spread.masked_fill(~kept, 0) * (smoothing / classes)
    loss = cast(_weighted(losses, counts, reduction, tuple(target.shape) if input.ndim > 1 else ()), input.dtype)
    return loss if smoothing else on_tape(_nll_node(input, reduction=reduction), loss)


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


@operator(autocast="wide")
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                  ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """-log softmax(input)[target] over the classes (dimension 1): target holds class indices, or probabilities of input's shape.

    `weight` weighs the classes, `ignore_index` leaves targets out, `label_smoothing` mixes in the uniform distribution.
    """
    reduction, label_smoothing = legacy_reduction(size_average, reduce, reduction), sym_float(label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise NotImplementedError(f"cross_entropy is not implemented for an input of {input.dtype}, which holds scores of classes (target "
                                  f"holds their numbers); got input {input.dtype} {list(input.shape)}, target {target.dtype} "
                                  f"{list(target.shape)}")
    if input.ndim and tuple(target.shape) == tuple(input.shape):
        if ignore_index >= 0:
            raise RuntimeError(f"ignore_index is not supported for floating point target, got ignore_index={ignore_index}")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    return _index_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


@operator
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
                         weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Tensor:
    """cross_entropy of input @ linear_weight.T + linear_bias, whose classes come first among the weight's leading dimensions."""
    if options is not None:
        warn("linear_cross_entropy(options=...): the logits are not computed chunk by chunk but whole; to save memory call it for "
                      "parts of the batch under torch.utils.checkpoint")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    if linear_weight.ndim > 2 and input.ndim < 2:
        raise RuntimeError(f"linear_weight of shape {list(linear_weight.shape)} has several features for each class, which needs a batched "
                           f"input, got shape {list(input.shape)}")
    logits = input @ linear_weight.flatten(0, -2).mT
    lead = tuple(linear_weight.shape[:-1])
    logits = logits.reshape((*input.shape[:-1], *lead))
    if linear_bias is not None:
        logits = logits + linear_bias.reshape((*linear_bias.shape, *(1,) * (len(lead) - linear_bias.ndim)))
    return cross_entropy(logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index, reduction=reduction,
                         label_smoothing=label_smoothing)


@operator(autocast="wide", node=_nll_node)
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-input[target] over the classes (dimension 1): input holds log-probabilities."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    x, safe, kept = _kept_rows(input, target, weight, ignore_index, "nll_loss")
    picked = -x.gather(1, safe.unsqueeze(1)).squeeze(1)
    if weight is not None and weight.dtype is not x.dtype:
        raise RuntimeError(f"nll_loss: expected a weight of the input's dtype, {x.dtype}, but found {weight.dtype}")
    counts = kept.to(x.dtype) if weight is None else weight[safe] * kept
    losses = (picked if weight is None else picked * counts).masked_fill(~kept, 0)
    return _weighted(losses, counts, reduction, tuple(target.shape) if input.ndim > 1 else ())


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


@operator(autocast={"cpu": "wide"}, node=True)
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) of probabilities x, the logarithms limited to -100 from below."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
                         "Please ensure they have the same size.")
    _refuse_other(weight)
    if target.dtype is not input.dtype:
        raise RuntimeError(f"Found dtype {target.dtype} but expected {input.dtype} (binary_cross_entropy's target); convert it with "
                           f".to({input.dtype})")
    answer = reduced(_weighed(like(_bce(input, target), input), weight), reduction)
    for name, x in (("input", input), ("target", target)):
        fits = (x >= 0) & (x <= 1)
        if x._data is None:
            answer = checked(answer, fits)
        elif x.numel() and not bool(fits.all()):
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")
    return answer


@operator(fused=True)
def _bce_with_logits_backward(g: Tensor, x: Tensor, target: Tensor) -> Tensor:
    return prims.mul(g, prims.sub(prims.sigmoid(x), target))


@operator(name="_bce_with_logits", fused=True, vjp=lambda g, input, target, needs: (
    _bce_with_logits_backward(g, input, target) if needs[0] else None, -g * input if needs[1] else None))
def _bce_with_logits(input: Tensor, target: Tensor) -> Tensor:
    """max(x, 0) (1 - t) + max(-x, 0) t + log(1 + e^-|x|): infinite scores have a loss too."""
    tail = prims.log1p(prims.exp(prims.neg(prims.abs(input))))
    above = prims.mul(prims.relu(input), prims.sub(1.0, target))
    return prims.add(prims.add(above, prims.mul(prims.relu(prims.neg(input)), target)), tail)


@operator(autocast="wide", node=True)
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                                     pos_weight: Tensor | None = None) -> Tensor:
    """binary_cross_entropy of sigmoid(input), without overflow; `pos_weight` weighs the positive targets."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    _refuse_integers("binary_cross_entropy_with_logits", target, input)
    if pos_weight is None:
        loss = like(_bce_with_logits(input, cast(target, input.dtype)), target)
    else:
        _check_spread("pos_weight", pos_weight, input)
        loss = (1 - target) * input - (1 + (pos_weight - 1) * target) * logsigmoid(input)
    return reduced(_weighed(loss, weight), reduction)


# -- distances -------------------------------------------------------------------------------------------------
def _pair(input: Tensor, target: Tensor, name: str) -> tuple[Tensor, Tensor]:
    if input.shape != target.shape:
        warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead "
                      f"to incorrect results due to broadcasting. Please ensure they have the same size. ({name})")
    x, t = broadcast(input, cast(target, input.dtype) if target.dtype is bool_ else target)
    return x, t


@operator(autocast="wide", node=True)
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """(input - target)^2."""
    x, t = _pair(input, target, "mse_loss")
    loss = (x - t) ** 2
    return _weighted_mean(loss, weight, input.shape, legacy_reduction(size_average, reduce, reduction))


def _weighted_mean(loss: Tensor, weight: Tensor | None, shape: Sequence, reduction: str) -> Tensor:
    weighted = _weighed(loss, weight, shape)
    if weight is None:
        return reduced(loss, reduction)
    return weighted.sum() / weight.sum() if reduction == "mean" else reduced(weighted, reduction)


@operator(autocast="wide")
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """|input - target|."""
    x, t = _pair(input, target, "l1_loss")
    return _weighted_mean((x - t).abs(), weight, input.shape, legacy_reduction(size_average, reduce, reduction))


def _floats(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype they promote to; integers as floats."""
    x, t = prepare(x, t)
    return (x, t) if x.dtype.is_floating_point else (x * 1.0, t * 1.0)


@operator(fused=True)
def _rounded_distance_backward(g: Tensor, x: Tensor, target: Tensor, width: float, slope: float) -> Tensor:
    """Gradient of _rounded_distance for x: slope * d / width near 0, else slope with the sign of d."""
    d = prims.sub(x, target)
    inner = prims.mul(d, slope / width)
    return prims.mul(g, prims.where(prims.ge(prims.abs(d), width), prims.mul(prims.sign(d), slope), inner))     # NaN at NaN


def _rounded_distance_vjp(g: Tensor, input: Tensor, target: Tensor, width: float, slope: float, needs: tuple) -> tuple:
    by_input = _rounded_distance_backward(g, input, target, width, slope)
    return by_input if needs[0] else None, -by_input if needs[1] else None


@operator(name="_rounded_distance", fused=True, vjp=_rounded_distance_vjp)
def _rounded_distance(input: Tensor, target: Tensor, width: float, slope: float) -> Tensor:
    """slope * d^2 / (2 width) where d = |input - target| is below `width`, else slope * (d - width / 2)."""
    d = prims.abs(prims.sub(input, target))
    inner = prims.mul(prims.mul(d, d), 0.5 * slope / width)
    return prims.where(prims.lt(d, width), inner, prims.mul(prims.sub(d, 0.5 * width), slope))


@operator(autocast="wide", node=lambda *_, beta=1.0, **__: "smooth_l1_loss" if beta else "mean")
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| is below beta, else d - beta / 2."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    x, t = _pair(input, target, "smooth_l1_loss")
    loss = (x - t).abs() if beta == 0 else _rounded_distance(*_floats(x, t), sym_float(beta), 1.0)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator(autocast={"cpu": "wide"}, node=True)
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """d^2 / 2 where d = |input - target| is at most delta, else delta (d - delta / 2)."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    x, t = _pair(input, target, "huber_loss")
    loss = _rounded_distance(*_floats(x, t), sym_float(delta), sym_float(delta))
    return reduced(_weighed(loss, weight, input.shape), reduction)  # not divided by the weights, unlike mse_loss's


# -- divergences ---------------------------------------------------------------------------------------------
def _refuse_integers(name: str, x: Tensor, beside: Tensor) -> None:
    """RuntimeError for probabilities that are no floats."""
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"{name}(): expected probabilities of a floating point dtype, got {x.dtype} beside {beside.dtype}; convert "
                           "with .float()")


@operator(autocast="wide")
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (log t - input): input holds log-probabilities, and so does the target with `log_target`."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _refuse_integers("kl_div", input, target)
    _refuse_integers("kl_div", target, input)
    loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    if reduction == "mean":
        warn("reduction: 'mean' divides the total loss by both the batch size and the support size."
                      "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
                      "'mean' will be changed to behave the same as 'batchmean' in the next major release.")
    return reduced(loss, reduction)


@operator(autocast="wide")
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """exp(input) - target * input (input - target log input without `log_input`); `full` adds Stirling's term."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Any, full: bool | None = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """(log var + (input - target)^2 / var) / 2, the variance limited to eps from below without a gradient of its own."""
    if not isinstance(var, Tensor):
        var = input.new_full(input.shape, sym_float(var))
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or sum(n != m for n, m in zip(var.shape, input.shape)) != 1 or \
                not all(n in (m, 1) for n, m in zip(var.shape, input.shape)):
            raise ValueError(f"var is of incorrect size: {list(var.shape)} for an input of {list(input.shape)}, which may differ in one "
                             "dimension, of size 1")
    if var._data is not None and bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    low = var.detach()
    limited = var + where(low < eps, eps - low, 0)
    loss = 0.5 * (limited.log() + (input - target) ** 2 / limited)
    answer = reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)
    return answer if var._data is not None else checked(answer, ~(var < 0))     # NaN passes


# -- margins --------------------------------------------------------------------------------------------------
@operator(autocast="wide")
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    zero = input.new_zeros(())
    margin = fitting(margin, input.dtype)
    loss = where(target != 1, (-input + margin).clamp_min(0), zero) + where(target != -1, input, zero)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator(autocast="wide")
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: "
                           f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} ")
    loss = (-target * (input1 - input2) + sym_float(margin)).clamp_min(0)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator(autocast="wide", node=True)
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input))."""
    product = input * target
    if product.shape != input.shape:
        raise RuntimeError(f"soft_margin_loss: output with shape {list(input.shape)} doesn't match the broadcast shape "
                           f"{list(product.shape)} of input and target")
    return reduced(like(-logsigmoid(product), product), legacy_reduction(size_average, reduce, reduction))


@operator(autocast={"cuda": "wide"}, node="sum.1")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`."""
    a, b = prepare(x1, x2)
    if not eps >= 0:
        raise RuntimeError(f"cosine_similarity(): eps must be non-negative, got: {eps}")
    if a.dtype.category != FLOAT:
        raise RuntimeError(f"cosine_similarity(): expected common dtype to be floating point, got {x1.dtype} and {x2.dtype}")
    norms = a.norm(2, dim, keepdim=True).clamp_min(eps), b.norm(2, dim, keepdim=True).clamp_min(eps)
    return ((a / norms[0]) * (b / norms[1])).sum(dim)


@operator(autocast="wide")
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, size_average: bool | None = None,
                          reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    if target.ndim > 1 or not input1.ndim == input2.ndim == target.ndim + 1:
        raise RuntimeError("cosine_embedding_loss: a target of 0 dimensions expects inputs of 1, a target of 1 dimension inputs of 2, "
                           f"but got target {list(target.shape)}, input1 {list(input1.shape)}, input2 {list(input2.shape)}")
    dim = input1.ndim - 1
    eps = 1e-12
    dot = (input1 * input2).sum(dim)
    cos = dot / (((input1 * input1).sum(dim) + eps) * ((input2 * input2).sum(dim) + eps)).sqrt()
    zero = cos.new_zeros(())
    loss = where(target == 1, 1 - cos, zero) + where(target == -1, (cos - sym_float(margin)).clamp_min(0), zero)
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


@operator(node="norm.1")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """norm_p(x1 - x2 + eps) over the last dimension."""
    apart = x1 - x2 + sym_float(eps)
    return apart.norm(p, -1, keepdim=keepdim)


@operator(autocast="wide")
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss(): margin must be greater than 0, got {margin}")
    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=lambda x, y: pairwise_distance(x, y, p, eps), margin=margin, swap=swap,
        reduction=legacy_reduction(size_average, reduce, reduction))


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable | None = None, margin: float = 1.0, swap: bool = False,
                                      reduction: str = "mean") -> Tensor:
    """triplet_margin_loss with a distance of your own."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near + margin - far).clamp_min(0), reduction)


@operator(autocast="wide", node=True)
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
                      size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """Mean over the other classes i of max(0, margin - x[target] + x[i])^p."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_reduction(reduction)
    if p not in (1, 2):
        raise ValueError(f"only p == 1 and p == 2 supported, got {p}")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight must be one-dimensional, got shape {list(weight.shape)}")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    if x.ndim > 2 or target.ndim > 1 or target.numel() != x.shape[0] or (weight is not None and weight.shape[0] != x.shape[1]):
        raise RuntimeError(f"multi_margin_loss: expected an input (samples, classes), a class for each sample and a weight for each class, "
                           f"got shapes {list(input.shape)}, {list(target.shape)} and {None if weight is None else list(weight.shape)}")
    t = target.reshape(-1, 1)
    gap = prims.relu(sym_float(margin) - x.gather(1, t) + x)
    gap = gap if p == 1 else gap ** p
    if weight is not None:
        gap = gap * weight[t]
    own = _is_target(t.reshape(-1), tuple(x.shape))
    loss = gap.masked_fill(own, 0).sum(1) / x.shape[1]
    return reduced(loss.reshape(()) if input.ndim < 2 else loss, reduction)


@operator(autocast="wide", node=True)
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                           reduction: str = "mean") -> Tensor:
    """Mean of max(0, 1 - x[y] + x[i]) over target classes y (up to the first -1 in each row) and other classes i."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _check_reduction(reduction)
    if input.shape != target.shape or input.ndim > 2:
        raise RuntimeError(f"multilabel_margin_loss: inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    x, t = (input.reshape(1, -1), target.reshape(1, -1)) if input.ndim < 2 else (input, target)
    listed = (t < 0).to(int64).cumsum(1) == 0
    safe = t.masked_fill(~listed, 0)
    hits = x.new_zeros(x.shape).scatter_add(1, safe, listed.to(x.dtype)) > 0
    gap = prims.relu(1 - x.gather(1, safe).unsqueeze(2) + x.unsqueeze(1))
    gap = gap.masked_fill(~listed.unsqueeze(2), 0).masked_fill(hits.unsqueeze(1), 0)
    loss = gap.sum((1, 2)) / x.shape[1]
    return reduced(loss.reshape(()) if input.ndim < 2 else loss, reduction)


@operator
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                                reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """Mean over the classes of the binary cross entropy with logits."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    classes = max(input.ndim - 1, 0)      # of input: a target of more dimensions has them elsewhere
    loss = (loss if weight is None else loss * weight).sum(classes) / input.shape[classes]
    return reduced(loss, legacy_reduction(size_average, reduce, reduction))


# -- CTC --------------------------------------------------------------------------------------------------------
def _lengths(value: Any) -> list[int]:
    return value.reshape(-1).tolist() if isinstance(value, Tensor) else [int(v) for v in value]


@operator(autocast={"cpu": "wide"})
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Any, target_lengths: Tensor | Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006): -log of the probability of all alignments.

    log_probs is (time, batch, classes), or (time, classes); targets (batch, longest), or all of them in a row. The forward
    recursion runs over the labels with blanks between, in the logarithm; the gradient comes from the posteriors.
    """
    single = log_probs.ndim == 2
    logp = log_probs.unsqueeze(1) if single else log_probs
    in_lengths, out_lengths = _lengths(input_lengths), _lengths(target_lengths)
    _check_ctc(logp, targets, in_lengths, out_lengths, blank)
    steps, labels = (logp.new_tensor(v).to(int64) for v in (in_lengths, out_lengths))
    path = _ctc_path(targets.to(logp.device), out_lengths, labels, blank, single)
    loss = cast(_ctc(widened(logp), path, steps, labels, blank), logp.dtype)
    if zero_infinity:
        loss = loss.masked_fill(loss.isinf(), 0)
    if reduction == "mean":
        return (loss / labels.clamp_min(1).to(loss.dtype)).mean()
    return reduced(loss.reshape(()) if single else loss, reduction)


def _ctc_path(targets: Tensor, lengths: list[int], labels: Tensor, blank: int, single: bool) -> Tensor:
    """Each row's labels with blanks between, around and behind them: (batch, 2 * longest + 1)."""
    longest = max(lengths, default=0)
    columns = prims.iota(longest, 0, 1, int64, targets.device)
    if targets.ndim == 2 and not single:
        rows = targets[:, :longest].to(int64)
    else:
        starts = (labels.cumsum(0) - labels).unsqueeze(1)
        flat = targets.reshape(-1).to(int64)
        rows = flat[(starts + columns).clamp_max(max(flat.shape[0] - 1, 0))] if longest else flat.new_zeros((len(lengths), 0))
    rows = rows.masked_fill(columns >= labels.unsqueeze(1), blank)
    pairs = rows.new_full((len(lengths), longest, 2), blank)
    pairs[:, :, 1] = rows
    return rows.new_cat([pairs.reshape(len(lengths), 2 * longest), rows.new_full((len(lengths), 1), blank)], 1)


def _ctc_sums(emit: Tensor, skips: Tensor, start: Tensor, start_at: Tensor) -> Tensor:
    """log of the probability of all ways to each place of the paths at each time: (time, batch, places)."""
    low, places, sums = ctc_kernels.LOW, emit.shape[2], []
    before = emit.new_full((emit.shape[1], places + 2), low)
    for t in range(emit.shape[0]):
        here = before[:, 2:].logaddexp(before[:, 1:-1]).logaddexp(before[:, :-2].masked_fill(~skips, low))
        begins = (start_at == t).unsqueeze(1)
        here = where(begins, where(start, 0.0, low).to(here.dtype), here) + emit[t]
        sums.append(here)
        before = emit.new_cat([before[:, :2] * 0 + low, here], 1)
    return emit.new_tensor([]).reshape(0, emit.shape[1], places) if not sums else prims.cat([v.unsqueeze(0) for v in sums], 0)


def _ctc_parts(log_probs: Tensor, path: Tensor, labels: Tensor, blank: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the places emit, and which of them may be entered past a blank, begin a row and end one."""
    index = prims.expand(path.unsqueeze(0), (log_probs.shape[0], *path.shape))
    emit = log_probs.gather(2, index)
    places = prims.iota(path.shape[1], 0, 1, int64, path.device)
    twice = path.new_cat([path[:, :1], path[:, :1], path], 1)[:, :-2]
    gap = 2 * labels.unsqueeze(1) - places
    return emit, (path != blank) & (path != twice) & (places >= 2), places < 2, (gap == 0) | (gap == 1)


def _ctc_read(alpha: Tensor, ends: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
    index = (steps - 1).clamp_min(0).reshape(1, -1, 1)
    last = alpha.gather(0, prims.expand(index, (1, *alpha.shape[1:]))).squeeze(0)
    total = last.masked_fill(~ends, ctc_kernels.LOW).logsumexp(1)
    total = where(steps > 0, total, where(labels == 0, 0.0, ctc_kernels.LOW).to(total.dtype))
    return where(total < ctc_kernels.LOW / 2, math.inf, -total)


@operator(fused=True)
def _ctc_backward(g: Tensor, log_probs: Tensor, path: Tensor, steps: Tensor, labels: Tensor, blank: int) -> Tensor:
    """The gradient of _ctc: -g times the posterior probability of each class at each time."""
    emit, skips, start, ends = _ctc_parts(log_probs, path, labels, blank)
    time = emit.shape[0]
    alpha = _ctc_sums(emit, skips, start, steps * 0)
    back = skips.new_cat([skips, skips[:, :2] & False], 1)[:, 2:].flip(1)
    beta = _ctc_sums(emit.flip((0, 2)), back, ends.flip(1), time - steps).flip((0, 2))
    loss = _ctc_read(alpha, ends, steps, labels)
    seen = (prims.iota(time, 0, 1, int64, path.device).unsqueeze(1) < steps) & ~loss.isinf()
    posterior = (alpha + beta - emit + loss.masked_fill(loss.isinf(), 0).unsqueeze(1)).exp()
    parts = (-posterior * g.unsqueeze(1)).masked_fill(~seen.unsqueeze(2), 0)
    return (log_probs * 0).scatter_add(2, prims.expand(path.unsqueeze(0), tuple(emit.shape)), parts)


@operator(name="_ctc", tags=("refuses_values",), vjp=lambda g, log_probs, path, steps, labels, blank: (
    _ctc_backward(g, log_probs, path, steps, labels, blank),))
def _ctc(log_probs: Tensor, path: Tensor, steps: Tensor, labels: Tensor, blank: int) -> Tensor:
    """The losses of the rows (batch,): log_probs (time, batch, classes), path (batch, places), both lengths (batch,)."""
    emit, skips, start, ends = _ctc_parts(log_probs, path, labels, blank)
    return _ctc_read(_ctc_sums(emit, skips, start, steps * 0), ends, steps, labels)


COMPOSITES["_ctc"].has_kernel("cpu", ctc_kernels.loss, stays_whole=lambda args: True)
COMPOSITES["_ctc_backward"].has_kernel("cpu", ctc_kernels.gradient, stays_whole=lambda args: True)


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
    if targets.ndim == 1 and needed != room:
        raise RuntimeError(f"Expected tensor to have size {needed} at dimension 0, but got size {room} for argument #2 'targets'")
    if needed > room:
        raise RuntimeError(f"ctc_loss: target_lengths ask for {needed} labels, but targets of shape {list(targets.shape)} have {room}")
