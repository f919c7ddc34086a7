"""`torch._inductor` as PyTorch's users know it; the compiler itself is `flambeau.inductor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._lazy import submodules
from ..inductor import config
from ..inductor.config import ACCEPTED, COMPILING

MODES: dict[str, dict[str, Any]] = {
    "default": {}, "reduce-overhead": {"triton.cudagraphs": True}, "max-autotune-no-cudagraphs": {"max_autotune": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True},
}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What a mode of `torch.compile` sets; without one, of all modes."""
    if mode is None:
        return MODES
    if mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    return MODES[mode]


def list_options() -> list[str]:
    """The names that `torch.compile(options=...)` takes."""
    return sorted({*COMPILING, "fx_graph_cache", "force_disable_caches", "triton.cudagraphs", *ACCEPTED})


def compile(gm: Any, example_inputs: list[Any], options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a captured graph."""
    from_inductor: Callable[..., Any] = compile_fx_module().compile_fx(gm, example_inputs, **(options or {}))
    return from_inductor


def compile_fx_module() -> Any:
    """The module `compile_fx`."""
    return __getattr__("compile_fx")


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark: outputs of recorded graphs are copies."""


_PACKAGES = ("aot_compile", "aoti_compile_and_package", "aoti_load_package")      # of the submodule, which stands on torch.export


def _of_packages(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__getattr__("package"), name)


__getattr__ = submodules(__name__, "compile_fx", "custom_graph_pass", "decomposition", "lowering", "package", "pattern_matcher", "utils",
                         otherwise=_of_packages)

__all__ = ["compile", "config", "cudagraph_mark_step_begin", "list_mode_options", "list_options"]
