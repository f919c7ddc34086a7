"""fully_shard: a module whose parameters are spread over the processes (FSDP2). It stays the module that it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...nn.modules.container import ModuleDict, ModuleList
from ...nn.modules.module import Module
from ..device_mesh import DeviceMesh
from ..groups import default_group
from ..tensor.placement_types import Shard
from .group import ParamGroup
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

_classes: dict[type, type] = {}


@dataclass(frozen=True)
class DataParallelMeshDims:
    """Which dimensions of a mesh are data parallelism's, by name: parameters are spread along `shard` and alike along `replicate`."""

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shard is None and self.replicate is None:
            raise ValueError("DataParallelMeshDims: at least one of shard and replicate must be set")

    def of(self, mesh: DeviceMesh) -> DeviceMesh:
        """The part of `mesh` that it names: (replicate, shard)."""
        if self.shard is None or any(isinstance(names, tuple) and len(names) != 1 for names in (self.shard, self.replicate)):
            raise NotImplementedError(f"{self}: parameters are spread along one dimension, and replicated along one at most; name one each")
        names = [part if isinstance(part, str) else part[0] for part in (self.replicate, self.shard) if part is not None]
        return mesh[tuple(names)] if len(names) > 1 else mesh[names[0]]


@dataclass
class UnshardHandle:
    """What `FSDPModule.unshard(async_op=True)` gives: after `wait()` the parameters are there."""

    _group: ParamGroup

    def wait(self) -> None:
        """Until they are gathered; the modules see them."""
        self._group.unshard()


def _get_module_state(module: Module) -> ParamGroup | None:
    """What `fully_shard` keeps of a module; None of others."""
    return module._fsdp_group if isinstance(module, FSDPModule) else None


class FSDPModule:
    """What `fully_shard` adds to a module's class."""

    _fsdp_group: ParamGroup

    def _groups(self, recurse: bool) -> list[ParamGroup]:
        own = cast(Module, self)
        return [m._fsdp_group for m in (own.modules() if recurse else [own]) if isinstance(m, FSDPModule)]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the parameters now; with `async_op` only begin to, and `wait()` of the handle ends it."""
        if async_op:
            self._fsdp_group.begin()
            return UnshardHandle(self._fsdp_group)
        self._fsdp_group.unshard()
        return None

    def reshard(self) -> None:
        """Give the gathered parameters back."""
        self._fsdp_group.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; without it they add up here, whole."""
        for group in self._groups(recurse):
            group.syncs = requires_gradient_sync

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether parameters go after backward."""
        for group in self._groups(recurse):
            group.reshard_after_backward = reshard_after_backward

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether parameters go between forward and backward."""
        for group in self._groups(recurse):
            group.reshard_after_forward = reshard_after_forward

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients over replicas; without it they add up, in parts, until a backward pass with it."""
        for group in self._groups(recurse):
            group.reduces_replicas = requires_all_reduce

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether this module's parameters are gathered for backward; not needed where no gradient asks for their values."""
        self._fsdp_group.unshards_in_backward = unshard_in_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide this module's gradients by `factor`, not by the number of processes."""
        self._fsdp_group.divisor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Gather the parameters of these while this module runs, not those of the one that followed it last time."""
        self._fsdp_group.ahead = _groups_of(modules)

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """The same in backward."""
        self._fsdp_group.ahead_backward = _groups_of(modules)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Nothing: a backward pass waits for its own reductions, whether more are to come or not."""
        del is_last_backward


def _groups_of(modules: Sequence[FSDPModule]) -> list[ParamGroup]:
    if wrong := [type(m).__name__ for m in modules if not isinstance(m, FSDPModule)]:
        raise ValueError(f"only modules that were given to fully_shard are gathered ahead, not {', '.join(wrong)}")
    return [m._fsdp_group for m in modules]


def _row_of_all(kind: str) -> DeviceMesh:
    return DeviceMesh.from_group(default_group(), kind)


def fully_shard(module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | None = None,
                mp_policy: MixedPrecisionPolicy | None = None, offload_policy: OffloadPolicy | None = None,
                ignored_params: Iterable[Any] | None = None, shard_placement_fn: Callable[[Any], Any] | None = None,
                dp_mesh_dims: DataParallelMeshDims | None = None) -> Any:
    """Spread the parameters of a module (or of several that run one after another) over the processes of `mesh`, those of submodules
    that have been given to `fully_shard` excepted: submodules first. Parameters become DTensors.

    They are gathered before forward, and go afterwards (`reshard_after_forward`; those of the outermost module stay, if not told) until
    backward needs them; gradients are averaged as soon as all of a module are there. `dp_mesh_dims`: which dimensions of `mesh` are meant.
    `shard_placement_fn(parameter)` may say how one is spread: Shard(dim), or None, by its rows. A parameter that is a DTensor of another
    dimension of the mesh's whole (`parallelize_module`) is spread further along `mesh`: it lies over both. With
    `offload_policy=CPUOffloadPolicy()` parameters, gradients and the optimizer's state lie on the CPU, whatever device `mesh` is of.
    """
    if dp_mesh_dims is not None:
        if mesh is None:
            raise ValueError("fully_shard(dp_mesh_dims=...) needs the mesh whose dimensions it names")
        mesh = dp_mesh_dims.of(mesh)
    if offload_policy is not None and not isinstance(offload_policy, OffloadPolicy):
        raise ValueError(f"offload_policy is an OffloadPolicy, not {offload_policy!r}")
    modules: Sequence[Module] = list(module) if isinstance(module, (list, tuple)) else [module]
    for one in modules:
        if isinstance(one, (ModuleList, ModuleDict)):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {one}")
    where = mesh or _row_of_all(next((p.device.type for m in modules for p in m.parameters()), "cpu"))
    ignored = {id(p) for p in ignored_params or ()}
    group = ParamGroup(modules, where, mp_policy or MixedPrecisionPolicy(), reshard_after_forward is not False, ignored,
                       dim_of=functools.partial(_dimension, shard_placement_fn),
                       offload=offload_policy if isinstance(offload_policy, CPUOffloadPolicy) else None)
    for one in modules:
        if isinstance(one, FSDPModule):
            raise AssertionError(f"fully_shard has been applied to this module: {type(one).__name__}")
        kind = type(one)
        if kind not in _classes:
            _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
        one.__class__ = _classes[kind]
        one._fsdp_group = group
        one.register_forward_pre_hook(lambda m, args, kwargs: group.before(args, kwargs), prepend=True, with_kwargs=True)
    modules[-1].register_forward_hook(lambda m, args, out: group.after(out))
    if reshard_after_forward is None:
        _roots_stay(modules)
    return module


def _dimension(placement_of: Callable[[Any], Any] | None, p: Any) -> int:
    """The dimension along which a parameter is spread."""
    where = None if placement_of is None else placement_of(p)
    if where is None:
        return 0
    if type(where) is not Shard or not -p.ndim <= where.dim < p.ndim:
        raise ValueError(f"fully_shard(shard_placement_fn=...) says Shard(dim) or None, not {where!r}, of a parameter of shape "
                         f"{list(p.shape)}")
    return where.dim % p.ndim


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let a method do what forward does: parameters are gathered before it, and go afterwards. Nothing for a module that isn't spread."""
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module).__name__} does not have a method {method_name}")
    if not isinstance(module, FSDPModule):
        return
    method, group = getattr(module, method_name), module._fsdp_group

    @functools.wraps(method)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = group.before(args, kwargs)
        return group.after(method(*args, **kwargs))

    setattr(module, method_name, gathered)


def share_comm_ctx(modules: Sequence[FSDPModule]) -> None:
    """Nothing to share: communication has no streams of its own. ValueError for modules that are not spread."""
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"share_comm_ctx expects FSDPModules, got {type(module).__name__}; apply fully_shard first")


def _roots_stay(modules: Sequence[Module]) -> None:
    """The outermost module's parameters are needed first in backward: they stay. What was outermost until now is not any more."""
    for one in modules:
        for inner in one.modules():
            if isinstance(inner, FSDPModule) and inner is not one and getattr(inner, "_fsdp_stays", False):
                inner._fsdp_group.reshard_after_forward, inner._fsdp_stays = True, False
    root: Any = modules[0]
    root._fsdp_group.reshard_after_forward, root._fsdp_stays = False, True
