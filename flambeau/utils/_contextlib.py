"""Context managers that decorate functions too (torch.utils._contextlib)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Self


class _DecoratorContextManager:
    """Subclasses define `__enter__`, `__exit__` and, where they take arguments, `clone`; `@them()` wraps a function's calls."""

    def __call__(self, func: Callable) -> Callable:
        if inspect.isgeneratorfunction(func):
            return self._around_generator(func)

        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return func(*args, **kwargs)

        return decorated

    def _around_generator(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            steps = func(*args, **kwargs)
            send: Callable[[], Any] = functools.partial(next, steps)
            while True:
                try:
                    with self.clone():  # on while the function runs, off while its caller does
                        found = send()
                except StopIteration as done:
                    return done.value
                try:
                    sent = yield found
                    send = functools.partial(steps.send, sent)
                except GeneratorExit:
                    with self.clone():
                        steps.close()
                    raise
                except BaseException as error:
                    send = functools.partial(steps.throw, error)

        return decorated

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
