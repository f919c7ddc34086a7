"""DistributedDataParallel: the same module in several processes, each with its own part of the batch; gradients are averaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...aot.early import wanted_by
from ...autograd.grad_mode import is_grad_enabled, no_grad
from ...core.device import device
from ...core.dtypes import dtype
from ...core.tensor import Tensor
from ...distributed.algorithms.ddp_comm_hooks import default_hooks
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...distributed.groups import default_group
from ...distributed.objects import all_gather_object
from ...distributed.process_group import ProcessGroup
from ...distributed.reduce_op import RedOpType
from ...distributed.reducer import BUCKET, FIRST_BUCKET, BuiltinCommHookType, GradBucket, Reducer
from ...func import functional_call
from ...ops.creation import tensor
from ...utils import _pytree as pytree
from ..modules.module import Module
from ..modules.sparse import Embedding, EmbeddingBag

_LACKING = {
    "delay_all_reduce_named_params": "leave it out", "param_to_hook_all_reduce": "leave it out",
}


@dataclass
class _MixedPrecision:
    """`param_dtype`: in which the module computes, with copies of its parameters and floating-point inputs; `reduce_dtype`: in which
    gradients are added up (`param_dtype`, if None); `buffer_dtype`: of floating-point buffers."""

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None


class DistributedDataParallel(Module, Joinable):
    """Wraps `module`: parameters start as those of rank 0, and each backward pass leaves the mean of all processes' gradients.

    Buckets of `bucket_cap_mb` MB (the first 1 MB) are reduced while backward runs. `find_unused_parameters` looks from the outputs for
    parameters that get no gradient this time; `static_graph` finds them once. With `gradient_as_bucket_view` gradients lie in the buckets.
    Buffers are those of rank 0 at the beginning and at each forward pass; with `forward_sync_buffers=False` at the beginning alone, with
    `broadcast_buffers=False` never. `mixed_precision`, a `_MixedPrecision`, computes and reduces in other dtypes; parameters, their
    gradients and the optimizer keep theirs.
    """

    _wraps = "module"

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool | None = None,
        init_sync: bool = True, process_group: ProcessGroup | None = None, bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False,
        static_graph: bool = False, delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None,
        mixed_precision: _MixedPrecision | None = None, device_mesh: Any = None, skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None, forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        for name, instead in _LACKING.items():
            if locals()[name] is not None:
                raise NotImplementedError(f"DistributedDataParallel({name}=) is not implemented; {instead}")
        if skip_all_reduce_unused_params:
            raise NotImplementedError("DistributedDataParallel(skip_all_reduce_unused_params=True) is not implemented; leave it out")
        places = {p.device for p in module.parameters()}
        if (device_ids or output_device is not None) and ([d.type for d in places] != ["cuda"] or len(device_ids or [0]) > 1):
            raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device "
                             f"GPU modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module "
                             f"parameters on {places}; leave them out: a module runs where its parameters are")
        self._skipped = skipped = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.module = module
        if not (trained := self._trained()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        if device_mesh is not None and (process_group is not None or device_mesh.ndim != 1):
            raise RuntimeError(f"Only 1D device mesh is supported, without a process_group; got {device_mesh} and {process_group}")
        self.process_group, self.dim = (device_mesh.get_group() if device_mesh is not None else default_group(process_group)), dim
        if broadcast_buffers is not None and forward_sync_buffers is not None:
            raise ValueError("DistributedDataParallel: give forward_sync_buffers, or broadcast_buffers, its older name, not both")
        self.device, self.broadcast_buffers = trained[0][1].device, broadcast_buffers is not False and forward_sync_buffers is not False
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view, self.check_reduction = gradient_as_bucket_view, check_reduction
        self.device_ids, self.output_device = device_ids or None, output_device
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        if init_sync:
            self._same_everywhere()
            buffers = () if broadcast_buffers is False else module.named_buffers()
            self._spread([t for n, t in (*module.named_parameters(), *buffers) if n not in skipped])
        self.bucket_bytes_cap = int((bucket_cap_mb if bucket_cap_mb is not None else BUCKET / (1 << 20)) * (1 << 20))
        self.bucket_bytes_cap_default = bucket_cap_mb is None
        self._sizes: tuple[int, ...] = (min(FIRST_BUCKET, self.bucket_bytes_cap), self.bucket_bytes_cap)
        if bucket_cap_mb_list:
            self._sizes = tuple(int(mb * (1 << 20)) for mb in bucket_cap_mb_list)
        self.mixed_precision = mixed_precision
        if mixed_precision is not None and mixed_precision.buffer_dtype is not None:
            for name, b in module.named_buffers():
                if name not in skipped:
                    b.data = _cast(b, mixed_precision.buffer_dtype)
        self._ready_reducer()

    def _trained(self) -> list[tuple[str, Any]]:
        return [(n, p) for n, p in self.module.named_parameters() if p.requires_grad and n not in self._skipped]

    def _ready_reducer(self) -> None:
        sparse = {id(m.weight) for m in self.module.modules() if isinstance(m, (Embedding, EmbeddingBag)) and m.sparse}
        self.reducer = Reducer(self._trained(), self.process_group, self._sizes, find_unused=self.find_unused_parameters,
                               static=self.static_graph, views=self.gradient_as_bucket_view, sparse=sparse)
        self._narrow = None
        if (policy := self.mixed_precision) is not None and (kind := policy.reduce_dtype or policy.param_dtype) is not None:
            self._narrow = default_hooks.in_dtype(default_hooks.allreduce_hook, kind)
            self.reducer.hook, self.reducer.hook_state = self._narrow, self.process_group

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Iterable[str]) -> None:
        """Of a module that is to be wrapped: those of these names are each process's own."""
        module._ddp_params_and_buffers_to_ignore = list(params_and_buffers_to_ignore)

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Facts for whoever writes them down."""
        trained, group = [p for _, p in self._trained()], self.process_group
        return {"backend_name": group.name(), "world_size": group.size(), "rank": group.rank(), "module_name": type(self.module).__name__,
                "num_parameter_tensors": len(trained), "total_parameter_size_bytes": sum(p.numel() * p.dtype.itemsize for p in trained),
                "bucket_cap_bytes": self.bucket_bytes_cap, "broadcast_buffers": int(self.broadcast_buffers),
                "find_unused_parameters": int(self.find_unused_parameters), "gradient_as_bucket_view": int(self.gradient_as_bucket_view)}

    # -- the same everywhere ------------------------------------------------------------------------------------------------------
    def _same_everywhere(self) -> None:
        """RuntimeError if the module has other parameters in some process."""
        if self.process_group.calls is not None:
            return
        mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in self.module.named_parameters()]
        every: list = [None] * self.process_group.size()
        all_gather_object(every, mine, self.process_group)
        for rank, theirs in enumerate(every):
            if theirs != every[0]:
                count = (f"{len(every[0])} parameters", f"{len(theirs)}")
                differing = next(((a, b) for a, b in zip(every[0], theirs) if a != b), count)
                raise RuntimeError(f"DDP expects same model across all ranks, but rank {self.process_group._ranks[rank]} has "
                                   f"{differing[1]} where rank {self.process_group._ranks[0]} has {differing[0]}")

    def _spread(self, tensors: list[Tensor], source: int = 0) -> None:
        """The tensors of one process to all."""
        with no_grad():
            works = [self.process_group.broadcast(t.detach(), source) for t in tensors]
        for work in works:
            work.wait()

    def _spread_buffers(self, source: int = 0) -> None:
        buffers = [b for n, b in self.module.named_buffers() if n not in self._skipped]
        if self.broadcast_buffers and buffers:
            self._spread(buffers, source)

    # -- running ------------------------------------------------------------------------------------------------------------------
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        work = Join.notify_join_context(self)
        if work is not None and getattr(self, "_divide_by_active", False):
            self.reducer.divisor = int(work.result()[0].item())
        if work is not None:
            self._greatest(int(self.require_backward_grad_sync and is_grad_enabled()))  # those without inputs ask whether to take part
        if self.require_forward_param_sync:
            self._spread_buffers(self._source() if work is not None else 0)
        if self.device_ids is not None:
            inputs, kwargs = pytree.tree_map_only(Tensor, lambda t: t.to(self.device), (inputs, kwargs))
        if not (is_grad_enabled() and self.require_backward_grad_sync):
            outputs = self._compute(*inputs, **kwargs)
        else:
            with wanted_by(self.reducer):  # a compiled backward hands its gradients over before it ends
                outputs = self._compute(*inputs, **kwargs)
        if is_grad_enabled() and self.require_backward_grad_sync:
            self.require_forward_param_sync = True
            self.reducer.prepare(t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor))
        else:
            self.require_forward_param_sync = False
            self.reducer._rest()
        return outputs

    def _compute(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.mixed_precision is None or (kind := self.mixed_precision.param_dtype) is None:
            return self.module(*inputs, **kwargs)
        inputs, kwargs = pytree.tree_map_only(Tensor, lambda t: _cast(t, kind), (inputs, kwargs))
        copies = {n: _cast(p, kind) for n, p in self.module.named_parameters() if n not in self._skipped}
        return functional_call(self.module, copies, inputs, kwargs)  # gradients come to the parameters through the casts

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes within stay this process's own, and add up until the next one outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let `hook(state, bucket)` reduce each bucket: it returns a Future of the bucket's new values. It says in which dtype, too."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not self._narrow:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        """The same with a hook of DistributedDataParallel's own."""
        self.register_comm_hook(None, {BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
                                       BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook}[comm_hook_type])

    def _set_static_graph(self) -> None:
        self.static_graph = self.reducer.static = True

    # -- uneven inputs ------------------------------------------------------------------------------------------------------------
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Join:
        """A context in which processes may have different numbers of inputs. Gradients are divided by the number of all processes, or
        with `divide_by_initial_world_size=False` of those that still have some."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this process does when it has no more inputs."""
        self._divide_by_active = not kwargs.get("divide_by_initial_world_size", True)
        return _Shadow(self)

    @property
    def join_device(self) -> device:
        """The parameters'."""
        return self.device

    @property
    def join_process_group(self) -> ProcessGroup:
        """Whose gradients are averaged."""
        return self.process_group

    def _source(self, has_inputs: bool = True) -> int:
        """The last process that still has inputs (or, of the last to end, that was there to the end)."""
        return self._greatest(self.process_group.rank() if has_inputs else -1)

    def _greatest(self, mine: int) -> int:
        """The greatest of all processes' numbers."""
        every = tensor([mine], device=self.process_group.device())
        self.process_group.allreduce(every, RedOpType.MAX).wait()
        return int(every.item())

    # -- copies ---------------------------------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict:
        left = {"process_group", "reducer", "_narrow"}
        return {name: value for name, value in self.__dict__.items() if name not in left}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self.process_group = default_group()
        self._ready_reducer()


def _cast(t: Tensor, kind: dtype) -> Tensor:
    return t.to(kind) if t.is_floating_point() else t


class _Shadow(JoinHook):
    """A process without inputs, in place of the iterations of the others."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.ddp = ddp

    def main_hook(self) -> None:
        """Their collectives: buffers, then a reduction of zeros."""
        reduces = bool(self.ddp._greatest(0))
        if self.ddp.require_forward_param_sync:
            self.ddp._spread_buffers(self.ddp._source(False))
        self.ddp.require_forward_param_sync = reduces
        if reduces:
            self.ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Parameters and buffers as those of a process that did all steps."""
        source = self.ddp._source(is_last_joiner)
        self.ddp._spread([*self.ddp.module.parameters(), *self.ddp.module.buffers()], source)
