"""Channels as pixels, and back."""

from __future__ import annotations

from .. import functional as F
from .applied import FunctionModule


class PixelShuffle(FunctionModule, function=F.pixel_shuffle):
    """(*, c r^2, h, w) -> (*, c, h r, w r)."""


class PixelUnshuffle(FunctionModule, function=F.pixel_unshuffle):
    """(*, c, h r, w r) -> (*, c r^2, h, w)."""
