"""Modules that learn their sizes from their first input."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..parameter import is_lazy
from .module import Module


class LazyModuleMixin:
    """Put before a module class: `initialize_parameters(*inputs)` runs before the first forward, and gives shapes to the
    UninitializedParameters; then the module becomes an instance of `cls_to_become`."""

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)     # type: ignore[attr-defined]
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)     # type: ignore[attr-defined]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the uninitialised parameters shapes that fit these inputs; each lazy class has its own."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self: Any) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def _infer_parameters(self: Any, module: Any, args: tuple, kwargs: dict) -> None:
        module.initialize_parameters(*args, **kwargs)
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        for name in ("_initialize_hook", "_load_hook"):
            getattr(module, name).remove()
            delattr(module, name)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _lazy_load_hook(self: Any, state_dict: dict, prefix: str, *rest: Any) -> None:
        for name, t in (*self._parameters.items(), *self._buffers.items()):
            value = state_dict.get(prefix + name)
            if is_lazy(t) and isinstance(value, Tensor) and not is_lazy(value):
                t.materialize(value.shape)

    def _save_to_state_dict(self: Any, destination: dict, prefix: str, keep_vars: bool) -> None:
        for home, skip in ((self._parameters, ()), (self._buffers, self._non_persistent_buffers_set)):
            for name, t in home.items():
                if t is not None and name not in skip:
                    destination[prefix + name] = t if is_lazy(t) or keep_vars else t.detach()


def lazy_family(mixin: type, *eager: Any) -> list[Any]:
    """For each class its lazy form, below `mixin`: it learns its sizes from its first input and becomes that class."""
    return [type(f"Lazy{cls.__name__}", (mixin, cls), {
        "cls_to_become": cls, "__module__": cls.__module__, "__doc__": f"{cls.__name__} that learns its number of channels.",
    }) for cls in eager]
