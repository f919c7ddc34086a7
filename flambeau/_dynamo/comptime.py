"""`comptime`: looking into a capture from the program that is captured. Outside of compiled code these calls do nothing."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from typing import Any

from ..dynamo.variables.base import ConstantVariable, Variable
from ..dynamo.variables.builtins import handles
from ..dynamo.variables.functions import FunctionVariable


class ComptimeContext:
    """What a function that `comptime` is given sees: the capture under way."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx

    def graph(self) -> Any:
        """The graph so far (`torch.fx.Graph`)."""
        return self._tx.graph

    def print_graph(self, *, verbose: bool = True, file: Any = None) -> None:
        """Print it."""
        print(self._tx.graph.python_code(verbose=False).src, file=file or sys.stdout)

    def print_locals(self, *, file: Any = None) -> None:
        """Print the frame's local variables."""
        for name, variable in self._tx.frames[-1].locals.items():
            print(f"{name} = {variable.describe()}", file=file or sys.stdout)

    def print_value_stack(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print the frame's value stack."""
        for variable in self._tx.frames[-1].stack:
            print(f"- {variable.describe()}", file=file or sys.stdout)

    def print_bt(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print the frames that are being captured."""
        for name, line, function, text in self._tx.stack():
            print(f'  File "{name}", line {line}, in {function}\n    {text}', file=file or sys.stdout)

    def print_disas(self, *, file: Any = None, stacklevel: int = 0) -> None:
        """Print the frame's bytecode."""
        print(dis.Bytecode(self._tx.frames[-1].code).dis(), file=file or sys.stdout)

    def print_guards(self, *, file: Any = None) -> None:
        """Print the guards so far."""
        for guard in self._tx.guards:
            print(f"- {guard}", file=file or sys.stdout)

    def get_local(self, name: str, *, stacklevel: int = 0) -> Any:
        """A local variable, as capture knows it."""
        return self._tx.frames[-1 - stacklevel].locals[name]


def _shown(name: str) -> Callable[..., None]:
    def show(*args: Any, **kwargs: Any) -> None:
        """Print it while the program is captured."""

    @handles(show)
    def handler(tx: Any, *args: Variable, **kwargs: Variable) -> Variable:
        getattr(ComptimeContext(tx), name)()
        return ConstantVariable(None)

    show.__name__ = name
    return show


class comptime:
    """`comptime.print_graph()` and the like; `comptime(fn)` calls `fn(ctx)` while the program is captured."""

    print_graph = staticmethod(_shown("print_graph"))
    print_locals = staticmethod(_shown("print_locals"))
    print_value_stack = staticmethod(_shown("print_value_stack"))
    print_bt = staticmethod(_shown("print_bt"))
    print_disas = staticmethod(_shown("print_disas"))
    print_guards = staticmethod(_shown("print_guards"))

    def __new__(cls, fn: Callable[[ComptimeContext], Any], fallback_fn: Callable[[], Any] | None = None) -> Any:
        """Outside of capture: `fallback_fn()`."""
        return fallback_fn() if fallback_fn is not None else None


@handles(comptime)
def _comptime(tx: Any, fn: Variable, fallback_fn: Variable | None = None) -> Variable:
    _plain(fn)(ComptimeContext(tx))
    return ConstantVariable(None)


def _plain(fn: Any) -> Callable[[ComptimeContext], Any]:
    """A function of the program, with the real one behind it; what it closes over has to be known."""
    if isinstance(fn, FunctionVariable):
        return fn.function
    cells = tuple(types.CellType(cell.contents.as_constant()) for cell in getattr(fn, "cells", ()))
    return types.FunctionType(fn.code, fn.globals, closure=cells or None)


__all__ = ["ComptimeContext", "comptime"]
