"""What lowering asks of the device that a graph runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from flambeau.core.dtypes import dtype
from flambeau.inductor.loop.boxes import Box
from flambeau.inductor.loop.ir import Value

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering


class Target(Protocol):
    """A type of device: what its generated code can do, and what is worth storing there."""

    device: str
    calls: Mapping[str, Callable[[Any, Any, Any, list], Any]]
    """How families of library calls are lowered to: `(lowering, node, primitive, arguments)` -> boxes, or None where there is no such call."""
    rounds: bool
    """Whether each operation of narrow floats is rounded, as the device's eager ones are."""
    stores_narrow: bool
    """Whether what is widened is stored before it is."""

    def scatters(self, mode: str, kind: dtype) -> bool:
        """Whether generated code can combine numbers at computed positions so."""

    def prepare(self, lowering: Lowering, node: Any, box: Box) -> None:
        """Choose how a tensor that may be stored would lie."""

    def worth_storing(self, lowering: Lowering, node: Any, box: Box, cost: int, loads: Sequence[Value]) -> bool:
        """Whether a tensor with several consumers, which costs so much and reads these operands whole, is stored, not computed again."""
