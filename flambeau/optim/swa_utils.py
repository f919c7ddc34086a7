"""Averaging of weights: AveragedModel (plain or exponential), update_bn, SWALR."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.dtypes import int64
from ..core.tensor import Tensor
from ..nn import Module
from ..nn.modules.batchnorm import _BatchNorm
from ..ops.creation import tensor
from .lr_scheduler import LRScheduler, _per_group
from .optimizer import Optimizer

PARAM_LIST = Any


def _over_lists(average: Callable) -> Callable:
    def update(averaged: list, current: list, count: Any) -> None:
        for a, c in zip(averaged, current):
            a.copy_(average(a, c, count))
    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """avg = decay * avg + (1 - decay) * new, over lists."""
    return _over_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable:
    """The plain average of all models so far, over lists."""
    return _over_lists(get_swa_avg_fn())


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """avg = decay * avg + (1 - decay) * new."""
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")

    def update(averaged: Tensor, current: Tensor, _: Any) -> Tensor:
        return averaged * decay + current * (1 - decay)
    return update


def get_swa_avg_fn() -> Callable:
    """The plain average of all models so far."""
    def update(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged + (current - averaged) / (count + 1)
    return update


class AveragedModel(Module):
    """A copy of `model` whose parameters average those that `update_parameters(model)` shows it."""

    n_averaged: Tensor

    def __init__(self, model: Module, device: Any = None, avg_fn: Callable | None = None, multi_avg_fn: Callable | None = None,
                 use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _tensors(self, module: Module) -> list[Tensor]:
        both = itertools.chain(module.parameters(), module.buffers()) if self.use_buffers else module.parameters()
        return list(both)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of `model` into the average."""
        mine, theirs = self._tensors(self.module), [t.detach().to(t.device) for t in self._tensors(model)]
        with no_grad():
            first = int(self.n_averaged) == 0
            floats = [(a, c) for a, c in zip(mine, theirs) if not first and a.dtype.is_floating_point]
            for a, c in zip(mine, theirs):
                if first or not a.dtype.is_floating_point:
                    a.copy_(c)
            if floats and self.multi_avg_fn is not None:
                self.multi_avg_fn([a.detach() for a, _ in floats], [c for _, c in floats], self.n_averaged)
            elif floats:
                average = self.avg_fn or get_swa_avg_fn()
                for a, c in floats:
                    a.copy_(average(a.detach(), c, self.n_averaged))
            if not self.use_buffers:
                for a, c in zip(self.module.buffers(), model.buffers()):
                    a.detach().copy_(c.detach())
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of all BatchNorm layers anew in one pass over `loader`."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = {m: m.momentum for m in norms}
    was_training = model.training
    model.train()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    with no_grad():
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x.to(device) if device is not None else x)
    for m, momentum in momenta.items():
        m.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal the rate to swa_lr over anneal_epochs, and hold it."""

    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
                 last_epoch: int = -1) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        for group, lr in zip(optimizer.param_groups, _per_group(swa_lr, optimizer, "swa_lr")):
            group["swa_lr"] = lr
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, t: float) -> float:
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        step = self._step_count - 1
        if not self.anneal_epochs:
            step = max(1, step)
        before = self._share(max(0, min(1, (step - 1) / max(1, self.anneal_epochs))))
        now = self._share(max(0, min(1, step / max(1, self.anneal_epochs))))
        rates = []
        for group in self.optimizer.param_groups:
            start = group["swa_lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates
