"""Backends that tell at which stage something goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import fx
from ..._functorch.aot_autograd import boxed_nop
from ...dynamo.backends import aot_eager, eager, register_debug_backend
from .common import aot_autograd

aot_eager_decomp_partition = register_debug_backend(aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop),
                                                    name="aot_eager_decomp_partition")
"""Functional graphs, partitioned, run step by step. `aot_eager` does the same."""


@register_debug_backend
def eager_noexcept(gm: fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """As `eager`; what the graph raises is marked as such."""

    def inner(*args: Any) -> Any:
        try:
            return gm(*args)
        except Exception as error:
            raise RuntimeError("Unexpected exception when running generated GraphModule") from error

    return inner


pre_dispatch_eager = register_debug_backend(eager, name="pre_dispatch_eager")
eager_debug = register_debug_backend(eager, name="eager_debug")


__all__ = ["aot_eager", "aot_eager_decomp_partition", "boxed_nop", "eager", "eager_debug", "eager_noexcept", "pre_dispatch_eager"]
