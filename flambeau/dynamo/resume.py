"""Resume functions: the original function, started in its middle.

After a graph break the program goes on in a function that has the original's bytecode behind a prologue, which loads the
value stack from arguments and jumps to where the break was left. It is an ordinary function, captured again when called.
The original's cell variables are free variables of the resume function: the cells already exist.

A loop with a graph break in it becomes a Python loop around such a function, which starts in the loop's body, does one round and
returns the loop's mark where the original would jump back (`Cut`); if it leaves the loop instead, it runs to the function's end.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

from .assembler import Line, assemble
from .bytecode import DecodedCode, ExceptionEntry, decode, inner_uses, loop_of, parts_of
from .naming import stack_words
from .source import FUNCTION, argument_name

STACK_PREFIX = "__stack"
_DROPPED = frozenset({"MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR"})
_FAST = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "STORE_FAST", "DELETE_FAST"})
_AS_CELL = {"LOAD_FAST": "LOAD_DEREF", "LOAD_FAST_CHECK": "LOAD_DEREF", "STORE_FAST": "STORE_DEREF", "DELETE_FAST": "DELETE_DEREF"}
_DEREF = frozenset(
    {"MAKE_CELL", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)


class StackFill(enum.Enum):
    """How a place on the value stack is filled when a resume function starts."""

    VALUE = enum.auto()
    """By an argument."""
    NULL = enum.auto()
    """By the NULL that belongs to a call, which can't be an argument."""
    HANDLED = enum.auto()
    """By PUSH_EXC_INFO: the argument is the exception that the function handles from its start on."""


_REMOVED = {StackFill.VALUE: "POP_TOP", StackFill.NULL: "POP_TOP", StackFill.HANDLED: "POP_EXCEPT"}
"""The instruction that takes it away again."""


@dataclass(frozen=True)
class Cut:
    """A loop whose next round is left to the caller: jumps to its head return its mark instead."""

    head: int
    slots: tuple[StackFill, ...]
    """What is on the stack at the head."""


class LoopMark:
    """What a function returns that did one round of a loop: go on."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __repr__(self) -> str:
        return f"<next round of the loop at {self.where}>"


@dataclass(frozen=True)
class ResumePoint:
    """Where and with what a resume function starts."""

    code: CodeType
    index: int
    """The instruction to go on with."""
    slots: tuple[StackFill, ...]
    """How each stack slot is filled."""
    locals: tuple[str, ...]
    """The locals that are passed, in order; they come before the stack so that `super()` finds `self` first."""
    carried: tuple[str, ...] = ()
    """Locals that are closure cells instead, because the rounds of a loop share them."""
    cuts: tuple[Cut, ...] = ()
    """The loops that this function does one round of, outermost first."""


@dataclass(frozen=True)
class _Origin:
    """What a resume function was made from."""

    code: CodeType
    """The user's."""
    point: ResumePoint
    places: dict[int, int]
    """Where each of its instructions stands there."""


_cache: dict[tuple[int, ResumePoint], CodeType] = {}
"""By the id of the code, too: codes of equal text are equal, but each has functions of its own."""
_origins: dict[int, _Origin] = {}
"""By the id of a resume function's code, which the cache keeps."""
_unknown_sizes: dict[int, set[tuple[str, int]]] = {}
"""By the id of a resume function's code."""
_marks: dict[tuple[CodeType, int], LoopMark] = {}


def origin(code: CodeType) -> CodeType:
    """The user's code object that a resume function was cut from (itself for an ordinary one)."""
    found = _origins.get(id(code))
    return found.code if found is not None else code


def given_anew(code: CodeType) -> frozenset[str]:
    """The sources of what a function that does one round of a loop finds changed from round to round: the locals that the loop writes
    and the item that it begins with."""
    found = _origins.get(id(code))
    if found is None or not found.point.cuts:
        return frozenset()
    point, user = found.point, found.point.code
    loop = loop_of(user, point.cuts[0].head)
    names = set(loop.written(decode(user))) if loop is not None else set()
    if point.index == point.cuts[-1].head + 1 and decode(user).instructions[point.index - 1].opname == "FOR_ITER":
        names.add(code.co_varnames[code.co_argcount - 1])
    return frozenset(source for source, name in _local_sources(code) if name in names)


def _local_sources(code: CodeType) -> list[tuple[str, str]]:
    """The sources of a function's arguments and cells, and their names."""
    arguments = [(argument_name(i, name), name) for i, name in enumerate(code.co_varnames)]
    return arguments + [(str(FUNCTION.cell(i, name).contents()), name) for i, name in enumerate(code.co_freevars)]


def note_unknown_sizes(code: CodeType, dims: Iterable[tuple[str, int]]) -> None:
    """Sizes of a resume function's locals (a name and a dimension) that only the values in tensors told before it: they will vary."""
    _unknown_sizes.setdefault(id(code), set()).update(dims)


def unknown_sizes(code: CodeType) -> frozenset[tuple[str, int]]:
    """The same by their sources."""
    unknown = _unknown_sizes.get(id(code), ())
    return frozenset((source, dim) for source, name in _local_sources(code) for of, dim in unknown if of == name)


def words_of_arguments(code: CodeType) -> dict[str, str]:
    """What the program wrote for the arguments of a resume function that come from the stack."""
    found = _origins.get(id(code))
    if found is None:
        return {}
    point = found.point
    words = stack_words(point.code, point.index, len(point.slots))
    passed = [word for word, slot in zip(words, point.slots, strict=True) if slot is not StackFill.NULL]
    names = code.co_varnames[len(point.locals) : code.co_argcount]
    return dict(zip(names, passed, strict=True))


def _at_origin(point: ResumePoint) -> ResumePoint:
    """The same point seen from the user's code, so that resuming in a resume function doesn't pile up prologues."""
    found = _origins.get(id(point.code))
    if found is None or not all(index in found.places for index in (point.index, *(cut.head for cut in point.cuts))):
        return point
    cuts = tuple(Cut(found.places[cut.head], cut.slots) for cut in point.cuts)
    return ResumePoint(found.point.code, found.places[point.index], point.slots, point.locals,
                       found.point.carried + point.carried, found.point.cuts + cuts)  # fmt: skip


def loop_mark(code: CodeType, head: int) -> LoopMark:
    """The mark of the loop with this head."""
    found = _origins.get(id(code))
    if found is not None and head in found.places:
        code, head = found.point.code, found.places[head]
    line = decode(code).instructions[head].line
    return _marks.setdefault((code, head), LoopMark(f"{code.co_filename}:{line}"))


def free_variables(code: CodeType) -> tuple[str, ...]:
    """The closure of a resume function of `code`: its own free variables, then its cells."""
    return code.co_freevars + tuple(name for name in code.co_cellvars if name not in code.co_freevars)


def resume_code(point: ResumePoint) -> CodeType:
    """The code object that goes on at `point`; its arguments are the locals, then the stack slots that aren't NULL."""
    point = _at_origin(point)
    key = id(point.code), point
    found = _cache.get(key)
    if found is None:
        found, places = _assemble(point)
        _cache[key] = found
        _origins[id(found)] = _Origin(origin(point.code), point, places)
    return found


def _assemble(point: ResumePoint) -> tuple[CodeType, dict[int, int]]:
    code, program = point.code, decode(point.code)
    stack = [f"{STACK_PREFIX}{i}" for i, slot in enumerate(point.slots) if slot is not StackFill.NULL]
    free = free_variables(code) + point.carried
    taken = set(code.co_varnames)
    stack_names = [name if name not in taken else f"{name}_" for name in stack]
    rest = [name for name in code.co_varnames if name not in point.locals and name not in free]
    inner = [name for name in point.carried if inner_uses(code, name)]
    names = [*point.locals, *stack_names, *rest, *map(_inner, inner)]
    prologue = _prologue(point, stack_names, names, len(free))
    body, spread = _body(program, names, free, point.carried, len(prologue))
    ends = {cut.head: len(prologue) + len(body) + offset for cut, offset in zip(point.cuts, _offsets(point.cuts), strict=True)}
    for line in body:
        if line.target in ends:
            line.opname, line.target = _FORWARD.get(line.opname, line.opname), ends[line.target]
        elif line.target is not None:
            line.target = spread[line.target]
    prologue[-1].target = spread[point.index]
    marks = tuple(loop_mark(code, cut.head) for cut in point.cuts)
    protected = [
        ExceptionEntry(spread[e.start], spread[e.end], spread[e.handler], e.depth, e.push_lasti) for e in program.exceptions
    ]
    raw, lines, exceptions = assemble([*prologue, *body, *_round_ends(point)], protected, code.co_firstlineno)
    dropped_flags = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    made = code.replace(
        co_code=raw, co_linetable=lines, co_exceptiontable=exceptions, co_consts=code.co_consts + marks,
        co_argcount=len(point.locals) + len(stack), co_posonlyargcount=0, co_kwonlyargcount=0,
        co_nlocals=len(names), co_varnames=tuple(names), co_cellvars=(), co_freevars=free,
        co_flags=code.co_flags & ~dropped_flags, co_stacksize=code.co_stacksize + 2,
    )  # fmt: skip
    return made, {place: index for index, place in enumerate(spread)}


_FORWARD = {
    "JUMP_BACKWARD": "JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_FORWARD",
    **{f"POP_JUMP_BACKWARD_IF_{test}": f"POP_JUMP_FORWARD_IF_{test}" for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")},
}  # fmt: skip


def _body(program: DecodedCode, names: list[str], free: tuple[str, ...], carried: tuple[str, ...],
          shift: int) -> tuple[list[Line], list[int]]:  # fmt: skip
    """The user's instructions over the new slots, and where each of them went: paired ones become two. What was a local and
    is a cell now is read as one; from 3.13 on LOAD_FAST names the cells of others, too."""
    slots = {name: i for i, name in enumerate(names)}
    derefs = {name: len(names) + i for i, name in enumerate(free)}
    body: list[Line] = []
    spread: list[int] = []
    start = next(i for i, instruction in enumerate(program.instructions) if instruction.opname == "RESUME")
    for index, instruction in enumerate(program.instructions):
        spread.append(shift + len(body))
        for name, local in parts_of(instruction):
            arg = instruction.arg
            if name in _DROPPED and index < start:
                name, arg = "NOP", 0
            elif name in _FAST and local in carried and index in inner_uses(program.code, local):
                arg = slots[_inner(local)]
            elif name in _FAST and local in carried:
                name, arg = _AS_CELL[name], derefs[local]
            elif name in _FAST:
                arg = slots[local] if local in slots else derefs[local]
            elif name in _DEREF:
                arg = derefs[local]
            body.append(Line(name, arg, instruction.target, instruction.position))
    return body, [*spread, shift + len(body)]


def _inner(name: str) -> str:
    """A comprehension's variable where the function's own of this name is a cell."""
    return f"{name} in a comprehension"


def _offsets(cuts: tuple[Cut, ...]) -> list[int]:
    """Where the end of each round starts, behind the body."""
    return [sum(len(cut.slots) + 2 for cut in cuts[:i]) for i in range(len(cuts))]


def _round_ends(point: ResumePoint) -> list[Line]:
    """The end of a round: empty the stack and return the loop's mark."""
    lines: list[Line] = []
    for number, cut in enumerate(point.cuts):
        position = decode(point.code).instructions[cut.head].position
        lines += [Line(_REMOVED[slot], 0, None, position) for slot in reversed(cut.slots)]
        lines += [Line("LOAD_CONST", len(point.code.co_consts) + number, None, position), Line("RETURN_VALUE", 0, None, position)]
    return lines


def _prologue(point: ResumePoint, stack_names: list[str], names: list[str], free: int) -> list[Line]:
    position = decode(point.code).instructions[point.index].position
    lines: list[Line] = [Line("COPY_FREE_VARS", free, None, position)] if free else []
    lines.append(Line("RESUME", 0, None, position))
    values = iter(stack_names)
    for slot in point.slots:
        if slot is StackFill.NULL:
            lines.append(Line("PUSH_NULL", 0, None, position))
        else:
            lines.append(Line("LOAD_FAST", names.index(next(values)), None, position))
        if slot is StackFill.HANDLED:  # the exception becomes the handled one; what was handled before stays on the stack
            lines += [Line("PUSH_EXC_INFO", 0, None, position), Line("POP_TOP", 0, None, position)]
    lines.append(Line("JUMP_FORWARD", 0, 0, position))
    return lines
