"""Batch normalisation."""

from __future__ import annotations

from typing import Any

from ...core.dtypes import int64
from ...core.lazy import LazyModule
from ...core.tensor import Tensor
from ...ops.creation import ones, tensor, zeros
from ...ops.nn.steps import step_number
from .. import functional as F
from ..parameter import UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin, lazy_family
from .module import Module
from .normalization import _Affine
from .utils import add_parameters

_shared = LazyModule("flambeau.distributed.nn.batch_norm")


class _NormBase(_Affine):
    """Affine parameters and running statistics per channel."""

    _version = 2

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        size = num_features if affine else None
        add_parameters(self, device, dtype, weight=size, bias=size if bias else None)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", tensor(0, dtype=int64, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and fresh statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say which inputs it takes")

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any) -> None:
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats:
            state_dict.setdefault(prefix + "num_batches_tracked", tensor(0, dtype=int64)
                                  if self.num_batches_tracked is None or self.num_batches_tracked.is_meta
                                  else self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    _ranks: tuple[int, ...] = ()

    def _check_input_dim(self, input: Tensor) -> None:
        if not self._ranks:
            super()._check_input_dim(input)
        if input.ndim not in self._ranks:
            raise ValueError(f"expected {' or '.join(f'{r}D' for r in self._ranks)} input (got {input.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:     # the plain average over all batches
                momentum = 1.0 / step_number(self.num_batches_tracked)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        return self._normalized(input, self.running_mean if keep else None, self.running_var if keep else None, use_batch, momentum)

    def _normalized(self, input: Tensor, mean: Tensor | None, var: Tensor | None, use_batch: bool, momentum: float) -> Tensor:
        return F.batch_norm(input, mean, var, self.weight, self.bias, use_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalise each channel of (n, c) or (n, c, l) over the rest."""

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise each channel of (n, c, h, w) over the rest."""

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise each channel of (n, c, d, h, w) over the rest."""

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over the batches of all processes of `process_group` (all there are); with a single process it is plain BatchNorm."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _normalized(self, input: Tensor, mean: Tensor | None, var: Tensor | None, use_batch: bool, momentum: float) -> Tensor:
        if self.training and _shared.is_shared(self.process_group):
            return _shared.batch_norm(input, mean, var, self.weight, self.bias, momentum, self.eps, self.process_group)
        return super()._normalized(input, mean, var, use_batch, momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replace every BatchNorm below `module` by a SyncBatchNorm with its parameters."""
        out = module
        if isinstance(module, _BatchNorm):
            out = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
                      bias=module.bias is not None)
            for home in ("_parameters", "_buffers"):
                out.__dict__[home].update(module.__dict__[home])
            out.training = module.training
        for name, child in module.named_children():
            out.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return out


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Norms that learn num_features from their first input."""

    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of channels from the input."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for t in (*self._parameters.values(), self.running_mean, self.running_var):
                if t is not None:
                    t.materialize((self.num_features,))
            self.reset_parameters()


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = lazy_family(_LazyNormBase, BatchNorm1d, BatchNorm2d, BatchNorm3d)
