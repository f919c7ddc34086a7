"""`copy.copy` and `copy.deepcopy` of containers and of instances of plain Python classes."""

from __future__ import annotations

import copy
import types

from ..break_kinds import graph_break
from ..typed import Trace
from .base import Variable
from .builtins import handles
from .dicts import DictVariable, SetVariable
from .nn_module import ModuleObjectVariable
from .objects import InstanceDict, ObjectVariable
from .sequences import ListVariable, TupleVariable
from .tensor import TensorVariable

Memo = dict[int, Variable]


@handles(copy.copy)
def _copy(tx: Trace, value: Variable) -> Variable:
    if isinstance(value, ObjectVariable):
        own = tx.lookup(value.cls, "__copy__")
        if isinstance(own, types.FunctionType):
            return tx.call(tx.trusted(own), [value], {})
        return _copy_object(tx, value, None)
    if isinstance(value, (ListVariable, DictVariable, SetVariable)):
        return value.method(tx, "copy", [], {})
    if isinstance(value, TensorVariable):
        graph_break("unknown operation", "copy.copy of a tensor")
    return value


@handles(copy.deepcopy)
def _deepcopy(tx: Trace, value: Variable, memo: Variable | None = None) -> Variable:
    return deep(tx, value, {})


def deep(tx: Trace, value: Variable, memo: Memo) -> Variable:
    """A deep copy; what is shared stays shared."""
    value = value.realize(tx)
    if id(value) in memo:
        return memo[id(value)]
    made: Variable
    if isinstance(value, TensorVariable):
        graph_break("unknown operation", "copy.deepcopy of a tensor")
    if isinstance(value, ObjectVariable):
        own = tx.lookup(value.cls, "__deepcopy__")
        if isinstance(own, types.FunctionType):
            graph_break("unknown operation", f"copy.deepcopy of a {value.cls.__name__}, which has its own __deepcopy__")
        return _copy_object(tx, value, memo)
    if isinstance(value, ListVariable):
        made = memo[id(value)] = value.like([])
        made.items.extend(deep(tx, item, memo) for item in tx.iterate(value))
        return made
    if isinstance(value, DictVariable):
        made = DictVariable({}, value.kind, default_factory=value.default_factory)
        memo[id(value)] = made
        for key, item in zip(list(value.iterate(tx)), value.values_of(tx), strict=True):
            made.set_item(tx, key, deep(tx, item, memo))
        return made
    if isinstance(value, SetVariable):
        return value.method(tx, "copy", [], {})
    if type(value) is TupleVariable:
        return TupleVariable([deep(tx, item, memo) for item in tx.iterate(value)])
    return value


def _copy_object(tx: Trace, value: ObjectVariable, memo: Memo | None) -> Variable:
    """A new object of the class with the same attributes (copied deeply with a memo)."""
    cls = value.cls
    protocol = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
    custom = any(isinstance(tx.lookup(cls, name), types.FunctionType) for name in protocol)
    if custom or value.container is not None or isinstance(value, ModuleObjectVariable) or hasattr(cls, "__slots__"):
        graph_break("unknown operation", f"copy of a {cls.__name__}")
    made = tx.object_variable(cls, None)
    if memo is not None:
        memo[id(value)] = made
    attributes = InstanceDict(value)
    names = list(attributes.open(tx))
    for name, item in zip(names, attributes.values_of(tx), strict=True):
        made.written[name] = item if memo is None else deep(tx, item, memo)
    return made
