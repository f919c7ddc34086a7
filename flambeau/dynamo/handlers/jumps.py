"""Jumps, branches and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bytecode import PY312, Instruction, loop_exit
from ..variables.base import ConstantVariable, Variable
from ..variables.objects import GeneratorVariable
from .table import Handler, handler

if TYPE_CHECKING:
    from ..frame import Frame

TABLE: dict[str, Handler] = {}


def jump(f: Frame, i: Instruction) -> None:
    assert i.target is not None
    f.ip = i.target


handler(TABLE, "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP", "JUMP_NO_INTERRUPT")(jump)


@handler(TABLE, "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def pop_jump_if_true(f: Frame, i: Instruction) -> None:
    if f.tx.truth(f.pop()):
        jump(f, i)


@handler(TABLE, "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def pop_jump_if_false(f: Frame, i: Instruction) -> None:
    if not f.tx.truth(f.pop()):
        jump(f, i)


def is_none(variable: Variable) -> bool:
    return isinstance(variable, ConstantVariable) and variable.value is None


@handler(TABLE, "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE")
def pop_jump_if_none(f: Frame, i: Instruction) -> None:
    if is_none(f.pop()):
        jump(f, i)


@handler(TABLE, "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(f: Frame, i: Instruction) -> None:
    if not is_none(f.pop()):
        jump(f, i)


@handler(TABLE, "JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(f: Frame, i: Instruction) -> None:
    if f.tx.truth(f.stack[-1]):
        jump(f, i)
    else:
        f.pop()


@handler(TABLE, "JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(f: Frame, i: Instruction) -> None:
    if f.tx.truth(f.stack[-1]):
        f.pop()
    else:
        jump(f, i)


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
        produced, result = f.tx.next_or_none(inner), ConstantVariable(None)
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
