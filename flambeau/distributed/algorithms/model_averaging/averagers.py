"""When parameters are replaced by the mean of all processes'."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import chain
from typing import Any

from ....autograd.grad_mode import no_grad
from ....core.tensor import Tensor
from ...collectives import all_reduce_coalesced
from ...groups import default_group
from ...process_group import ProcessGroup


class ModelAverager(ABC):
    """Asked after each step of an optimizer; `step` counts them."""

    def __init__(self, process_group: ProcessGroup | None = None) -> None:
        self.process_group, self.step = default_group(process_group), 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        """Average parameters, or parameter groups, if it is time for that; count the step."""


class PeriodicModelAverager(ModelAverager):
    """Every `period` steps, the first time after `warmup_steps`."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None:
        super().__init__(process_group)
        check_warmup(warmup_steps)
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn("When period is 1, no need to use model averaging because the communication cost of all-reducing parameters "
                          "will be no less than the cost of all-reducing gradients by DistributedDataParallel.", stacklevel=2)
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Any) -> None:
        """Average parameters, or parameter groups, if it is time for that; count the step."""
        late = self.step - self.warmup_steps
        if late >= 0 and late % self.period == 0:
            average(params, self.process_group)
        self.step += 1


def check_warmup(steps: int) -> None:
    """ValueError for a negative number of steps."""
    if steps < 0:
        raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")


def average(params: Any, group: ProcessGroup) -> None:
    """Of parameters, or parameter groups: the mean in `group` of those that have gradients."""
    found = [p.detach() for p in _flat(params) if p.grad is not None]
    if found:
        with no_grad():
            all_reduce_coalesced(found, group=group)
            for p in found:
                p.div_(group.size())


def _flat(params: Any) -> Iterable[Tensor]:
    entries = list(params)
    return chain.from_iterable(e["params"] for e in entries) if entries and isinstance(entries[0], dict) else entries


__all__ = ["ModelAverager", "PeriodicModelAverager"]
