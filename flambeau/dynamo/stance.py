"""torch.compiler.set_stance: whether compiled functions compile, for all of them at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Any

from ..core.settings import add_setting

AFTER_A_CALL = ("eager_then_compile", "aot_eager_then_compile")
"""Stances in which a function runs eagerly once before it is compiled."""

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", *AFTER_A_CALL)


class Current:
    """The stance of the process, and the backend that takes the place of all others (None: each its own)."""

    stance = "default"
    backend: Any = None
    usual = True
    """Is it the default stance, without such a backend?"""
    breaks_are_errors = False
    """As if everything was compiled with `fullgraph=True`."""

    @classmethod
    def set(cls, stance: str, backend: Any) -> None:
        """Take another stance."""
        cls.stance, cls.backend, cls.usual = stance, backend, stance == "default" and backend is None


class error_on_graph_break(ContextDecorator):
    """Within the block, or the decorated function, a graph break is an error, as with `fullgraph=True`; or, with False, it is none."""

    def __init__(self, error_on_graph_break: bool) -> None:
        self.wanted, self.before = error_on_graph_break, False

    def __enter__(self) -> None:
        self.before, Current.breaks_are_errors = Current.breaks_are_errors, self.wanted

    def __exit__(self, *exc: object) -> None:
        Current.breaks_are_errors = self.before


class Exporting:
    """Is torch.export tracing a module?"""

    active = False

    @classmethod
    @contextmanager
    def a_module(cls) -> Iterator[None]:
        """In the block it is."""
        before, cls.active = cls.active, True
        try:
            yield
        finally:
            cls.active = before


add_setting("export", Exporting, "active")


class set_stance:
    """Set how compiled functions behave: a function that does it for good, a context manager, or a decorator.

    "default"; "force_eager": run as if nothing were compiled; "eager_on_recompile": use what is compiled and run eagerly where nothing
    fits; "fail_on_recompile": RuntimeError where nothing fits; "eager_then_compile": each function runs eagerly once, then as by
    default. `force_backend`: compile with this backend, whatever was asked for.
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}; expected one of {', '.join(STANCES)}")
        if skip_guard_eval_unsafe:
            raise NotImplementedError("skip_guard_eval_unsafe is not implemented; guards are always evaluated")
        if stance != "default" and force_backend is not None:
            raise RuntimeError("non-default stance cannot have force_backend set")
        self.new, self.before = (stance, force_backend), (Current.stance, Current.backend)
        Current.set(*self.new)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        Current.set(*self.before)

    def __call__(self, fn: Callable) -> Callable:
        Current.set(*self.before)
        stance, backend = self.new

        @functools.wraps(fn)
        def within(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance, force_backend=backend):
                return fn(*args, **kwargs)

        return within
