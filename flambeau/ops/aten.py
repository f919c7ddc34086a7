"""`torch.ops.aten.NAME`: the names under which selective checkpointing and flop counts tell of operators.

One handle stands for all overloads of an operator. Calling it calls the operator of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .custom import CustomOperator
from .registry import OPERATORS, PRIMITIVES


class AtenOperator:
    """`aten.mm`, and `aten.mm.default` as well."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"aten.{self.__name__}"

    def __getattr__(self, overload: str) -> AtenOperator:
        if overload.startswith("_"):
            raise AttributeError(overload)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__name__ not in OPERATORS:
            raise NotImplementedError(f"{self} is only a name here; call the function of torch that it belongs to")
        return OPERATORS[self.__name__](*args, **kwargs)


# Records of other names: record -> aten's, or a function of the arguments that gives it.
_ATEN: dict[str, str | Callable[..., str]] = {
    "_linear": lambda x, w, bias: "mm" if bias is None else "addmm",
    "_conv_bias": "convolution", "convolution_input_grad": "convolution_backward", "convolution_weight_grad": "convolution_backward",
    "flash_attention": "_scaled_dot_product_flash_attention",
    "flash_attention_backward": "_scaled_dot_product_flash_attention_backward",
    "attention_weights": "_softmax", "_layer_norm": "native_layer_norm", "_batch_norm_train": "native_batch_norm",
    "_batch_norm_eval": "native_batch_norm", "truediv": "div", "convert": "_to_copy", "_max_pool": "max_pool2d_with_indices",
    "_avg_pool": "avg_pool2d", "_gelu": "gelu", "_silu": "silu", "_embedding": "embedding", "_mean": "mean",
}
_KNOWN = {name for name in _ATEN.values() if isinstance(name, str)} | {
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"}
_FLASH = "_scaled_dot_product_flash_attention"


@functools.cache
def _handle(name: str) -> AtenOperator:
    return AtenOperator(name)


def __getattr__(name: str) -> AtenOperator:
    if name.startswith("__") or not (name in OPERATORS or name in PRIMITIVES or name in _KNOWN):
        raise AttributeError(f"torch.ops.aten has no operator {name!r}")
    return _handle(_FLASH if name in _KNOWN and name.startswith("_scaled") and not name.endswith("backward") else name)


def name_of(record: Any, args: tuple) -> AtenOperator | CustomOperator:
    """What a call that a mode sees is called."""
    owner = getattr(record, "owner", None)
    if owner is not None:
        return owner
    name = _ATEN.get(record.name, record.name)
    return _handle(name if isinstance(name, str) else name(*args))
