"""Transformer encoder and decoder (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

from ...autograd.grad_mode import is_grad_enabled
from ...core.tensor import Tensor
from ...ops.counting import arange
from ...ops.creation import full
from ...ops.pointwise import where
from .. import functional as F
from ..init import xavier_uniform_
from .activation import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

_ACTIVATIONS: dict[str, Callable] = {"relu": F.relu, "gelu": F.gelu}


def _get_activation_fn(name: Any) -> Callable:
    if callable(name):
        return name
    if name not in _ACTIVATIONS:
        raise RuntimeError(f"activation should be relu/gelu, not {name}")
    return _ACTIVATIONS[name]


def _get_clones(module: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


def _square_subsequent_mask(size: Any, device: Any = None, dtype: Any = None) -> Tensor:
    """-inf above the diagonal: position i sees positions up to i."""
    return full((size, size), -math.inf, dtype=dtype, device=device).triu(1)


def _is_causal(mask: Tensor | None, is_causal: bool | None, size: Any) -> bool:
    """Whether `mask` is known to be the causal one. Told, or compared."""
    if is_causal is not None:
        return is_causal
    if mask is None or mask._data is None or mask.ndim != 2 or tuple(mask.shape) != (size, size):
        return False
    causal = _square_subsequent_mask(size, mask.device)
    wanted = causal.to(mask.dtype) if mask.dtype.is_floating_point else causal != 0
    return bool((mask == wanted).all())


class _Layer(Module):
    """Self-attention, with `_cross` also attention to the encoder's output, and a feed-forward network; each adds to its input."""

    _cross = False

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where)
        if self._cross:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        blocks = range(1, 4 if self._cross else 3)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)
        if not self._cross:     # PyTorch chooses its fused layer by it, when it loads this one
            self.activation_relu_or_gelu = next((i for i, f in ((1, F.relu), (2, F.gelu)) if self.activation is f), 0)

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        out = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal)[0]
        return self.dropout1(out)

    def _ff_block(self, x: Tensor) -> Tensor:
        last = self.dropout3 if self._cross else self.dropout2
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a norm."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward network."""

    _cross = True

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
            x = x + self._mha_block(self.norm2(x), memory, memory_mask, memory_key_padding_mask, memory_is_causal)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self.norm2(x + self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                   is_causal: bool = False) -> Tensor:
        out = self.multihead_attn(x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal,
                                  need_weights=False)[0]
        return self.dropout2(out)


def _length(x: Tensor, layer: Any) -> Any:
    if x.ndim == 2 or x.is_nested:
        return x.size(0)
    return x.shape[1] if layer.self_attn.batch_first else x.shape[0]


def _not_nested(layer: Any) -> str | None:
    """Why a stack of these layers leaves padding as it comes, which torch computes without in nested tensors, and gives as 0."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    return next((f"encoder_layer.{why}" for why, holds in (
        ("norm_first was True", layer.norm_first),
        ("self_attn.batch_first was not True(use batch_first for better inference performance)", not attention.batch_first),
        ("self_attn was passed bias=False", attention.in_proj_bias is None),
        ("activation_relu_or_gelu was not True", not layer.activation_relu_or_gelu),
        ("self_attn.num_heads is odd", attention.num_heads % 2)) if holds), None)


class TransformerEncoder(Module):
    """A stack of encoder layers."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        why = _not_nested(encoder_layer)
        self.enable_nested_tensor, self.mask_check, self.use_nested_tensor = enable_nested_tensor, mask_check, enable_nested_tensor and not why
        if enable_nested_tensor and why:
            warnings.warn(f"enable_nested_tensor is True, but self.use_nested_tensor is False because {why}", stacklevel=2)

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        causal = _is_causal(mask, is_causal, _length(src, self.layers[0]))
        out, padding = src, None
        if src_key_padding_mask is not None and mask is None and src.ndim == 3 and self._is_inference(src):
            src_key_padding_mask, padding = self._padding(src, src_key_padding_mask)
        for layer in self.layers:
            out = layer(out, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        if padding is not None:
            out = out.masked_fill(padding.unsqueeze(-1), 0.0)
        return out if self.norm is None else self.norm(out)

    def _is_inference(self, src: Tensor) -> bool:
        """Whether padding comes out as 0."""
        wants_grad = is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in self.parameters()))
        return self.use_nested_tensor and not self.training and not wants_grad

    def _padding(self, src: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The mask to compute with, and where the result is 0: at the end of each row as many as are masked out (by True, or a number that
        is not 0). With `mask_check` that holds if all rows are masked at their ends alone."""
        if mask.ndim != 2:
            raise RuntimeError(f"Padding mask should be 2D, got shape {list(mask.shape)} for an input of shape {list(src.shape)}")
        kept = mask.logical_not()
        padding = arange(kept.shape[1], device=kept.device) >= kept.sum(1, keepdim=True)
        if not self.mask_check:
            return padding, padding
        sure = (padding != kept).all()
        if mask.dtype.is_floating_point:
            mask = where(sure, where(padding, full((), -math.inf, dtype=mask.dtype, device=mask.device), 0.0), mask)
        return mask, padding & sure


class TransformerDecoder(Module):
    """A stack of decoder layers."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt, self.layers[0]))
        out = tgt
        for layer in self.layers:
            out = layer(out, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal, memory_is_causal=memory_is_causal)
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """Encoder and decoder together."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = F.relu, custom_encoder: Any = None,
                 custom_decoder: Any = None, layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*options, **where), num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*options, **where), num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """-inf above the diagonal, 0 elsewhere."""
        return _square_subsequent_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.ndim > 1:
                xavier_uniform_(p)
