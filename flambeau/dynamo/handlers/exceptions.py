"""raise, try/except/finally, with, assert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from ..bytecode import Instruction
from ..exceptions import RaisedInTrace
from ..variables.base import ConstantVariable, Variable
from ..variables.objects import ExceptionVariable
from .table import Handler, handler

if TYPE_CHECKING:
    from ..frame import Frame

TABLE: dict[str, Handler] = {}


def make_exception(tx: Any, value: Variable) -> Variable:
    """`raise value`: instantiate classes."""
    kind = value.as_constant() if value.is_constant() else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return tx.call(value, [], {})
    if not issubclass(value.python_type(), BaseException):
        tx.raise_(TypeError, "exceptions must derive from BaseException")
    return value


@handler(TABLE, "RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction) -> None:
    if i.arg == 0:
        if not f.handling:
            f.tx.raise_(RuntimeError, "No active exception to reraise")
        raise RaisedInTrace(f.handling[-1])
    cause = f.pop() if i.arg == 2 else None
    error = make_exception(f.tx, f.pop())
    if cause is not None and isinstance(error, ExceptionVariable):
        error.written["__cause__"] = make_exception(f.tx, cause) if not _is_none(cause) else cause
    raise RaisedInTrace(error)


def _is_none(variable: Variable) -> bool:
    return isinstance(variable, ConstantVariable) and variable.value is None


@handler(TABLE, "PUSH_EXC_INFO")
def push_exc_info(f: Frame, i: Instruction) -> None:
    """The exception that is handled already goes below the new one."""
    error = f.pop()
    f.push(f.handling[-1] if f.handling else ConstantVariable(None))
    f.push(error)
    f.handling.append(error)


@handler(TABLE, "POP_EXCEPT")
def pop_except(f: Frame, i: Instruction) -> None:
    f.pop()
    if f.handling:
        f.handling.pop()


@handler(TABLE, "CHECK_EXC_MATCH")
def check_exc_match(f: Frame, i: Instruction) -> None:
    wanted = f.pop().as_constant()
    f.push(ConstantVariable(issubclass(f.stack[-1].python_type(), wanted)))


@handler(TABLE, "RERAISE")
def reraise(f: Frame, i: Instruction) -> None:
    error = f.pop()
    raise RaisedInTrace(error)


@handler(TABLE, "BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    manager = f.pop()
    exit_method, entered = f.tx.enter(manager)
    f.scopes.append((exit_method, f.current))
    f.push(exit_method)
    f.push(entered)


@handler(TABLE, "WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    """Stack: exit, lasti, previous exception, exception; push what exit answers."""
    error, exit_method = f.stack[-1], f.stack[-4]
    kind = f.tx.class_variable(error.python_type(), None)
    f.push(f.tx.call(exit_method, [kind, error, ConstantVariable(None)], {}))


@handler(TABLE, "CLEANUP_THROW", "PREP_RERAISE_STAR", "CHECK_EG_MATCH")
def unsupported(f: Frame, i: Instruction) -> None:
    graph_break("unsupported instruction", i.opname)
