"""Losses as modules: each holds the options of its function."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.tensor import Tensor
from ...ops.nn.losses import legacy_reduction
from .. import functional as F
from .applied import FunctionModule
from .distance import PairwiseDistance
from .linear import Linear
from .module import Module


class _Loss(FunctionModule):
    """Keeps what the deprecated flags mean, the reduction, in their place; weights are buffers."""

    reduction: str
    size_average = reduce = None     # what the functions are told

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__()
        self._keep(size_average=size_average, reduce=reduce, reduction=reduction)

    def _keep(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean", **settings: Any) -> None:
        self.reduction = legacy_reduction(size_average, reduce, reduction)
        for name, value in settings.items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    extra_repr = Module.extra_repr


_CHUNKED = ("auto", "none", "aspect_ratio")     # the last with a number: "aspect_ratio:2"
_KEPT_IN = ("accurate", "balanced", "compact", "auto")


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How torch computes `linear_cross_entropy` in pieces of the batch, so that logits of all of it never lie in memory. Checked and kept;
    here logits are computed whole, with a warning."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _KEPT_IN:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}; it is one of {', '.join(_KEPT_IN)}")
        if self.chunking_method is not None and self.chunking_method.partition(":")[0] not in _CHUNKED:
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}; it is one of {', '.join(_CHUNKED)}")
        if self.batch_chunk_size is not None and (not isinstance(self.batch_chunk_size, int) or self.batch_chunk_size < 1):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {self.batch_chunk_size}")


class LinearCrossEntropyLoss(Module):
    """The cross entropy of a linear layer's logits: forward(input (N, in_features), target (N, *out_features)). `out_features`: further
    dimensions of the loss, each with logits of its own."""

    def __init__(self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False, device: Any = None,
                 dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
                 label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None) -> None:
        super().__init__()
        self.in_features, self.num_classes, self.out_features = in_features, num_classes, tuple(out_features)
        self.reduction, self.ignore_index, self.label_smoothing, self.options = reduction, ignore_index, label_smoothing, options
        self.register_buffer("weight", weight)
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, by `reduction`."""
        lead = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*lead, self.in_features), target, linear_bias=None if bias is None else bias.reshape(lead),
            weight=self.weight, reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            options=self.options)

    def extra_repr(self) -> str:
        """The settings by name."""
        return (f"in_features={self.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
                f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
                f"label_smoothing={self.label_smoothing}, options={self.options}")


class _WeightedLoss(_Loss):
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__()
        self._keep(weight=weight, size_average=size_average, reduce=reduce, reduction=reduction)


class L1Loss(_Loss, function=F.l1_loss, without=("weight",)):
    """|input - target|."""


class MSELoss(_Loss, function=F.mse_loss, without=("weight",)):
    """(input - target)^2."""


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    """Quadratic below beta, linear above."""


class HuberLoss(_Loss, function=F.huber_loss, without=("weight",)):
    """Quadratic up to delta, linear above."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, (int, float)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        self.delta = delta


class NLLLoss(_WeightedLoss, function=F.nll_loss):
    """-input[target] of log-probabilities."""


class NLLLoss2d(NLLLoss, function=F.nll_loss):
    """NLLLoss, the old name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn("`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement.", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class CrossEntropyLoss(_WeightedLoss, function=F.cross_entropy):
    """-log softmax(input)[target]."""


class PoissonNLLLoss(_Loss, function=F.poisson_nll_loss):
    """Negative log likelihood of Poisson counts."""

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """Negative log likelihood of normal variables."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Any) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class KLDivLoss(_Loss, function=F.kl_div):
    """t (log t - input) of log-probabilities."""


class BCELoss(_WeightedLoss, function=F.binary_cross_entropy):
    """Binary cross entropy of probabilities."""


class BCEWithLogitsLoss(_Loss, function=F.binary_cross_entropy_with_logits):
    """Binary cross entropy of logits."""


class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss):
    """x for target 1, max(0, margin - x) for -1."""


class MultiLabelMarginLoss(_Loss, function=F.multilabel_margin_loss):
    """Hinge loss of several target classes."""


class SoftMarginLoss(_Loss, function=F.soft_margin_loss):
    """log(1 + exp(-target * input))."""


class MultiLabelSoftMarginLoss(_WeightedLoss, function=F.multilabel_soft_margin_loss):
    """Mean over the classes of the binary cross entropy with logits."""


class CosineEmbeddingLoss(_Loss, function=F.cosine_embedding_loss):
    """1 - cos for target 1, max(0, cos - margin) for -1."""


class MarginRankingLoss(_Loss, function=F.margin_ranking_loss):
    """max(0, -target * (input1 - input2) + margin)."""


class MultiMarginLoss(_WeightedLoss, function=F.multi_margin_loss):
    """Hinge loss of one target class."""

    def _keep(self, weight: Tensor | None = None, p: int = 1, **settings: Any) -> None:     # type: ignore[override]
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.ndim}D instead")
        super()._keep(weight=weight, p=p, **settings)


def _check_margin(loss: Module, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"{type(loss).__name__}: expected margin to be greater than 0, got {margin} instead")


class TripletMarginLoss(_Loss, function=F.triplet_margin_loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""

    def _keep(self, margin: float = 1.0, **settings: Any) -> None:     # type: ignore[override]
        _check_margin(self, margin)
        super()._keep(margin=margin, **settings)


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of your own."""

    def __init__(self, *, distance_function: Callable | None = None, margin: float = 1.0, swap: bool = False,
                 reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        _check_margin(self, margin)
        self.distance_function = distance_function if distance_function is not None else PairwiseDistance()
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function,
                                                   margin=self.margin, swap=self.swap, reduction=self.reduction)


class CTCLoss(_Loss, function=F.ctc_loss):
    """Connectionist temporal classification."""
