"""Padding layers: mode x number of spatial dimensions."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .module import Module
from .utils import _ntuple


class _PadNd(Module):
    __constants__ = ["padding"]
    spatial = 2
    mode = "constant"
    value: float | None = None

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self.spatial)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd):
    """Pad the last dimension with `value`."""

    spatial = 1


class ConstantPad2d(_ConstantPadNd):
    """Pad the last two dimensions with `value`."""

    spatial = 2


class ConstantPad3d(_ConstantPadNd):
    """Pad the last three dimensions with `value`."""

    spatial = 3


class ZeroPad1d(_ZeroPadNd):
    """Pad the last dimension with zeros."""

    spatial = 1


class ZeroPad2d(_ZeroPadNd):
    """Pad the last two dimensions with zeros."""

    spatial = 2


class ZeroPad3d(_ZeroPadNd):
    """Pad the last three dimensions with zeros."""

    spatial = 3


class ReflectionPad1d(_PadNd):
    """Pad the last dimension with its reflection."""

    spatial, mode = 1, "reflect"


class ReflectionPad2d(_PadNd):
    """Pad the last two dimensions with their reflections."""

    spatial, mode = 2, "reflect"


class ReflectionPad3d(_PadNd):
    """Pad the last three dimensions with their reflections."""

    spatial, mode = 3, "reflect"


class ReplicationPad1d(_PadNd):
    """Pad the last dimension with its border."""

    spatial, mode = 1, "replicate"


class ReplicationPad2d(_PadNd):
    """Pad the last two dimensions with their borders."""

    spatial, mode = 2, "replicate"


class ReplicationPad3d(_PadNd):
    """Pad the last three dimensions with their borders."""

    spatial, mode = 3, "replicate"


class CircularPad1d(_PadNd):
    """Pad the last dimension as if it went round."""

    spatial, mode = 1, "circular"


class CircularPad2d(_PadNd):
    """Pad the last two dimensions as if they went round."""

    spatial, mode = 2, "circular"


class CircularPad3d(_PadNd):
    """Pad the last three dimensions as if they went round."""

    spatial, mode = 3, "circular"
