"""Scopes that change global state, and the grad mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from ...core import dispatch
from ...fx.node import mark_impure
from ..source import Source
from .base import Args, ConstantVariable, Kwargs, Variable

if TYPE_CHECKING:
    from ..replacement import Writer
    from ..trace import Trace

GRAD_SCOPES = (no_grad, enable_grad, set_grad_enabled, inference_mode)


@mark_impure
def set_grad_mode(flag: bool) -> None:
    """Put into graphs: turn the recording of gradients on or off from here on."""
    dispatch.state.grad_enabled = flag


class GradScope(Variable):
    """An instance of no_grad, enable_grad, set_grad_enabled or inference_mode."""

    def __init__(self, kind: type, flag: bool | None, before: bool | None = None, value: Any = None,
                 source: Source | None = None) -> None:  # fmt: skip
        self.kind, self.flag, self.before, self.value, self.source = kind, flag, before, value, source
        self.saved: list[bool] = [entry[0] for entry in getattr(value, "saved", [])]
        self.entered = 0
        self.left_existing = 0

    def python_type(self) -> type:
        return self.kind

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        self.saved.append(self.before if self.before is not None else dispatch.state.grad_enabled)
        self.before = None
        self.entered += 1
        if self.flag is not None:
            tx.set_grad_mode(self.flag)
        return ScopeExit(self), ConstantVariable(None)

    def leave(self, tx: Trace) -> None:
        tx.set_grad_mode(self.saved.pop())
        if self.entered:
            self.entered -= 1
        else:
            self.left_existing += 1
            tx.effects.touch(self)

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return DecoratedByScope(self, args[0])

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name == "__enter__":
            return self.enter_scope(tx)[1]
        if name == "__exit__":
            self.leave(tx)
            return ConstantVariable(None)
        if name == "clone":
            return GradScope(self.kind, self.flag)
        return super().method(tx, name, args, kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in ("__enter__", "__exit__", "clone"):
            return tx.container_method(self, name)
        return super().attr(tx, name)

    def build(self, w: Writer) -> str:
        if self.source is not None:
            return w.fetch(self.source)
        argument = repr(self.flag) if self.kind is set_grad_enabled else ""
        made = w.bind(f"{w.constant(self.kind)}({argument})")
        w.remember(self, made)
        for _ in range(self.entered):
            w.effect(f"{made}.__enter__()")
        return made

    def replay(self, w: Writer) -> None:
        for _ in range(self.left_existing):
            w.effect(f"{w.fetch(self.source)}.__exit__(None, None, None)")


class ScopeExit(Variable):
    """The bound `__exit__` of a scope (anything with `leave`), as `with` keeps it on the stack."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        self.scope.leave(tx)
        return ConstantVariable(None)

    def build(self, w: Writer) -> str:
        return f"{w.value(self.scope)}.__exit__"


class DecoratedByScope(Variable):
    """`no_grad()(function)`, made during capture."""

    def __init__(self, scope: GradScope, function: Variable) -> None:
        self.scope, self.function = scope, function

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        leave, _ = GradScope(self.scope.kind, self.scope.flag).enter_scope(tx)
        try:
            return tx.call(self.function, args, kwargs)
        finally:
            leave.call(tx, [], {})

    def build(self, w: Writer) -> str:
        return f"{w.value(self.scope)}({w.value(self.function)})"


def make_scope(tx: Trace, kind: type, args: Args) -> Variable:
    """`no_grad()` and its kin, called during capture; with a function, decorates it."""
    if (args and kind is not set_grad_enabled and not args[0].is_constant()) or (args and callable(args[0].as_constant())):
        return DecoratedByScope(GradScope(kind, kind is enable_grad), args[0])
    before = dispatch.state.grad_enabled
    if kind is set_grad_enabled:
        flag = tx.truth(args[0])
        tx.set_grad_mode(flag, lasting=True)
        return GradScope(kind, flag, before)
    if kind is inference_mode:
        return GradScope(kind, False if not args or tx.truth(args[0]) else None)
    return GradScope(kind, kind is enable_grad)
