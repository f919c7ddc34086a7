"""Members of modules by dotted name (torch.nn.utils._named_member_accessor)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Put a tensor in the place of a parameter, a buffer or an attribute."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Module, name: str, tensor: Tensor | None, allow_missing: bool = False) -> Any:
    """Put a tensor in the place of a parameter or buffer, and give what was there."""
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    for home in (module._parameters, module._buffers):
        if name in home:
            before = home[name]
            home[name] = tensor     # type: ignore[assignment]
            return before
    before = module.__dict__.get(name)
    if before is None and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if tensor is None:
        module.__dict__.pop(name, None)
    else:
        module.__dict__[name] = tensor
    return before


class NamedMemberAccessor:
    """The submodules and tensors of a module by dotted name."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Module:
        """A submodule."""
        return self.module.get_submodule(name)

    def get_tensor(self, name: str) -> Any:
        """A parameter or buffer."""
        prefix, _, last = name.rpartition(".")
        return getattr(self.get_submodule(prefix), last)

    def swap_tensor(self, name: str, value: Tensor | None, allow_missing: bool = False) -> Any:
        """Put a tensor there, and give what was there."""
        prefix, _, last = name.rpartition(".")
        return swap_tensor(self.get_submodule(prefix), last, value, allow_missing)

    def set_tensor(self, name: str, value: Tensor) -> None:
        """Put a tensor there."""
        self.swap_tensor(name, value, allow_missing=True)

    def set_tensors_dict(self, named_tensors: dict[str, Tensor]) -> None:
        """Put many there."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def swap_tensors_dict(self, named_tensors: dict[str, Tensor], allow_missing: bool = False) -> tuple[dict[str, Any], list[str]]:
        """Put many there, and give what was there."""
        return {name: self.swap_tensor(name, value, allow_missing) for name, value in named_tensors.items()}, []

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """(names that are not given, names that are not there)."""
        given = set(keys)
        known = {name for name, _ in self.named_tensors()}
        return sorted(known - given), sorted(given - known)

    def named_tensors(self) -> Iterable[tuple[str, Any]]:
        """All parameters and buffers by name."""
        yield from self.module.named_parameters(remove_duplicate=False)
        yield from self.module.named_buffers(remove_duplicate=False)


__all__ = ["NamedMemberAccessor", "set_tensor", "swap_tensor"]
