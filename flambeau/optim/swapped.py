"""An optimizer with other parameters and another state for a block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.tensor import Tensor
from .optimizer import Optimizer


@contextmanager
def swap_in_optimizer_params_and_state(optimizer: Optimizer, swapin_parameters: dict[str, Tensor],
                                       swapin_optim_state: dict[str, Any]) -> Iterator[None]:
    """In the block the optimizer steps on other parameters, given in the order of its own, and with another state (as `state_dict()` has
    it: by numbers of parameters). What is written to these tensors in place stays; afterwards the optimizer is as before. ValueError where
    the numbers of parameters or groups differ."""
    own = [p for group in optimizer.param_groups for p in group["params"]]
    given = list(swapin_parameters.values())
    groups = swapin_optim_state["param_groups"]
    if len(own) != len(given):
        raise ValueError(f"swap_in_optimizer_params_and_state: the optimizer has {len(own)} parameters, {len(given)} are given")
    if [len(g["params"]) for g in groups] != [len(g["params"]) for g in optimizer.param_groups]:
        raise ValueError("swap_in_optimizer_params_and_state: the optimizer has groups of "
                         f"{[len(g['params']) for g in optimizer.param_groups]} parameters, the given state of "
                         f"{[len(g['params']) for g in groups]}")
    rest = iter(given)
    new_groups = [{**{k: v for k, v in group.items() if k != "params"}, "params": [next(rest) for _ in group["params"]]}
                  for group in groups]
    by_number = {number: p for group, told in zip(new_groups, groups) for number, p in zip(told["params"], group["params"])}
    state: Any = defaultdict(dict)
    for number, entries in swapin_optim_state["state"].items():
        state[by_number[number]] = dict(entries) if isinstance(entries, Mapping) else entries
    before = optimizer.param_groups, optimizer.state
    optimizer.param_groups, optimizer.state = new_groups, state
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = before
