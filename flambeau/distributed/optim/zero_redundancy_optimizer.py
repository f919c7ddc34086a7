"""ZeroRedundancyOptimizer: each process keeps the optimizer's state of a part of the parameters, updates these, and sends them to all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ...autograd.grad_mode import enable_grad, no_grad
from ...core.device import device
from ...core.tensor import Tensor
from ...ops.joining import cat
from ...optim.optimizer import Optimizer
from ...utils import _pytree as pytree
from ..algorithms.join import Join, Joinable, JoinHook
from ..groups import default_group
from ..objects import gather_object
from ..process_group import ProcessGroup

_NOT_HERE = ("Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to={to})` on all ranks "
             "beforehand if you meant to save the global state.")


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """`optimizer_class(params, **defaults)` with its state spread over the processes of a group.

    Parameters go, the largest first, to the process that has the fewest elements. With `parameters_as_bucket_view` those of one process
    lie in one buffer, which is sent as a whole.
    """

    def __init__(self, params: Any, optimizer_class: type[Optimizer], process_group: ProcessGroup | None = None,
                 parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not implemented; leave it out: DDP reduces while "
                                      "backward runs, and the step follows")
        self.process_group = process_group or default_group()
        self._optim_class, self._optim_defaults, self._views = optimizer_class, defaults, parameters_as_bucket_view
        self._owner: dict[int, int] = {}
        self._load = [0] * self.process_group.size()
        self._everyones: list[dict] | None = None
        self._buckets: dict[tuple, Tensor] = {}
        self._ready = False
        super().__init__(params, dict(defaults))
        self._ready = True
        self._assign(self._all_params())
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": self._mine(g)} for g in self.param_groups]
        self.optim = optimizer_class(groups, **defaults)
        self.defaults = self.optim.defaults
        self._pull()
        if parameters_as_bucket_view:
            self._fill_buckets()

    # -- who has what --------------------------------------------------------------------------------------------------------------
    def _all_params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _assign(self, params: list[Tensor]) -> None:
        for p in sorted(params, key=lambda p: -p.numel()):
            rank = self._load.index(min(self._load))
            self._owner[id(p)] = rank
            self._load[rank] += p.numel()

    def _mine(self, group: dict) -> list[Tensor]:
        return [p for p in group["params"] if self._owner[id(p)] == self.process_group.rank()]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """More parameters with options of their own: all processes add them."""
        super().add_param_group(param_group)
        if not self._ready:
            return
        added = self.param_groups[-1]
        self._assign(added["params"])
        self.optim.add_param_group({**{k: v for k, v in added.items() if k != "params"}, "params": self._mine(added)})
        if self._views:
            self._fill_buckets()

    def _fill_buckets(self) -> None:
        """The parameters of each process, by dtype, in one buffer; they become views of it."""
        members: dict[tuple, list[Tensor]] = {}
        for p in self._all_params():
            members.setdefault((self._owner[id(p)], p.dtype, p.device), []).append(p)
        with no_grad():
            for key, params in members.items():
                bucket = self._buckets[key] = cat([p.detach().reshape(-1) for p in params])
                for p, part in zip(params, bucket.split([p.numel() for p in params])):
                    p.data = part.view(p.shape)

    # -- steps -----------------------------------------------------------------------------------------------------------------------
    def _push(self) -> None:
        """The options, which schedulers and users change here, to the optimizer of this process's part."""
        for ours, local in zip(self.param_groups, self.optim.param_groups):
            local.update((k, v) for k, v in ours.items() if k != "params")

    def _pull(self) -> None:
        for ours, local in zip(self.param_groups, self.optim.param_groups):
            ours.update((k, v) for k, v in local.items() if k != "params")

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this process's parameters, and get the others' from theirs."""
        Join.notify_join_context(self)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._step(**kwargs)
        return loss

    def _step(self, **kwargs: Any) -> None:
        self._push()
        if any(group["params"] for group in self.optim.param_groups):
            self.optim.step(**kwargs)
        self._pull()
        with no_grad():
            whole = self._buckets.items() if self._views else [((self._owner[id(p)],), p.detach()) for p in self._all_params()]
            works = [self.process_group.broadcast(tensor, key[0]) for key, tensor in whole]
        for work in works:
            work.wait()

    # -- state -----------------------------------------------------------------------------------------------------------------------
    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring everyone's part of the state to process `to` of the group, where `state_dict()` then is that of all."""
        if self._everyones is not None and self.process_group.rank() != to:
            self._everyones = None
        self._push()
        mine = pytree.tree_map_only(Tensor, lambda t: t.detach().cpu(), self.optim.state_dict())
        found: list | None = [None] * self.process_group.size() if self.process_group.rank() == to else None
        gather_object(mine, found, group=self.process_group, group_dst=to)
        self._everyones = found

    def state_dict(self) -> dict[str, Any]:
        """The state of all, as an optimizer of one process has it. RuntimeError where it has not been brought."""
        if self._everyones is None:
            raise RuntimeError(_NOT_HERE.format(to=self.process_group.rank()))
        number = {id(p): i for i, p in enumerate(self._all_params())}
        found = super().state_dict()
        found["state"] = {}
        for rank, local in enumerate(self._everyones):
            theirs = [number[id(p)] for g in self.param_groups for p in g["params"] if self._owner[id(p)] == rank]
            found["state"].update({theirs[i]: state for i, state in local["state"].items()})
        found["state"] = dict(sorted(found["state"].items()))
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of all, of which this process keeps its part."""
        super().load_state_dict({**state_dict, "state": {}})
        self._push()
        params = self._all_params()
        local = {id(p): i for i, p in enumerate(p for g in self.optim.param_groups for p in g["params"])}
        kept = {local[id(params[i])]: copy.deepcopy(s) for i, s in state_dict["state"].items() if id(params[i]) in local}
        self.optim.load_state_dict({**self.optim.state_dict(), "state": kept})
        self._everyones = None

    # -- uneven inputs ------------------------------------------------------------------------------------------------------------------
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this process does when it has no more inputs: its part of the steps."""
        del kwargs
        return _Steps(self)

    @property
    def join_device(self) -> device:
        """The parameters'."""
        return self._all_params()[0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        """Over whom the state is spread."""
        return self.process_group


class _Steps(JoinHook):
    """A process without inputs: DistributedDataParallel's hook, which comes before, leaves the others' gradients here."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        """A step with the others' gradients."""
        self.zero._step()


__all__ = ["ZeroRedundancyOptimizer"]
