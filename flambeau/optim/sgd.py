"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.nn.steps import sgd_step_
from .optimizer import GroupOptimizer, ParamsT, as_real, options, zeros


class SGD(GroupOptimizer):
    """Stochastic gradient descent, with (Nesterov) momentum. `foreach` and `fused` are accepted: the one step is fused."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options(locals()))

    takes_sparse = True
    since = {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": None}

    def _step_group(self, group: dict[str, Any]) -> None:
        params = self._with_grad(group)
        if not params:
            return
        buffers, fresh = None, [False] * len(params)
        if group["momentum"]:
            if group["dampening"]:      # the first gradient has none; else a buffer of zeros is as good
                fresh = [self.state[p].get("momentum_buffer") is None for p in params]
            self._begin(params, {"momentum_buffer": zeros}, counted=False)
            buffers = [as_real(self.state[p]["momentum_buffer"]) for p in params]
        sgd_step_([as_real(p) for p in params], [as_real(p.grad) for p in params], buffers, fresh, group["lr"], float(group["momentum"]),
                  float(group["dampening"]), float(group["weight_decay"]), group["nesterov"], group["maximize"])
