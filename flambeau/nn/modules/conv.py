"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin, lazy_family
from .module import Module
from .utils import _ntuple, _reverse_repeat_tuple, add_parameters, chosen, spatial_family

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: sizes, weights and their initialisation."""

    bias: Parameter | None
    spatial = 2
    _function: Callable[..., Tensor]

    def __init__(self, in_channels: int, out_channels: int, kernel_size: tuple, stride: tuple, padding: Any, dilation: tuple,
                 transposed: bool, output_padding: tuple, groups: int, bias: bool, padding_mode: str, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError(f"in_channels must be divisible by groups, got {in_channels} and {groups}")
        if out_channels % groups:
            raise ValueError(f"out_channels must be divisible by groups, got {out_channels} and {groups}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {list(_PADDING_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.transposed, self.output_padding, self.groups, self.padding_mode = transposed, output_padding, groups, padding_mode
        self._reversed_padding_repeated_twice = self._padding_amounts()
        shape = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        add_parameters(self, device, dtype, weight=(*shape, *kernel_size), bias=out_channels if bias else None)
        self.reset_parameters()

    def _padding_amounts(self) -> tuple | list:
        """The padding as F.pad takes it, for the modes other than zeros."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        amounts = [0] * (2 * len(self.kernel_size))
        if self.padding == "same":
            for d, k, i in zip(self.dilation, self.kernel_size, range(len(self.kernel_size) - 1, -1, -1)):
                total = d * (k - 1)
                amounts[2 * i], amounts[2 * i + 1] = total // 2, total - total // 2
        return amounts

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        function = type(self)._function
        if self.padding_mode != "zeros":
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return function(padded, weight, bias, self.stride, (0,) * len(self.kernel_size), self.dilation, self.groups)
        return function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        none, one = ((n,) * len(self.kernel_size) for n in (0, 1))
        return ", ".join([
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}",
            *chosen(self, padding=none, dilation=one, output_padding=none, groups=1),
            *(["bias=False"] if self.bias is None else []), *chosen(self, padding_mode="zeros")])

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Forward(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None) -> None:
        each = _ntuple(self.spatial)
        super().__init__(in_channels, out_channels, each(kernel_size), each(stride),
                         padding if isinstance(padding, str) else each(padding), each(dilation), False, each(0), groups, bias,
                         padding_mode, device, dtype)


Conv1d, Conv2d, Conv3d = spatial_family(_Forward, "Conv", "Cross-correlation over {n} spatial dimension(s).", function="conv")


class _ConvTransposeNd(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = None) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = _ntuple(self.spatial)
        super().__init__(in_channels, out_channels, each(kernel_size), each(stride), each(padding), each(dilation), True,
                         each(output_padding), groups, bias, padding_mode, device, dtype)

    def _output_padding(self, input: Tensor, output_size: Sequence[int] | None) -> tuple:
        """What must be added at the end of each dimension to reach `output_size`."""
        if output_size is None:
            return tuple(self.output_padding)
        wanted = tuple(output_size)[-self.spatial:]
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in
                 zip(input.shape[-self.spatial:], self.stride, self.padding, self.dilation, self.kernel_size)]
        most = [n + s - 1 for n, s in zip(least, self.stride)]
        if any(not low <= n <= high for n, low, high in zip(wanted, least, most)):
            raise ValueError(f"requested an output size of {list(wanted)}, but valid sizes range from {least} to {most} "
                             f"(for an input of {input.shape[-self.spatial:]})")
        return tuple(n - low for n, low in zip(wanted, least))

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return type(self)._function(input, self.weight, self.bias, self.stride, self.padding,
                                    self._output_padding(input, output_size), self.groups, self.dilation)


class _ConvTransposeMixin(_ConvTransposeNd):
    """An older base class of others' transposed convolutions; none here is one."""


ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = spatial_family(
    _ConvTransposeNd, "ConvTranspose", "The transpose of Conv{n}d in its input.", function="conv_transpose")


class _LazyConvMixin(LazyModuleMixin):
    """A convolution that learns in_channels from its first input."""

    def __init__(self: Any, out_channels: int, kernel_size: Any, *args: Any, bias: bool = True, device: Any = None,
                 dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(0, 0, kernel_size, *args, bias=False, device=device, dtype=dtype, **kwargs)
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self: Any) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()     # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the shapes from the input."""
        if not self.has_uninitialized_params():
            return
        if input.ndim not in (self.spatial + 1, self.spatial + 2):
            raise RuntimeError(f"Expected {self.spatial + 1}D (unbatched) or {self.spatial + 2}D (batched) input to {type(self).__name__}, but "
                               f"got input of size: {input.shape}")
        self.in_channels = input.shape[-self.spatial - 1]
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        pair = (self.in_channels, self.out_channels // self.groups) if self.transposed else \
            (self.out_channels, self.in_channels // self.groups)
        self.weight.materialize((*pair, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


LazyConv1d, LazyConv2d, LazyConv3d = lazy_family(_LazyConvMixin, Conv1d, Conv2d, Conv3d)
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = lazy_family(
    _LazyConvMixin, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
