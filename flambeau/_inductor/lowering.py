"""`torch._inductor.lowering`: how operators reach kernels. Here an operator is lowered by its own definition over primitives, so there is
no second table to add to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._absent import absent, absent_names
from ..ops.custom import CustomOperator

_INSTEAD = (
    "define the operator with torch.library.custom_op and it is called as it is, write it as a function over operators and inductor fuses "
    "them, or give inductor a graph pass (torch._inductor.config.post_grad_custom_post_pass, torch._inductor.pattern_matcher)")

register_lowering = absent("torch._inductor.lowering.register_lowering", _INSTEAD)


def make_fallback(op: Any, layout_constraint: Any = None, override_decomp: bool = False) -> None:
    """Call `op` as it is: custom operators are in any case. NotImplementedError for others, which are made of primitives."""
    if layout_constraint is not None or override_decomp:
        raise NotImplementedError("make_fallback(): layout_constraint and override_decomp are not implemented; make the operator "
                                  "with torch.library.custom_op and call contiguous() in it")
    if not isinstance(op, CustomOperator):
        absent(f"make_fallback({op})", _INSTEAD)()


def fallback_handler(kernel: Any) -> Callable[..., Any]:
    """`kernel` itself, if it is a custom operator: what a fallback does is call it."""
    make_fallback(kernel)
    return kernel


__getattr__ = absent_names(__name__, ("lowerings", "fallbacks", "register_pointwise", "make_pointwise", "make_reduction"), _INSTEAD)

__all__ = ["fallback_handler", "make_fallback", "register_lowering"]
