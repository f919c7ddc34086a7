"""torch.* forms of the neural-network operators whose arguments come in another order than in nn.functional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.dtypes import bool_
from ...core.tensor import Tensor
from ..order import in_rows
from ..promotion import cast
from ..registry import operator
from ..writing import with_out
from . import layers, norms, resize, windows
from .dropout import alpha_dropout, dropout, feature_alpha_dropout, feature_dropout

Stats = Tensor | None


@operator
def batch_norm(input: Tensor, weight: Stats, bias: Stats, running_mean: Stats, running_var: Stats, training: bool, momentum: float,
               eps: float, cudnn_enabled: bool = False) -> Tensor:
    """nn.functional.batch_norm with the affine part first."""
    return norms.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@operator
@with_out
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                      training: bool, momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, with the mean and 1 / the deviation that it used (none of the running ones)."""
    norms._check_running(running_mean, running_var)
    if training:
        out, mean, var = norms._train(input, weight, bias, running_mean, running_var, momentum, eps)
        return out, cast(mean.detach(), input.dtype), cast((var.detach() + eps).rsqrt(), input.dtype)
    if running_mean is None or running_var is None:
        raise RuntimeError("native_batch_norm(): expected running_mean and running_var where training=False")
    out = norms._batch_norm_eval(input, weight, bias, running_mean, running_var, float(eps))
    return out, input.new_empty(0), input.new_empty(0)


@operator
def instance_norm(input: Tensor, weight: Stats, bias: Stats, running_mean: Stats, running_var: Stats, use_input_stats: bool,
                  momentum: float, eps: float, cudnn_enabled: bool = False) -> Tensor:
    """nn.functional.instance_norm with the affine part first."""
    return norms.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@operator
def native_layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Stats, bias: Stats,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(normalised, mean, 1 / sqrt(var + eps)); the normalised dimensions of the statistics, which have no gradient, have size 1."""
    shape = norms._check_normalized(input, normalized_shape, "native_layer_norm", weight, bias)
    norms._check_dtypes(input, weight, bias)
    out, mean, rstd = norms._layer_norm(input, weight, bias, len(shape), float(eps))
    kept = (*input.shape[:input.ndim - len(shape)], *(1,) * len(shape))
    return in_rows(out), *(cast(t, out.dtype).reshape(kept).detach() for t in (mean, rstd))


@operator
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """nn.functional.embedding with the table first; padding_idx -1 means none."""
    return layers.embedding(indices, weight, None if padding_idx < 0 else padding_idx, None, 2.0, scale_grad_by_freq, sparse)


@operator
def embedding_bag(*args: Any, **kwargs: Any) -> Any:
    """Refused: its four results are an implementation's own."""
    raise NotImplementedError("torch.embedding_bag is not implemented; use torch.nn.functional.embedding_bag(input, weight, offsets)")


@operator
def convolution(input: Tensor, weight: Tensor, bias: Stats, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
                transposed: bool, output_padding: Sequence[int], groups: int) -> Tensor:
    """Any convolution, by the number of spatial dimensions of its weight."""
    rank = weight.ndim - 2
    if transposed:
        function = (windows.conv_transpose1d, windows.conv_transpose2d, windows.conv_transpose3d)[rank - 1]
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return (windows.conv1d, windows.conv2d, windows.conv3d)[rank - 1](input, weight, bias, stride, padding, dilation, groups)


@operator
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """nn.functional.grid_sample with its modes as numbers."""
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return resize.grid_sample(input, grid, modes[interpolation_mode], paddings[padding_mode], align_corners)


@operator
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """nn.functional.affine_grid."""
    body = resize.affine_grid._operator.body     # type: ignore[attr-defined]
    return body(theta, size, align_corners)


@operator
def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """dropout in place."""
    return dropout(input, p, train, True)


@operator
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """nn.functional.pad with a constant."""
    return resize.pad(input, pad, "constant", value)


@operator(autocast="narrow")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution over time of (time, batch, channels) with (kernel, channels, out) weights."""
    if input.ndim != 3 or weight.ndim != 3 or bias.ndim != 1:
        raise RuntimeError("conv_tbc: Input must have 3 dims: time, batch, in_channel; weight 3: kernel, in_channel, out_channel; and bias "
                           f"1; got {list(input.shape)}, {list(weight.shape)} and {list(bias.shape)}")
    return in_rows(windows.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1))


@operator(node=True)
def native_group_norm(input: Tensor, weight: Stats, bias: Stats, N: int, C: int, HxW: int, group: int,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(group_norm, mean, 1 / sqrt(var + eps)), the statistics for each sample and group."""
    rows = input.reshape(N, group, C * HxW // group)
    var, mean = rows.var(-1, correction=0), rows.mean(-1)
    return norms.group_norm(input, group, weight, bias, eps), mean, (var + eps).rsqrt()


@operator
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(dropout, the mask of what was kept)."""
    if train is False:
        return input.clone(), input.new_full(tuple(input.shape), True, dtype=bool_)
    kept = input.new_empty(tuple(input.shape)).bernoulli_(1 - p)
    return input * kept * (1 / (1 - p) if p < 1 else 0.0), kept.to(bool_)


@operator
def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """The rows of `weight` that `indices` name, scaled down to at most `max_norm` in place."""
    layers._shorten_rows(weight, indices, max_norm, norm_type)
    return weight


def _dropout_in_place(fn: Callable) -> None:
    def dropped(input: Tensor, p: float, train: bool) -> Tensor:
        return fn(input, p, train, True)

    dropped.__doc__ = f"nn.functional.{fn.__name__} in place."
    operator(dropped, name=f"{fn.__name__}_")


for _fn in (alpha_dropout, feature_dropout, feature_alpha_dropout):
    _dropout_in_place(_fn)
