"""Folding BatchNorm into the layer before it, for inference."""

from __future__ import annotations

import copy

from ...core import dispatch
from ...core.tensor import Tensor
from ..modules.module import Module
from ..parameter import Parameter


def _scale(bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None) -> Tensor:
    rstd = (bn_rv + bn_eps).rsqrt()
    return rstd if bn_w is None else bn_w * rstd


def _fused_bias(b: Tensor | None, scale: Tensor, mean: Tensor, bn_b: Tensor | None) -> Tensor:
    out = -mean * scale if b is None else (b - mean) * scale
    return out if bn_b is None else out + bn_b


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
                         bn_b: Tensor | None, transpose: bool = False) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution that does both."""
    with dispatch.grad_enabled(False):
        scale = _scale(bn_rv, bn_eps, bn_w)
        shape = (1, -1) if transpose else (-1, 1)
        weight = conv_w * scale.reshape(*shape, *(1,) * (conv_w.ndim - 2))
        bias = _fused_bias(conv_b, scale, bn_rm, bn_b)
    grads = conv_w.requires_grad
    return Parameter(weight.to(conv_w.dtype), grads), Parameter(bias.to(conv_w.dtype), grads)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor,
                           bn_b: Tensor) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear map that does both."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Module, bn: Module, transpose: bool) -> Module:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    made = copy.deepcopy(layer)
    made.weight, made.bias = fuse_conv_bn_weights(made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps,
                                                  bn.weight, bn.bias, transpose)
    return made


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A convolution that does the work of both, in evaluation."""
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """A linear map that does the work of both, in evaluation."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused(linear, bn, False)
