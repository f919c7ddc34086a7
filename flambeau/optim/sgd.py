"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.nn_steps import sgd_step_
from .optimizer import GroupOptimizer, ParamsT, zeros


class SGD(GroupOptimizer):
    """Stochastic gradient descent, with (Nesterov) momentum. `foreach` and `fused` are accepted: the one step is fused."""

    def __init__(self, params: ParamsT, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        if not (isinstance(lr, Tensor) or lr >= 0.0):
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        if differentiable:
            raise NotImplementedError("differentiable=True: optimizer steps are not recorded; use torch.func for "
                                      "differentiable updates")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("nesterov", False), ("maximize", False), ("foreach", None), ("differentiable", False),
                                ("fused", None)):
                group.setdefault(name, value)

    def _step_group(self, group: dict[str, Any]) -> None:
        params = self._with_grad(group)
        if not params:
            return
        buffers, fresh = None, [False] * len(params)
        if group["momentum"]:
            fresh = [self.state[p].get("momentum_buffer") is None for p in params]
            for p, new in zip(params, fresh):
                if new:
                    self.state[p]["momentum_buffer"] = zeros(p)
            buffers = [self.state[p]["momentum_buffer"] for p in params]
        sgd_step_(params, [p.grad for p in params], buffers, fresh, group["lr"], float(group["momentum"]),
                  float(group["dampening"]),
                  float(group["weight_decay"]), group["nesterov"], group["maximize"])
