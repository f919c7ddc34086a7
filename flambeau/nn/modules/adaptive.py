"""Softmax over a large vocabulary in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.tensor import Tensor
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Frequent classes in a full head, rarer ones in clusters of shrinking width (Grave et al. 2017)."""

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        bounds = list(cutoffs)
        if not bounds:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if bounds != sorted(set(bounds)) or bounds[0] <= 0 or bounds[-1] > n_classes - 1 or any(int(c) != c for c in bounds):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                             "where each value is between 1 and n_classes-1")
        where = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*bounds, n_classes]
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(Linear(in_features, width, bias=False, **where),
                                        Linear(width, self.cutoffs[i + 1] - self.cutoffs[i], bias=False, **where)))

    def reset_parameters(self) -> None:
        """Fresh weights everywhere."""
        self.head.reset_parameters()
        pairs: Any = self.tail
        for first, second in pairs:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        """(log-probability of each target, their negative mean)."""
        if target.ndim == 1 and input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if target.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        x, t = (input, target) if target.ndim else (input.unsqueeze(0), target.unsqueeze(0))
        if bool(((t < 0) | (t >= self.n_classes)).any()):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range [{t.min().item()}, "
                               f"{t.max().item()}] were found. ")
        output = self.log_prob(x).gather(1, t.unsqueeze(1)).squeeze(1)
        return _ASMoutput(output if target.ndim else output.squeeze(0), -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (n, in_features) -> (n, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, :self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            column = self.shortlist_size + i
            parts.append(F.log_softmax(cluster(input), 1) + head[:, column:column + 1])
        return head.new_cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row."""
        return self.log_prob(input).argmax(1)
