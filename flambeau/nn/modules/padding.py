"""Padding layers: mode x number of spatial dimensions."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .module import Module
from .utils import _ntuple, spatial_family


class _PadNd(Module):
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


ConstantPad1d, ConstantPad2d, ConstantPad3d = spatial_family(
    _ConstantPadNd, "ConstantPad", "Pad the last {n} dimension(s) with `value`.")


ZeroPad1d, ZeroPad2d, ZeroPad3d = spatial_family(_ZeroPadNd, "ZeroPad", "Pad the last {n} dimension(s) with zeros.")


class _ReflectionPadNd(_PadNd):
    pass


class _ReplicationPadNd(_PadNd):
    pass


class _CircularPadNd(_PadNd):

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.spatial + 1, self.spatial + 2):
            raise ValueError(f"expected {self.spatial + 1}D or {self.spatial + 2}D input (got {input.ndim}D input)")
        return super().forward(input)


ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = spatial_family(
    _ReflectionPadNd, "ReflectionPad", "Pad the last {n} dimension(s) with their reflections.", mode="reflect")


ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = spatial_family(
    _ReplicationPadNd, "ReplicationPad", "Pad the last {n} dimension(s) with their borders.", mode="replicate")


CircularPad1d, CircularPad2d, CircularPad3d = spatial_family(
    _CircularPadNd, "CircularPad", "Pad the last {n} dimension(s) as if they went round.", mode="circular")
