"""`torch._dynamo` as PyTorch's users know it; the thing itself is `flambeau.dynamo`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dynamo import (
    Explanation,
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    break_kinds,
    compile,
    compiler,
    config,
    disable,
    exceptions,
    explain,
    graph_break,
    is_compiling,
    list_backends,
    lookup_backend,
    mark_dynamic,
    mark_static,
    register_backend,
    reset,
)
from . import exc


def optimize(backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, disable: bool = False,
             **settings: Any) -> Callable[[Any], Any]:  # fmt: skip
    """The older spelling of `torch.compile`: `optimize("eager")(function)`."""
    return lambda target: compile(target, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


maybe_mark_dynamic = mark_dynamic


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Says that the tensor's memory stays where it is. Nothing here depends on it."""


def is_dynamo_supported() -> bool:
    """Whether graph capture works on this Python: always, where Flambeau runs at all."""
    return True


__all__ = [
    "Explanation", "OptimizedModule", "allow_in_graph", "assume_constant_result", "break_kinds", "compile", "compiler", "config",
    "disable", "exc", "exceptions", "explain", "graph_break", "is_compiling", "list_backends", "lookup_backend", "mark_dynamic",
    "is_dynamo_supported", "mark_static", "mark_static_address", "maybe_mark_dynamic", "optimize", "register_backend", "reset",
]  # fmt: skip
