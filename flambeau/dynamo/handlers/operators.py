"""Arithmetic, comparison and subscripts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..bytecode import Instruction
from ..typed import Frame
from ..variables.base import NONE, ConstantVariable, Variable
from ..variables.sequences import SliceVariable
from .table import Handler, does, handler, pushes

TABLE: dict[str, Handler] = {}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "@": operator.matmul,
    "*": operator.mul, "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift,
    "-": operator.sub, "/": operator.truediv, "^": operator.xor,
    "+=": operator.iadd, "&=": operator.iand, "//=": operator.ifloordiv, "<<=": operator.ilshift,
    "@=": operator.imatmul, "*=": operator.imul, "%=": operator.imod, "|=": operator.ior, "**=": operator.ipow,
    ">>=": operator.irshift, "-=": operator.isub, "/=": operator.itruediv, "^=": operator.ixor,
}  # fmt: skip

NUMBERED = tuple(BINARY)
"""BINARY_OP's argument (opcode.h: NB_ADD ... NB_INPLACE_XOR)."""

SUBSCRIPT = len(NUMBERED)
"""The next one, of 3.14, is what BINARY_SUBSCR was."""

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

@handler(TABLE, "BINARY_OP")
def binary_op(f: Frame, i: Instruction) -> None:
    left, right = f.pop_many(2)
    if i.arg == SUBSCRIPT:
        f.push(f.tx.item(left, right))
    else:
        f.push(f.tx.binary(BINARY[NUMBERED[i.arg]], left, right))


@handler(TABLE, "COMPARE_OP")
def compare_op(f: Frame, i: Instruction) -> None:
    left, right = f.pop_many(2)
    f.push(f.tx.compare(COMPARE[i.argval.removeprefix("bool(").removesuffix(")")], left, right))


@handler(TABLE, "IS_OP")
def is_op(f: Frame, i: Instruction) -> None:
    left, right = f.pop_many(2)
    f.push(ConstantVariable(f.tx.is_same(left, right) is not bool(i.arg)))


@handler(TABLE, "CONTAINS_OP")
def contains_op(f: Frame, i: Instruction) -> None:
    item, container = f.pop_many(2)
    f.push(ConstantVariable(container.contains(f.tx, item) is not bool(i.arg)))


def _slice(start: Variable, stop: Variable) -> Variable:
    return SliceVariable(start, stop, NONE)


TABLE.update({
    "UNARY_NEGATIVE": pushes(1, lambda tx, value: tx.unary(operator.neg, value)),
    "UNARY_POSITIVE": pushes(1, lambda tx, value: tx.unary(operator.pos, value)),
    "UNARY_INVERT": pushes(1, lambda tx, value: tx.unary(operator.invert, value)),
    "UNARY_NOT": pushes(1, lambda tx, value: tx.logical_not(value)),
    "BINARY_SUBSCR": pushes(2, lambda tx, owner, key: tx.item(owner, key)),
    "BINARY_SLICE": pushes(3, lambda tx, owner, start, stop: tx.item(owner, _slice(start, stop))),
    "STORE_SUBSCR": does(3, lambda tx, value, owner, key: owner.set_item(tx, key, value)),
    "STORE_SLICE": does(4, lambda tx, value, owner, start, stop: owner.set_item(tx, _slice(start, stop), value)),
    "DELETE_SUBSCR": does(2, lambda tx, owner, key: owner.del_item(tx, key)),
})  # fmt: skip
