"""FullyShardedDataParallel: a module around another whose parameters are spread over the processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...autograd.grad_mode import no_grad
from ...core.device import device as Device
from ...core.settings import told
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...ops.creation import zeros
from ..device_mesh import DeviceMesh
from ..groups import default_group
from ..objects import all_gather_object
from ..process_group import ProcessGroup
from ..reduce_op import RedOpType
from ..tensor.dtensor import DTensor
from .group import ParamGroup
from .optim_state import OptimStateDicts
from .policies import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    MixedPrecision,
    MixedPrecisionPolicy,
    OptimStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .wrap import wrapped


class FullyShardedDataParallel(OptimStateDicts, Module):
    """`module` with its parameters, gradients and the optimizer's state spread over the processes, as `sharding_strategy` says.

    `auto_wrap_policy` makes submodules units of their own, which are gathered one at a time. Parameters keep their names, and are
    DTensors, whether `use_orig_params` or not. `sync_module_states`: all begin with those of the first process. With
    `cpu_offload=CPUOffload(offload_params=True)` they lie on the CPU, and are brought to the module's device to compute.
    """

    _wraps = "_fsdp_wrapped_module"

    def __init__(
        self, module: Module, process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None, auto_wrap_policy: Callable | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE, mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None, param_init_fn: Callable[[Module], None] | None = None, device_id: Any = None,
        sync_module_states: bool = False, forward_prefetch: bool = False, limit_all_gathers: bool = True, use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None, device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        del backward_prefetch, forward_prefetch, limit_all_gathers, use_orig_params    # there is one way
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if not isinstance(strategy, ShardingStrategy):
            raise TypeError(f"FullyShardedDataParallel(sharding_strategy=) is a ShardingStrategy, not {strategy!r}")
        ignored = {id(p) for m in ignored_modules or () for p in m.parameters()}
        for state in ignored_states or ():
            ignored |= {id(p) for p in state.parameters()} if isinstance(state, Module) else {id(state)}
        if param_init_fn is not None:
            param_init_fn(module)
        if device_id is not None:
            _move(module, Device("cuda", device_id) if isinstance(device_id, int) else Device(device_id), ignored)
        offload = CPUOffloadPolicy() if cpu_offload is not None and cpu_offload.offload_params else None
        self.sharding_strategy, self.mixed_precision = strategy, mixed_precision or MixedPrecision()
        mesh = device_mesh or _mesh_of(strategy, process_group, next((p.device.type for p in module.parameters()), "cpu"))
        one = process_group if isinstance(process_group, ProcessGroup) else None
        self.process_group = one or (default_group() if strategy is ShardingStrategy.NO_SHARD and device_mesh is None
                                     else mesh.get_group(mesh.ndim - 1))
        if auto_wrap_policy is not None:
            def make(child: Module) -> Module:
                return FullyShardedDataParallel(child, one, strategy, cpu_offload, None, mixed_precision=mixed_precision,
                                                sync_module_states=sync_module_states, ignored_states=ignored_list, device_mesh=mesh)
            ignored_list = [p for p in module.parameters() if id(p) in ignored]
            wrapped(module, auto_wrap_policy, make)
        self._fsdp_wrapped_module = module
        policy = MixedPrecisionPolicy(self.mixed_precision.param_dtype, self.mixed_precision.reduce_dtype, None,
                                      self.mixed_precision.cast_forward_inputs or self.mixed_precision.cast_root_forward_inputs)
        keeps = strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
        if sync_module_states:
            _same_buffers(module, ignored, mesh)
        self._fsdp_group = ParamGroup([module], mesh, policy, not keeps, ignored, 0 if sync_module_states else None,
                                      offload=offload)
        self._settings = StateDictSettings()
        self._register_state_dict_hook(_leave)
        self.register_load_state_dict_pre_hook(_take)

    @property
    def module(self) -> Module:
        """The module inside."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]     # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """(name, parameter) as the module without units has them."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_INNER, ""), p

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """(name, buffer) as the module without units has them."""
        for name, b in super().named_buffers(*args, **kwargs):
            yield name.replace(_INNER, ""), b

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._fsdp_group.before(args, kwargs)
        return self._fsdp_group.after(self._fsdp_wrapped_module(*args, **kwargs))

    # -- units ---------------------------------------------------------------------------------------------------------------------
    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The units in a module; with `root_only` those in no other."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        inner = {id(m) for f in found for m in f.modules() if m is not f}
        return [f for f in found if not root_only or id(f) not in inner]

    def check_is_root(self) -> bool:
        """Whether it has gathered what lies around all other units. It can't know what is around itself: True."""
        return True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients stay this process's own, whole, and add up until the next backward pass outside."""
        groups = [m._fsdp_group for m in self.fsdp_modules(self)]
        before = [g.syncs for g in groups]
        for g in groups:
            g.syncs = False
        try:
            yield
        finally:
            for g, flag in zip(groups, before):
                g.syncs = flag

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module: Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False,
                           offload_to_cpu: bool = False, with_grads: bool = False) -> Iterator[None]:
        """Within the block parameters are whole; with `writeback` what was done to them stays, each process's part."""
        if rank0_only and writeback:
            raise NotImplementedError("summon_full_params(writeback=True, rank0_only=True) is not supported: ranks would differ")
        if with_grads:
            raise NotImplementedError("summon_full_params(with_grads=True) is not implemented; use p.grad.full_tensor()")
        del offload_to_cpu      # they are there
        every = FullyShardedDataParallel.fsdp_modules(module)
        groups = [m._fsdp_group for m in (every if recurse else [m for m in every if m is module])]
        for g in groups:
            g.unshard()
        try:
            yield
        finally:
            for g in groups:
                if writeback:
                    g.write_back()
                g.reshard()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their norm, over all processes, is at most `max_norm`; what it was."""
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        with no_grad():
            spread = [g._local_tensor for g in grads if isinstance(g, DTensor)]
            total = _power(spread, norm_type)
            how = RedOpType.MAX if norm_type == float("inf") else RedOpType.SUM
            group, where = self._fsdp_group.shards, total.device
            total = total if where.type in group.backends else total.to(group.device())
            group.allreduce(total, how).wait()
            total = total.to(where)
            rest = _power([g for g in grads if not isinstance(g, DTensor)], norm_type)
            total = total.maximum(rest) if norm_type == float("inf") else (total + rest) ** (1 / norm_type)
            scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
            for g in grads:
                (g._local_tensor if isinstance(g, DTensor) else g).mul_(scale)
        return total

    # -- state dicts ---------------------------------------------------------------------------------------------------------------
    @staticmethod
    def set_state_dict_type(module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
                            optim_state_dict_config: OptimStateDictConfig | None = None) -> StateDictSettings:
        """From now on state dicts of the units in `module`, and of their optimizers, are of this type; how they were."""
        before, default = StateDictSettings(), StateDictSettings()
        now = StateDictSettings(state_dict_type, state_dict_config or StateDictConfig(),
                                optim_state_dict_config or default.optim_state_dict_config)
        for unit in FullyShardedDataParallel.fsdp_modules(module):
            before, unit._settings = unit._settings, now
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """How state dicts of the units in `module` are made."""
        return FullyShardedDataParallel.fsdp_modules(module)[0]._settings

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
                        optim_state_dict_config: OptimStateDictConfig | None = None) -> Iterator[None]:
        """Within the block state dicts are of this type."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            FullyShardedDataParallel.set_state_dict_type(module, *before)


def _same_buffers(module: Module, ignored: set[int], mesh: DeviceMesh) -> None:
    """The buffers of the mesh's first process to all."""
    with no_grad():
        for b in module.buffers():
            if id(b) not in ignored:
                value = b.detach().clone().contiguous()
                for group in mesh.get_all_groups():
                    group.broadcast(value, 0).wait()
                b.copy_(value)


def _move(module: Module, where: Device, ignored: set[int]) -> None:
    """What the module has, but for what is ignored, to a device."""
    for t in (*module.parameters(), *module.buffers()):
        if id(t) not in ignored and t.device != where:
            t.data = t.detach().to(where)


def _mesh_of(strategy: ShardingStrategy, given: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None, kind: str) -> DeviceMesh:
    """The mesh of a process group, or of all processes; of devices of that kind if the group has some. Hybrid: (replicated, sharded),
    which is of machines and their processes, or of two groups, (sharded, replicated)."""
    hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
    if isinstance(given, tuple):
        if not hybrid:
            raise ValueError(f"two process groups are for HYBRID_SHARD, not for {strategy.name}")
        sharded, replicated = given
        rows: list[Any] = [None] * replicated.size()
        all_gather_object(rows, list(sharded._ranks), group=replicated)
        return DeviceMesh.from_group([replicated, sharded], kind if kind in sharded.backends else next(iter(sharded.backends)), rows)
    group = default_group(given)
    kind = kind if kind in group.backends else next(iter(group.backends))
    if hybrid:
        local = int(told("LOCAL_WORLD_SIZE") or group.size())
        if given is not None or group.size() % local:
            raise ValueError("HYBRID_SHARD takes two process groups, (sharded, replicated), or device_mesh=init_device_mesh(kind, (groups, "
                             f"processes of a group)); by itself it is of machines with equally many processes: {group.size()} in all, "
                             f"{local} here")
        return DeviceMesh(kind, np.array(group._ranks).reshape(-1, local))
    if strategy is ShardingStrategy.NO_SHARD:
        return DeviceMesh(kind, np.array(group._ranks).reshape(-1, 1))
    return DeviceMesh.from_group(group, kind)


def _power(tensors: list[Tensor], norm_type: float) -> Tensor:
    """What of these tensors is added up (or, for infinity, of which the largest is taken) for their norm."""
    total = zeros(())
    for t in tensors:
        if t.numel():
            total = total.maximum(t.abs().max()) if norm_type == float("inf") else total + t.float().abs().pow(norm_type).sum()
    return total


def _leave(unit: Any, state: dict, prefix: str, metadata: Any) -> None:
    """A state dict of the unit's type, without the unit in its names."""
    del metadata
    kind, config, _ = unit._settings
    inner = prefix + _INNER
    for key in [k for k in state if k.startswith(inner)]:
        value = state.pop(key)
        if isinstance(value, DTensor) and kind is StateDictType.FULL_STATE_DICT:
            value = value.detach().full_tensor()  # type: ignore[attr-defined]
        elif isinstance(value, DTensor) and kind is StateDictType.LOCAL_STATE_DICT:
            value = value._local_tensor.detach()
        if not (getattr(config, "rank0_only", False) and unit.process_group.rank()):
            state[prefix + key[len(inner):]] = value


def _take(unit: Any, state: dict, prefix: str, *rest: Any) -> None:
    """The names of a state dict as the unit has them, and parts as DTensors."""
    del rest
    unit._fsdp_group.reshard()
    for key in [k for k in state if k.startswith(prefix) and not k.startswith(prefix + _INNER)]:
        state[prefix + _INNER + key[len(prefix):]] = state.pop(key)
    if unit._settings.state_dict_type is StateDictType.LOCAL_STATE_DICT:
        for name, p in Module.named_parameters(unit, remove_duplicate=False):
            value = state.get(prefix + name)
            if isinstance(p, DTensor) and value is not None and not isinstance(value, DTensor) and tuple(value.shape) != tuple(p.shape):
                state[prefix + name] = DTensor.from_local(value, p.device_mesh, p.placements, shape=tuple(p.shape), stride=p.stride())


_INNER = FullyShardedDataParallel._wraps + "."
