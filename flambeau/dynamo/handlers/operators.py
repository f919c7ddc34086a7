"""Arithmetic, comparison and subscripts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..bytecode import Instruction
from ..variables.base import ConstantVariable
from ..variables.sequences import SliceVariable
from .table import Handler, handler

if TYPE_CHECKING:
    from ..frame import Frame

TABLE: dict[str, Handler] = {}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "@": operator.matmul,
    "*": operator.mul, "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift,
    "-": operator.sub, "/": operator.truediv, "^": operator.xor,
    "+=": operator.iadd, "&=": operator.iand, "//=": operator.ifloordiv, "<<=": operator.ilshift,
    "@=": operator.imatmul, "*=": operator.imul, "%=": operator.imod, "|=": operator.ior, "**=": operator.ipow,
    ">>=": operator.irshift, "-=": operator.isub, "/=": operator.itruediv, "^=": operator.ixor,
}  # fmt: skip

NUMBERED = (
    "+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^",
    "+=", "&=", "//=", "<<=", "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^=",
)  # fmt: skip
"""BINARY_OP's argument (opcode.h: NB_ADD ... NB_INPLACE_XOR)."""

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

UNARY: dict[str, Callable[[Any], Any]] = {
    "UNARY_NEGATIVE": operator.neg, "UNARY_POSITIVE": operator.pos, "UNARY_INVERT": operator.invert,
}  # fmt: skip


@handler(TABLE, "BINARY_OP")
def binary_op(f: Frame, i: Instruction) -> None:
    left, right = f.pop_many(2)
    f.push(f.tx.binary(BINARY[NUMBERED[i.arg]], left, right))


@handler(TABLE, *UNARY)
def unary(f: Frame, i: Instruction) -> None:
    f.push(f.tx.unary(UNARY[i.opname], f.pop()))


@handler(TABLE, "UNARY_NOT")
def unary_not(f: Frame, i: Instruction) -> None:
    f.push(f.tx.logical_not(f.pop()))


@handler(TABLE, "TO_BOOL")
def to_bool(f: Frame, i: Instruction) -> None:
    f.push(ConstantVariable(f.tx.truth(f.pop())))


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


@handler(TABLE, "BINARY_SUBSCR")
def binary_subscr(f: Frame, i: Instruction) -> None:
    container, key = f.pop_many(2)
    f.push(f.tx.item(container, key))


@handler(TABLE, "STORE_SUBSCR")
def store_subscr(f: Frame, i: Instruction) -> None:
    value, container, key = f.pop_many(3)
    container.set_item(f.tx, key, value)


@handler(TABLE, "DELETE_SUBSCR")
def delete_subscr(f: Frame, i: Instruction) -> None:
    container, key = f.pop_many(2)
    container.del_item(f.tx, key)


@handler(TABLE, "BINARY_SLICE")
def binary_slice(f: Frame, i: Instruction) -> None:
    container, start, stop = f.pop_many(3)
    f.push(f.tx.item(container, SliceVariable(start, stop, ConstantVariable(None))))


@handler(TABLE, "STORE_SLICE")
def store_slice(f: Frame, i: Instruction) -> None:
    value, container, start, stop = f.pop_many(4)
    container.set_item(f.tx, SliceVariable(start, stop, ConstantVariable(None)), value)
