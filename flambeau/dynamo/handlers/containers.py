"""Building, unpacking and updating containers; f-strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bytecode import Instruction
from ..variables.base import ConstantVariable, Variable
from ..variables.dicts import DictVariable, SetVariable
from ..variables.sequences import ListVariable, SliceVariable, TupleVariable
from .table import Handler, handler

if TYPE_CHECKING:
    from ..frame import Frame

TABLE: dict[str, Handler] = {}


@handler(TABLE, "BUILD_TUPLE")
def build_tuple(f: Frame, i: Instruction) -> None:
    f.push(TupleVariable(f.pop_many(i.arg)))


@handler(TABLE, "BUILD_LIST")
def build_list(f: Frame, i: Instruction) -> None:
    f.push(ListVariable(f.pop_many(i.arg)))


@handler(TABLE, "BUILD_SET")
def build_set(f: Frame, i: Instruction) -> None:
    made = SetVariable()
    for item in f.pop_many(i.arg):
        made.items.setdefault(f.tx.hashable(item), item)
    f.push(made)


@handler(TABLE, "BUILD_MAP")
def build_map(f: Frame, i: Instruction) -> None:
    flat = f.pop_many(2 * i.arg)
    f.push(f.tx.make_dict(dict(zip(flat[::2], flat[1::2], strict=True))))


@handler(TABLE, "BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, i: Instruction) -> None:
    keys = f.pop().as_constant()
    values = f.pop_many(i.arg)
    f.push(f.tx.make_dict({ConstantVariable(k): v for k, v in zip(keys, values, strict=True)}))


@handler(TABLE, "BUILD_SLICE")
def build_slice(f: Frame, i: Instruction) -> None:
    parts = f.pop_many(i.arg)
    start, stop, step = [*parts, ConstantVariable(None)][:3]
    f.push(SliceVariable(start, stop, step))


@handler(TABLE, "LIST_TO_TUPLE")
def list_to_tuple(f: Frame, i: Instruction) -> None:
    f.push(TupleVariable(list(f.tx.iterate(f.pop()))))


@handler(TABLE, "LIST_APPEND")
def list_append(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.stack[-i.arg].method(f.tx, "append", [value], {})


@handler(TABLE, "SET_ADD")
def set_add(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.stack[-i.arg].method(f.tx, "add", [value], {})


@handler(TABLE, "MAP_ADD")
def map_add(f: Frame, i: Instruction) -> None:
    key, value = f.pop_many(2)
    f.stack[-i.arg].set_item(f.tx, key, value)


@handler(TABLE, "LIST_EXTEND")
def list_extend(f: Frame, i: Instruction) -> None:
    values = f.pop()
    f.stack[-i.arg].method(f.tx, "extend", [values], {})


@handler(TABLE, "SET_UPDATE", "DICT_UPDATE")
def update(f: Frame, i: Instruction) -> None:
    values = f.pop()
    f.stack[-i.arg].method(f.tx, "update", [values], {})


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
_CONVERSIONS = {0: None, 1: str, 2: repr, 3: ascii}


@handler(TABLE, "FORMAT_VALUE")
def format_value(f: Frame, i: Instruction) -> None:
    spec = f.pop() if i.arg & 4 else ConstantVariable("")
    f.push(f.tx.format(f.pop(), _CONVERSIONS[i.arg & 3], spec))


@handler(TABLE, "CONVERT_VALUE")
def convert_value(f: Frame, i: Instruction) -> None:
    f.push(f.tx.format(f.pop(), _CONVERSIONS[i.arg], ConstantVariable("")))


@handler(TABLE, "FORMAT_SIMPLE")
def format_simple(f: Frame, i: Instruction) -> None:
    f.push(f.tx.format(f.pop(), None, ConstantVariable("")))


@handler(TABLE, "FORMAT_WITH_SPEC")
def format_with_spec(f: Frame, i: Instruction) -> None:
    value, spec = f.pop_many(2)
    f.push(f.tx.format(value, None, spec))


@handler(TABLE, "BUILD_STRING")
def build_string(f: Frame, i: Instruction) -> None:
    f.push(f.tx.concatenate(f.pop_many(i.arg)))


# -- pattern matching --------------------------------------------------------------------------------------------------------
@handler(TABLE, "GET_LEN")
def get_len(f: Frame, i: Instruction) -> None:
    f.push(f.tx.length(f.stack[-1]))


@handler(TABLE, "MATCH_SEQUENCE")
def match_sequence(f: Frame, i: Instruction) -> None:
    f.push(ConstantVariable(isinstance(f.stack[-1], (TupleVariable, ListVariable))))


@handler(TABLE, "MATCH_MAPPING")
def match_mapping(f: Frame, i: Instruction) -> None:
    f.push(ConstantVariable(isinstance(f.stack[-1], DictVariable)))


@handler(TABLE, "MATCH_KEYS")
def match_keys(f: Frame, i: Instruction) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    wanted = list(f.tx.iterate(keys))
    if all(subject.contains(f.tx, key) for key in wanted):
        f.push(TupleVariable([subject.item(f.tx, key) for key in wanted]))
    else:
        f.push(ConstantVariable(None))


@handler(TABLE, "MATCH_CLASS")
def match_class(f: Frame, i: Instruction) -> None:
    subject, cls, names = f.pop_many(3)
    if not f.tx.is_instance(subject, cls):
        f.push(ConstantVariable(None))
        return
    fields = list(names.as_constant())
    kind = cls.as_constant()
    positional = list(getattr(kind, "__match_args__", ()))[: i.arg]
    if i.arg and kind in (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, bytearray):
        f.push(TupleVariable([subject]))
        return
    f.push(TupleVariable([subject.attr(f.tx, name) for name in positional + fields]))
