"""torch._higher_order_ops: operators that take functions."""

from __future__ import annotations

from .associative_scan import associative_scan
from .cond import cond
from .scan import map, scan
from .while_loop import while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
