"""torch.compiler: the public handles on graph capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dynamo
from .._absent import absent
from .._lazy import submodules
from ..dynamo import allow_in_graph, assume_constant_result, disable, is_compiling, is_exporting, list_backends, reset, set_stance
from ..dynamo.api import get_default_backend, set_default_backend
from .artifacts import CacheInfo, load_cache_artifacts, save_cache_artifacts
from .captured import nested_compile_region, wrap_numpy


def compile(*args: Any, **kwargs: Any) -> Any:
    """torch.compile."""
    return dynamo.compile(*args, **kwargs)


def is_dynamo_compiling() -> bool:
    """Whether graph capture is running this code, which knows the answer."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark: there are no CUDA graphs on a CPU."""


def set_enable_guard_collectives(enabled: bool) -> bool:
    """False: there is nothing that ranks could agree on before they compile. True raises."""
    if enabled:
        raise NotImplementedError("guard collectives are not implemented; compile with the same inputs on all ranks")
    return False


def substitute_in_graph(original_fn: Callable, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False,
                        is_embedded_type: bool = False) -> Callable[[Callable], Callable]:
    """Decorate a Python function that is captured where the program calls `original_fn`, a function that capture cannot look into."""
    return lambda traceable: dynamo.substitute(original_fn, traceable)


def _guards_kept(what: str) -> Callable[..., list[bool]]:
    def keep(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
        raise NotImplementedError(f"{what}: guards are never left out (keep_parameters={keep_parameters}, of "
                                  f"{type(guard_entries).__name__}); a check of a whole model takes microseconds (docs/dynamo.md)")

    keep.__name__ = what
    keep.__doc__ = "A filter of guards, which are never left out: NotImplementedError."
    return keep


skip_guard_on_inbuilt_nn_modules_unsafe = _guards_kept("skip_guard_on_inbuilt_nn_modules_unsafe")
skip_guard_on_all_nn_modules_unsafe = _guards_kept("skip_guard_on_all_nn_modules_unsafe")
keep_tensor_guards_unsafe = _guards_kept("keep_tensor_guards_unsafe")
skip_guard_on_globals_unsafe = _guards_kept("skip_guard_on_globals_unsafe")
skip_all_guards_unsafe = _guards_kept("skip_all_guards_unsafe")
keep_portable_guards_unsafe = _guards_kept("keep_portable_guards_unsafe")
load_compiled_function = absent("torch.compiler.load_compiled_function", "what is compiled is kept on the disk: see "
                                "torch.compiler.save_cache_artifacts and load_cache_artifacts")


__getattr__ = submodules(__name__, "config")

__all__ = [
    "CacheInfo", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "get_default_backend",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe",
    "list_backends", "load_cache_artifacts", "load_compiled_function", "nested_compile_region", "reset", "save_cache_artifacts",
    "set_default_backend", "set_enable_guard_collectives", "set_stance", "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph", "wrap_numpy",
]
