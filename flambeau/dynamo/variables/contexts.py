"""Scopes that change global state, and the grad mode."""

from __future__ import annotations

from typing import Any

from ...autograd.grad_mode import GRAD, INFERENCE, enable_grad, inference_mode, no_grad, set_grad_enabled
from ...core import dispatch
from ...core.device import device
from ...fx.node import mark_impure
from ..break_kinds import describe, graph_break
from ..exceptions import RunEagerly
from ..source import Source, constant_source
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, Kwargs, NamedMethod, Variable

GRAD_SCOPES = (no_grad, enable_grad, set_grad_enabled, inference_mode)


@mark_impure
def set_grad_mode(recording: int) -> None:
    """Put into graphs: from here on gradients are recorded, and inference tensors made, as `recording` (of dispatch.state) says."""
    dispatch.state.recording = recording


def recording_in(kind: type, flag: bool) -> int:
    """What `state.recording` is inside a scope that is entered now."""
    state = dispatch.state
    if kind is inference_mode:
        return INFERENCE if flag else GRAD
    before = state.recording
    if kind is dispatch.grad_enabled:
        state.grad_enabled = flag
    else:
        state.grad_mode = flag
    inside, state.recording = state.recording, before
    return inside


class Scope(Variable):
    """A context manager of Flambeau that capture enters itself."""

    source: Source | None = None
    entered = 0
    """How often the program has entered it, and not left it."""
    left_existing = 0
    """How often it has left one that was entered before."""

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        """`with`: its bound `__exit__`, and what `__enter__` gives."""
        raise NotImplementedError

    def leave(self, tx: Trace) -> None:
        raise NotImplementedError

    def left(self, tx: Trace) -> bool:
        """Count that it is left; whether capture saw it entered."""
        if self.entered:
            self.entered -= 1
            return True
        self.left_existing += 1
        tx.effects.touch(self)
        return False

    def entered_in(self, w: Writer, made: str) -> str:
        """The scope that the expression `made` gives, entered as often as by the program."""
        w.remember(self, made)
        for _ in range(self.entered):
            w.effect(f"{made}.__enter__()")
        return made

    def replay(self, w: Writer) -> None:
        for _ in range(self.left_existing):
            w.effect(f"{w.fetch(self.source)}.__exit__(None, None, None)")

    def fresh(self) -> Scope:
        """The scope for one call of a function that this one decorates."""
        return self

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return DecoratedByScope(self, args[0])

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in ("__enter__", "__exit__", "clone"):
            return NamedMethod(self, name)
        return super().attr(tx, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name == "__enter__":
            return self.enter_scope(tx)[1]
        if name == "__exit__":
            self.leave(tx)
            return NONE
        return self.fresh() if name == "clone" else super().method(tx, name, args, kwargs)


class GradScope(Scope):
    """An instance of no_grad, enable_grad, set_grad_enabled, inference_mode or dispatch.grad_enabled."""

    def __init__(self, kind: type, flag: bool, before: int | None = None, value: Any = None,
                 source: Source | None = None) -> None:  # fmt: skip
        self.kind, self.flag, self.before, self.value, self.source = kind, flag, before, value, source
        self.saved: list[int] = list(getattr(value, "saved", []))

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        self.saved.append(self.before if self.before is not None else dispatch.state.recording)
        self.before = None
        self.entered += 1
        tx.set_grad_mode(recording_in(self.kind, self.flag))
        return ScopeExit(self), NONE

    def leave(self, tx: Trace) -> None:
        tx.set_grad_mode(self.saved.pop())
        self.left(tx)

    def fresh(self) -> Scope:
        return GradScope(self.kind, self.flag)

    def make(self, w: Writer) -> str:
        argument = "" if self.kind in (no_grad, enable_grad) else repr(self.flag)
        return self.entered_in(w, w.bind(f"{w.constant(self.kind)}({argument})"))


def is_device(variable: Variable) -> bool:
    """A device, which is a constant and a context manager."""
    return isinstance(variable, ConstantVariable) and isinstance(variable.value, device)


class DeviceScope(Scope):
    """`with torch.device(...):`, the device a constant; with a source, a block that was entered before."""

    def __init__(self, where: Variable, source: Source | None = None) -> None:
        self.where, self.source = where, source

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        self.entered += 1
        tx.note_write(dispatch.state, "devices", ConstantVariable((*(dispatch.state.devices or (None,)), self.where.as_constant())))
        return ScopeExit(self), self.where

    def leave(self, tx: Trace) -> None:
        self.entered -= 1
        if self.source is not None:
            tx.effects.touch(self)
        outer = dispatch.state.devices[:-1]  # type: ignore[index]
        tx.note_write(dispatch.state, "devices", ConstantVariable(None if outer == (None,) else outer))

    def make(self, w: Writer) -> str:
        return self.entered_in(w, w.value(self.where))

    def replay(self, w: Writer) -> None:
        w.effect(f"{w.fetch(self.source)}.__exit__(None, None, None)")


class ProfilerScope(Scope):
    """`record_function(...)` or a profile around captured code: it names or watches what Python calls, and kernels are not that. It is
    entered for what runs between graphs."""

    def __init__(self, kind: type, args: Args, kwargs: Kwargs, source: Source | None = None) -> None:
        self.kind, self.args, self.kwargs, self.source = kind, args, kwargs, source
        self.over = False

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        self.entered += 1
        tx.effects.touch(self)
        return ScopeExit(self), self

    def leave(self, tx: Trace) -> None:
        if self.left(tx):
            self.over = True

    def fresh(self) -> Scope:
        return ProfilerScope(self.kind, self.args, self.kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in ("__enter__", "__exit__"):
            return NamedMethod(self, name)
        if name in ("name", "args") and self.kind.__name__ == "record_function":
            given = dict(zip(("name", "args"), self.args, strict=False)) | self.kwargs
            return given.get(name, NONE)
        raise RunEagerly(describe("unknown context manager", f"{self.kind.__name__}.{name} of a profiler that the function makes"))

    def make(self, w: Writer) -> str:
        if self.over and self.kind.__name__ != "record_function":    # what it was to record is gone
            raise RunEagerly(describe("unknown context manager", f"a {self.kind.__name__} that the function makes and gives away"))
        return self.entered_in(w, w.bind(w.call(w.constant(self.kind), self.args, self.kwargs)))

    def replay(self, w: Writer) -> None:
        super().replay(w)
        for _ in range(self.entered):
            w.effect(f"{w.fetch(self.source)}.__enter__()")


class UnhookedScope(ProfilerScope):
    """`disable_saved_tensors_hooks(message)`: graphs hang no hooks on what they save; a scope that does is a graph break inside of it."""

    @classmethod
    def existing(cls, value: Any, source: Source) -> UnhookedScope:
        return cls(type(value), [ConstantVariable(value.hooks)], {}, source)

    def enter_scope(self, tx: Trace) -> tuple[Variable, Variable]:
        if dispatch.state.saved_hooks is not None and not self.entered:
            graph_break("unknown context manager", f"{self.kind.__name__} inside of hooks on saved tensors, which is an error")
        tx.guard("{0} is None", constant_source(dispatch.state).derive("{0}.saved_hooks"), reason="hooks on saved tensors")
        return super().enter_scope(tx)


class ScopeExit(Variable):
    """The bound `__exit__` of a scope (anything with `leave`), as `with` keeps it on the stack."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        self.scope.leave(tx)
        return NONE

    def build(self, w: Writer) -> str:
        return f"{w.value(self.scope)}.__exit__"


class DecoratedByScope(Variable):
    """`no_grad()(function)`, made during capture."""

    def __init__(self, scope: Scope, function: Variable) -> None:
        self.scope, self.function = scope, function

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        leave, _ = self.scope.fresh().enter_scope(tx)
        try:
            return tx.call(self.function, args, kwargs)
        finally:
            leave.call(tx, [], {})

    def build(self, w: Writer) -> str:
        return f"{w.value(self.scope)}({w.value(self.function)})"


def make_scope(tx: Trace, kind: type, args: Args) -> Variable:
    """`no_grad()` and its kin, called during capture; with a function, decorates it."""
    if (args and kind is not set_grad_enabled and not args[0].is_constant()) or (args and callable(args[0].as_constant())):
        return DecoratedByScope(GradScope(kind, kind in (enable_grad, inference_mode)), args[0])
    before = dispatch.state.recording
    if kind is set_grad_enabled:
        flag = tx.truth(args[0])
        tx.set_grad_mode(recording_in(kind, flag), lasting=True)
        return GradScope(kind, flag, before)
    if kind is inference_mode:
        return GradScope(kind, not args or tx.truth(args[0]))
    return GradScope(kind, kind is enable_grad)
