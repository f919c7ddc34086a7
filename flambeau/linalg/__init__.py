"""torch.linalg: products, solvers, decompositions and norms of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import OPERATORS as _OPERATORS
from ..ops.linalg.decompositions import LinAlgError
from ..ops.linalg.products import matmul

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...

_NAMED = {name.removeprefix("linalg_"): fn for name, fn in _OPERATORS.items() if name.startswith("linalg_")}
globals().update(_NAMED)
__all__ = ["LinAlgError", "matmul", *sorted(_NAMED)]
