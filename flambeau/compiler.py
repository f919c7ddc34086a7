"""torch.compiler: the public handles on graph capture."""

from __future__ import annotations

from typing import Any

from . import dynamo
from .dynamo import allow_in_graph, assume_constant_result, disable, is_compiling, list_backends, reset
from .dynamo.api import get_default_backend, set_default_backend
from .dynamo.stance import set_stance


def compile(*args: Any, **kwargs: Any) -> Any:
    """torch.compile."""
    return dynamo.compile(*args, **kwargs)


def is_dynamo_compiling() -> bool:
    """Whether graph capture is running this code."""
    return is_compiling()


def is_exporting() -> bool:
    """False: torch.export does not exist here."""
    return False


def nested_compile_region(fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None) -> Any:
    """`fn` itself (or a decorator that gives it): a region is compiled where it is called, each time anew."""
    return fn if fn is not None else lambda fn: fn


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark: there are no CUDA graphs on a CPU."""


__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "get_default_backend",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset", "set_default_backend",
    "set_stance",
]
