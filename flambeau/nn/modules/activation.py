"""Activations as modules, and multi-head attention."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...core.memory_format import jagged
from ...core.tensor import Tensor
from ...ops.creation import empty
from .. import functional as F
from ..init import constant_, xavier_normal_, xavier_uniform_
from ..parameter import Parameter
from .applied import FunctionModule
from .linear import NonDynamicallyQuantizableLinear
from .module import Module
from .utils import add_parameters


class ReLU(FunctionModule, function=F.relu):
    """max(x, 0)."""


class SiLU(FunctionModule, function=F.silu):
    """x * sigmoid(x)."""


class Mish(FunctionModule, function=F.mish):
    """x * tanh(softplus(x))."""


class SELU(FunctionModule, function=F.selu):
    """The self-normalising elu."""


class Hardswish(FunctionModule, function=F.hardswish):
    """x * relu6(x + 3) / 6."""


class Hardsigmoid(FunctionModule, function=F.hardsigmoid):
    """relu6(x + 3) / 6."""


class Hardtanh(FunctionModule, function=F.hardtanh):
    """x limited to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None,
                 max_value: float | None = None) -> None:
        super().__init__()
        for old, value in (("min_value", min_value), ("max_value", max_value)):
            if value is not None:
                warnings.warn(f"keyword argument `{old}` is deprecated and renamed to `{old[:-2]}`", FutureWarning, stacklevel=2)
        self._keep(min_val=min_val if min_value is None else min_value, max_val=max_val if max_value is None else max_value,
                   inplace=inplace)

    def _keep(self, min_val: float, max_val: float, **settings: Any) -> None:     # type: ignore[override]
        if max_val <= min_val:
            raise AssertionError("max_val must be larger than min_val")
        super()._keep(min_val=min_val, max_val=max_val, **settings)


class ReLU6(Hardtanh):
    """x limited to [0, 6]."""

    settings = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Threshold(FunctionModule, function=F.threshold):
    """x where it exceeds `threshold`, else `value`."""


class RReLU(FunctionModule, function=F.rrelu):
    """leaky_relu with random slopes in training."""


class Sigmoid(FunctionModule, function=F.sigmoid):
    """1 / (1 + e^-x)."""


class Tanh(FunctionModule, function=F.tanh):
    """The hyperbolic tangent."""


class LogSigmoid(FunctionModule, function=F.logsigmoid):
    """log(sigmoid(x))."""


class Softsign(FunctionModule, function=F.softsign):
    """x / (1 + |x|)."""


class Tanhshrink(FunctionModule, function=F.tanhshrink):
    """x - tanh(x)."""


class GELU(FunctionModule, function=F.gelu):
    """x * cdf(x) of the standard normal distribution."""


class ELU(FunctionModule, function=F.elu):
    """x where positive, else alpha * (e^x - 1)."""


class CELU(FunctionModule, function=F.celu):
    """x where positive, else alpha * (e^(x / alpha) - 1)."""


class LeakyReLU(FunctionModule, function=F.leaky_relu):
    """x where positive, else negative_slope * x."""


class Softplus(FunctionModule, function=F.softplus):
    """log(1 + e^(beta x)) / beta."""


class Hardshrink(FunctionModule, function=F.hardshrink):
    """x outside [-lambd, lambd], else 0."""

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(FunctionModule, function=F.softshrink):
    """x moved towards 0 by lambd."""

    extra_repr = Hardshrink.extra_repr


class GLU(FunctionModule, function=F.glu):
    """a * sigmoid(b) of the halves along `dim`."""


class PReLU(Module):
    """x where positive, else weight * x with a learnt weight (one, or one per channel)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        add_parameters(self, device, dtype, weight=num_parameters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """`init` everywhere."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softmin(FunctionModule, function=F.softmin, without=("_stacklevel", "dtype")):
    """softmax(-x) along `dim`."""


class Softmax(FunctionModule, function=F.softmax, without=("_stacklevel", "dtype")):
    """exp(x) / sum(exp(x)) along `dim`."""


class LogSoftmax(FunctionModule, function=F.log_softmax, without=("_stacklevel", "dtype")):
    """log(softmax(x)) along `dim`."""


class Softmax2d(Module):
    """softmax over the channels of (n, c, h, w) or (c, h, w)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3, _stacklevel=5)


class MultiheadAttention(Module):
    """Attention of several heads with input and output projections (Vaswani et al. 2017)."""

    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead")
        if embed_dim % num_heads:
            raise AssertionError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        where = {"device": device, "dtype": dtype}
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim if kdim is not None else embed_dim, vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        one = self._qkv_same_embed_dim
        add_parameters(self, device, dtype, in_proj_weight=(3 * embed_dim, embed_dim) if one else None, **{
            f"{name}_proj_weight": None if one else (embed_dim, width)
            for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim))}, in_proj_bias=3 * embed_dim if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **where)
        self.bias_k = Parameter(empty((1, 1, embed_dim), **where)) if add_bias_kv else None
        self.bias_v = Parameter(empty((1, 1, embed_dim), **where)) if add_bias_kv else None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            constant_(self.in_proj_bias, 0.0)
            constant_(self.out_proj.bias, 0.0)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                xavier_normal_(bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights). Inputs are (length, batch, embed), (batch, length, embed) with batch_first, or (length, embed).

        key_padding_mask: (batch, keys), True (or a number to add) where a key is left out. attn_mask: (queries, keys) or
        (batch * heads, queries, keys), True where a pair is left out, or numbers to add.
        """
        if query.is_nested or key.is_nested or value.is_nested:
            return self._of_nested((query, key, value), key_padding_mask is not None or attn_mask is not None, need_weights,
                                   average_attn_weights, is_causal)
        swap = self.batch_first and query.ndim == 3
        if swap:
            shared_kv, shared_all = key is value, query is key
            query = query.transpose(0, 1)
            key = query if shared_all else key.transpose(0, 1)
            value = key if shared_kv else value.transpose(0, 1)
        out, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal)
        return (out.transpose(0, 1) if swap else out), weights

    def _of_nested(self, inputs: tuple[Tensor, ...], masked: bool, need_weights: bool, average: bool,
                   is_causal: bool) -> tuple[Tensor, Tensor | None]:
        """Attention within each row of nested tensors (batch, ragged, embed), which need no mask; weights are padded with 0."""
        why = next((why for why, holds in (
            ("batch_first was not True", not self.batch_first), ("a mask was given: the rows have only what counts", masked),
            ("query, key and value are not all nested", not all(x.is_nested for x in inputs)),
            ("bias_k or add_zero_attn is on", self.bias_k is not None or self.add_zero_attn),
            ("weights of jagged tensors would be ragged twice: call it with need_weights=False", need_weights and inputs[0].layout is jagged),
        ) if holds), None)
        if why is not None:
            raise AssertionError(f"MultiheadAttention does not support NestedTensor here: {why}")
        weights = self.in_proj_weight.chunk(3) if self._qkv_same_embed_dim else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (F.linear(x, w, b).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
                   for x, w, b in zip(inputs, weights, biases))
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=is_causal)
        shares: Any = None
        if need_weights:
            shares = (q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)).softmax(-1)
            shares = shares.to_padded_tensor(0.0)
            shares = shares.mean(1) if average else shares
        return self.out_proj(out.transpose(1, 2).flatten(-2)), shares
