"""raise, try/except/finally, with, assert."""

from __future__ import annotations

from ..bytecode import PY314, Instruction
from ..exceptions import RaisedInTrace
from ..typed import Frame
from ..variables.base import NULL, ConstantVariable, Variable, is_none
from ..variables.exceptions import ExceptionVariable, PreviousException
from .table import Handler, handler

TABLE: dict[str, Handler] = {}


@handler(TABLE, "RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction) -> None:
    if i.arg == 0:
        handled = f.tx.handled_exception()
        if handled is None:
            f.tx.callers_handle_nothing()
            f.tx.raise_(RuntimeError, "No active exception to reraise")
        raise again(handled)
    cause = f.pop() if i.arg == 2 else None
    error = f.tx.make_exception(f.pop())
    if cause is not None and isinstance(error, ExceptionVariable):
        error.written["__cause__"] = f.tx.make_exception(cause) if not is_none(cause) else cause
    raise RaisedInTrace(error)


@handler(TABLE, "PUSH_EXC_INFO")
def push_exc_info(f: Frame, i: Instruction) -> None:
    """The exception that is handled already goes below the new one."""
    error = f.pop()
    f.push(PreviousException(error))
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
    raise again(f.pop())


def again(error: Variable) -> RaisedInTrace:
    """An exception that goes on after it was handled keeps its context."""
    raised = RaisedInTrace(error)
    raised.has_context = True
    return raised


@handler(TABLE, "BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    manager = f.pop()
    exit_method, entered = f.tx.enter(manager)
    f.scopes.append((exit_method, f.current))
    f.push(exit_method)
    if PY314:
        f.push(NULL)
    f.push(entered)


EXIT = -5 if PY314 else -4
"""Where `__exit__` stands when the block raised: 3.14 leaves the NULL of a call beside it."""


@handler(TABLE, "WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    """Stack: exit, lasti, previous exception, exception; push what exit answers."""
    error, exit_method = f.stack[-1], f.stack[EXIT]
    kind = f.tx.class_variable(error.python_type())
    f.push(f.tx.call(exit_method, [kind, error, f.tx.attr(error, "__traceback__")], {}))
