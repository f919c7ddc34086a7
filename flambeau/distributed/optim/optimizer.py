"""DistributedOptimizer: one optimizer in each worker that has parameters, stepped together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ...core import locks
from ..rpc import RRef, remote
from ..rpc.gradients import get_gradients


class _LocalOptimizer:
    """The optimizer of a worker's own parameters."""

    lock = locks.lock()  # of all optimizers of the process: they may share parameters

    def __init__(self, kind: type, params: Sequence[RRef], args: tuple, kwargs: dict) -> None:
        self.optimizer = kind([rref.local_value() for rref in params], *args, **kwargs)

    def step(self, context_id: int) -> None:
        """A step by the gradients that the context has in this process."""
        found = get_gradients(context_id)
        with self.lock:
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    p.grad = found.get(p)
            self.optimizer.step()


class DistributedOptimizer:
    """`optimizer_class(parameters, *args, **kwargs)` in each worker that owns some of `params_rref`, references to parameters.

    Optimizers of one worker take turns: a step of one trainer is not mixed with another's.
    """

    def __init__(self, optimizer_class: type, params_rref: Sequence[RRef], *args: Any, **kwargs: Any) -> None:
        by_owner: dict[Any, list[RRef]] = defaultdict(list)
        for param in params_rref:
            by_owner[param.owner()].append(param)
        if not by_owner:
            raise ValueError("DistributedOptimizer got no parameters")
        self.is_functional_optim = False
        self.remote_optimizers = [remote(owner, _LocalOptimizer, (optimizer_class, params, args, kwargs))
                                  for owner, params in by_owner.items()]
        for optimizer in self.remote_optimizers:
            optimizer._get_type()  # an optimizer that can't be made says so here

    def step(self, context_id: int) -> None:
        """All workers' steps by the gradients of a context of distributed autograd, of which `backward` has ended. Waits for all; the
        first exception of theirs is raised."""
        steps = [optimizer.rpc_async().step(context_id) for optimizer in self.remote_optimizers]
        errors = [error for step in steps if (error := _error_of(step)) is not None]
        if errors:
            raise errors[0]


def _error_of(step: Any) -> Exception | None:
    try:
        step.wait()
    except Exception as error:
        return error
    return None
