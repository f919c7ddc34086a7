"""`aot_autograd`: a backend made of compilers for forward and backward graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..._functorch.aot_autograd import aot_module_simplified
from ...core.device import device
from ...core.tensor import Tensor
from ...dynamo.counts import counters


class AotAutograd:
    """A backend that differentiates each captured graph ahead of time and gives the graphs of primitives to `fw_compiler` and
    `bw_compiler`, functions `(gm, example_inputs) -> callable`."""

    def __init__(self, **settings: Any) -> None:
        self.__name__ = "compiler_fn"
        self.settings = settings

    def __call__(self, gm: Any, example_inputs: Iterable[Any], **options: Any) -> Callable[..., Any]:
        counters["aot_autograd"]["total"] += 1
        compiled = aot_module_simplified(gm, list(example_inputs), **self.settings)
        counters["aot_autograd"]["ok"] += 1
        return compiled


def aot_autograd(**kwargs: Any) -> AotAutograd:
    """`AotAutograd(fw_compiler=..., bw_compiler=..., inference_compiler=..., partition_fn=..., decompositions=...)`."""
    return AotAutograd(**kwargs)


def device_from_inputs(example_inputs: Iterable[Any]) -> device:
    """Where the first tensor is; the CPU if there is none."""
    return next((x.device for x in example_inputs if isinstance(x, Tensor)), device("cpu"))


def dtype_from_inputs(example_inputs: Iterable[Any]) -> Any:
    """The dtype of the first tensor."""
    return next((x.dtype for x in example_inputs if isinstance(x, Tensor)), None)


__all__ = ["AotAutograd", "aot_autograd", "device_from_inputs", "dtype_from_inputs"]
