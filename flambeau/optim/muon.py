"""Muon: momentum whose matrices are made orthogonal."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtypes import bfloat16
from ..core.tensor import Tensor
from ..ops.nn.steps import as_number
from .optimizer import GroupOptimizer, ParamsT, options, zeros


def newton_schulz(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Towards the orthogonal factor of a matrix by a quintic iteration, in bfloat16 as it was published (Jordan 2024)."""
    a, b, c = coefficients
    x = matrix.to(bfloat16)
    tall = x.shape[0] > x.shape[1]
    x = x.t() if tall else x
    x = x / x.norm().clamp_min(eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = x.addmm(gram.addmm(gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


def _adjusted(lr: float, rule: str | None, rows: int, columns: int) -> float:
    if rule in (None, "original"):
        return lr * math.sqrt(max(1, rows / columns))
    return lr * 0.2 * math.sqrt(max(rows, columns))


class Muon(GroupOptimizer):
    """SGD with momentum on matrices, each update orthogonalised (Jordan 2024). `adjust_lr_fn`: 'original' or 'match_rms_adamw'."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: str | None = None) -> None:
        if not (isinstance(lr, Tensor) or lr >= 0.0):
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, options(locals()))
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}")

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, params = as_number(group["lr"]), self._with_grad(group)
        self._refuse_complex(params)
        self._begin(params, {"momentum_buffer": zeros}, counted=False)
        for p in params:
            buffer, grad = self.state[p]["momentum_buffer"], p.grad
            buffer.lerp_(grad, 1 - group["momentum"])
            update = grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer     # type: ignore[union-attr]
            update = newton_schulz(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
            p.mul_(1 - lr * group["weight_decay"])
            p.add_(update.to(p.dtype), alpha=-_adjusted(lr, group["adjust_lr_fn"], *p.shape))
