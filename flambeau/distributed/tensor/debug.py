"""torch.distributed.tensor.debug: which collectives a program comes to."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

from ..._absent import absent_names
from ...library import CustomOpDef
from .. import collectives, process_group
from .. import graph_operators as operators

__getattr__ = absent_names(__name__, ("visualize_sharding",), "print DTensor.placements and to_local().shape")

_KINDS: dict[str, Any] = {made._operator.__name__: made._operator for made in vars(operators).values() if isinstance(made, CustomOpDef)}


class CommDebugMode:
    """Counts the operations between processes within `with CommDebugMode() as comm:`, of tensors and of DTensors, eager and compiled.

    Kinds are the operators `torch.ops.c10d_functional.all_reduce` and so on, and functions of `torch.distributed` for those without one.
    """

    def __init__(self) -> None:
        self.comm_counts: Counter[Any] = Counter()

    def get_total_counts(self) -> int:
        """How many there were."""
        return self.comm_counts.total()

    def get_comm_counts(self) -> dict[Any, int]:
        """How many there were of each kind; 0 for others."""
        return self.comm_counts

    def _began(self, name: str) -> None:
        self.comm_counts[_KINDS.get(name) or getattr(collectives, name, name)] += 1

    def __enter__(self) -> CommDebugMode:
        self.comm_counts.clear()
        process_group.observers.append(self._began)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        process_group.observers.remove(self._began)


__all__ = ["CommDebugMode"]
