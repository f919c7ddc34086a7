"""fully_shard: a module whose parameters are spread over the processes (FSDP2). It stays the module that it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from ...nn.modules.module import Module
from ..device_mesh import DeviceMesh
from ..groups import default_group
from .group import ParamGroup
from .policies import MixedPrecisionPolicy, OffloadPolicy

_classes: dict[type, type] = {}


class FSDPModule:
    """What `fully_shard` adds to a module's class."""

    _fsdp_group: ParamGroup

    def _groups(self, recurse: bool) -> list[ParamGroup]:
        own = cast(Module, self)
        return [m._fsdp_group for m in (own.modules() if recurse else [own]) if isinstance(m, FSDPModule)]

    def unshard(self, async_op: bool = False) -> None:
        """Gather the parameters now. They are there when this returns, `async_op` or not."""
        del async_op
        self._fsdp_group.unshard()

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


def _row_of_all(kind: str) -> DeviceMesh:
    return DeviceMesh.from_group(default_group(), kind)


def fully_shard(module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | None = None,
                mp_policy: MixedPrecisionPolicy | None = None, offload_policy: OffloadPolicy | None = None,
                ignored_params: Iterable[Any] | None = None) -> Any:
    """Spread the parameters of a module (or of several that run one after another) over the processes of `mesh`, those of submodules
    that have been given to `fully_shard` excepted: submodules first. Parameters become DTensors.

    They are gathered before forward, and go afterwards (`reshard_after_forward`; those of the outermost module stay, if not told) until
    backward needs them; gradients are averaged as soon as all of a module are there.
    """
    if offload_policy is not None and not isinstance(offload_policy, OffloadPolicy):
        raise ValueError(f"offload_policy is an OffloadPolicy, not {offload_policy!r}")
    modules: Sequence[Module] = list(module) if isinstance(module, (list, tuple)) else [module]
    where = mesh or _row_of_all(next((p.device.type for m in modules for p in m.parameters()), "cpu"))
    ignored = {id(p) for p in ignored_params or ()}
    group = ParamGroup(modules, where, mp_policy or MixedPrecisionPolicy(), reshard_after_forward is not False, ignored)
    for one in modules:
        if isinstance(one, FSDPModule):
            raise ValueError(f"fully_shard has been applied to this module: {type(one).__name__}")
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


def _roots_stay(modules: Sequence[Module]) -> None:
    """The outermost module's parameters are needed first in backward: they stay. What was outermost until now is not any more."""
    for one in modules:
        for inner in one.modules():
            if isinstance(inner, FSDPModule) and inner is not one and getattr(inner, "_fsdp_stays", False):
                inner._fsdp_group.reshard_after_forward, inner._fsdp_stays = True, False
    root: Any = modules[0]
    root._fsdp_group.reshard_after_forward, root._fsdp_stays = False, True


__all__ = ["FSDPModule", "fully_shard"]
