"""torch.fx.experimental.proxy_tensor. `make_fx`: a function as the graph of ATen's operators that it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from ..aot import trace
from ..aot.dialect import to_aten
from ..core.symbolic import ShapeEnv
from ..fx import GraphModule
from ..ops.registry import OPERATORS
from ..overrides import TorchFunctionMode


def make_fx(f: Callable, decomposition_table: Mapping[Any, Callable] | None = None, tracing_mode: str = "real",
            *, pre_dispatch: bool = False) -> Callable[..., Any]:
    """`make_fx(f)(*args)`: a GraphModule of what `f` does on inputs like `args`, gradients that it takes included. Operators in the table
    are computed by its functions. With `tracing_mode="symbolic"` sizes and ints are symbols;
    what the function has asked of them stands in the result's `shape_env`."""
    if pre_dispatch:
        raise NotImplementedError("make_fx(pre_dispatch=True) is not implemented; torch.export.export gives graphs of operators")
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"Unexpected tracing type: {tracing_mode}")
    function = _with(decomposition_table, f) if decomposition_table else f
    env = ShapeEnv(duck_shape=True) if tracing_mode == "symbolic" else None
    traced = trace.make_fx(function, env, aten=True)

    @functools.wraps(f)
    def wrapped(*args: Any) -> GraphModule:
        made = to_aten(traced(*args))
        if env is not None:
            made.shape_env = env
        return made

    return wrapped


def _with(table: Mapping[Any, Callable], f: Callable) -> Callable:
    """`f`, in which operators of the table are computed by its functions."""
    by_operator = {OPERATORS.get(getattr(op, "__name__", ""), op): fn for op, fn in table.items()}

    class Decompose(TorchFunctionMode):
        operators_only = True

        def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            return by_operator.get(func, func)(*args, **(kwargs or {}))

    @functools.wraps(f)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        with Decompose():
            return f(*args, **kwargs)

    return decomposed


def get_proxy_mode() -> None:
    """The mode that traces into a graph: None, as capture is no mode here."""


def disable_proxy_modes_tracing() -> nullcontext[None]:
    """A block whose operations are not traced: none is, as capture is no mode here."""
    return nullcontext()
