"""What is built on collectives: communication hooks of DistributedDataParallel, uneven inputs (`join`)."""

from __future__ import annotations

from ..._lazy import submodules
from .join import Join, Joinable, JoinHook

__getattr__ = submodules(__name__, "_checkpoint", "ddp_comm_hooks")

__all__ = ["Join", "JoinHook", "Joinable"]
