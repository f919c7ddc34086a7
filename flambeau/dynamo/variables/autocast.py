"""`torch.autocast` in captured code: the scope is entered and left by nodes of the graph."""

from __future__ import annotations

import sys
from typing import Any

from ...core import dispatch
from ...fx.node import mark_impure
from ..break_kinds import graph_break
from ..source import Source
from ..typed import Trace, Writer
from .base import Args, Kwargs, Variable
from .contexts import Scope, ScopeExit

_HOME = f"{__name__.split('.', maxsplit=1)[0]}.amp.autocast_mode"
Settings = tuple[str, Any, bool, bool]
"""Device type, narrow dtype, enabled, cache enabled."""


def autocast_class() -> Any:
    """The class, once amp is loaded; before that nothing can be an instance."""
    return getattr(sys.modules.get(_HOME), "autocast", None)


def only_autocast_is_active() -> bool:
    """Is there nothing else that takes over operators in this thread?"""
    return not (dispatch.state.function_modes or dispatch.state.proxies)


@mark_impure
def enter_autocast(device: str, dtype: Any, enabled: bool, cache_enabled: bool) -> Any:
    """Put into graphs: autocast from here on."""
    scope = autocast_class()(device, dtype, enabled, cache_enabled)
    scope.__enter__()
    return scope


@mark_impure
def exit_autocast(scope: Any) -> None:
    """Put into graphs: the end of an autocast block."""
    scope.__exit__(None, None, None)


def settings_of(value: Any) -> Settings:
    return value.device, value.fast_dtype, value._enabled, value._cache_enabled


class AutocastScope(Scope):
    """An instance of autocast that capture can enter."""

    def __init__(self, settings: Settings, source: Source | None = None) -> None:
        self.settings, self.source = settings, source
        self.open: list[tuple[Any, Any]] = []

    def python_type(self) -> type:
        return autocast_class()

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        entered = tx.enter_autocast(self.settings)
        self.open.append(entered)
        return ScopeExit(self), self

    def leave(self, tx: Trace) -> None:
        if not self.open:
            graph_break("unknown context manager", "the end of an autocast block that was entered before")
        tx.leave_autocast(self.open.pop())

    def build(self, w: Writer) -> str:
        if self.source is not None:
            made = w.fetch(self.source)
        else:
            device, dtype, enabled, cache = self.settings
            made = w.bind(f"{w.constant(autocast_class())}({device!r}, {w.constant(dtype)}, {enabled}, {cache})")
        w.remember(self, made)
        for _ in self.open:
            w.effect(f"{made}.__enter__()")
        return made


def wrap_autocast(tx: Any, value: Any, source: Source) -> Variable:
    """An existing scope."""
    tx.guard_type(source, value)
    settings = settings_of(value)
    for name, wanted in zip(("device", "fast_dtype", "_enabled", "_cache_enabled"), settings, strict=True):
        tx.wrap(wanted, source.attr(name))
    return AutocastScope(settings, source)


def make_autocast(tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
    """`autocast(device_type, dtype=None, enabled=True, cache_enabled=None)`."""
    made = tx.checked(autocast_class(), *map(tx.known, args), **{name: tx.known(value) for name, value in kwargs.items()})
    return AutocastScope(settings_of(made))
