"""torch.accelerator: the device beside the CPU, whichever it is. There is none."""

from __future__ import annotations

from typing import Any, NoReturn

from . import cpu, cuda, mps, xpu
from .core.device import device

_MODULES = {"cpu": cpu, "cuda": cuda, "mps": mps, "xpu": xpu}


def is_available() -> bool:
    """False: no accelerator."""
    return False


def device_count() -> int:
    """0."""
    return 0


def current_accelerator(check_available: bool = False) -> device | None:
    """None: no accelerator."""
    return None


def _none(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("Cannot access accelerator device when none is available: this build of Flambeau runs on CPUs")


current_device_index = current_device_idx = set_device_index = set_device_idx = synchronize = current_stream = set_stream = _none


def empty_cache() -> None:
    """Nothing is cached."""


def get_device_module(device: Any = None) -> Any:
    """The module that serves a device type: `torch.cpu`, `torch.cuda`."""
    name = "cpu" if device is None else str(getattr(device, "type", device)).partition(":")[0]
    if name not in _MODULES:
        raise RuntimeError(f"Invalid device_type {name!r}; there are modules for {sorted(_MODULES)}")
    return _MODULES[name]
