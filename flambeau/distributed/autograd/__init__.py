"""torch.distributed.autograd: gradients through calls to other processes. See `rpc/backward.py`."""

from __future__ import annotations

from ..rpc.api import is_available
from ..rpc.backward import backward, context
from ..rpc.gradients import Context as DistAutogradContext
from ..rpc.gradients import get_gradients

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]
