"""torch.distributed.nn: collectives that gradients flow through, and modules in other processes."""

from __future__ import annotations

from .functional import all_gather, all_reduce, all_to_all, all_to_all_single, broadcast, gather, reduce, reduce_scatter, scatter
from .remote_module import RemoteModule

__all__ = ["RemoteModule", "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
           "reduce_scatter", "scatter"]
