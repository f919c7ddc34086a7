"""`torch._refs.nn.functional`."""

from ...nn import functional

__all__ = ["functional"]
