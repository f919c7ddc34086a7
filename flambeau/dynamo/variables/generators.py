"""Generators made by the traced program."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from ..exceptions import RaisedInTrace
from .base import NONE, Variable, is_none
from .exceptions import ExceptionVariable
from .sequences import IteratorVariable

if TYPE_CHECKING:
    from ..bytecode import DecodedCode
    from ..frame import Frame
    from ..trace import Trace


class GeneratorVariable(IteratorVariable):
    """A generator made by the traced program; its frame is interpreted as elements are asked for."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        frame.tx.generators.append(self)
        self.kind = types.GeneratorType
        self.finished = False

    def next(self, tx: Trace) -> Variable | None:
        return self.send(tx, NONE)

    def send(self, tx: Trace, value: Variable) -> Variable | None:
        """Run to the next yield, or None at the end."""
        if self.finished:
            return None
        if self.started:
            self.frame.push(value)
        self.started = True
        return self._run(tx)

    def _run(self, tx: Trace, error: RaisedInTrace | None = None) -> Variable | None:
        """To the next yield, or to the end; with an error, from the handler of the yield where it stands."""
        self.finished = True  # unless there is another element
        if error is not None:
            self.frame.unwind(error)
        produced = tx.run_generator(self.frame)
        self.finished = produced is None
        return produced

    def result(self) -> Variable:
        """What the generator returned."""
        return self.frame.returned or NONE

    def throw(self, tx: Trace, error: Variable) -> Variable | None:
        """Raise an exception at the yield where it stands and run to the next yield, or None at the end."""
        raised = RaisedInTrace(error)
        if not self.started or self.finished:
            self.finished = True
            raise raised
        if self.frame.program.instructions[self.frame.current - 1].opname == "SEND":
            graph_break("call of generator", "an exception thrown into a generator while it delegates to another")
        return self._run(tx, raised)

    def close(self, tx: Trace) -> None:
        """Raise GeneratorExit where it stands, which has to leave it."""
        if self.started and not self.finished:
            try:
                produced = self.throw(tx, ExceptionVariable(GeneratorExit, []))
            except RaisedInTrace as error:
                if not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                    raise
                produced = None
            if produced is not None:
                tx.raise_(RuntimeError, "generator ignored GeneratorExit")
        self.finished = True

    def has_cleanup(self) -> bool:
        """Has it something left to do when it is given up where it stands: a `finally`, a `with`, or an `except` for all?"""
        frame = self.frame
        return self.started and not self.finished and _handles_exit(frame.program, frame.current, frame.globals)

    def _send(self, tx: Trace, value: Variable) -> Variable:
        return self._element(tx, self.send(tx, value))

    def _throw(self, tx: Trace, kind: Variable, value: Variable | None = None, traceback: Variable | None = None) -> Variable:
        given = kind if value is None or (value.is_constant() and value.as_constant() is None) else value
        return self._element(tx, self.throw(tx, tx.make_exception(given)))

    def _element(self, tx: Trace, produced: Variable | None) -> Variable:
        if produced is None:
            raise RaisedInTrace(stop_of(self))
        return produced

    METHODS = {**IteratorVariable.METHODS, "send": _send, "throw": _throw, "close": close}


def stop_of(iterator: Variable) -> ExceptionVariable:
    """The StopIteration at the end of an iterator."""
    result = iterator.result() if isinstance(iterator, GeneratorVariable) else NONE
    return ExceptionVariable(StopIteration, [] if is_none(result) else [result])


def _handles_exit(program: DecodedCode, index: int, scope: dict[str, Any]) -> bool:
    """Does GeneratorExit at instruction `index` run anything but `except` clauses that don't take it?"""
    entry = program.handler_of(index)
    code = program.instructions
    if entry is None or code[entry.handler].opname == "CALL_INTRINSIC_1":  # which is in every generator
        return False
    at = entry.handler
    if code[at].opname == "COPY" and code[at + 1].opname == "POP_EXCEPT":  # out of an except clause
        at += 2
    elif code[at].opname == "PUSH_EXC_INFO":
        at += 1
        while code[at].opname == "LOAD_GLOBAL" and code[at + 1].opname == "CHECK_EXC_MATCH":
            kind = scope.get(code[at].argval, getattr(builtins, code[at].argval, None))
            passed = code[at + 2].target
            if not isinstance(kind, type) or issubclass(GeneratorExit, kind) or passed is None:
                return True
            at = passed
    return code[at].opname != "RERAISE" or _handles_exit(program, at, scope)
