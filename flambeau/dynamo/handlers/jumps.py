"""Jumps, branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..bytecode import PY312, Instruction, loop_exit
from ..variables.base import NONE, Variable, is_none
from ..variables.generators import GeneratorVariable
from .table import Handler, handler

if TYPE_CHECKING:
    from ..frame import Frame

TABLE: dict[str, Handler] = {}


def jump(f: Frame, i: Instruction) -> None:
    assert i.target is not None
    f.ip = i.target


handler(TABLE, "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP", "JUMP_NO_INTERRUPT")(jump)


def _jump_if(test: Callable[[Any, Variable], bool]) -> Handler:
    def handle(f: Frame, i: Instruction) -> None:
        if test(f.tx, f.pop()):
            jump(f, i)

    return handle


def _jump_or_pop(wanted: bool) -> Handler:
    def handle(f: Frame, i: Instruction) -> None:
        if f.tx.truth(f.stack[-1]) is wanted:
            jump(f, i)
        else:
            f.pop()

    return handle


TESTS: dict[str, Callable[[Any, Variable], bool]] = {
    "TRUE": lambda tx, value: tx.truth(value), "FALSE": lambda tx, value: not tx.truth(value),
    "NONE": lambda tx, value: is_none(value), "NOT_NONE": lambda tx, value: not is_none(value),
}  # fmt: skip
for _name, _test in TESTS.items():
    handler(TABLE, *(f"POP_JUMP_{way}IF_{_name}" for way in ("", "FORWARD_", "BACKWARD_")))(_jump_if(_test))
handler(TABLE, "JUMP_IF_TRUE_OR_POP")(_jump_or_pop(True))
handler(TABLE, "JUMP_IF_FALSE_OR_POP")(_jump_or_pop(False))


@handler(TABLE, "GET_ITER", "GET_YIELD_FROM_ITER")
def get_iter(f: Frame, i: Instruction) -> None:
    f.push(f.tx.iterator(f.pop()))


@handler(TABLE, "FOR_ITER")
def for_iter(f: Frame, i: Instruction) -> None:
    element = f.tx.next_or_none(f.stack[-1])
    if element is not None:
        f.push(element)
        return
    f.pop()
    f.ip = loop_exit(f.program, f.current)


@handler(TABLE, "SEND")
def send(f: Frame, i: Instruction) -> None:
    """`yield from`: pass elements through until the inner iterator ends."""
    value = f.pop()
    inner = f.stack[-1]
    if isinstance(inner, GeneratorVariable):
        produced = inner.send(f.tx, value)
        result: Variable = inner.result()
    else:
        produced, result = f.tx.next_or_none(inner), NONE
    if produced is not None:
        f.push(produced)
        return
    if not PY312:
        f.pop()
    f.push(result)
    jump(f, i)


@handler(TABLE, "END_SEND")
def end_send(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.pop()
    f.push(value)
