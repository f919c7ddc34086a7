"""Graph capture: CPython frames to graphs and guards. `docs/dynamo.md` is the tour."""

from . import config
from .api import (
    Explanation,
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    explain,
    graph_break,
    is_compiling,
    is_exporting,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
    substitute,
)
from .backends import list_backends, lookup_backend, register_backend
from .compiler import reset
from .exceptions import BackendCompilerFailed, RecompileLimitExceeded, Unsupported
from .optimized_module import OptimizedModule
from .stance import error_on_graph_break, set_stance

__all__ = [
    "BackendCompilerFailed", "Explanation", "OptimizedModule", "RecompileLimitExceeded", "Unsupported", "allow_in_graph",
    "assume_constant_result", "compile", "config", "disable", "error_on_graph_break", "explain", "graph_break", "is_compiling",
    "is_exporting", "list_backends", "lookup_backend", "mark_dynamic", "mark_static", "maybe_mark_dynamic", "register_backend", "reset",
    "set_stance", "substitute",
]  # fmt: skip
