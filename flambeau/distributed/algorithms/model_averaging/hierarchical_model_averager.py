"""Averages of models in small groups often, in larger ones seldom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...groups import new_subgroups
from ...process_group import ProcessGroup
from .averagers import ModelAverager, average, check_warmup


class HierarchicalModelAverager(ModelAverager):
    """`period_group_size_dict`, in ascending order: {period: number of neighbouring processes}; the last is the number of all. A step
    averages in the largest of the groups whose period divides its number."""

    def __init__(self, period_group_size_dict: Mapping[int, int], warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None:
        super().__init__(process_group)
        check_warmup(warmup_steps)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        sizes, all_processes = list(period_group_size_dict.values()), self.process_group.size()
        if sizes[-1] != all_processes:
            raise ValueError(f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to the size of arg "
                             f"``process_group`` {all_processes}.")
        self.warmup_steps = warmup_steps
        self.period_process_group_dict = {
            period: self.process_group if size == all_processes else new_subgroups(size, group=self.process_group)[0]
            for period, size in period_group_size_dict.items()}

    def average_parameters(self, params: Any) -> None:
        """Average parameters, or parameter groups, if it is time for that; count the step."""
        now = [group for period, group in self.period_process_group_dict.items() if self.step % period == 0]
        if self.step >= self.warmup_steps and now:
            average(params, now[-1])
        self.step += 1


__all__ = ["HierarchicalModelAverager"]
