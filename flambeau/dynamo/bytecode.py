"""Reading code objects: instructions with jump targets, the exception table, liveness, loops.

All that depends on the Python version (3.11 to 3.14) stands in the tables of this file.
"""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

PY312 = sys.version_info >= (3, 12)
PY313 = sys.version_info >= (3, 13)
PY314 = sys.version_info >= (3, 14)

NOT_FALLING_THROUGH = frozenset(
    {
        "RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
        "RAISE_VARARGS", "RERAISE",
    }
)  # fmt: skip
"""Instructions after which the next one isn't reached."""

LEAVING = frozenset({"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"})

FAST_READS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
FAST_WRITES = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
FAST_PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"})
"""From 3.13 on: one instruction, two locals; `argval` is the pair of names."""

BORROWING = {"LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST_LOAD_FAST"}
"""3.14: the same without counting the reference, where the compiler saw that the local outlives its use."""

ENTERING = (("COPY", 1), ("LOAD_SPECIAL", 1), ("SWAP", 2), ("SWAP", 3), ("LOAD_SPECIAL", 0), ("CALL", 0))
"""3.14 enters a `with` by these, in the place of BEFORE_WITH: read as that one, which leaves the NULL of a call beside `__exit__`."""

COMMON: tuple[Any, ...] = tuple(getattr(opcode, "_common_constants", ()))
"""3.14: what LOAD_COMMON_CONSTANT gives by its number."""

IGNORED = frozenset({"EXTENDED_ARG", "CACHE"})


@dataclass(slots=True)
class Instruction:
    """One instruction; `target` is the index (not the offset) of where it jumps to."""

    opname: str
    arg: int
    argval: Any
    offset: int
    line: int
    target: int | None = None
    position: Any = None


@dataclass(frozen=True)
class ExceptionEntry:
    """Instructions `start <= index < end` are protected: unwind to `depth`, go to `handler`."""

    start: int
    end: int
    handler: int
    depth: int
    push_lasti: bool


@dataclass(frozen=True)
class DecodedCode:
    """A decoded code object."""

    code: CodeType
    instructions: list[Instruction]
    exceptions: list[ExceptionEntry]
    index_of_offset: dict[int, int]

    def handler_of(self, index: int) -> ExceptionEntry | None:
        """The innermost handler of an instruction."""
        found = None
        for entry in self.exceptions:
            if entry.start <= index < entry.end:
                found = entry
        return found


@lru_cache(maxsize=4096)
def decode(code: CodeType) -> DecodedCode:
    """Instructions (EXTENDED_ARG folded away), jump targets and exception table of a code object."""
    kept: list[Instruction] = []
    index_of_offset: dict[int, int] = {}
    line = code.co_firstlineno
    jumps: list[tuple[Instruction, int]] = []
    skipped = 0
    for raw in dis.get_instructions(code):
        position = raw.positions
        if position is not None and position.lineno is not None:
            line = position.lineno
        if (raw.opname, raw.arg) == ENTERING[1]:
            kept[-1], skipped = Instruction("BEFORE_WITH", 0, None, kept[-1].offset, line, None, position), len(ENTERING) - 1
        if skipped:
            index_of_offset[raw.offset], skipped = len(kept) - 1, skipped - 1
            continue
        index_of_offset[raw.offset] = len(kept)
        if raw.opname in IGNORED:
            continue
        instruction = Instruction(BORROWING.get(raw.opname, raw.opname), raw.arg or 0, raw.argval, raw.offset, line, None, position)
        if raw.opcode in dis.hasjrel or raw.opcode in dis.hasjabs:
            jumps.append((instruction, raw.argval))
        kept.append(instruction)
    for instruction, offset in jumps:
        instruction.target = index_of_offset[offset]
    index_of_offset[len(code.co_code)] = len(kept)
    return DecodedCode(code, kept, list(_exception_table(code, index_of_offset)), index_of_offset)


def _varints(data: bytes) -> Iterator[int]:
    """Big-endian groups of six bits; 64 marks that another byte follows (CPython's exception_handling_notes)."""
    value = 0
    for byte in data:
        value = (value << 6) | (byte & 63)
        if not byte & 64:
            yield value
            value = 0


def _exception_table(code: CodeType, index_of_offset: dict[int, int]) -> Iterator[ExceptionEntry]:
    numbers = _varints(bytes(byte & 127 for byte in code.co_exceptiontable))
    for start in numbers:
        length, target, depth_lasti = next(numbers), next(numbers), next(numbers)
        end = (start + length) * 2
        yield ExceptionEntry(
            _index_at(index_of_offset, start * 2), _index_at(index_of_offset, end), _index_at(index_of_offset, target * 2),
            depth_lasti >> 1, bool(depth_lasti & 1),
        )


def _index_at(index_of_offset: dict[int, int], offset: int) -> int:
    """An end offset may lie among the inline caches of the instruction before."""
    while offset not in index_of_offset:
        offset += 2
    return index_of_offset[offset]


def successors(program: DecodedCode, index: int) -> Iterator[int]:
    """Indices that may run after `index`, handlers included."""
    instruction = program.instructions[index]
    if instruction.opname not in NOT_FALLING_THROUGH and index + 1 < len(program.instructions):
        yield index + 1
    if instruction.target is not None:
        yield instruction.target
    handler = program.handler_of(index)
    if handler is not None:
        yield handler.handler


def _reads_writes(instruction: Instruction) -> tuple[set[str], set[str]]:
    name = instruction.opname
    if name in FAST_PAIRS:
        first, second = instruction.argval
        if name == "LOAD_FAST_LOAD_FAST":
            return {first, second}, set()
        return ({second} if name == "STORE_FAST_LOAD_FAST" and first != second else set()), (
            {first} if name == "STORE_FAST_LOAD_FAST" else {first, second}
        )
    return (
        {instruction.argval} if name in FAST_READS else set(), {instruction.argval} if name in FAST_WRITES else set(),
    )


def parts_of(instruction: Instruction) -> list[tuple[str, Any]]:
    """The one or two instructions that it is, each with its operand."""
    name = instruction.opname
    if name not in FAST_PAIRS:
        return [(name, instruction.argval)]
    parts = name.replace("FAST_LOAD", "FAST|LOAD").replace("FAST_STORE", "FAST|STORE").split("|")
    return list(zip(parts, instruction.argval, strict=True))


def only_raises(program: DecodedCode, start: int, other: int) -> bool:
    """Does every way from `start` on end in a `raise`, without coming to `other`?"""
    waiting, seen = [start], set()
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        instruction = program.instructions[index]
        if index == other or instruction.opname in LEAVING:
            return False
        if instruction.opname not in NOT_FALLING_THROUGH:
            waiting.append(index + 1)
        if instruction.target is not None:
            waiting.append(instruction.target)
    return True


@lru_cache(maxsize=1024)
def _live_in(code: CodeType) -> list[frozenset[str]]:
    """For each instruction the locals that may be read before they are written: a backward fixed point."""
    program = decode(code)
    count = len(program.instructions)
    effects = [_reads_writes(instruction) for instruction in program.instructions]
    following = [list(successors(program, i)) for i in range(count)]
    live: list[frozenset[str]] = [frozenset()] * count
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            reads, writes = effects[i]
            after = frozenset().union(*(live[j] for j in following[i])) if following[i] else frozenset()
            # a protected instruction may raise before it writes, but then the handler's needs are in `after`
            before = frozenset(reads | (after - writes))
            if before != live[i]:
                live[i], changed = before, True
    return live


def live_locals(code: CodeType, index: int) -> frozenset[str]:
    """The locals that code from instruction `index` on may read."""
    live = _live_in(code)
    return live[index] if index < len(live) else frozenset()


@dataclass(frozen=True)
class Loop:
    """A loop that lies in no other: instructions that can reach each other, entered at `head` alone."""

    head: int
    body: frozenset[int]

    def written(self, program: DecodedCode) -> set[str]:
        """The locals that it may write, without those that comprehensions use for themselves."""
        names = {name for index in self.body for name in _reads_writes(program.instructions[index])[1]}
        return {name for name in names if any(
            name in _reads_writes(program.instructions[i])[1] for i in self.body - inner_uses(program.code, name))}  # fmt: skip


@lru_cache(maxsize=4096)
def inner_uses(code: CodeType, name: str) -> frozenset[int]:
    """The instructions at which a local means the variable of a comprehension. Since 3.12 these run in their function's frame: they
    put the function's own local of this name aside and restore it at their end, or before they raise again."""
    all_ = decode(code).instructions

    def uses(index: int) -> bool:
        value = all_[index].argval
        return "_FAST" in all_[index].opname and (value == name or (isinstance(value, tuple) and name in value))

    found: set[int] = set()
    for start, instruction in enumerate(all_):
        if instruction.opname == "LOAD_FAST_AND_CLEAR" and instruction.argval == name:
            loop_end = next((i for i in range(start, len(all_)) if all_[i].opname == "END_FOR"), len(all_))
            end = next((i for i in range(loop_end, len(all_)) if uses(i)), loop_end)
            found.update(i for i in range(start, min(end + 1, len(all_))) if uses(i))
    if found:
        found.update(i for i in range(len(all_) - 1) if uses(i) and all_[i + 1].opname == "RERAISE")
    return frozenset(found)


@lru_cache(maxsize=1024)
def loops(code: CodeType) -> tuple[Loop, ...]:
    """The outermost loops: strongly connected parts of what can be reached. Handlers lie far from the lines that they guard, so
    the spans of backward jumps would tell too much."""
    program = decode(code)
    following = _reachable(program)
    found = []
    for component in _components(following):
        inside = frozenset(component)
        if len(inside) == 1 and component[0] not in following[component[0]]:
            continue
        entries = {j for i, after in following.items() if i not in inside for j in after if j in inside}
        found.append(Loop(entries.pop() if len(entries) == 1 else -1, inside))
    return tuple(found)


def _reachable(program: DecodedCode) -> dict[int, list[int]]:
    """The successors of every instruction that can be reached from the first."""
    following: dict[int, list[int]] = {}
    waiting = [0]
    while waiting:
        index = waiting.pop()
        if index not in following:
            following[index] = list(successors(program, index))
            waiting.extend(following[index])
    return following


def _components(following: dict[int, list[int]]) -> Iterator[list[int]]:
    """Strongly connected components (Tarjan's algorithm, with a stack of its own)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    for root in following:
        path = [(root, iter(following[root]))] if root not in order else []
        while path:
            node, rest = path[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                open_.append(node)
            child = next(rest, None)
            if child is not None:
                if child not in order:
                    path.append((child, iter(following[child])))
                elif child in open_:
                    low[node] = min(low[node], order[child])
                continue
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[node])
            if low[node] == order[node]:
                at = open_.index(node)
                yield open_[at:]
                del open_[at:]


def loop_of(code: CodeType, index: int) -> Loop | None:
    """The outermost loop around an instruction."""
    return next((loop for loop in loops(code) if index in loop.body), None)


def loop_exit(program: DecodedCode, index: int) -> int:
    """Where an exhausted `FOR_ITER` goes on, with the iterator gone from the stack. From 3.12 on it jumps to an END_FOR that is
    skipped; from 3.13 on the iterator is popped in an instruction of its own."""
    target = program.instructions[index].target
    assert target is not None
    if PY312:
        target += 1
        if PY313 and program.instructions[target].opname in ("POP_TOP", "POP_ITER"):
            target += 1
    return target
