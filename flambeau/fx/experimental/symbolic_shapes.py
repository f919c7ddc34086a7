"""Symbolic sizes, as libraries ask about them."""

from __future__ import annotations

from typing import Any

from ...core.symbolic import (
    ConstraintViolationError,
    DataDependentSize,
    ShapeEnv,
    SymBool,
    SymFloat,
    SymInt,
    free_variables,
    hint_of,
    is_symbolic,
)


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The example's number."""
    found = hint_of(a)
    if found is None and fallback is None:
        raise ValueError(f"the size {a} has no example")
    return int(fallback if found is None else found)  # type: ignore[arg-type]


def guard_int(a: Any) -> int:
    """A size as the number that it is in the example, guarded."""
    return int(a)


def is_concrete_int(a: Any) -> bool:
    """Whether a size is a number."""
    return isinstance(a, int) or (isinstance(a, SymInt) and not free_variables(a.expr))


def free_symbols(val: Any) -> set[str]:
    """The names of the symbols in a size, a tensor's sizes, or a sequence of them."""
    if isinstance(val, (tuple, list)):
        return set().union(*map(free_symbols, val)) if val else set()
    if isinstance(val, SymInt):
        return set(free_variables(val.expr))
    if isinstance(val, SymFloat):
        return set(val.variables)
    return free_symbols(tuple(val.shape)) if hasattr(val, "shape") else set()


def has_free_symbols(val: Any) -> bool:
    """Whether it hangs on a symbol."""
    return bool(free_symbols(val))


def guard_size_oblivious(expr: Any) -> bool:
    """The truth of a condition, guarded."""
    return bool(expr)


def statically_known_true(x: Any) -> bool:
    """Whether a condition holds without asking the example."""
    return x if isinstance(x, bool) else isinstance(x, SymBool) and x.env.static_value(x.relation) is True


def guard_or_false(a: Any) -> bool:
    """The truth of a condition, guarded; False where only values tell."""
    try:
        return bool(a)
    except DataDependentSize:
        return False


def guard_or_true(a: Any) -> bool:
    """The truth of a condition, guarded; True where only values tell."""
    try:
        return bool(a)
    except DataDependentSize:
        return True

__all__ = ["ConstraintViolationError", "ShapeEnv", "free_symbols", "guard_or_false", "guard_or_true", "guard_size_oblivious",
           "guard_int", "has_free_symbols", "hint_int", "is_concrete_int", "is_symbolic", "statically_known_true"]
