"""Communication hooks for DistributedDataParallel.register_comm_hook."""

from __future__ import annotations

from . import default_hooks, post_localSGD_hook, powerSGD_hook, quantization_hooks

__all__ = ["default_hooks", "post_localSGD_hook", "powerSGD_hook", "quantization_hooks"]
