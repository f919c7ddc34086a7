"""Where PyTorch keeps the functions of torch.distributed (torch.distributed.distributed_c10d)."""

from __future__ import annotations

from . import *  # noqa: F403
from .collectives import _coalescing_manager
from .groups import _get_default_group, get_global_rank
from .reduce_op import RedOpType
from .stores import Store

_get_global_rank = get_global_rank


def _get_default_store() -> Store:
    """The store through which the processes of the default group found each other."""
    return _get_default_group()._store


__all__ = ["RedOpType", "_coalescing_manager", "_get_default_group", "_get_default_store"]
