"""torch.compiler: the public handles on graph capture."""

from __future__ import annotations

from typing import Any

from . import dynamo
from .dynamo import allow_in_graph, assume_constant_result, disable, is_compiling, list_backends, reset


def compile(*args: Any, **kwargs: Any) -> Any:
    """torch.compile."""
    return dynamo.compile(*args, **kwargs)


def is_dynamo_compiling() -> bool:
    """Whether graph capture is running this code."""
    return is_compiling()


def is_exporting() -> bool:
    """False: torch.export does not exist here."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark: there are no CUDA graphs on a CPU."""


__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]
