"""Tensors of classes that compute by other tensors (`dispatch.Computes`), such as DTensor: steps of the graph like others.

The graph's inputs and outputs are their parts. Within it the class puts one together, runs operators on it, and gives the part of a result:
what it comes to is found when the graph is traced, where gradients are recorded as the class has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import dispatch
from ...core.tensor import Tensor
from ..source import Source, constant_source
from .base import ConstantVariable
from .tensor import TensorVariable

if TYPE_CHECKING:
    from ..replacement import Writer


def computes(kind: type) -> bool:
    """Is it such a class?"""
    return issubclass(kind, dispatch.Computes) and hasattr(kind, "_of_part")


def part_of(whole: Any) -> Tensor:
    """The part of a tensor of such a class, to which its gradient flows."""
    return whole._part()


class SpreadVariable(TensorVariable):
    """Such a tensor: `fake` is one of fake parts."""

    def build(self, w: Writer) -> str:
        if self.source is not None:
            return w.fetch(self.source)
        part = w.value(w.trace.emit(part_of, [self], {}))
        _, context = self.fake.__tensor_flatten__()
        return w.bind(f"{w.constant(type(self.fake)._of_part)}({part}, *{w.constant(context)})")


def wrap_spread(tx: Any, value: Any, source: Source) -> TensorVariable:
    """An existing tensor of such a class, whose part is an input."""
    (name,), context = value.__tensor_flatten__()
    tx.guard_type(source, value)
    tx.guard("{0}.__tensor_flatten__()[1] == {1}", source, constant_source(context), reason="__tensor_flatten__()", about="any")
    for i, fact in enumerate(context):
        if getattr(fact, "_flambeau_fact", None) == "identity":     # equal ones may be of other groups
            tx.guard(f"{{0}}.__tensor_flatten__()[1][{i}] is {{1}}", source, constant_source(fact), about="any")
    tx.guard(f"{{0}}.requires_grad is {value.requires_grad} and {{0}}.dtype is {{1}}", source, constant_source(value.dtype), about="any")
    tx.guard(f"{{0}}.{name}.stride() == {getattr(value, name).stride()}", source, about="any")
    part = tx.part_input(getattr(value, name), source.derive("{1}({0})", constant_source(part_of)), source, value.requires_grad)
    whole = tx.emit(type(value)._of_part, [part, *map(ConstantVariable, context)], {})
    whole.source, whole.real = source, value
    return tx.remember(value, whole)
