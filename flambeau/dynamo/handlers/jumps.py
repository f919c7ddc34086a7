"""Jumps, branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bytecode import PY312, DecodedCode, Instruction, loop_exit, only_raises
from ..typed import Frame
from ..variables.base import NONE, ConstantVariable, Variable, is_none
from ..variables.generators import GeneratorVariable
from .table import Handler, handler

TABLE: dict[str, Handler] = dict.fromkeys(("GET_ITER", "GET_YIELD_FROM_ITER"), lambda f, i: f.push(f.tx.iterator(f.pop())))


def jump(f: Frame, i: Instruction) -> None:
    assert i.target is not None
    f.ip = i.target


handler(TABLE, "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP", "JUMP_NO_INTERRUPT")(jump)


def _jump_if(test: Callable[[Any, Variable], bool]) -> Handler:
    def handle(f: Frame, i: Instruction) -> None:
        if test(f.tx, f.pop()):
            jump(f, i)

    return handle


def _jump_if_truth(wanted: bool) -> Handler:
    def handle(f: Frame, i: Instruction) -> None:
        if _truth(f, f.pop(), f.current) is wanted:
            jump(f, i)

    return handle


def _truth(f: Frame, value: Variable, index: int) -> bool:
    """The truth value that the jump at `index` asks for. A tensor that leads one way to nothing but a `raise`, as in an assertion, is
    presumed to lead the other way."""
    value = value.realize(f.tx)
    if f.tx.may_presume(value):
        ahead, away = index + 1, f.program.instructions[index].target
        if away is not None and (fine := _fine_way(f.program, ahead, away)) is not None:
            truth = f.program.instructions[index].opname.endswith("TRUE") is (fine == away)
            f.tx.presume(value, truth)
            return truth
    return f.tx.truth(value)


def _fine_way(program: DecodedCode, a: int, b: int) -> int | None:
    """Of two ways that a branch may take, the one that doesn't merely raise."""
    return b if only_raises(program, a, b) else a if only_raises(program, b, a) else None


def _jump_or_pop(wanted: bool) -> Handler:
    def handle(f: Frame, i: Instruction) -> None:
        if f.tx.truth(f.stack[-1]) is wanted:
            jump(f, i)
        else:
            f.pop()

    return handle


TESTS: dict[str, Callable[[Any, Variable], bool]] = {
    "NONE": lambda tx, value: is_none(value), "NOT_NONE": lambda tx, value: not is_none(value),
}  # fmt: skip
for _way in ("", "FORWARD_", "BACKWARD_"):
    for _name, _test in TESTS.items():
        handler(TABLE, f"POP_JUMP_{_way}IF_{_name}")(_jump_if(_test))
    handler(TABLE, f"POP_JUMP_{_way}IF_TRUE")(_jump_if_truth(True))
    handler(TABLE, f"POP_JUMP_{_way}IF_FALSE")(_jump_if_truth(False))
handler(TABLE, "JUMP_IF_TRUE_OR_POP")(_jump_or_pop(True))
handler(TABLE, "JUMP_IF_FALSE_OR_POP")(_jump_or_pop(False))


@handler(TABLE, "TO_BOOL")
def to_bool(f: Frame, i: Instruction) -> None:
    """From 3.13 on, before a jump that wants a bool."""
    jumps = f.program.instructions[f.ip].opname.endswith(("IF_TRUE", "IF_FALSE"))
    value = f.pop()
    f.push(ConstantVariable(_truth(f, value, f.ip) if jumps else f.tx.truth(value)))


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
