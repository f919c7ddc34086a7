"""The table of translations: for each operator of ATen that ONNX has a form of, the function that writes it.

A row is found by an overload (`add.Tensor`) or by an operator's name, which stands for all overloads that have no row of their own.
What has no row is taken apart: by `export/core_table.py`, or by the operator's own body, down to primitives; those that are one scalar
operation are read by their loop bodies (elementwise.py). So a row is needed for primitives, and worth it for what ONNX has whole.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from ..ops.aten import AtenOperator, Overload
from ..ops.primitives import Primitive
from ..ops.registry import PRIMITIVES

Form = Callable[..., Any]


class Row:
    """How an operator is written, from which opset on, and for which arguments (`takes(*args)` of fake tensors and numbers)."""

    def __init__(self, write: Form, since: int, takes: Callable[..., bool] | None) -> None:
        self.write, self.since, self.takes = write, since, takes


ROWS: dict[str, list[Row]] = {}


def form(*names: str, since: int = 0, takes: Callable[..., bool] | None = None) -> Callable[[Form], Form]:
    """Decorate `write(o, *args, **kwargs)`, which writes an operator with the writer `o`, its tensors as Values."""
    def enter(write: Form) -> Form:
        for name in names:
            ROWS.setdefault(name, []).append(Row(write, since, takes))
        return write

    return enter


_PYTHON = {getattr(operator, name): f"python:{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg")}


def key_of(target: Any) -> str:
    """What an operator is called in the table."""
    if target in _PYTHON:
        return _PYTHON[target]
    if isinstance(target, Overload):
        return f"{target.__name__}.{target._overloadname}"
    if isinstance(target, AtenOperator):
        return target.__name__
    if isinstance(target, Primitive):
        return f"primitive:{target.name}"
    info = getattr(target, "_operator", None)
    return f"operator:{info.name}" if info is not None else getattr(target, "__name__", str(target))


def rows_of(target: Any) -> Iterator[Row]:
    """The rows for an operator, those of its overload first."""
    key = key_of(target)
    yield from sorted(ROWS.get(key, ()), key=lambda row: -row.since)
    if isinstance(target, Overload):
        yield from sorted(ROWS.get(target.__name__, ()), key=lambda row: -row.since)


def find(target: Any, args: tuple, kwargs: dict, opset: int) -> Form | None:
    """The function that writes this call; None if it has to be taken apart."""
    for row in rows_of(target):
        if row.since <= opset and (row.takes is None or row.takes(*args, **kwargs)):
            return row.write
    return None


def has_form(target: Any) -> bool:
    """Whether the table has a row for an operator: with no other, what of ATen has none is a query."""
    return any(True for _ in rows_of(target))


def primitives_without() -> list[str]:
    """The primitives that have no form, which is why operators have none."""
    return sorted(name for name, prim in PRIMITIVES.items() if not has_form(prim))


__all__ = ["ROWS", "Form", "Row", "find", "form", "has_form", "key_of", "primitives_without", "rows_of"]
