"""ZeroRedundancyOptimizer: each process keeps the optimizer's state of a part of the parameters, updates these, and sends them to all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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
from ..reducer import GradBucket
from ..work import Work

_NOT_HERE = ("Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to={to})` on all ranks "
             "beforehand if you meant to save the global state.")


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """`optimizer_class(params, **defaults)` with its state spread over the processes of a group.

    Parameters go, the largest first, to the process that has the fewest elements. With `parameters_as_bucket_view` those of one process
    lie in one buffer, which is sent as a whole.

    With `overlap_with_ddp` each bucket of DistributedDataParallel is updated and sent as soon as it is reduced, by a hook of
    `algorithms.ddp_comm_hooks.ddp_zero_hook`, which makes the buckets those of the buffers; `step()` then does nothing.
    """

    def __init__(self, params: Any, optimizer_class: type[Optimizer], process_group: ProcessGroup | None = None,
                 parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any) -> None:
        self.process_group = default_group(process_group)
        self._optim_class, self._optim_defaults, self._views = optimizer_class, defaults, parameters_as_bucket_view or overlap_with_ddp
        self._overlaps, self._bucket_of = overlap_with_ddp, dict[int, int]()  # the number of DDP's bucket
        self._owner: dict[int, int] = {}
        self._load = [0] * self.process_group.size()
        self._everyones: list[dict] | None = None
        self._buckets: dict[tuple, Tensor] = {}
        self._ready = False
        super().__init__(params, dict(defaults))
        self._ready = True
        self._assign(self._all_params())
        self._make_optimizer()
        self.defaults = self.optim.defaults
        self._pull()
        if parameters_as_bucket_view and not overlap_with_ddp:
            self._fill_buckets()

    def _make_optimizer(self) -> None:
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": self._mine(g)} for g in self.param_groups]
        self.optim = self._optim_class(groups, **self._optim_defaults)

    # -- who has what --------------------------------------------------------------------------------------------------------------
    def _all_params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _assign(self, params: list[Tensor]) -> None:
        for p in sorted(params, key=lambda p: -p.numel()):
            rank = self._load.index(min(self._load))
            self._owner[id(p)] = rank
            self._load[rank] += p.numel()

    def _follow(self, buckets: Sequence[GradBucket], split: bool) -> None:
        """Take over DistributedDataParallel's buckets: each belongs to one process, or is split between all."""
        if not self._overlaps:
            raise ValueError("ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly")
        if self.optim.state:
            raise RuntimeError("ZeroRedundancyOptimizer has a state already: register the hook before the first step and before "
                               "load_state_dict(), since it says which process keeps what")
        ours = {id(p) for p in self._all_params()}
        members = [[p for p in bucket.parameters() if id(p) in ours] for bucket in buckets]
        if (held := sum(map(len, members))) != len(ours):
            raise ValueError(f"ZeroRedundancyOptimizer has {len(ours)} parameters, of which DistributedDataParallel reduces {held}; the "
                             "others would never be updated")
        self._load = [0] * self.process_group.size()
        for index, params in enumerate(members):
            self._bucket_of.update((id(p), index) for p in params)
            if split:
                self._assign(params)
                continue
            rank = self._load.index(min(self._load))
            self._owner.update((id(p), rank) for p in params)
            self._load[rank] += sum(p.numel() for p in params)
        self._make_optimizer()
        self._fill_buckets()

    def _mine(self, group: dict) -> list[Tensor]:
        return [p for p in group["params"] if self._owner[id(p)] == self.process_group.rank()]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """More parameters with options of their own: all processes add them."""
        if self._ready and self._overlaps:
            raise RuntimeError("add_param_group() with overlap_with_ddp=True: DistributedDataParallel reduces what its module had at the "
                               "beginning; make both anew")
        super().add_param_group(param_group)
        if not self._ready:
            return
        added = self.param_groups[-1]
        self._assign(added["params"])
        self.optim.add_param_group({**{k: v for k, v in added.items() if k != "params"}, "params": self._mine(added)})
        if self._views:
            self._fill_buckets()

    def _fill_buckets(self) -> None:
        """The parameters of each process, by dtype (and by DDP's bucket), in one buffer; they become views of it."""
        members: dict[tuple, list[Tensor]] = {}
        for p in self._all_params():
            members.setdefault((self._owner[id(p)], self._bucket_of.get(id(p)), p.dtype, p.device), []).append(p)
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
        """Update this process's parameters, and get the others' from theirs; nothing with `overlap_with_ddp`, where backward did it."""
        if self._overlaps:
            return None
        Join.notify_join_context(self)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._step(**kwargs)
        return loss

    def _step(self, **kwargs: Any) -> None:
        self._update(**kwargs)
        with no_grad():
            whole = self._buckets.items() if self._views else [((self._owner[id(p)],), p.detach()) for p in self._all_params()]
            works = [self.process_group.broadcast(tensor, key[0]) for key, tensor in whole]
        for work in works:
            work.wait()

    def _update(self, **kwargs: Any) -> None:
        self._push()
        if any(group["params"] for group in self.optim.param_groups):
            self.optim.step(**kwargs)
        self._pull()

    def _step_bucket(self, bucket: GradBucket) -> list[Work]:
        """Update what this process has of DDP's bucket by the gradients in it; the transfers to all, which are under way."""
        mine = [p for group in self.optim.param_groups for p in group["params"]]
        kept = [p.grad for p in mine]
        reduced = {id(p): view for p, view in zip(bucket.parameters(), bucket.gradients())}
        try:
            for p in mine:
                p.grad = reduced.get(id(p))  # what has none is left alone
            if any(id(p) in reduced for p in mine):
                self._update()
        finally:
            for p, grad in zip(mine, kept):
                p.grad = grad
        with no_grad():
            return [self.process_group.broadcast(t, key[0]) for key, t in self._buckets.items() if key[1] == bucket.index()]

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
        if not self.zero._overlaps:  # else DDP's hook has done it
            self.zero._step()


__all__ = ["ZeroRedundancyOptimizer"]
