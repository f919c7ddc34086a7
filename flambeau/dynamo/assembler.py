"""Writing code objects: labels to jumps, EXTENDED_ARG, inline caches, line table and exception table.

Used for one purpose: resume functions (`resume.py`). Formats: CPython's Objects/locations.md and exception_handling_notes.txt.
"""

from __future__ import annotations

import dis
import itertools
import opcode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .bytecode import ENTERING, PY314, ExceptionEntry

_CACHES: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]


def cache_entries(opname: str) -> int:
    """Inline cache units that follow an instruction (3.11, 3.12: a list by number; from 3.13 on: a dict by name)."""
    if isinstance(_CACHES, dict):
        return int(_CACHES.get(opname, 0))
    return int(_CACHES[dis.opmap[opname]])


@dataclass(slots=True)
class Line:
    """An instruction to be assembled; `target` is the index of the line that it jumps to."""

    opname: str
    arg: int = 0
    target: int | None = None
    position: Any = None


def _units(arg: int) -> int:
    """Code units of an instruction without its caches."""
    return 1 + (arg > 0xFF) + (arg > 0xFFFF) + (arg > 0xFFFFFF)


def _spelled(lines: Sequence[Line], protected: Sequence[ExceptionEntry]) -> tuple[list[Line], list[ExceptionEntry]]:
    """With the instructions that 3.14 has for BEFORE_WITH."""
    spelled: list[Line] = []
    places = []
    for line in lines:
        places.append(len(spelled))
        entering = PY314 and line.opname == "BEFORE_WITH"
        spelled += [Line(*part, None, line.position) for part in ENTERING] if entering else [line]
    places.append(len(spelled))
    moved = [line if line.target is None else replace(line, target=places[line.target]) for line in spelled]
    return moved, [replace(e, start=places[e.start], end=places[e.end], handler=places[e.handler]) for e in protected]


def assemble(lines: Sequence[Line], protected: Sequence[ExceptionEntry], first_line: int) -> tuple[bytes, bytes, bytes]:
    """`(co_code, co_linetable, co_exceptiontable)`; jump sizes are relaxed until they fit."""
    lines, protected = _spelled(lines, protected)
    caches = [cache_entries(line.opname) for line in lines]
    args = [line.arg for line in lines]
    while True:
        starts, position = [], 0
        for arg, extra in zip(args, caches, strict=True):
            starts.append(position)
            position += _units(arg) + extra
        starts.append(position)
        changed = False
        for i, line in enumerate(lines):
            if line.target is None:
                continue
            end = starts[i] + _units(args[i]) + caches[i]
            distance = end - starts[line.target] if "BACKWARD" in line.opname else starts[line.target] - end
            if distance < 0:
                raise ValueError(f"{line.opname} can't jump in this direction")
            if _units(distance) > _units(args[i]):
                changed = True
            args[i] = max(distance, args[i]) if changed else distance
        if not changed and all(_units(a) == s1 - s0 - c for a, s0, s1, c in zip(args, starts, starts[1:], caches, strict=False)):
            break
    code = bytearray()
    for line, arg, extra in zip(lines, args, caches, strict=True):
        for shift in range(8 * (_units(arg) - 1), 0, -8):
            code += bytes((dis.opmap["EXTENDED_ARG"], (arg >> shift) & 0xFF))
        code += bytes((dis.opmap[line.opname], arg & 0xFF))
        code += bytes(2 * extra)
    sizes = [end - start for start, end in itertools.pairwise(starts)]
    table = bytearray()
    for entry in sorted(protected, key=lambda e: e.start):
        start, end = starts[entry.start], starts[entry.end]
        if start < end:
            table += _exception_entry(start, end - start, starts[entry.handler], entry.depth << 1 | entry.push_lasti)
    return bytes(code), _line_table(lines, sizes, first_line), bytes(table)


def _exception_entry(*numbers: int) -> bytes:
    out = bytearray()
    for number in numbers:
        groups = [number & 63]
        while number := number >> 6:
            groups.append(number & 63)
        out += bytes(group | 64 for group in reversed(groups[1:])) + bytes((groups[0],))
    out[0] |= 128
    return bytes(out)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 64:
        out.append(number & 63 | 64)
        number >>= 6
    out.append(number)
    return bytes(out)


def _line_table(lines: Sequence[Line], sizes: Sequence[int], first_line: int) -> bytes:
    """Long-form entries (code 14), or 15 where there is no position."""
    out = bytearray()
    current = first_line
    for line, size in zip(lines, sizes, strict=True):
        while size > 0:
            span = min(size, 8)
            size -= span
            p = line.position
            if p is None or p.lineno is None:
                out.append(0x80 | 15 << 3 | span - 1)
                continue
            out.append(0x80 | 14 << 3 | span - 1)
            delta, current = p.lineno - current, p.lineno
            out += _varint(-delta << 1 | 1 if delta < 0 else delta << 1)
            out += _varint((p.end_lineno or p.lineno) - p.lineno)
            out += _varint(0 if p.col_offset is None else p.col_offset + 1)
            out += _varint(0 if p.end_col_offset is None else p.end_col_offset + 1)
    return bytes(out)


