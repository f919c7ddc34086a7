"""Functions whose answer comes later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def async_execution(fn: Callable) -> Callable:
    """A function that returns a Future: the caller's answer is the future's value, and no thread waits for it meanwhile."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = wrapper  # type: ignore[attr-defined]
    return wrapper


def is_async(fn: Any) -> bool:
    """Whether `async_execution` made it; static and class methods may be within."""
    return hasattr(fn, "_wrapped_async_rpc_function") or hasattr(getattr(fn, "__func__", None), "_wrapped_async_rpc_function")
