"""The classes of `torch.ops`'s operators, for isinstance and annotations (torch._ops)."""

from __future__ import annotations

from . import ops
from .ops.aten import AtenOperator as OpOverload
from .ops.custom import CustomOperator, Namespace

OpOverloadPacket = OpOverload


class HigherOrderOperator:
    """Operators of functions, such as cond; here they are ordinary functions, and nothing is an instance."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        raise NotImplementedError(f"HigherOrderOperator({name!r}, cacheable={cacheable}) is not implemented; define an operator with "
                                  "torch.library.custom_op")


_OpNamespace = Namespace
__all__ = ["CustomOperator", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "ops"]
