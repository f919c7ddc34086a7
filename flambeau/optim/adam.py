"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.nn.steps import adam_step_
from .optimizer import GroupOptimizer, ParamsT, as_real, options, zeros


class Adam(GroupOptimizer):
    """Adam (Kingma and Ba 2014). `foreach`, `fused` and `capturable` are accepted: there is one step, and it is fused."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False) -> None:
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        super().__init__(params, options(locals()))

    last = "maximize foreach capturable differentiable fused decoupled_weight_decay"
    since = {"amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None,
             "decoupled_weight_decay": False}

    def _step_group(self, group: dict[str, Any]) -> None:
        params = self._with_grad(group)
        if not params:
            return
        fields = {"exp_avg": zeros, "exp_avg_sq": zeros} | ({"max_exp_avg_sq": zeros} if group["amsgrad"] else {})
        self._begin(params, fields)
        states = [self._counted(p) for p in params]
        means, squares, steps = ([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        tops = [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else None
        beta1, beta2 = map(float, group["betas"])
        adam_step_([as_real(p) for p in params], [as_real(p.grad) for p in params], means, squares, tops, steps, group["lr"],
                   beta1, beta2, group["eps"], group["weight_decay"], group["decoupled_weight_decay"], group["maximize"])


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2017)."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                         differentiable=differentiable, fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
