"""torch.nn.parallel: the same module in several processes; replicas inside a process are not made."""

from __future__ import annotations

from typing import Any

from ..modules.module import Module
from .distributed import DistributedDataParallel


class DataParallel(Module):
    """Calls `module` as it is: with a single device (or none named) there is nothing to divide."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(f"DataParallel over {len(device_ids)} devices is not supported; run one process for each device")
        self.module, self.dim = module, dim
        self.device_ids = list(device_ids or [])
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


__all__ = ["DataParallel", "DistributedDataParallel"]
