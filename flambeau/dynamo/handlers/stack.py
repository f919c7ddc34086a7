"""Instructions that only move values, and the ones without effect on values."""

from __future__ import annotations

from ..bytecode import Instruction
from ..typed import Frame
from ..variables.base import NULL
from .table import Handler, handler

TABLE: dict[str, Handler] = {}


@handler(TABLE, "NOP", "RESUME", "CACHE", "PRECALL", "COPY_FREE_VARS", "NOT_TAKEN", "SETUP_ANNOTATIONS")
def nop(f: Frame, i: Instruction) -> None:
    pass


@handler(TABLE, "POP_TOP", "END_FOR")
def pop_top(f: Frame, i: Instruction) -> None:
    f.pop()


@handler(TABLE, "PUSH_NULL")
def push_null(f: Frame, i: Instruction) -> None:
    f.push(NULL)


@handler(TABLE, "COPY")
def copy(f: Frame, i: Instruction) -> None:
    f.push(f.stack[-i.arg])


@handler(TABLE, "SWAP")
def swap(f: Frame, i: Instruction) -> None:
    f.stack[-1], f.stack[-i.arg] = f.stack[-i.arg], f.stack[-1]
