"""A GradScaler for parameters that are spread: a process leaves a step out if any does."""

from __future__ import annotations

from typing import Any

from ...amp.grad_scaler import GradScaler
from ...ops.creation import tensor
from ..collectives import all_reduce
from ..groups import is_initialized
from ..process_group import ProcessGroup
from ..reduce_op import ReduceOp


class ShardedGradScaler(GradScaler):
    """GradScaler whose processes agree on whether there was an overflow."""

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
                 growth_interval: int = 2000, enabled: bool = True, process_group: ProcessGroup | None = None) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the scale; whether one is infinite is said to all."""
        super().unscale_(optimizer)
        if self._enabled and is_initialized():
            found = tensor(float(self._found_inf[id(optimizer)]), device=self._device)
            all_reduce(found, ReduceOp.MAX, self.process_group)
            self._found_inf[id(optimizer)] = bool(found)


__all__ = ["ShardedGradScaler"]
