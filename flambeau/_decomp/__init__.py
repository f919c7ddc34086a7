"""Decompositions: operators as functions of simpler ones. Every operator here is one already; `register_decomposition` adds the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.tables import enters
from ..ops import aten
from ..ops.registry import OPERATORS

decomposition_table: dict[Any, Callable] = {}
"""Those that were registered, by operator."""
global_decomposition_table: dict[str, dict[Any, Callable]] = {"post_autograd": decomposition_table, "pre_autograd": {}, "meta": {}}


def register_decomposition(aten_op: Any, registry: dict[Any, Callable] | None = None, *, type: str = "post_autograd",
                           unsafe: bool = False) -> Callable[[Callable], Callable]:
    """Decorate a function that computes what an operator (or each of several) does."""
    if type not in global_decomposition_table:
        raise ValueError(f"register_decomposition: type is one of {', '.join(global_decomposition_table)}, got {type!r}")
    table = global_decomposition_table[type] if registry is None else registry
    return enters(table, *(aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]))


def _own(op: Any) -> Callable | None:
    """The operator's own body over simpler ones."""
    return OPERATORS.get(op.__name__) if isinstance(op, aten.AtenOperator) else op if callable(op) else None


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Callable]:
    """By operator, what it is made of: what was registered, else its own definition."""
    table, found = global_decomposition_table[type], {}
    for op in aten_ops:
        fn = table.get(op) or _own(op)
        if fn is not None:
            found[op] = fn
    return found


def core_aten_decompositions() -> dict[Any, Callable]:
    """What makes a graph one of core operators: all that was registered, and every operator's own definition by its handle."""
    return {**{getattr(aten, name): OPERATORS[name] for name in OPERATORS if name in _COMPOSITE}, **decomposition_table}


_COMPOSITE = frozenset((
    "addcdiv", "addcmul", "binary_cross_entropy", "celu", "elu", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh", "huber_loss",
    "leaky_relu", "lerp", "log_softmax", "logaddexp", "logsumexp", "mse_loss", "nan_to_num", "silu", "smooth_l1_loss", "softmax",
    "softplus", "std_mean", "threshold", "trace", "tril", "triu", "var_mean", "xlogy"))


def remove_decompositions(decompositions: dict[Any, Callable], aten_ops: Iterable[Any]) -> None:
    """Take these operators out of a table."""
    for op in aten_ops:
        decompositions.pop(op, None)


__all__ = ["core_aten_decompositions", "decomposition_table", "get_decompositions", "global_decomposition_table", "register_decomposition",
           "remove_decompositions"]
