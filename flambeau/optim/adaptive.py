"""The other first-order optimizers, each by its published formula over operators."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtypes import finfo
from ..core.sparse import SparseTensor, sparse_like
from ..core.tensor import Tensor
from ..ops.creation import ones_like
from ..ops.nn.steps import add_scaled, as_number, in_float64, larger, smaller, square_root, step_number
from ..ops.pointwise import where
from ..ops.promotion import cast
from .optimizer import GroupOptimizer, ParamsT, as_real, filled, options, step_counter, zeros


def _count(x: Any) -> Any:
    """A counter as a Python number, or as a tensor of float64 (`step_number`)."""
    return in_float64(step_number(x))


class Adagrad(GroupOptimizer):
    """Adagrad (Duchi et al. 2011). Of a sparse gradient only the rows that it has are touched."""

    last = "weight_decay initial_accumulator_value foreach maximize differentiable fused"
    takes_sparse = True

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        super().__init__(params, options(locals()))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {"step": step_counter(), "sum": filled(p, group["initial_accumulator_value"])}

    def _step_group(self, group: dict[str, Any]) -> None:
        if group["weight_decay"] and any(type(p.grad) is SparseTensor for p in self._with_grad(group)):
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        for p, g, state in self._each(group):
            lr = as_number(group["lr"])
            if group["lr_decay"]:
                lr = lr / (1 + (_count(state["step"]) - 1) * group["lr_decay"])
            if g.is_sparse:
                g = g.coalesce()
                state["sum"].add_(g.square())
                spread = state["sum"].sparse_mask(g).values().sqrt().add_(group["eps"])
                p.add_(sparse_like(g, g.values() / spread), alpha=-lr)
                continue
            total = as_real(state["sum"])
            total.addcmul_(g, g, value=1)
            spread = total.sqrt() + group["eps"]
            if isinstance(lr, Tensor):
                add_scaled(p, g / spread, -lr)
            else:
                p.addcdiv_(g, spread, value=-lr)


class Adadelta(GroupOptimizer):
    """Adadelta (Zeiler 2012)."""

    last = "maximize capturable foreach differentiable"

    def __init__(self, params: ParamsT, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        rho, eps = group["rho"], group["eps"]
        for p, g, state in self._each(group, square_avg=zeros, acc_delta=zeros):
            state["square_avg"].mul_(rho).addcmul_(g, g, value=1 - rho)
            delta = (state["acc_delta"] + eps).sqrt() / (state["square_avg"] + eps).sqrt() * g
            state["acc_delta"].mul_(rho).addcmul_(delta, delta, value=1 - rho)
            p.add_(delta, alpha=-as_number(group["lr"]))


class RMSprop(GroupOptimizer):
    """RMSprop (Hinton, lecture 6 of 2012), centred or not, with or without momentum."""

    last = "momentum alpha eps centered weight_decay capturable foreach maximize differentiable"

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        if not alpha >= 0:
            raise ValueError(f"Invalid alpha value: {alpha}")
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        alpha, lr = group["alpha"], as_number(group["lr"])
        fields = {"square_avg": zeros} | ({"momentum_buffer": zeros} if group["momentum"] > 0 else {}) | \
            ({"grad_avg": zeros} if group["centered"] else {})
        for p, g, state in self._each(group, **fields):
            state["square_avg"].mul_(alpha).addcmul_(g, g, value=1 - alpha)
            spread = state["square_avg"]
            if group["centered"]:
                state["grad_avg"].lerp_(g, 1 - alpha)
                spread = spread.addcmul(state["grad_avg"], state["grad_avg"], value=-1)
            scale = spread.sqrt() + group["eps"]
            if group["momentum"] > 0:
                state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(g, scale)
                p.add_(state["momentum_buffer"], alpha=-lr)
            else:
                p.addcdiv_(g, scale, value=-lr)


class Adamax(GroupOptimizer):
    """Adam with the infinity norm (Kingma and Ba 2014)."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for p, g, state in self._each(group, exp_avg=zeros, exp_inf=zeros):
            state["exp_avg"].lerp_(g, 1 - beta1)
            state["exp_inf"].copy_((state["exp_inf"] * beta2).maximum(g.abs() + group["eps"]))
            correction = 1 - beta1 ** _count(state["step"])
            add_scaled(p, state["exp_avg"] / state["exp_inf"], -as_number(group["lr"]) / correction)


class NAdam(GroupOptimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    last = "maximize foreach capturable differentiable"

    def __init__(self, params: ParamsT, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _product(self, param: Tensor) -> Tensor:
        return self._counter(param) + 1

    def _step_group(self, group: dict[str, Any]) -> None:
        (beta1, beta2), lr = group["betas"], as_number(group["lr"])
        for p, g, state in self._each(group, mu_product=self._product, exp_avg=zeros, exp_avg_sq=zeros):
            t = _count(state["step"])
            mu = beta1 * (1.0 - 0.5 * 0.96 ** (t * group["momentum_decay"]))
            mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((t + 1) * group["momentum_decay"]))
            state["mu_product"] *= cast(mu, state["mu_product"].dtype)     # a traced one is a tensor, that would widen the product
            product = _count(state["mu_product"])
            state["exp_avg"].lerp_(g, 1 - beta1)
            state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
            scale = state["exp_avg_sq"].div(1 - beta2**t).sqrt() + group["eps"]
            add_scaled(p, g / scale, -lr * (1.0 - mu) / (1.0 - product))
            add_scaled(p, state["exp_avg"] / scale, -lr * mu_next / (1.0 - product * mu_next))


class RAdam(GroupOptimizer):
    """Rectified Adam (Liu et al. 2019)."""

    last = "maximize foreach capturable decoupled_weight_decay differentiable"

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        (beta1, beta2), lr = group["betas"], as_number(group["lr"])
        for p, g, state in self._each(group, exp_avg=zeros, exp_avg_sq=zeros):
            state["exp_avg"].lerp_(g, 1 - beta1)
            state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
            t = _count(state["step"])
            correction2 = 1 - beta2**t
            mean = state["exp_avg"] / (1 - beta1**t)
            longest = 2 / (1 - beta2) - 1
            length = longest - 2 * t * beta2**t / correction2
            if isinstance(length, Tensor) or length > 5.0:
                rectify = square_root((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
                rectified = mean * (square_root(correction2) / (state["exp_avg_sq"].sqrt() + group["eps"])) * rectify
                mean = where(length > 5.0, rectified, mean) if isinstance(length, Tensor) else rectified
            add_scaled(p, mean, -lr)


class Rprop(GroupOptimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993)."""

    last = "foreach maximize differentiable capturable"

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        (less, more), (smallest, largest) = group["etas"], group["step_sizes"]
        for p, g, state in self._each(group, prev=zeros, step_size=lambda q: filled(q, as_number(group["lr"]))):
            agreement = g * state["prev"]
            factor = where(agreement > 0, more, where(agreement < 0, less, ones_like(p)))      # 1 too where infinity met its first 0
            state["step_size"].mul_(factor).clamp_(smallest, largest)
            g = g.masked_fill(agreement < 0, 0)
            p.addcmul_(g.sign(), state["step_size"], value=-1)
            state["prev"].copy_(g)


class ASGD(GroupOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992): the average is in state['ax']."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
                 weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        lr = as_number(group["lr"])
        for p, g, state in self._each(group, eta=lambda p: self._counter(p) + lr, mu=lambda p: self._counter(p) + 1, ax=zeros):
            t, eta, mu = (_count(state[k]) for k in ("step", "eta", "mu"))
            add_scaled(p.mul_(1 - group["lambd"] * eta), g, -eta)
            moved = state["ax"] + (p - state["ax"]) * mu
            if isinstance(t, Tensor):
                state["ax"].copy_(where(mu == 1, p, moved))
                state["mu"].copy_(1 / (t - group["t0"]).clamp(min=1))
            else:
                state["ax"].copy_(p if mu == 1 else moved)
                state["mu"].fill_(1 / max(1, t - group["t0"]))
            state["eta"].fill_(lr / (1 + group["lambd"] * lr * t) ** group["alpha"])


def _of_rows(param: Tensor) -> Tensor:
    return param.new_zeros((*param.shape[:-1], 1))


def _of_columns(param: Tensor) -> Tensor:
    return param.new_zeros((*param.shape[:-2], 1, param.shape[-1]))


class Adafactor(GroupOptimizer):
    """Adam with factored second moments (Shazeer and Stern 2018): rows and columns instead of a whole matrix."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None,
                 float] = (None, 1e-3),
                 d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False) -> None:
        super().__init__(params, options(locals()))

    def _step_group(self, group: dict[str, Any]) -> None:
        eps1, eps2 = group["eps"]
        params = self._with_grad(group)
        self._refuse_complex(params)
        self._begin([p for p in params if p.ndim > 1], {"row_var": _of_rows, "col_var": _of_columns})
        self._begin([p for p in params if p.ndim <= 1], {"variance": zeros})
        for p in params:
            state = self.state[p]
            g = -p.grad if group["maximize"] else p.grad     # type: ignore[operator]
            state["step"] += 1
            t = _count(state["step"])
            tiny = finfo(p.dtype).eps if eps1 is None else eps1
            keep = 1 - t ** group["beta2_decay"]
            lr = larger(as_number(p.norm(2)) / math.sqrt(p.numel()), eps2) * smaller(1 / square_root(t), as_number(group["lr"]))
            if group["weight_decay"]:
                p.mul_(1 - as_number(group["lr"]) * group["weight_decay"])
            square = g * g     # type: ignore[operator]
            if g.ndim > 1:     # type: ignore[union-attr]
                state["row_var"].lerp_(square.mean(-1, keepdim=True), 1 - keep)
                state["col_var"].lerp_(square.mean(-2, keepdim=True), 1 - keep)
                variance = state["row_var"] @ state["col_var"] / state["row_var"].mean(-2, keepdim=True).clamp_min(tiny)
            else:
                state["variance"].lerp_(square, 1 - keep)
                variance = state["variance"].clone()
            update = variance.clamp_min(tiny * tiny).rsqrt() * g
            size = as_number(update.norm(2)) / (math.sqrt(update.numel()) * group["d"])
            add_scaled(p, update, -lr / larger(size, 1.0))
