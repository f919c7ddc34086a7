"""Constants, locals, globals, closure variables, imports."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from typing import Any

from ..break_kinds import graph_break
from ..bytecode import COMMON, PY313, Instruction
from ..typed import Frame
from ..variables.base import NONE, NULL, Variable
from ..variables.functions import CellVariable, NestedFunction
from .table import Handler, handler

TABLE: dict[str, Handler] = {
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT"), lambda f, i: f.push(f.tx.literal(i.argval))),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK"), lambda f, i: _load_fast(f, i.argval)),
    "LOAD_FAST_AND_CLEAR": lambda f, i: f.push(f.cells.pop(i.argval) if i.argval in f.cells else f.locals.pop(i.argval, NULL)),
    "LOAD_CLOSURE": lambda f, i: f.push(f.cells[i.argval]),
    "LOAD_DEREF": lambda f, i: f.push(f.cells[i.argval].load(f.tx, i.argval)),
    "STORE_DEREF": lambda f, i: f.cells[i.argval].store(f.tx, f.pop()),
    "LOAD_ASSERTION_ERROR": lambda f, i: f.push(f.tx.literal(AssertionError)),
    "LOAD_COMMON_CONSTANT": lambda f, i: f.push(f.tx.trusted(COMMON[i.arg])),
    "LOAD_BUILD_CLASS": lambda f, i: f.push(f.tx.trusted(builtins.__build_class__)),
    "IMPORT_FROM": lambda f, i: f.push(f.stack[-1].attr(f.tx, i.argval)),
    "RETURN_GENERATOR": lambda f, i: f.push(NONE),  # the caller made the generator already (Trace.inline); 3.11 drops what this pushes
}


@handler(TABLE, "RETURN_CONST")
def return_const(f: Frame, i: Instruction) -> None:
    f.returned = f.tx.literal(i.argval)


@handler(TABLE, "RETURN_VALUE")
def return_value(f: Frame, i: Instruction) -> None:
    f.returned = f.pop()


def _load_fast(f: Frame, name: str) -> None:
    if PY313 and name in f.cells:  # there is no LOAD_CLOSURE any more
        f.push(f.cells[name])
        return
    f.locals[name] = value = _bound(f, name).realize(f.tx)
    f.push(value)


def _bound(f: Frame, name: str) -> Variable:
    if name not in f.locals:
        f.tx.raise_(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")
    return f.locals[name]


@handler(TABLE, "LOAD_FAST_LOAD_FAST")
def load_fast_load_fast(f: Frame, i: Instruction) -> None:
    for name in i.argval:
        _load_fast(f, name)


@handler(TABLE, "STORE_FAST_LOAD_FAST")
def store_fast_load_fast(f: Frame, i: Instruction) -> None:
    f.locals[i.argval[0]] = f.pop()
    _load_fast(f, i.argval[1])


@handler(TABLE, "STORE_FAST_STORE_FAST")
def store_fast_store_fast(f: Frame, i: Instruction) -> None:
    for name in i.argval:
        f.locals[name] = f.pop()


@handler(TABLE, "STORE_FAST")
def store_fast(f: Frame, i: Instruction) -> None:
    """A name has one place for a value or a cell; comprehensions of 3.12 put it back as they found it."""
    value = f.pop()
    f.cells.pop(i.argval, None)
    if isinstance(value, CellVariable) and i.argval in (*f.code.co_cellvars, *f.code.co_freevars):
        f.cells[i.argval] = value
    elif value is NULL:
        f.locals.pop(i.argval, None)
    else:
        f.locals[i.argval] = value


@handler(TABLE, "DELETE_FAST")
def delete_fast(f: Frame, i: Instruction) -> None:
    _bound(f, i.argval)
    del f.locals[i.argval]


@handler(TABLE, "MAKE_CELL")
def make_cell(f: Frame, i: Instruction) -> None:
    f.cells[i.argval] = CellVariable(f.locals.pop(i.argval, None))


@handler(TABLE, "DELETE_DEREF")
def delete_deref(f: Frame, i: Instruction) -> None:
    f.cells[i.argval].load(f.tx, i.argval)
    f.cells[i.argval].store(f.tx, None)


@handler(TABLE, "LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction) -> None:
    if not PY313 and i.arg & 1:
        f.push(NULL)
    f.push(f.load_global(i.argval))
    if PY313 and i.arg & 1:
        f.push(NULL)


@handler(TABLE, "STORE_GLOBAL")
def store_global(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.tx.note_write(f.globals, i.argval, value)
    f.tx.effects.set_global(f.globals, i.argval, value)


@handler(TABLE, "DELETE_GLOBAL")
def delete_global(f: Frame, i: Instruction) -> None:
    if f.tx.effects.globals_of(f.globals).get(i.argval, f.globals.get(i.argval)) is None and f.globals.get(i.argval, f) is not None:
        f.tx.raise_(NameError, f"name '{i.argval}' is not defined")
    f.load_global(i.argval)  # guards that it is there
    f.tx.effects.set_global(f.globals, i.argval, None)


_IMPORT = builtins.__import__


def _load_own(name: str) -> bool:
    """Import a module of Flambeau, under whatever name it goes by: that has no effect that a program could see."""
    top = name.partition(".")[0]
    if sys.modules.get(top) is not sys.modules[__name__.partition(".")[0]] or importlib.util.find_spec(name) is None:
        return False
    importlib.import_module(name)
    return True


# -- imports -----------------------------------------------------------------------------------------------------------------
@handler(TABLE, "IMPORT_NAME")
def import_name(f: Frame, i: Instruction) -> None:
    depth, wanted = (value.as_constant() for value in f.pop_many(2))
    package = f.globals.get("__package__") or f.globals.get("__name__", "")
    full = importlib.util.resolve_name("." * depth + i.argval, package) if depth else i.argval
    if builtins.__import__ is not _IMPORT:
        graph_break("call of C function", f"import of {full} by another builtins.__import__")
    f.tx.surroundings.note_global(vars(builtins), "__import__", _IMPORT)
    if sys.modules.get(full) is None and not _load_own(full):
        graph_break("call of C function", f"import of {full}, which isn't loaded yet")
    whole = wanted or depth or "." not in full
    for name in {full} if whole else {full, full.partition(".")[0]}:
        f.tx.surroundings.note(sys.modules, name, "same", sys.modules[name])
    f.push(f.tx.trusted(sys.modules[full if whole else full.partition(".")[0]]))


# -- functions ---------------------------------------------------------------------------------------------------------------
PARTS = {0x10: "annotate", 0x08: "cells", 0x04: "annotations", 0x02: "keyword_defaults", 0x01: "defaults"}
"""What a flag of MAKE_FUNCTION says to be on the stack, the uppermost first."""


def _equip(function: NestedFunction, flag: int, value: Any) -> None:
    setattr(function, PARTS[flag], [cell for cell in value.items if isinstance(cell, CellVariable)] if flag == 0x08 else value)


@handler(TABLE, "MAKE_FUNCTION")
def make_function(f: Frame, i: Instruction) -> None:
    function = NestedFunction(f.pop().as_constant(), f.globals, f.globals_source)
    for flag in PARTS:
        if i.arg & flag:
            _equip(function, flag, f.pop())
    f.push(function)


@handler(TABLE, "SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(f: Frame, i: Instruction) -> None:
    function: Any = f.pop()
    _equip(function, i.arg, f.pop())
    f.push(function)


# -- generators --------------------------------------------------------------------------------------------------------------
@handler(TABLE, "YIELD_VALUE")
def yield_value(f: Frame, i: Instruction) -> None:
    f.yielded = f.pop()
