"""Instructions that only move values, and the ones without effect on values."""

from __future__ import annotations

from ..bytecode import Instruction
from ..typed import Frame
from ..variables.base import NULL
from .table import Handler, handler

TABLE: dict[str, Handler] = {
    **dict.fromkeys(("NOP", "RESUME", "CACHE", "PRECALL", "COPY_FREE_VARS", "NOT_TAKEN", "SETUP_ANNOTATIONS"), lambda f, i: None),
    **dict.fromkeys(("POP_TOP", "POP_ITER", "END_FOR"), lambda f, i: f.pop()),
    "PUSH_NULL": lambda f, i: f.push(NULL),
    "COPY": lambda f, i: f.push(f.stack[-i.arg]),
}


@handler(TABLE, "SWAP")
def swap(f: Frame, i: Instruction) -> None:
    f.stack[-1], f.stack[-i.arg] = f.stack[-i.arg], f.stack[-1]
