"""`torch._dynamo` as PyTorch's users know it; the thing itself is `flambeau.dynamo`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

# isort: off
from .._lazy import submodules
from ..dynamo import (
    Explanation, OptimizedModule, allow_in_graph, assume_constant_result, break_kinds, compile, compiler, config, disable,
    error_on_graph_break, exceptions, explain, graph_break, is_compiling, list_backends, lookup_backend, mark_dynamic, mark_static,
    maybe_mark_dynamic, register_backend, reset, set_stance,
)
from . import eval_frame, exc
from .callback import on_compile_end, on_compile_start
from .eval_frame import export, is_dynamo_supported, optimize, optimize_assert
# isort: on

reset_code_caches = reset
is_inductor_supported = is_dynamo_supported


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Says that the tensor's memory stays where it is. Nothing here depends on it."""


def forbid_in_graph(fn: Any) -> Any:
    """Never put calls of `fn` into a graph: they are graph breaks."""
    return [forbid_in_graph(one) for one in fn] if isinstance(fn, (list, tuple)) else disable(fn)


disallow_in_graph = forbid_in_graph


def run(fn: Any = None) -> Any:
    """`fn` with what is compiled of it already, and without compiling more."""
    if fn is None:
        return run

    @functools.wraps(fn)
    def running(*args: Any, **kwargs: Any) -> Any:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return running


def nonstrict_trace(traceable_fn: Callable) -> Callable:
    """Put calls of the function into the graph whole, for aot to trace through."""
    traced: Callable = allow_in_graph(traceable_fn)
    return traced


patch_dynamo_config = config.patch  # type: ignore[attr-defined]

__getattr__ = submodules(__name__, "backends", "callback", "comptime", "testing", "utils")

__all__ = [
    "Explanation", "OptimizedModule", "allow_in_graph", "assume_constant_result", "break_kinds", "compile", "compiler", "config",
    "disable", "disallow_in_graph", "error_on_graph_break", "eval_frame", "exc", "exceptions", "explain", "export", "forbid_in_graph",
    "graph_break", "is_compiling", "is_dynamo_supported", "is_inductor_supported", "list_backends", "lookup_backend", "mark_dynamic",
    "mark_static", "mark_static_address", "maybe_mark_dynamic", "nonstrict_trace", "on_compile_end", "on_compile_start", "optimize",
    "optimize_assert", "patch_dynamo_config", "register_backend", "reset", "reset_code_caches", "run",
]  # fmt: skip
