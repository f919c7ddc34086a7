"""The compiler: functional graphs of primitives to loop IR to fused kernels to one native callable. See docs/inductor.md."""

from typing import Any

from flambeau.core.lazy import LazyModule
from flambeau.inductor import config
from flambeau.inductor.backend import compile_frozen, compile_fx

__all__ = ["CompiledGraph", "compile_frozen", "compile_fx", "compile_graph", "config"]

_graph = LazyModule("flambeau.inductor.graph")


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(_graph, name)
    raise AttributeError(f"module 'flambeau.inductor' has no attribute {name!r}")
