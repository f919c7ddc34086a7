"""What lowering asks of the device that a graph runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.core.dtypes import dtype
from flambeau.inductor.loop.boxes import Box
from flambeau.inductor.loop.ir import Value

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering


class Target(NamedTuple):
    """A type of device: what its generated code can do, and what is worth storing there."""

    device: str
    calls: Mapping[str, Callable[[Any, Any, Any, list], Any]]
    """How families of library calls are lowered to: `(lowering, node, primitive, arguments)` -> boxes, or None where there is no such call."""
    scatters: Callable[[str, dtype], bool]
    """Whether generated code can combine numbers of a dtype at computed positions, in a mode."""
    worth_storing: Callable[[Lowering, Any, Box, int, Sequence[Value]], bool]
    """Whether a tensor with several consumers, which costs so much and reads these operands whole, is stored, not computed again."""
    prepare: Callable[[Lowering, Any, Box], None] = lambda lowering, node, box: None
    """Chooses how a tensor that may be stored would lie."""
    rounds: bool = True
    """Whether each operation of narrow floats is rounded, as the device's eager ones are."""
    stores_narrow: bool = False
    """Whether what is widened is stored before it is."""
