"""torch._guards: what libraries ask for."""

from ._subclasses.fake_tensor import detect_fake_mode

__all__ = ["detect_fake_mode"]
