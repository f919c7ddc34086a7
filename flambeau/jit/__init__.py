"""torch.jit: TorchScript. `load`, `trace` and `script` make programs, which are text that is interpreted."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from .._absent import absent_names
from ..futures import Future
from ..nn.branches import boolean_dispatch
from . import from_above
from .archive import load
from .compile import Error
from .defined import CompilationUnit
from .freeze import freeze, optimize_for_inference
from .frontend import errors as frontend
from .language import (
    Attribute,
    _copy_to_script_wrapper,
    _overload,
    _overload_method,
    annotate,
    export,
    fork,
    ignore,
    interface,
    is_scripting,
    isinstance,
    unused,
    wait,
)
from .module import RecursiveScriptModule, ScriptFunction, ScriptMethod, ScriptModule, TopLevelTracedModule
from .save import save
from .scripting import is_tracing, script, script_if_tracing, script_method
from .trace import TracerWarning, TracingCheckError, _get_trace_graph, trace, trace_module

_script_if_tracing = script_if_tracing

annotations: Any = importlib.import_module(f"{__name__}.annotations")  # type: ignore[no-redef]  # "from __future__" has bound the name

_INSTEAD = "compile with torch.compile, or keep the module with torch.jit.save or torch.export"


def enable_onednn_fusion(enabled: bool) -> None:
    """Nothing to switch: fusion belongs to torch.compile."""


def set_fusion_strategy(strategy: Any) -> list:
    """Nothing to switch: fusion belongs to torch.compile."""
    return []


@contextmanager
def fuser(name: str) -> Iterator[None]:
    """Nothing to choose: fusion belongs to torch.compile."""
    yield


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Nothing to choose: optimisation belongs to torch.compile."""
    yield


def onednn_fusion_enabled() -> bool:
    """False: fusion belongs to torch.compile."""
    return False


class strict_fusion:
    """`with strict_fusion():` asks for an error where something isn't fused; nothing is here, so it changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


__getattr__ = absent_names(
    "torch.jit", ("export_opnames",), _INSTEAD)

__all__ = [
    "script", "ignore", "unused", "export", "interface", "script_if_tracing", "is_scripting", "is_tracing", "annotate",
    "isinstance", "Final", "ScriptModule", "ScriptFunction", "RecursiveScriptModule", "TracerWarning", "Error", "Attribute",
    "trace", "trace_module", "save", "load", "freeze", "optimize_for_inference", "annotations", "fuser", "optimized_execution",
    "CompilationUnit", "export_opnames", "onednn_fusion_enabled", "strict_fusion",
    "enable_onednn_fusion", "fork", "wait", "set_fusion_strategy",
]
