"""Pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .applied import FunctionModule
from .module import Module
from .utils import _ntuple, spatial_family


def _windows(module: Module) -> str:
    return f"kernel_size={module.kernel_size}, stride={module.stride}, padding={module.padding}"


class _MaxPoolNd(Module):
    _function: Callable[..., Any]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
                 ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
                                    return_indices=self.return_indices)

    def extra_repr(self) -> str:
        return f"{_windows(self)}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


MaxPool1d, MaxPool2d, MaxPool3d = spatial_family(
    _MaxPoolNd, "MaxPool", "Maximum over sliding windows of {dims}.", function="max_pool")


class _MaxUnpoolNd(Module):
    spatial = 2
    _function: Callable[..., Tensor]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        each = _ntuple(self.spatial)
        self.kernel_size = each(kernel_size)
        self.stride, self.padding = each(stride if stride is not None else kernel_size), each(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return type(self)._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    extra_repr = _windows


MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = spatial_family(
    _MaxUnpoolNd, "MaxUnpool", "Puts the values of MaxPool{n}d back at their indices.", function="max_unpool")


class _AvgPoolNd(FunctionModule):
    def _keep(self, kernel_size: Any, stride: Any, **settings: Any) -> None:     # type: ignore[override]
        super()._keep(kernel_size=kernel_size, stride=stride if stride is not None else kernel_size, **settings)

    extra_repr = _windows


class AvgPool1d(_AvgPoolNd, function=F.avg_pool1d, without=("divisor_override",)):
    """Mean over sliding windows of (n, c, l)."""

    def _keep(self, kernel_size: Any, stride: Any, padding: Any, **settings: Any) -> None:     # type: ignore[override]
        each = _ntuple(1)
        super()._keep(each(kernel_size), None if stride is None else each(stride), padding=each(padding), **settings)


class AvgPool2d(_AvgPoolNd, function=F.avg_pool2d):
    """Mean over sliding windows of (n, c, h, w)."""


class AvgPool3d(_AvgPoolNd, function=F.avg_pool3d):
    """Mean over sliding windows of (n, c, d, h, w)."""


class _LPPoolNd(FunctionModule):
    pass


LPPool1d, LPPool2d, LPPool3d = spatial_family(
    _LPPoolNd, "LPPool", "The norm_type-norm over sliding windows of {dims}.", function="lp_pool")


class _FractionalNd(Module):
    spatial = 2
    _function: Callable[..., Any]

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
                 _random_samples: Tensor | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        each = _ntuple(self.spatial)
        self.kernel_size, self.return_indices = each(kernel_size), return_indices
        self.output_size = None if output_size is None else each(output_size)
        self.output_ratio = None if output_ratio is None else each(output_ratio)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


FractionalMaxPool2d, FractionalMaxPool3d = spatial_family(
    _FractionalNd, "FractionalMaxPool", "Maximum over windows at random distances in {dims}.", function="fractional_max_pool", ranks=(2, 3))


class _AdaptiveNd(FunctionModule):
    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_AdaptiveNd):
    pass


class _AdaptiveMaxPoolNd(_AdaptiveNd):
    pass


AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = spatial_family(
    _AdaptiveAvgPoolNd, "AdaptiveAvgPool", "Means of an even division of {dims} into output_size windows.", function="adaptive_avg_pool")
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = spatial_family(
    _AdaptiveMaxPoolNd, "AdaptiveMaxPool", "Maxima of an even division of {dims} into output_size windows.", function="adaptive_max_pool")
