"""Functions that are called when a compilation begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dynamo.compiler import Callbacks


def on_compile_start(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Call `callback(args)` before each compilation; usable as a decorator."""
    Callbacks.start.append(callback)
    return callback


def on_compile_end(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Call `callback(args)` after each compilation; usable as a decorator."""
    Callbacks.end.append(callback)
    return callback


class CompilationCallbackHandler:
    """Registers and forgets such functions."""

    def register_start_callback(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """`on_compile_start`."""
        return on_compile_start(callback)

    def register_end_callback(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """`on_compile_end`."""
        return on_compile_end(callback)

    def remove_start_callback(self, callback: Callable[..., Any]) -> None:
        """Forget one."""
        Callbacks.start.remove(callback)

    def remove_end_callback(self, callback: Callable[..., Any]) -> None:
        """Forget one."""
        Callbacks.end.remove(callback)

    def clear(self) -> None:
        """Forget all."""
        Callbacks.start.clear()
        Callbacks.end.clear()


callback_handler = CompilationCallbackHandler()

__all__ = ["callback_handler", "on_compile_end", "on_compile_start"]
