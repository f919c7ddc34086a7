"""Parametrizations: a parameter or buffer computed from others by modules, and put back by `right_inverse`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...core import dispatch
from ...core.tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter


class _Cache:
    """Computed values, kept while a `cached()` block is active."""

    depth = 0
    values: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once."""
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values = {}


def _of_tensors(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    return value


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order to `original` (or original0, original1, ...)."""

    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        new: Any = original
        with dispatch.grad_enabled(False):
            for module in reversed(list(self)):
                inverse = getattr(module, "right_inverse", None)
                if inverse is not None:
                    with suppress(NotImplementedError):     # of a map that has none, the tensor itself is what it is computed from
                        new = inverse(new)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._keep("original", original, new)
        else:
            for i, value in enumerate(new):
                self._keep(f"original{i}", original, value)
        if not unsafe:
            value = _of_tensors(self())
            if value.dtype is not original.dtype or value.shape != original.shape:
                raise ValueError("Registering a parametrization may not change the shape or dtype of the tensor (got "
                                 f"{value.dtype} {list(value.shape)}, had {original.dtype} {list(original.shape)}); "
                                 f"pass unsafe=True to allow it.")

    def _keep(self, name: str, original: Tensor, value: Tensor) -> None:
        if isinstance(original, Parameter):
            if value is not original and self.is_tensor and value.dtype is original.dtype and value.shape == original.shape:
                with dispatch.grad_enabled(False):
                    original.data = value.detach().clone() if value._view is not None else value.detach()
                value = original
            self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value, original.requires_grad))
        else:
            self.register_buffer(name, value)

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrized tensor becomes `value`."""
        with dispatch.grad_enabled(False):
            new: Any = value
            for module in reversed(list(self)):
                inverse = getattr(module, "right_inverse", None)
                if inverse is None:
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                new = inverse(new)
            for name, part in zip(self._names(), (new,) if self.is_tensor else new):
                getattr(self, name).copy_(part)

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def forward(self) -> Tensor:
        modules = iter(self)
        value = next(modules)(*(getattr(self, name) for name in self._names()))
        for module in modules:
            value = module(value)
        return value


def _property(name: str) -> property:
    def get(self: Module) -> Tensor:
        if not _Cache.depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _Cache.values:
            _Cache.values[key] = self.parametrizations[name]()
        return _Cache.values[key]

    def put(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def _own_class(module: Module) -> None:
    """Give the module a class of its own, on which properties can be put."""
    cls = type(module)

    def __deepcopy__(self: Module, memo: dict) -> Module:
        if id(self) in memo:
            return memo[id(self)]
        made = self.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return made

    def __reduce_ex__(self: Module, protocol: Any) -> Any:
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")

    made = type(f"Parametrized{cls.__name__}", (cls,), {
        "__deepcopy__": __deepcopy__, "__reduce_ex__": __reduce_ex__, "__module__": cls.__module__, "_parametrized_from": cls})
    module.__class__ = made


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module (or its tensor of that name) has parametrizations."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Compute `module.tensor_name` as parametrization(original) from now on; several are applied in order."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        owner: Any = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            after = _of_tensors(parametrization(value))
            if after.shape != value.shape or after.dtype is not value.dtype:
                raise ValueError(f"Registering a parametrization may not change the shape or dtype of the tensor: "
                                 f"{type(parametrization).__name__}"
                                 f" makes {after.dtype} {list(after.shape)} of {value.dtype} {list(value.shape)}")
        owner.append(parametrization)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    original = getattr(module, tensor_name)
    made = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _own_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Take the parametrizations off; the tensor keeps its computed value, or its original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    owner: Any = module.parametrizations[tensor_name]
    original = owner.original if owner.is_tensor else owner.original0
    if leave_parametrized:
        with dispatch.grad_enabled(False):
            value = getattr(module, tensor_name).detach().clone()
        kept = Parameter(value, original.requires_grad) if isinstance(original, Parameter) else value
        if owner.is_tensor and isinstance(original, Parameter) and value.shape == original.shape:
            original.data = value
            kept = original
    elif owner.is_tensor:
        kept = original
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         "terms of a sequence of tensors.")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(kept, Parameter):
        module.register_parameter(tensor_name, kept)
    else:
        module.register_buffer(tensor_name, kept)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type_before_parametrizations(module)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without the one that parametrization gave it."""
    return getattr(type(module), "_parametrized_from", type(module))


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Register the parametrizations of one module (of one tensor of it) on another as well, with the originals that they start from.

    What the other module lacks it gets a parameter for.
    """
    if not is_parametrized(from_module):
        return to_module
    owners: Any = from_module.parametrizations
    for name in owners if tensor_name is None else (tensor_name,):
        owner = owners[name]
        if getattr(to_module, name, None) is None:
            to_module.register_parameter(name, Parameter(getattr(from_module, name).detach()))
        for parametrization in owner:
            register_parametrization(to_module, name, parametrization)
        mine: Any = to_module.parametrizations
        for original in ("original",) if owner.is_tensor else tuple(f"original{i}" for i in range(owner.ntensors)):
            setattr(mine[name], original, getattr(owner, original))
    return to_module


