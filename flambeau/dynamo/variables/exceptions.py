"""Exceptions made by the traced program, and the place on the stack where a handler keeps the one that was handled before."""

from __future__ import annotations

import types
from typing import Any

from ..break_kinds import graph_break
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, Kwargs, Variable
from .functions import MethodVariable
from .objects import SLOT_DESCRIPTORS, ObjectVariable
from .sequences import TupleVariable


class PreviousException(Variable):
    """What PUSH_EXC_INFO leaves on the stack below `error`, the exception that is handled from there to POP_EXCEPT."""

    def __init__(self, error: Variable) -> None:
        self.error = error


class TracebackVariable(Variable):
    """The traceback of an exception that capture made: it is there, but what is in it needs a real one."""

    kind: Any = types.TracebackType

    def truth(self, tx: Trace) -> bool:
        return True


class ExceptionVariable(ObjectVariable):
    """An exception made by the traced program."""

    def __init__(self, cls: type, args: Args, kwargs: Kwargs | None = None) -> None:
        super().__init__(cls)
        self.args = args
        self.kwargs = kwargs or {}
        self.traceback: Variable = NONE

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in self.written and self.written[name] is not None:
            return self.written[name]  # type: ignore[return-value]
        if name == "args":
            return TupleVariable(list(self.args))
        if name == "__traceback__":
            return self.traceback
        if name in ("__cause__", "__context__"):
            return NONE
        if name == "__suppress_context__":
            return ConstantVariable("__cause__" in self.written)
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else NONE
        if name == "with_traceback":
            return MethodVariable(tx.trusted(_with_traceback), self)
        return super().attr(tx, name)

    def find_attr(self, tx: Trace, name: str) -> Variable | None:
        if name != "__class__" and isinstance(tx.lookup(self.cls, name), (*SLOT_DESCRIPTORS, types.MethodDescriptorType)):
            graph_break("unknown attribute", f"{self.describe()}.{name}")
        return super().find_attr(tx, name)

    def special_method(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        if name == "__init__" and isinstance(entry, types.WrapperDescriptorType):
            return ExceptionInit(self)
        return super().special_method(tx, name, entry)

    def store_attr(self, tx: Trace, name: str, value: Variable | None) -> None:
        self.written[name] = value

    def text(self) -> str:
        return ", ".join(str(a.as_constant()) if a.is_constant() else a.describe() for a in self.args)

    def build(self, w: Writer) -> str:
        made = w.bind(w.call(w.constant(self.cls), self.args, self.kwargs))
        w.remember(self, made)
        for name, value in self.written.items():
            if value is not None:
                w.effect(f"{made}.{name} = {w.value(value)}")
        return made


def _with_traceback(error: Any, traceback: Any) -> Any:
    return error


class ExceptionInit(Variable):
    """`super().__init__` of an exception class."""

    def __init__(self, owner: ExceptionVariable) -> None:
        self.owner = owner

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        self.owner.written["args"] = TupleVariable(args)
        return NONE
