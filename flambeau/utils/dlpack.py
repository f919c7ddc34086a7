"""Exchange of tensors without copying, by DLPack capsules."""

from __future__ import annotations

import enum
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import from_dlpack


class DLDeviceType(enum.IntEnum):
    """DLPack's numbers for kinds of devices."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule over the tensor's memory, to be consumed once. `from_dlpack(tensor)` needs none."""
    return tensor.detach().__dlpack__()


__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]
