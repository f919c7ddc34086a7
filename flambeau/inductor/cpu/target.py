"""Lowering for CPUs: what generated C++ can do, and what is worth storing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.core.dtypes import bool_, dtype
from flambeau.inductor.library import lowered_on
from flambeau.inductor.loop.boxes import CHEAP, Box
from flambeau.inductor.loop.ir import Value

if TYPE_CHECKING:
    from flambeau.inductor.loop.lowering import Lowering


class OnCpu:
    """The `Target` for CPUs."""

    device = "cpu"
    calls = lowered_on(device)
    rounds = True
    stores_narrow = False

    def scatters(self, mode: str, kind: dtype) -> bool:
        """All of it, but for truths and complex numbers."""
        return mode in ("add", "set") or (kind is not bool_ and not kind.is_complex)

    def prepare(self, lowering: Lowering, node: Any, box: Box) -> None:
        """As it comes."""

    def worth_storing(self, lowering: Lowering, node: Any, box: Box, cost: int, loads: Sequence[Value]) -> bool:
        """What costs arithmetic or reads several tensors."""
        return cost > CHEAP or len(loads) > 1
