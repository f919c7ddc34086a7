"""Whether there is a GPU to use, and the library that reaches it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from ..core.device import current_cuda
from ..core.device import device as _device

NOT_ENABLED = "Torch not compiled with CUDA enabled: no NVIDIA GPU can be used here (that takes a GPU, its driver and CuPy: " \
    "pip install 'flambeau[cuda]'); use device='cpu'"


@functools.cache
def device_count() -> int:
    """The number of GPUs that can be used; 0 without CuPy or a driver."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    cupy = importlib.import_module("cupy")
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def cupy(name: str) -> Any:
    """CuPy, for torch.cuda.`name`; AssertionError where there is no GPU."""
    if not device_count():
        raise AssertionError(f"torch.cuda.{name}(): {NOT_ENABLED}")
    return importlib.import_module("cupy")


def index_of(device: Any) -> int:
    """The number of a GPU given as a number, string or device; None means the current one."""
    if device is None:
        return current_cuda[0]
    if isinstance(device, int):
        return device
    where = _device(device)
    if where.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {where}")
    return current_cuda[0] if where.index is None else where.index
