"""Small compilers for `aot_function` and `aot_autograd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..fx import GraphModule
from ..nn import Module
from .aot_autograd import aot_function, aot_module, boxed_nop, make_boxed_func

nop = boxed_nop


def print_compile(fx_g: GraphModule, _: Sequence[Any]) -> Any:
    """Print the graph and run it as it is."""
    print(fx_g.code)
    return make_boxed_func(fx_g.forward)


def memory_efficient_fusion(fn: Callable | Module, **kwargs: Any) -> Any:
    """A function or module compiled with forward and backward graphs that recompute what is cheap."""
    settings = {"fw_compiler": nop, "bw_compiler": nop, **kwargs}
    return aot_module(fn, **settings) if isinstance(fn, Module) else aot_function(fn, **settings)


__all__ = ["memory_efficient_fusion", "nop", "print_compile"]
