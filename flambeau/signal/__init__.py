"""torch.signal: window functions."""

from .._lazy import submodules

__getattr__ = submodules(__name__, "windows")
