"""An optimizer that averages the model now and then (post-local SGD, Lin et al. 2018)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...optim import Optimizer
from ..algorithms.model_averaging.averagers import ModelAverager


class PostLocalSGDOptimizer(Optimizer):
    """`optim`, after each of whose steps `averager` averages the parameters if it is time. DistributedDataParallel has `post_localSGD_hook`
    meanwhile."""

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager, self.param_groups = optim, averager, optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """That of `optim`."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """A step of `optim`, and an average."""
        loss = self.optim.step(closure) if closure is not None else self.optim.step()
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict) -> None:
        """One more group of parameters."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """That of `optim`, and how many steps the averager has counted: "step"."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of `optim` and of the averager, which begins again without "step"."""
        self.optim.load_state_dict({key: value for key, value in state_dict.items() if key != "step"})
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warnings.warn("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.", stacklevel=2)
        self.averager.step = state_dict.get("step", 0)


__all__ = ["PostLocalSGDOptimizer"]
