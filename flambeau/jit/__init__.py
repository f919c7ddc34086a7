"""torch.jit: TorchScript. `load` reads archives and interprets their text; decorators keep ordinary Python."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .._absent import absent_names
from ..futures import Future
from ..nn.branches import boolean_dispatch
from .archive import load
from .compile import Error
from .compile import fork as fork_task
from .freeze import freeze, optimize_for_inference
from .module import RecursiveScriptModule, ScriptFunction, ScriptMethod, ScriptModule, TopLevelTracedModule
from .save import save
from .trace import TracerWarning, TracingCheckError, trace, trace_module, tracing

annotations: Any = importlib.import_module(f"{__name__}.annotations")  # type: ignore[no-redef]  # "from __future__" has bound the name

_INSTEAD = "Flambeau has no TorchScript: compile with torch.compile, and keep weights with torch.save(model.state_dict())"


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """`obj` itself: a scripted function or module behaves as the Python that it was made from."""
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with or without arguments."""
    return drop if callable(drop) else (lambda fn: fn)


def unused(fn: Callable) -> Callable:
    """`fn` itself."""
    return fn


export = script_if_tracing = _script_if_tracing = _overload = _overload_method = unused


_copy_to_script_wrapper = unused


def interface(obj: Any) -> Any:
    """`obj` itself: a class that stands for several."""
    return obj


def is_scripting() -> bool:
    """Always False."""
    return False


def is_tracing() -> bool:
    """Whether torch.jit.trace is running what asks."""
    return tracing() is not None


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of `target_type`; element types of containers are not looked at."""
    return builtins.isinstance(obj, getattr(target_type, "__origin__", target_type))


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """`func(*args, **kwargs)`, run at once, as a Future."""
    return fork_task(lambda: func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The value of a future."""
    return future.wait()


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


class Attribute:
    """A value with a type for TorchScript; here the pair alone."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


__getattr__ = absent_names(
    "torch.jit", ("_get_trace_graph", "CompilationUnit", "export_opnames"), _INSTEAD)

__all__ = [
    "script", "ignore", "unused", "export", "interface", "script_if_tracing", "is_scripting", "is_tracing", "annotate",
    "isinstance", "Final", "ScriptModule", "ScriptFunction", "RecursiveScriptModule", "TracerWarning", "Error", "Attribute",
    "trace", "trace_module", "save", "load", "freeze", "optimize_for_inference", "annotations", "fuser", "optimized_execution",
    "CompilationUnit", "export_opnames", "onednn_fusion_enabled", "strict_fusion",
    "enable_onednn_fusion", "fork", "wait", "set_fusion_strategy",
]
