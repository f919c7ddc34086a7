"""What a replacement function does after a graph break: the breaking operation or the loop as Python, then resume functions."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable, Sequence

from ..core.symbolic import SymInt
from ..core.symbolic import free_variables as free_variables_of
from . import breaks
from .break_kinds import describe
from .bytecode import ExceptionEntry, Loop, live_locals, loop_exit
from .exceptions import RunEagerly
from .frame import Frame
from .replacement import Writer
from .resume import Cut, ResumePoint, StackFill, free_variables, loop_mark, note_unknown_sizes, resume_code
from .variables.base import NULL, Variable
from .variables.exceptions import PreviousException
from .variables.tensor import TensorVariable

ITEM = "_item"


class Tail:
    """The last part of one replacement function, as lines of Python."""

    def __init__(self, frame: Frame, writer: Writer, qualname: str, unknown: Iterable[tuple[str, int]]) -> None:
        self.frame, self.writer, self.qualname = frame, writer, qualname
        self.program = frame.program
        self.resumes: list[types.CodeType] = []
        self.cells: dict[str, str] = {}
        """Locals that became cells here: name -> expression."""
        self.unknown = {*unknown, *unknown_sizes_of(frame)}

    # -- one operation ------------------------------------------------------------------------------------------------------
    def of_operation(self, index: int) -> list[str]:
        """The instruction that capture can't do, inside the handler that protects it."""
        frame = self.frame
        instruction = self.program.instructions[index]
        entry = self.program.handler_of(index)
        handler_stack = frame.stack[: entry.depth] if entry is not None else []
        handled = self.writer.value(frame.handling[-1]) if frame.handling else None
        step = breaks.RECIPES[instruction.opname](frame, instruction, self.writer)
        body = [step.statement] if step.statement else []
        if step.condition is not None:
            body.append(f"_test = {step.condition}")
        after = self._after(index, step)
        if entry is None:
            return body + after
        guarded = [
            f"{breaks.ERROR} = None", "try:", *_indented(body), "except BaseException as _caught:", f"    {breaks.ERROR} = _caught",
        ]  # fmt: skip
        if handled is not None:
            guarded = _while_handling(handled, guarded)
        return [*guarded, f"if {breaks.ERROR} is None:", *_indented(after), self._handle(index, entry, handler_stack)]

    def _after(self, index: int, step: breaks.Step) -> list[str]:
        """Statements that go on after the breaking operation."""
        target = self.program.instructions[index].target
        if step.raises:
            return ["pass"]
        if step.condition is None:
            return [self.resume(index + 1, step.pushed)]
        assert target is not None
        return ["if _test:", f"    {self.resume(target, step.pushed)}", self.resume(index + 1, [] if step.keep else step.pushed)]

    def _handle(self, index: int, entry: ExceptionEntry, stack: Sequence[object]) -> str:
        """Go on in the handler with the caught exception."""
        pushed: list[str | None] = [str(index)] if entry.push_lasti else []
        saved = self.frame.stack
        self.frame.stack = list(stack)  # type: ignore[arg-type]
        try:
            return self.resume(entry.handler, [*pushed, breaks.ERROR])
        finally:
            self.frame.stack = saved

    # -- a loop -------------------------------------------------------------------------------------------------------------
    def of_loop(self, loop: Loop) -> list[str]:
        """The loop as a Python loop around a function that does one round of it. Locals that a round hands to the next one are
        cells that the rounds share."""
        frame = self.frame
        head = self.program.instructions[loop.head]
        self._check(loop)
        for name in self._carried(loop):
            value = frame.locals.pop(name, None)
            content = self.writer.value(value) if value is not None else ""
            self.cells[name] = self.writer.bind(f"{self.writer.constant(types.CellType)}({content})")
        cut = Cut(loop.head, tuple(map(_slot, frame.stack)))
        mark = self.writer.constant(loop_mark(frame.code, loop.head))
        if head.opname != "FOR_ITER":
            return ["while True:", *_indented(self._round(loop.head, cut, [], mark))]
        return self._for_loop(loop, cut, mark)

    def _for_loop(self, loop: Loop, cut: Cut, mark: str) -> list[str]:
        frame, entry = self.frame, self.program.handler_of(loop.head)
        iterator = self.writer.value(frame.stack[-1])
        one_round = self._round(loop.head + 1, cut, [ITEM], mark)
        saved = list(frame.stack)
        frame.stack.pop()
        done = self.resume(loop_exit(self.program, loop.head), [])
        if entry is None:
            return [f"for {ITEM} in {iterator}:", *_indented(one_round), done]
        error = breaks.ERROR  # only what the iterator raises goes to the handler: a round has its own
        step = [
            "try:", f"    {ITEM} = next({iterator})", "except StopIteration:", "    break",
            "except BaseException as _caught:", f"    {error} = _caught", "    break",
        ]  # fmt: skip
        if frame.handling:
            step = _while_handling(self.writer.value(frame.handling[-1]), step)
        return [
            f"{error} = None", "while True:", *_indented(step + one_round), f"if {error} is None:", f"    {done}",
            self._handle(loop.head, entry, saved[: entry.depth]),
        ]  # fmt: skip

    def _round(self, start: int, cut: Cut, pushed: list[str | None], mark: str) -> list[str]:
        call = self.resume(start, pushed, (cut,)).removeprefix("return ")
        return [f"{breaks.RESULT} = {call}", f"if {breaks.RESULT} is not {mark}:", f"    return {breaks.RESULT}"]

    def _carried(self, loop: Loop) -> list[str]:
        """The locals that one round hands to the next one."""
        code = self.frame.code
        return sorted(loop.written(self.program) & live_locals(code, loop.head) - set(free_variables(code)))

    def _check(self, loop: Loop) -> None:
        frame, written = self.frame, loop.written(self.program)
        reason = ""
        exits = [exit_method for exit_method, _ in frame.scopes]    # from 3.14 on there is a NULL beside each
        if any(value is NULL and not any(below is each for each in exits) for below, value in itertools.pairwise([None, *frame.stack])):
            reason = "the loop is inside of an expression"
        elif "__class__" in frame.code.co_freevars and frame.first_argument in written:
            reason = f"the loop assigns {frame.first_argument}, which super() needs"
        if reason:
            raise RunEagerly(describe("break inside a loop", reason))

    # -- resume functions ---------------------------------------------------------------------------------------------------
    def resume(self, index: int, pushed: list[str | None], cuts: tuple[Cut, ...] = ()) -> str:
        """`return resume(...)` at instruction `index` with the frame's stack and `pushed` on top."""
        frame, code, w = self.frame, self.frame.code, self.writer
        plain = None if cuts else self._plain_return(index, pushed)
        if plain is not None:
            return plain
        slots = tuple(map(_slot, frame.stack)) + tuple(StackFill.NULL if item is None else StackFill.VALUE for item in pushed)
        values = [value.error if isinstance(value, PreviousException) else value for value in frame.stack if value is not NULL]
        live = live_locals(code, index)
        names = [name for name in code.co_varnames if name in live and name in frame.locals]
        if "__class__" in code.co_freevars and frame.first_argument in frame.locals:
            first = str(frame.first_argument)
            names = [first, *(name for name in names if name != first)]
        point = ResumePoint(code, index, slots, tuple(names), tuple(self.cells), cuts)
        target = resume_code(point)
        note_unknown_sizes(target, self.unknown)
        self.resumes.append(target)
        arguments = [w.value(value) for value in (*map(frame.locals.__getitem__, names), *values)]
        arguments += [item for item in pushed if item is not None]
        return f"return {self._function(target)}({', '.join(arguments)})"

    def _plain_return(self, index: int, pushed: list[str | None]) -> str | None:
        """Where nothing is left but to return a known value, no function is needed."""
        instructions = self.program.instructions
        while instructions[index].opname == "JUMP_FORWARD":
            index = instructions[index].target or index + 1
        if instructions[index].opname == "RETURN_VALUE" and pushed:
            return f"return {pushed[-1]}"
        while instructions[index].opname in ("POP_TOP", "POP_EXCEPT"):
            index += 1
        if instructions[index].opname in ("LOAD_CONST", "LOAD_SMALL_INT") and instructions[index + 1].opname == "RETURN_VALUE":
            return f"return {self.writer.constant(instructions[index].argval)}"
        return None

    def _function(self, target: types.CodeType) -> str:
        """An expression for the resume function: made once, or for each call when it has a closure."""
        frame, w = self.frame, self.writer
        name, scope = frame.code.co_name, frame.globals
        if not target.co_freevars:
            made = types.FunctionType(target, scope, name)
            made.__qualname__ = self.qualname
            return w.namespace.bind("_resume", made)
        cells = "".join(f"{self._cell(free)}, " for free in target.co_freevars)
        made_here = f"{w.constant(types.FunctionType)}({w.constant(target)}, {w.constant(scope)}, {name!r}, None, ({cells}))"
        return w.bind(made_here)

    def _cell(self, name: str) -> str:
        """A cell of the closure; a comprehension may have taken it out of the frame."""
        if name in self.cells:
            return self.cells[name]
        w, cell = self.writer, self.frame.cells.get(name)
        return w.value(cell) if cell is not None else f"{w.constant(types.CellType)}()"


def unknown_sizes_of(frame: Frame) -> set[tuple[str, int]]:
    """The sizes of a frame's locals that only the values in tensors tell: the names and dimensions."""
    unbacked, found = frame.tx.shape_env.unbacked, set()
    cells = {name: cell.contents for name, cell in frame.cells.items()}
    for name, value in (frame.locals | cells).items():
        for dim, size in enumerate(value.fake.shape if isinstance(value, TensorVariable) else ()):
            if isinstance(size, SymInt) and not unbacked.isdisjoint(free_variables_of(size.expr)):
                found.add((name, dim))
    return found


def _slot(value: Variable) -> StackFill:
    if value is NULL:
        return StackFill.NULL
    return StackFill.HANDLED if isinstance(value, PreviousException) else StackFill.VALUE


def _while_handling(error: str, body: list[str]) -> list[str]:
    """Statements that run while an exception is handled, as what they call may ask for it or raise it again. Raising it for that
    purpose leaves no trace in it."""
    return [
        f"_handled, _traceback, _context = {error}, {error}.__traceback__, {error}.__context__",
        "try:", "    raise _handled", "except BaseException:", "    _handled.__traceback__, _handled.__context__ = _traceback, _context",
        *_indented(body),
    ]  # fmt: skip


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
