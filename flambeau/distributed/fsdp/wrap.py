"""Which submodules become units of their own: policies for FullyShardedDataParallel(auto_wrap_policy=)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...nn.modules.module import Module


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every submodule."""
    del args, kwargs
    return True


def transformer_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type]) -> bool:
    """The submodules of these classes."""
    del nonwrapped_numel
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8),
                                force_leaf_modules: set[type] | None = None, exclude_wrap_modules: set[type] | None = None) -> bool:
    """Submodules with at least so many elements that are not in units yet."""
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(force_leaf_modules or ()))
    return large and not isinstance(module, tuple(exclude_wrap_modules or ()))


class CustomPolicy:
    """The submodules for which `lambda_fn(module)` is true."""

    def __init__(self, lambda_fn: Callable[[Module], bool]) -> None:
        self.choose = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        del args, kwargs
        return recurse or bool(self.choose(module))


class ModuleWrapPolicy(CustomPolicy):
    """The submodules of these classes."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        classes = tuple(module_classes)
        super().__init__(lambda module: isinstance(module, classes))


def lambda_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable) -> bool:
    """The submodules for which `lambda_fn(module)` is true."""
    del nonwrapped_numel
    return recurse or bool(lambda_fn(module))


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable]) -> bool:
    """Whether any of several policies holds."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def wrapped(module: Module, policy: Callable, make: Callable[[Module], Module]) -> int:
    """Replace the submodules that `policy` chooses by what `make` makes of them, the inner ones first; how many elements are in units."""
    inside = 0
    for name, child in list(module.named_children()):
        total = sum(p.numel() for p in child.parameters())
        here = wrapped(child, policy, make) if policy(module=child, recurse=True, nonwrapped_numel=total) else 0
        if total > here and policy(module=child, recurse=False, nonwrapped_numel=total - here):
            setattr(module, name, make(child))
            here = total
        inside += here
    return inside


_scope: list[tuple[Callable[..., Module], dict[str, Any]]] = []


@contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Module], **wrapper_kwargs: Any) -> Iterator[None]:
    """Within the block `wrap` makes units of modules."""
    _scope.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _scope.pop()


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """`wrapper_cls(module, ...)` of the `enable_wrap` around, with these arguments before its own; the module itself outside of one."""
    if not _scope:
        return module
    make, arguments = _scope[-1]
    return make(module, **{**arguments, **wrap_overrides})


__all__ = ["CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
           "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap"]
