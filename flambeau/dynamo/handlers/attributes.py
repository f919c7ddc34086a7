"""Attributes."""

from __future__ import annotations

from ..bytecode import PY312, PY313, Instruction
from ..typed import Frame
from ..variables.base import NULL
from ..variables.objects import SuperVariable
from .table import Handler, handler

TABLE: dict[str, Handler] = {"DELETE_ATTR": lambda f, i: f.pop().del_attr(f.tx, i.argval)}


def _push_method(f: Frame, name: str) -> None:
    """The callable and the slot that CALL pops with it; binding is left to the variable."""
    owner = f.pop()
    bound = f.tx.attr(owner, name)
    if PY313:
        f.push(bound)
        f.push(NULL)
    else:
        f.push(NULL)
        f.push(bound)


@handler(TABLE, "LOAD_ATTR", "LOAD_METHOD")
def load_attr(f: Frame, i: Instruction) -> None:
    if i.opname == "LOAD_METHOD" or (PY312 and i.arg & 1):
        _push_method(f, i.argval)
    else:
        f.push(f.tx.attr(f.pop(), i.argval))


@handler(TABLE, "LOAD_SUPER_ATTR")
def load_super_attr(f: Frame, i: Instruction) -> None:
    _, cls, owner = f.pop_many(3)
    f.push(SuperVariable(cls.as_constant(), owner))
    load_attr(f, i)


@handler(TABLE, "STORE_ATTR")
def store_attr(f: Frame, i: Instruction) -> None:
    value, owner = f.pop_many(2)
    owner.set_attr(f.tx, i.argval, value)
