"""What an exported graph calls, by name: the table through which files refer to functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..core.symbolic import sym_float, sym_max, sym_min, sym_not
from ..dynamo.graph_builder import must_hold
from ..ops import aten
from ..ops.aten import AtenOperator, Overload
from ..ops.custom import CustomOperator, find
from ..ops.registry import COMPOSITES, OPERATORS, PRIMITIVES, CompositeRecord, Primitive
from .functions import OPERATORS as HIGHER_ORDER
from .record import set_grad_enabled

_PYTHON: dict[str, Callable] = {fn.__name__: fn for fn in (
    operator.getitem, operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.neg, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)}
_FUNCTIONS: dict[str, Callable] = {
    "sym_max": sym_max, "sym_min": sym_min, "sym_not": sym_not, "sym_float": sym_float, "set_grad_enabled": set_grad_enabled,
    "must_hold": must_hold,
    **HIGHER_ORDER}
_NAMES = {id(fn): f"python:{name}" for name, fn in _PYTHON.items()} | {id(fn): f"function:{name}" for name, fn in _FUNCTIONS.items()}


def name_or_none(target: Any) -> str | None:
    """The name of a function that graphs call, behind its kind; None of others."""
    if id(target) in _NAMES:
        return _NAMES[id(target)]
    if isinstance(target, Overload):
        return f"aten:{target.__name__}.{target._overloadname}"
    if isinstance(target, AtenOperator):
        return f"aten:{target.__name__}"
    if isinstance(target, CustomOperator):
        return f"custom:{target.qualname}"
    if isinstance(target, CompositeRecord):
        return f"whole:{target.name}"
    if isinstance(target, Primitive) and PRIMITIVES.get(target.name) is target:
        return f"primitive:{target.name}"
    info = getattr(target, "_operator", None)
    if info is not None and OPERATORS.get(info.name) is target:
        return f"operator:{info.name}"
    return None


def name_of(target: Any) -> str:
    """Likewise; NotImplementedError for others."""
    found = name_or_none(target)
    if found is None:
        raise NotImplementedError(f"the graph calls {target!r}, which cannot be saved; define it as an operator with torch.library.custom_op")
    return found


def find_target(name: Any) -> Any:
    """The function of this name; ValueError where there is none."""
    kind, _, rest = name.partition(":")
    record: Any = OPERATORS.get(rest.partition(".")[0]) if kind in ("aten", "operator") else None
    if record is not None and "from_data" in record._operator.tags:    # capture never writes them: what they give is a constant
        raise ValueError(f"the program calls {rest!r:.100}, which makes tensors of what lies outside of it, such as files")
    if kind == "aten":
        operator_name, _, overload = rest.partition(".")
        if not overload and not operator_name.startswith("_"):
            return getattr(aten, "__getattr__")(operator_name)    # noqa: B009
        schema = aten.schema_of(operator_name, overload)
        if schema is not None:
            return aten._overload(schema)
    elif kind == "custom":
        found = find(rest)
        if found is None:
            raise ValueError(f"the program calls the custom operator {rest}, which is not defined here; import what defines it first")
        return found
    tables: dict[str, Any] = {"python": _PYTHON, "function": _FUNCTIONS, "primitive": PRIMITIVES, "operator": OPERATORS,
                              "whole": COMPOSITES}
    target = tables.get(kind, {}).get(rest)
    if target is None:
        raise ValueError(f"the program calls {name!r:.100}, which is no operator here")
    return target
