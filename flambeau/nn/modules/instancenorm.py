"""Instance normalisation."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .batchnorm import _LazyNormBase, _NormBase
from .lazy import lazy_family
from .utils import spatial_family


class _InstanceNorm(_NormBase):
    spatial = 2

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (self.spatial + 1, self.spatial + 2):
            raise ValueError(f"expected {self.spatial + 1}D or {self.spatial + 2}D input (got {input.ndim}D input)")

    def _normalise(self, input: Tensor) -> Tensor:
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                               self.training or not self.track_running_stats, self.momentum or 0.0, self.eps)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        channels = input.ndim - self.spatial - 1
        if input.shape[channels] != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={channels} to match num_features ({self.num_features}), but got: "
                                 f"{input.shape[channels]}.")
            warnings.warn(f"input's size at dim={channels} does not match num_features. You can silence this warning by not passing in "
                          "num_features, which is not used because affine=False", stacklevel=3)
        if input.ndim == self.spatial + 1:
            return self._normalise(input.unsqueeze(0)).squeeze(0)
        return self._normalise(input)


InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = spatial_family(
    _InstanceNorm, "InstanceNorm", "Normalise each channel of each sample of {dims}.")


class _LazyInstanceNorm(_LazyNormBase):
    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)


LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = lazy_family(
    _LazyInstanceNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)
