"""torch.jit: TorchScript does not exist here. Its decorators keep ordinary Python, and `torch.compile` takes its place."""

from __future__ import annotations

import builtins
import copy
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .._absent import absent_names
from ..futures import Future
from ..nn.branches import boolean_dispatch
from ..nn.modules.module import Module
from .tracing import ScriptFunction, ScriptModule, TracingCheckError, load, save, trace, trace_module

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


is_tracing = is_scripting


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of `target_type`; element types of containers are not looked at."""
    return builtins.isinstance(obj, getattr(target_type, "__origin__", target_type))


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """`func(*args, **kwargs)`, run at once, as a Future."""
    future: Future = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


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


def freeze(mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> Any:
    """A copy of a module in evaluation mode whose parameters and buffers are constants: they need no gradient. `preserved_attrs` must be
    there; nothing is dropped, and numbers stay as they are (`optimize_numerics` allows others)."""
    if not builtins.isinstance(mod, Module):
        raise RuntimeError(f"Freezing expects a module as input, got {type(mod).__name__}")
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before "
                           "freezing.")
    missing = [name for name in preserved_attrs or () if not hasattr(mod, name)]
    if missing:
        raise RuntimeError(f"freeze(preserved_attrs=...): {type(mod).__name__} has no attributes {missing}")
    del optimize_numerics
    return copy.deepcopy(mod).requires_grad_(False)


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """`freeze`; torch.compile makes the result fast. `other_methods` must be there."""
    return freeze(mod, other_methods)


class RecursiveScriptModule(ScriptModule):
    """The class that torch.jit.script(module) gives in torch; no object here is one."""


class TracerWarning(Warning):
    """What torch.jit.trace warns with."""


class Error(RuntimeError):
    """An error inside TorchScript."""


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
