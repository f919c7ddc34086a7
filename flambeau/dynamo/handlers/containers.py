"""Building, unpacking and updating containers; f-strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bytecode import Instruction
from ..typed import Frame
from ..variables.base import NONE, ConstantVariable, Variable
from ..variables.sequences import ListVariable, SliceVariable, TupleVariable
from .table import Handler, handler, pushes

ADDING = {"LIST_APPEND": "append", "SET_ADD": "add", "LIST_EXTEND": "extend", "SET_UPDATE": "update", "DICT_UPDATE": "update"}
"""Instructions that add the operand to a container further down on the stack: the method that they are."""


BUILDS: dict[str, Callable[[Any, list[Variable]], Variable]] = {
    "BUILD_TUPLE": lambda tx, items: TupleVariable(items),
    "BUILD_LIST": lambda tx, items: ListVariable(items),
    "BUILD_SET": lambda tx, items: tx.call(tx.class_variable(set), [TupleVariable(items)], {}),
    "BUILD_SLICE": lambda tx, parts: SliceVariable(parts[0], parts[1], parts[2] if len(parts) > 2 else NONE),
    "BUILD_STRING": lambda tx, parts: tx.concatenate(parts),
}
"""Instructions that make one value of the uppermost ones."""

_CONVERSIONS = {0: None, 1: str, 2: repr, 3: ascii}
_SEQUENCE, _MAPPING = 1 << 5, 1 << 6
"""Py_TPFLAGS_SEQUENCE and Py_TPFLAGS_MAPPING: what patterns take for a sequence or mapping."""


def list_to_tuple(f: Frame) -> None:
    """The list on top becomes a tuple."""
    f.push(TupleVariable(list(f.tx.iterate(f.pop()))))


TABLE: dict[str, Handler] = {
    **dict.fromkeys(BUILDS, lambda f, i: f.push(BUILDS[i.opname](f.tx, f.pop_many(i.arg)))),
    "LIST_TO_TUPLE": lambda f, i: list_to_tuple(f),
    # f-strings
    "CONVERT_VALUE": lambda f, i: f.push(f.tx.format(f.pop(), _CONVERSIONS[i.arg], ConstantVariable(""))),
    "FORMAT_SIMPLE": pushes(1, lambda tx, value: tx.format(value, None, ConstantVariable(""))),
    "FORMAT_WITH_SPEC": pushes(2, lambda tx, value, spec: tx.format(value, None, spec)),
    # pattern matching
    "GET_LEN": lambda f, i: f.push(f.stack[-1].length(f.tx)),
    "MATCH_SEQUENCE": lambda f, i: f.push(ConstantVariable(_has_flag(f.stack[-1], _SEQUENCE))),
    "MATCH_MAPPING": lambda f, i: f.push(ConstantVariable(_has_flag(f.stack[-1], _MAPPING))),
}


@handler(TABLE, "BUILD_MAP")
def build_map(f: Frame, i: Instruction) -> None:
    flat = f.pop_many(2 * i.arg)
    f.push(f.tx.make_dict(dict(zip(flat[::2], flat[1::2], strict=True))))


@handler(TABLE, "BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, i: Instruction) -> None:
    keys = f.pop().as_constant()
    values = f.pop_many(i.arg)
    f.push(f.tx.make_dict({ConstantVariable(k): v for k, v in zip(keys, values, strict=True)}))


REFUSED = {
    "LIST_EXTEND": ("__iter__", "Value after * must be an iterable, not {}"), "DICT_UPDATE": ("keys", "'{}' object is not a mapping"),
}  # fmt: skip
"""What a starred value has to have, and what is said of one that hasn't."""


@handler(TABLE, *ADDING)
def add(f: Frame, i: Instruction) -> None:
    value = f.pop()
    needed, message = REFUSED.get(i.opname, ("", ""))
    if needed and not any(hasattr(value.python_type(), name) for name in (needed, "__getitem__")):
        f.tx.raise_(TypeError, message.format(value.python_type().__name__))
    f.stack[-i.arg].method(f.tx, ADDING[i.opname], [value], {})


@handler(TABLE, "MAP_ADD")
def map_add(f: Frame, i: Instruction) -> None:
    key, value = f.pop_many(2)
    f.stack[-i.arg].set_item(f.tx, key, value)


@handler(TABLE, "DICT_MERGE")
def dict_merge(f: Frame, i: Instruction) -> None:
    """`f(**a, **b)`: repeated keys are an error."""
    values = f.pop()
    target = f.stack[-i.arg]
    for key in f.tx.iterate(values):
        if target.contains(f.tx, key):
            f.tx.raise_(TypeError, f"got multiple values for keyword argument {key.describe()}")
        target.set_item(f.tx, key, f.tx.item(values, key))


@handler(TABLE, "UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, i: Instruction) -> None:
    items = f.tx.unpack(f.pop(), i.arg)
    for item in reversed(items):
        f.push(item)


@handler(TABLE, "UNPACK_EX")
def unpack_ex(f: Frame, i: Instruction) -> None:
    before, after = i.arg & 0xFF, i.arg >> 8
    items = list(f.tx.iterate(f.pop()))
    if len(items) < before + after:
        f.tx.raise_(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle: Variable = ListVariable(items[before : len(items) - after])
    for item in reversed([*items[:before], middle, *items[len(items) - after :]]):
        f.push(item)


# -- f-strings ---------------------------------------------------------------------------------------------------------------
@handler(TABLE, "FORMAT_VALUE")
def format_value(f: Frame, i: Instruction) -> None:
    spec = f.pop() if i.arg & 4 else ConstantVariable("")
    f.push(f.tx.format(f.pop(), _CONVERSIONS[i.arg & 3], spec))


# -- pattern matching --------------------------------------------------------------------------------------------------------
def _has_flag(variable: Variable, flag: int) -> bool:
    return bool(variable.python_type().__flags__ & flag)


@handler(TABLE, "MATCH_KEYS")
def match_keys(f: Frame, i: Instruction) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    wanted = list(f.tx.iterate(keys))
    if all(subject.contains(f.tx, key) for key in wanted):
        f.push(TupleVariable([subject.item(f.tx, key) for key in wanted]))
    else:
        f.push(NONE)


@handler(TABLE, "MATCH_CLASS")
def match_class(f: Frame, i: Instruction) -> None:
    subject, cls, names = f.pop_many(3)
    if not f.tx.is_instance(subject, cls):
        f.push(NONE)
        return
    found = _fields_of(f.tx, subject, cls.as_constant(), i.arg, names.as_constant())
    f.push(NONE if found is None else TupleVariable(found))


_SELF_MATCHING = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, bytearray)


def _fields_of(tx: Any, subject: Variable, kind: type, count: int, names: tuple[str, ...]) -> list[Variable] | None:
    """What a class pattern with `count` positional patterns looks at, or None if the subject lacks an attribute."""
    found: list[Variable | None] = []
    positional: tuple[str, ...] = getattr(kind, "__match_args__", ())
    if count and not positional and issubclass(kind, _SELF_MATCHING):
        found, count = [subject], count - 1
    if count > len(positional):
        allowed = len(positional) + len(found)
        tx.raise_(TypeError, f"{kind.__name__}() accepts {allowed} positional sub-pattern{'s' * (allowed != 1)} "
                  f"({count + len(found)} given)")  # fmt: skip
    found += [subject.attr_or_none(tx, name) for name in (*positional[:count], *names)]
    present = [value.realize(tx) for value in found if value is not None]
    return present if len(present) == len(found) else None
