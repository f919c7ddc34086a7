"""Resume functions: the original function, started in its middle.

After a graph break the program goes on in a function that has the original's bytecode behind a prologue, which loads the
value stack from arguments and jumps to where the break was left. It is an ordinary function, captured again when called.
The original's cell variables are free variables of the resume function: the cells already exist.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import CodeType

from .assembler import Line, Protected, assemble
from .bytecode import FAST_PAIRS, decode

STACK_PREFIX = "__stack"
_DROPPED = frozenset({"MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR"})
_FAST = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "STORE_FAST", "DELETE_FAST"})
_DEREF = frozenset(
    {"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)


@dataclass(frozen=True)
class ResumePoint:
    """Where and with what a resume function starts."""

    code: CodeType
    index: int
    """The instruction to go on with."""
    nulls: tuple[bool, ...]
    """For each stack slot, is it a NULL (which can't be an argument)?"""
    locals: tuple[str, ...]
    """The locals that are passed, in order; they come before the stack so that `super()` finds `self` first."""


_cache: dict[ResumePoint, CodeType] = {}
_origins: dict[CodeType, tuple[CodeType, dict[int, int]]] = {}
"""Resume code -> the user's code, and where each of its instructions stands there."""


def origin(code: CodeType) -> CodeType:
    """The user's code object that a resume function was cut from (itself for an ordinary one)."""
    found = _origins.get(code)
    return found[0] if found is not None else code


def _at_origin(point: ResumePoint) -> ResumePoint:
    """The same point seen from the user's code, so that resuming in a resume function doesn't pile up prologues."""
    found = _origins.get(point.code)
    if found is None or point.index not in found[1]:
        return point
    return ResumePoint(found[0], found[1][point.index], point.nulls, point.locals)


def free_variables(code: CodeType) -> tuple[str, ...]:
    """The closure of a resume function of `code`: its own free variables, then its cells."""
    return code.co_freevars + tuple(name for name in code.co_cellvars if name not in code.co_freevars)


def resume_code(point: ResumePoint) -> CodeType:
    """The code object that goes on at `point`; its arguments are the locals, then the stack slots that aren't NULL."""
    point = _at_origin(point)
    found = _cache.get(point)
    if found is None:
        found, places = _assemble(point)
        _cache[point] = found
        _origins[found] = (origin(point.code), places if point.code not in _origins else {})
    return found


def _assemble(point: ResumePoint) -> tuple[CodeType, dict[int, int]]:
    code, program = point.code, decode(point.code)
    stack = [f"{STACK_PREFIX}{i}" for i, null in enumerate(point.nulls) if not null]
    free = free_variables(code)
    taken = set(code.co_varnames)
    stack_names = [name if name not in taken else f"{name}_" for name in stack]
    rest = [name for name in code.co_varnames if name not in point.locals and name not in free]
    names = [*point.locals, *stack_names, *rest]
    prologue = _prologue(point, stack_names, names, len(free))
    shift = len(prologue)
    prologue[-1].target = point.index + shift
    slots = {name: i for i, name in enumerate(names)}
    derefs = {name: len(names) + i for i, name in enumerate(free)}
    body: list[Line] = []
    spread: list[int] = []  # where each original instruction went: 3.13's paired ones become two
    for instruction in program.instructions:
        spread.append(shift + len(body))
        name = instruction.opname
        if name in FAST_PAIRS:
            first, second = name.replace("FAST_LOAD", "FAST|LOAD").replace("FAST_STORE", "FAST|STORE").split("|")
            for part, local in zip((first, second), instruction.argval, strict=True):
                body.append(Line(part, slots[local], None, instruction.position))
            continue
        arg = instruction.arg
        if name in _DROPPED:
            name, arg = "NOP", 0
        elif name in _FAST:
            arg = slots[instruction.argval] if instruction.argval in slots else derefs[instruction.argval]
        elif name in _DEREF:
            arg = derefs[instruction.argval]
        body.append(Line(name, arg, instruction.target, instruction.position))
    spread.append(shift + len(body))
    for line in body:
        if line.target is not None:
            line.target = spread[line.target]
    prologue[-1].target = spread[point.index]
    protected = [
        Protected(spread[e.start], spread[e.end], spread[e.handler], e.depth, e.push_lasti) for e in program.exceptions
    ]
    raw, lines, exceptions = assemble([*prologue, *body], protected, code.co_firstlineno)
    dropped_flags = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    made = code.replace(
        co_code=raw, co_linetable=lines, co_exceptiontable=exceptions,
        co_argcount=len(point.locals) + len(stack), co_posonlyargcount=0, co_kwonlyargcount=0,
        co_nlocals=len(names), co_varnames=tuple(names), co_cellvars=(), co_freevars=free,
        co_flags=code.co_flags & ~dropped_flags, co_stacksize=code.co_stacksize + 2,
    )  # fmt: skip
    return made, {place: index for index, place in enumerate(spread)}


def _prologue(point: ResumePoint, stack_names: list[str], names: list[str], free: int) -> list[Line]:
    position = decode(point.code).instructions[point.index].position
    lines: list[Line] = [Line("COPY_FREE_VARS", free, None, position)] if free else []
    lines.append(Line("RESUME", 0, None, position))
    values = iter(stack_names)
    lines.extend(
        Line("PUSH_NULL", 0, None, position) if null else Line("LOAD_FAST", names.index(next(values)), None, position)
        for null in point.nulls
    )
    lines.append(Line("JUMP_FORWARD", 0, 0, position))
    return lines


__all__ = ["ResumePoint", "free_variables", "origin", "resume_code"]
