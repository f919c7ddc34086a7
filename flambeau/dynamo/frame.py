"""Symbolic execution of one Python frame."""

from __future__ import annotations

import builtins
import linecache
import types
from typing import Any, NoReturn

from . import policy
from .break_kinds import graph_break
from .bytecode import Instruction, decode
from .exceptions import RaisedInTrace
from .handlers import TABLE as _HANDLERS
from .source import Source, constant_source
from .surroundings import MISSING
from .typed import Trace
from .variables.base import ConstantVariable, NotConstant, Variable
from .variables.functions import CellVariable


def _unsupported(frame: Frame, instruction: Instruction) -> NoReturn:
    graph_break("unsupported instruction", instruction.opname)


class Frame:
    """Locals, cells, value stack and instruction pointer of a frame whose values are variables."""

    def __init__(self, tx: Trace, code: types.CodeType, scope: dict[str, Any], local: dict[str, Variable],
                 closure: list[CellVariable], function: Any = None) -> None:  # fmt: skip
        self.tx = tx
        self.code = code
        self.program = decode(code)
        self.instructions = self.program.instructions
        tx.has_handlers = tx.has_handlers or bool(self.program.exceptions)
        self.globals = scope
        self.globals_source: Source = constant_source(scope, trusted=policy.is_trusted(scope.get("__name__", "")))
        self.function = function
        self.locals = local
        self.cells: dict[str, CellVariable] = dict(zip(code.co_freevars, closure, strict=False))
        self.stack: list[Variable] = []
        self.ip = 0
        self.current = 0
        self.returned: Variable | None = None
        self.yielded: Variable | None = None
        self.keyword_names: tuple[str, ...] = ()
        self.handling: list[Variable] = []
        """Exceptions whose handlers are running, innermost last."""
        self.raised_at: dict[int, int] = {}
        """By the id of an exception's variable, the instruction of this frame that it came from."""
        self.scopes: list[tuple[Variable, int]] = []
        """What `with` statements have put on the stack, and where."""
        arguments = code.co_argcount + code.co_kwonlyargcount
        self.first_argument = code.co_varnames[0] if arguments else None
        self.module: Any = MISSING
        """The module whose method it is, as the graph's nodes are told (graph_builder.py)."""
        self._where: tuple[str, int, str, str] | None = None

    # the stack
    def push(self, variable: Variable) -> None:
        self.stack.append(variable)

    def pop(self) -> Variable:
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Variable]:
        if not count:
            return []
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def held(self) -> list[Variable]:
        """What its locals, cells and stack have."""
        return [*self.locals.values(), *self.stack, *self.cells.values(), *self.handling, *filter(None, [self.returned])]

    # where we are
    @property
    def line(self) -> int:
        return self.instructions[min(self.current, len(self.instructions) - 1)].line

    def where(self) -> tuple[str, int, str, str]:
        """File, line, function and text of the line."""
        line = self.line
        if self._where is None or self._where[1] != line:
            file = self.code.co_filename
            self._where = file, line, self.code.co_name, linecache.getline(file, line).strip()
        return self._where

    # names
    def load_global(self, name: str) -> Variable:
        tx = self.tx
        written = tx.effects.globals_of(self.globals)
        new = written.get(name)
        if new is not None:
            return new
        if name in self.globals and name not in written:
            value = self.globals[name]
            if self.globals_source.trusted and not isinstance(value, (bool, int, float, list, dict, set)):
                tx.surroundings.note_global(self.globals, name, value)
                return tx.trusted(value)
            return tx.wrap(value, constant_source(self.globals).item(name))
        if name not in written:
            tx.surroundings.note(self.globals, name, "absent")
        if hasattr(builtins, name):
            tx.surroundings.note_global(vars(builtins), name, getattr(builtins, name))
            return tx.trusted(getattr(builtins, name))
        tx.surroundings.note(vars(builtins), name, "absent")
        tx.raise_(NameError, f"name '{name}' is not defined")

    # execution
    def step(self) -> None:
        """Interpret one instruction; an exception of the traced program goes to its handler."""
        self.current = self.ip
        self.ip += 1
        instruction = self.instructions[self.current]
        self.tx.count_step()
        try:
            _HANDLERS.get(instruction.opname, _unsupported)(self, instruction)
        except RaisedInTrace as error:
            self.unwind(error)
        except NotConstant as unknown:
            graph_break("unknown operation", f"{unknown.args[0].describe()} has to be known during capture")

    def unwind(self, error: RaisedInTrace) -> None:
        """Go to the handler of the current instruction, or out of the frame."""
        self.tx.note_raised(error, self)
        entry = self.program.handler_of(self.current)
        if entry is None:
            raise error
        while len(self.stack) > entry.depth:
            self.stack.pop()
        if entry.push_lasti:
            self.push(ConstantVariable(self.current))
        self.push(error.value)
        self.ip = entry.handler

    def run(self) -> Variable:
        """Interpret to the end and give the returned value."""
        while self.returned is None:
            self.step()
        return self.returned

    def run_to_yield(self) -> Variable | None:
        """Interpret to the next yield (its value) or to the end (None)."""
        self.yielded = None
        while self.returned is None and self.yielded is None:
            self.step()
        found, self.yielded = self.yielded, None
        return found
