"""Calls."""

from __future__ import annotations

import operator

from ..break_kinds import graph_break
from ..bytecode import PY313, PY314, Instruction
from ..typed import Frame
from ..variables.base import NULL, Args, Kwargs, Variable
from ..variables.dicts import DictVariable
from .containers import list_to_tuple
from .table import Handler, handler

TABLE: dict[str, Handler] = {}


@handler(TABLE, "KW_NAMES")
def kw_names(f: Frame, i: Instruction) -> None:
    f.keyword_names = i.argval if isinstance(i.argval, tuple) else f.code.co_consts[i.arg]


def take_call(f: Frame, i: Instruction) -> tuple[Variable, Args, Kwargs]:
    """Pop callable and arguments of CALL, CALL_KW and CALL_FUNCTION_EX."""
    if i.opname == "CALL_FUNCTION_EX":
        return _take_star_call(f, i)
    names = f.keyword_names
    f.keyword_names = ()
    if i.opname == "CALL_KW":
        names = f.pop().as_constant()
    args = f.pop_many(i.arg)
    first, second = f.pop_many(2)
    # (NULL, callable), or a callable with the object that it is bound to; since 3.13 the callable is always the first
    if first is NULL:
        function = second
    elif second is NULL:
        function = first
    else:
        function, args = first, [second, *args]
    count = len(args) - len(names)
    return function, args[:count], dict(zip(names, args[count:], strict=True))


def _take_star_call(f: Frame, i: Instruction) -> tuple[Variable, Args, Kwargs]:
    keywords = f.pop() if PY314 or i.arg & 1 else None
    positional = f.pop()
    first, second = f.pop_many(2)
    function = first if PY313 else second
    kwargs: Kwargs = {}
    if keywords is not None and keywords is not NULL:
        if isinstance(keywords, DictVariable):
            keys = list(keywords.open(f.tx))
            kwargs = dict(zip(keys, keywords.values_of(f.tx), strict=True))
        else:
            kwargs = {key.as_constant(): f.tx.item(keywords, key) for key in f.tx.iterate(keywords)}
    return function, list(f.tx.iterate(positional)), kwargs


@handler(TABLE, "CALL", "CALL_KW", "CALL_FUNCTION_EX")
def call(f: Frame, i: Instruction) -> None:
    function, args, kwargs = take_call(f, i)
    f.push(f.tx.call(function, args, kwargs))


@handler(TABLE, "CALL_INTRINSIC_1")
def call_intrinsic_1(f: Frame, i: Instruction) -> None:
    """3.12: 3 is StopIteration inside a generator, 5 unary plus, 6 list to tuple."""
    match i.arg:
        case 3:
            pass
        case 5:
            f.push(f.tx.unary(operator.pos, f.pop()))
        case 6:
            list_to_tuple(f)
        case _:
            graph_break("unsupported instruction", f"CALL_INTRINSIC_1 {i.arg}")
