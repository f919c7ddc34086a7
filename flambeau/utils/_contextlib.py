"""Context managers that decorate functions too (torch.utils._contextlib)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from ..autograd.grad_mode import decorated


class _DecoratorContextManager:
    """Subclasses define `__enter__`, `__exit__` and, where they take arguments, `clone`; `@them()` wraps a function's calls."""

    __call__ = decorated

    def __enter__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __enter__")

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __exit__")

    def clone(self) -> Self:
        """Another one like this, for one call."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, which may decorate without being called: `@them`."""

    def __new__(cls, orig_func: Callable | None = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)


__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager"]
