"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.nn_steps import adam_step_
from .optimizer import GroupOptimizer, ParamsT, zeros


class Adam(GroupOptimizer):
    """Adam (Kingma and Ba 2014). `foreach`, `fused` and `capturable` are accepted: there is one step, and it is fused."""

    def __init__(self, params: ParamsT, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False) -> None:
        if not (isinstance(lr, Tensor) or lr >= 0.0):
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if differentiable:
            raise NotImplementedError("differentiable=True: optimizer steps are not recorded; use torch.func for "
                                      "differentiable updates")
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        decoupled = self.defaults.get("decoupled_weight_decay", False)
        for group in self.param_groups:
            for name, value in (("amsgrad", False), ("maximize", False), ("foreach", None), ("capturable", False),
                                ("differentiable", False), ("fused", None), ("decoupled_weight_decay", decoupled)):
                group.setdefault(name, value)

    def _step_group(self, group: dict[str, Any]) -> None:
        params = self._with_grad(group)
        if not params:
            return
        fields = {"exp_avg": zeros, "exp_avg_sq": zeros} | ({"max_exp_avg_sq": zeros} if group["amsgrad"] else {})
        states = [self._counted(p, **fields) for p in params]
        beta1, beta2 = group["betas"]
        adam_step_(params, [p.grad for p in params], [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states],
                   [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else None, [s["step"] for s in states], group["lr"],
                   float(beta1), float(beta2), group["eps"], group["weight_decay"], group["decoupled_weight_decay"],
                   group["maximize"])


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2017)."""

    def __init__(self, params: ParamsT, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                         differentiable=differentiable, fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
