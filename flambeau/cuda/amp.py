"""torch.cuda.amp: the old names of torch.amp with device "cuda"."""

from __future__ import annotations

import warnings
from typing import Any

from .. import amp
from .._lazy import submodules
from ..core.dtypes import dtype, float16
from .library import device_count


def _renamed(name: str) -> None:
    warnings.warn(f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', args...)` instead.", FutureWarning,
                  stacklevel=3)


class autocast(amp.autocast):
    """torch.amp.autocast("cuda", ...)."""

    def __init__(self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True) -> None:
        _renamed("autocast")
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """torch.amp.GradScaler("cuda", ...)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _renamed("GradScaler")
        super().__init__("cuda", *args, **kwargs)


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU to run it on."""
    return not device_count()


custom_fwd = amp.custom_fwd
custom_bwd = amp.custom_bwd

__path__: list[str] = []  # torch's is a package; what it keeps there is in `_homes`
__getattr__ = submodules(__name__)
