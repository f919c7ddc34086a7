"""What the program calls a value that stands on the stack where a resume function starts: the text of the expression that gave it."""

from __future__ import annotations

import dis
import linecache
from collections.abc import Iterator
from types import CodeType
from typing import Any

from .bytecode import FAST_WRITES, NOT_FALLING_THROUGH, PY314, DecodedCode, Instruction, decode, parts_of

LONGEST = 60
_QUIET = ("POP_", "STORE_", "DELETE_", "JUMP_", "SWAP", "NOP", "RESUME", "PRECALL", "KW_NAMES", "CACHE")
"""How instructions begin that leave nothing new on the stack."""


def stack_words(code: CodeType, index: int, count: int) -> list[str]:
    """For each of the `count` values on the stack at an instruction, what the program wrote for it."""
    program = decode(code)
    words = [""] * count
    if count and any(entry.handler == index for entry in program.exceptions):
        words[-1] = "the exception"
    depth = count
    for at in range(index - 1, -1, -1):
        instruction = program.instructions[at]
        if instruction.opname in NOT_FALLING_THROUGH or not any(word == "" for word in words):
            break
        before = depth - _effect(instruction)
        first = min(before, depth - 1) - (instruction.opname == "BEFORE_WITH")
        for place in range(first, depth) if not instruction.opname.startswith(_QUIET) else ():
            if 0 <= place < count and not words[place]:
                words[place] = _words(program, at, last=place == depth - 1)
        depth = before
    return [word or "a value" for word in words]


def _effect(instruction: Instruction) -> int:
    if PY314 and instruction.opname == "BEFORE_WITH":
        return 2
    has_arg = dis.opmap[instruction.opname] >= dis.HAVE_ARGUMENT
    try:
        return dis.stack_effect(dis.opmap[instruction.opname], instruction.arg if has_arg else None, jump=False)
    except ValueError:
        return 0


def _words(program: DecodedCode, at: int, last: bool) -> str:
    name = program.instructions[at].opname
    if name == "FOR_ITER":
        return _stored(program, at + 1) or "an item"
    if name not in ("GET_ITER", "BEFORE_WITH"):
        return _text(program, at)
    made = _text(program, at - 1)       # the place of these two is the whole statement
    if name == "GET_ITER":
        return f"iter({made})"
    return f"{made}.__enter__()" if last else f"{made}.__exit__"


def _stored(program: DecodedCode, at: int) -> str:
    """The local that an instruction binds, or the locals that it unpacks to."""
    return _bound(part for instruction in program.instructions[at:] for part in parts_of(instruction))


def _bound(instructions: Iterator[tuple[str, Any]]) -> str:
    name, operand = next(instructions)
    if name == "UNPACK_SEQUENCE":
        parts = [_bound(instructions) for _ in range(operand)]
        return f"({', '.join(parts)})" if all(parts) else ""
    return str(operand) if name in FAST_WRITES else ""


def _text(program: DecodedCode, at: int) -> str:
    """The program's text at an instruction, shortened."""
    position = program.instructions[at].position
    if position is None or None in (position.lineno, position.col_offset, position.end_col_offset):
        return "a value"
    line = linecache.getline(program.code.co_filename, position.lineno).encode()
    whole = position.end_lineno == position.lineno
    text = line[position.col_offset : position.end_col_offset if whole else None].decode(errors="replace").strip()
    return text if whole and len(text) <= LONGEST else f"{text[:LONGEST]}..."
