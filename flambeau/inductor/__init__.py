"""The compiler: functional graphs of primitives to loop IR to fused kernels to one native callable. See docs/inductor.md."""

from flambeau.inductor import config
from flambeau.inductor.backend import compile_frozen, compile_fx
from flambeau.inductor.graph import CompiledGraph, compile_graph

__all__ = ["CompiledGraph", "compile_frozen", "compile_fx", "compile_graph", "config"]
