"""TorchScript's forms of functions and modules that are more than one operator of ATen: written in the language, compiled at each use.

A parameter without an annotation is of the type that it is given, and what is known while compiling (`mode="nearest"`, None) decides
branches there: the text has only what is left.
"""
# ruff: noqa: UP006, UP035, UP045 - the language's own annotations

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from ... import nn
from ..._settings import _assert as _plain_assert
from ...autograd.grad_mode import enable_grad as _enable_grad
from ...autograd.grad_mode import no_grad as _no_grad
from ...core.dtypes import bool_
from ...core.tensor import Tensor
from ...nn import functional as F
from ...nn import packing
from ...nn.modules import activation, batchnorm, conv, instancenorm, pooling, rnn, utils
from ...ops import aten
from ...ops.registry import OPERATORS
from ...ops.sorting import unique as _unique
from ...ops.sorting import unique_consecutive as _unique_consecutive


# -- scopes of gradients ---------------------------------------------------------------------------------------------------------
class no_grad:
    """Within it nothing is recorded."""

    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class enable_grad:
    """Within it operations are recorded."""

    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


# -- functions ---------------------------------------------------------------------------------------------------------------------
def _assert(condition: bool, message: str) -> None:
    assert condition, message


def _single(x):
    if isinstance(x, (int, float)):
        return [x]
    return x


def _pair(x):
    if isinstance(x, (int, float)):
        return [x, x]
    return x


def _triple(x):
    if isinstance(x, (int, float)):
        return [x, x, x]
    return x


def _quadruple(x):
    if isinstance(x, (int, float)):
        return [x, x, x, x]
    return x


def _implicit_dim(input: Tensor) -> int:
    return 0 if input.dim() in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    if dim is None:
        dim = _implicit_dim(input)
    return aten.softmax(input, dim, dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    if dim is None:
        dim = _implicit_dim(input)
    return aten.log_softmax(input, dim, dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    if dim is None:
        dim = _implicit_dim(input)
    return aten.softmax(-input, dim, dtype)


def feature_dropout(input, p=0.5, training=True, inplace=False):
    return aten.feature_dropout_(input, p, training) if inplace else aten.feature_dropout(input, p, training)


def softsign(input):
    return input / (input.abs() + 1)


def tanhshrink(input):
    return input - input.tanh()


def normalize(input, p: float = 2.0, dim: int = 1, eps: float = 1e-12):
    return input / input.norm(p, [dim], True).clamp_min(eps).expand_as(input)


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        raise NotImplementedError(f"embedding with max_norm (by the {norm_type}-norm) in TorchScript: scale the weight beforehand")
    return aten.embedding(weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse)


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    if max_norm is not None:
        raise NotImplementedError(f"embedding_bag with max_norm (by the {norm_type}-norm) in TorchScript: scale the weight beforehand")
    how = 0 if mode == "sum" else 1 if mode == "mean" else 2
    if offsets is None:
        starts = aten.arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        values = input.reshape(-1)
        weights = per_sample_weights if per_sample_weights is None else per_sample_weights.reshape(-1)
        return aten.embedding_bag(weight, values, starts, scale_grad_by_freq, how, sparse, weights, include_last_offset, padding_idx)[0]
    return aten.embedding_bag(weight, input, offsets, scale_grad_by_freq, how, sparse, per_sample_weights, include_last_offset,
                              padding_idx)[0]


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    if size_average is not None or reduce is not None:
        raise NotImplementedError("kl_div with size_average or reduce in TorchScript: say reduction")
    if reduction == "batchmean":
        return aten.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    return aten.kl_div(input, target, 0 if reduction == "none" else 1 if reduction == "mean" else 2, log_target=log_target)


def _sizes(input: Tensor, wanted) -> List[int]:
    """The sizes that are wanted, and those of the input where None stands."""
    found: List[int] = []
    for at, size in enumerate(wanted):
        found.append(input.size(at + input.dim() - len(wanted)) if size is None else size)
    return found


def adaptive_avg_pool2d(input, output_size):
    if isinstance(output_size, int):
        return aten.adaptive_avg_pool2d(input, [output_size, output_size])
    return aten.adaptive_avg_pool2d(input, _sizes(input, output_size))


def adaptive_avg_pool3d(input, output_size):
    if isinstance(output_size, int):
        return aten.adaptive_avg_pool3d(input, [output_size, output_size, output_size])
    return aten.adaptive_avg_pool3d(input, _sizes(input, output_size))


def adaptive_max_pool1d(input, output_size, return_indices=False):
    found = aten.adaptive_max_pool1d(input, output_size)
    return found if return_indices else found[0]


def adaptive_max_pool2d(input, output_size, return_indices=False):
    if isinstance(output_size, int):
        found = aten.adaptive_max_pool2d(input, [output_size, output_size])
    else:
        found = aten.adaptive_max_pool2d(input, _sizes(input, output_size))
    return found if return_indices else found[0]


def adaptive_max_pool3d(input, output_size, return_indices=False):
    found = aten.adaptive_max_pool3d(input, output_size)
    return found if return_indices else found[0]


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    area = kernel_size * kernel_size if isinstance(kernel_size, int) else kernel_size[0] * kernel_size[1]
    out = aten.avg_pool2d(input.pow(norm_type), kernel_size, kernel_size if stride is None else stride, 0, ceil_mode)
    return (out.sign() * out.abs().relu()).mul(area).pow(1.0 / norm_type)


def _spatial(input: Tensor, size, scale_factor) -> List[int]:
    """The sizes that an image gets."""
    if size is None:
        found: List[int] = []
        for at in range(input.dim() - 2):
            factor = scale_factor if isinstance(scale_factor, float) else scale_factor[at]
            found.append(int(input.size(at + 2) * factor))
        return found
    if isinstance(size, int):
        return [size for _ in range(input.dim() - 2)]
    return size


def _factors(input: Tensor, scale_factor) -> Optional[List[float]]:
    if scale_factor is None:
        return None
    if isinstance(scale_factor, (float, int)):
        return [float(scale_factor) for _ in range(input.dim() - 2)]
    return scale_factor


def _wanted(input: Tensor, size) -> Optional[List[int]]:
    if size is None:
        return None
    if isinstance(size, int):
        return [size for _ in range(input.dim() - 2)]
    return size


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    sizes = _wanted(input, size)
    factors = _factors(input, scale_factor)
    if recompute_scale_factor is not None and recompute_scale_factor and factors is not None:
        sizes = [int(input.size(at + 2) * factor) for at, factor in enumerate(factors)]
        factors = None
    corners = False if align_corners is None else align_corners
    if mode == "nearest":
        if input.dim() == 3:
            return aten.upsample_nearest1d(input, sizes, factors)
        if input.dim() == 4:
            return aten.upsample_nearest2d(input, sizes, factors)
        return aten.upsample_nearest3d(input, sizes, factors)
    if mode == "nearest-exact":
        if input.dim() == 3:
            return aten._upsample_nearest_exact1d(input, sizes, factors)
        if input.dim() == 4:
            return aten._upsample_nearest_exact2d(input, sizes, factors)
        return aten._upsample_nearest_exact3d(input, sizes, factors)
    if mode == "linear":
        return aten.upsample_linear1d(input, sizes, corners, factors)
    if mode == "bilinear":
        if antialias:
            return aten._upsample_bilinear2d_aa(input, sizes, corners, factors)
        return aten.upsample_bilinear2d(input, sizes, corners, factors)
    if mode == "bicubic":
        if antialias:
            return aten._upsample_bicubic2d_aa(input, sizes, corners, factors)
        return aten.upsample_bicubic2d(input, sizes, corners, factors)
    if mode == "trilinear":
        return aten.upsample_trilinear3d(input, sizes, corners, factors)
    if mode == "area":
        wanted = _spatial(input, size, scale_factor)
        if input.dim() == 4:
            return aten.adaptive_avg_pool2d(input, wanted)
        return aten.adaptive_avg_pool1d(input, wanted)
    raise ValueError(f"interpolate has no mode {mode}")


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    how = 0 if mode == "bilinear" else 1 if mode == "nearest" else 2
    beyond = 0 if padding_mode == "zeros" else 1 if padding_mode == "border" else 2
    return aten.grid_sampler(input, grid, how, beyond, False if align_corners is None else align_corners)


def affine_grid(theta, size: List[int], align_corners=None):
    return aten.affine_grid_generator(theta, size, False if align_corners is None else align_corners)


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    if dim is None:
        values, inverse, counts = aten._unique2(input, sorted, return_inverse, return_counts)
    else:
        values, inverse, counts = aten.unique_dim(input, dim, sorted, return_inverse, return_counts)
    if return_inverse and return_counts:
        return values, inverse, counts
    if return_inverse:
        return values, inverse
    if return_counts:
        return values, counts
    return values


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    values, inverse, counts = aten.unique_consecutive(input, return_inverse, return_counts, dim)
    if return_inverse and return_counts:
        return values, inverse, counts
    if return_inverse:
        return values, inverse
    if return_counts:
        return values, counts
    return values


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    axes = [dim] if isinstance(dim, int) else dim
    if isinstance(p, str):
        if p == "nuc":
            return aten.linalg_matrix_norm(input, "nuc", [-2, -1] if axes is None else axes, keepdim, dtype=dtype)
        return aten.linalg_vector_norm(input, 2.0, axes, keepdim, dtype=dtype)
    return aten.linalg_vector_norm(input, float(p), axes, keepdim, dtype=dtype)


def tensordot(a, b, dims=2):
    if isinstance(dims, int):
        first = a.dim() - dims
        return aten.tensordot(a, b, [first + i for i in range(dims)], [0 + i for i in range(dims)])
    if isinstance(dims, Tensor):
        left, right = dims.unbind(0)
        return aten.tensordot(a, b, [int(i) for i in left], [int(i) for i in right])
    return aten.tensordot(a, b, dims[0], dims[1])


def stft(input, n_fft: int, hop_length: Optional[int] = None, win_length: Optional[int] = None, window: Optional[Tensor] = None,
         center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: Optional[bool] = None,
         return_complex: Optional[bool] = None):
    return aten.stft(input, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided, return_complex)


def lu(A, pivot: bool = True, get_infos: bool = False):
    packed, pivots, infos = aten.linalg_lu_factor_ex(A, pivot=pivot)
    return (packed, pivots, infos) if get_infos else (packed, pivots)


def gumbel_softmax(logits, tau: float = 1.0, hard=False, eps: float = 1e-10, dim: int = -1):
    noise = -aten.empty_like(logits).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if hard:
        index = soft.max(dim, True)[1]
        one = aten.zeros_like(logits).scatter_(dim, index, 1.0)
        return one - soft.detach() + soft
    return soft


def multi_head_attention_forward(query, key, value, embed_dim_to_check: int, num_heads: int, in_proj_weight, in_proj_bias, bias_k, bias_v,
                                 add_zero_attn, dropout_p: float, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None,
                                 need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None,
                                 k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True,
                                 is_causal=False):
    single = query.dim() == 2
    if single:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
    steps, batch, width = query.size(0), query.size(1), query.size(2)
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if static_k is not None or static_v is not None:
        raise NotImplementedError("multi_head_attention_forward with static_k or static_v in TorchScript")
    each = width // num_heads
    if use_separate_proj_weight:
        wq, wk, wv = q_proj_weight, k_proj_weight, v_proj_weight
    else:
        wq, wk, wv = in_proj_weight.chunk(3)[0], in_proj_weight.chunk(3)[1], in_proj_weight.chunk(3)[2]
    if in_proj_bias is None:
        q, k, v = aten.linear(query, wq), aten.linear(key, wk), aten.linear(value, wv)
    else:
        biases = in_proj_bias.chunk(3)
        q, k, v = aten.linear(query, wq, biases[0]), aten.linear(key, wk, biases[1]), aten.linear(value, wv, biases[2])
    if bias_k is not None and bias_v is not None:
        k, v = aten.cat([k, bias_k.repeat(1, batch, 1)]), aten.cat([v, bias_v.repeat(1, batch, 1)])
    if add_zero_attn:
        zeros = aten.zeros([1, batch, width], dtype=k.dtype, device=k.device)
        k, v = aten.cat([k, zeros]), aten.cat([v, zeros])
    length = k.size(0)
    q = q.reshape(steps, batch, num_heads, each).permute(1, 2, 0, 3)
    k = k.reshape(length, batch, num_heads, each).permute(1, 2, 0, 3)
    v = v.reshape(length, batch, num_heads, each).permute(1, 2, 0, 3)
    scores = aten.matmul(q / float(each) ** 0.5, k.transpose(2, 3))
    if attn_mask is not None:
        scores = scores + _additive(attn_mask, scores, length, 2, batch, num_heads)
    if key_padding_mask is not None:
        left_out = key_padding_mask if key_padding_mask.dim() == 2 else key_padding_mask.unsqueeze(0)
        scores = scores + _additive(left_out.view(left_out.size(0), 1, 1, left_out.size(1)), scores, length, 4, batch, num_heads)
    weights = scores.softmax(-1)
    if training:
        weights = aten.dropout(weights, dropout_p, True)
    out = aten.matmul(weights, v).permute(2, 0, 1, 3).reshape(steps, batch, width)
    out = aten.linear(out, out_proj_weight, out_proj_bias)
    if single:
        out = out.squeeze(1)
    shown: Optional[Tensor] = None
    if need_weights:
        shown = weights.mean(1) if average_attn_weights else weights
        if single:
            shown = shown.squeeze(0)
    return out, shown


def _additive(mask: Tensor, like: Tensor, length: int, dims: int, batch: int, heads: int) -> Tensor:
    """A mask as numbers to add, for as many keys as there are."""
    if mask.dtype == bool_:
        mask = aten.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    if mask.size(-1) < length:
        mask = aten.pad(mask, [0, length - mask.size(-1)])
    return mask.view(batch, heads, mask.size(1), mask.size(2)) if mask.dim() == 3 else mask


# -- modules ---------------------------------------------------------------------------------------------------------------------------
def _conv_forward(self, input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    if self.padding_mode != "zeros":
        padded = aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return self._function(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
    return self._function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


def _conv_transpose(self, input: Tensor, output_size: Optional[List[int]] = None) -> Tensor:
    added: List[int] = list(self.output_padding)
    if output_size is not None:
        dims = self.spatial
        added.clear()
        for at in range(dims):
            stride, padding, dilation, kernel = self.stride[at], self.padding[at], self.dilation[at], self.kernel_size[at]
            least = (input.size(input.dim() - dims + at) - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
            added.append(output_size[len(output_size) - dims + at] - least)
    return self._function(input, self.weight, self.bias, self.stride, self.padding, added, self.groups, self.dilation)


def _max_pool(self, input: Tensor):
    return self._function(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


def _batch_norm(self, input: Tensor) -> Tensor:
    if len(self._ranks) > 0 and input.dim() not in self._ranks:
        raise ValueError(f"expected {self._ranks} dimensions of the input (got {input.dim()}D input)")
    momentum = 0.0 if self.momentum is None else self.momentum
    if self.track_running_stats and self.num_batches_tracked is not None and self.training:
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
    if self.running_mean is None:
        return aten.batch_norm(input, self.weight, self.bias, None, None, True, momentum, self.eps, True)
    if self.track_running_stats:
        return aten.batch_norm(input, self.weight, self.bias, self.running_mean, self.running_var, self.training, momentum, self.eps, True)
    if self.training:
        return aten.batch_norm(input, self.weight, self.bias, None, None, True, momentum, self.eps, True)
    return aten.batch_norm(input, self.weight, self.bias, self.running_mean, self.running_var, False, momentum, self.eps, True)


def _normalised(self, input: Tensor) -> Tensor:
    momentum = 0.0 if self.momentum is None else self.momentum
    if self.track_running_stats:
        return aten.instance_norm(input, self.weight, self.bias, self.running_mean, self.running_var, self.training, momentum, self.eps,
                                  True)
    return aten.instance_norm(input, self.weight, self.bias, None, None, True, momentum, self.eps, True)


def _sequential(self, input):
    for module in self:
        input = module(input)
    return input


def _identity(self, input: Tensor) -> Tensor:
    return input


def _attention(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Optional[Tensor] = None, need_weights: bool = True,
               attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True,
               is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
    swap = self.batch_first and query.dim() == 3
    if swap:
        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    out, weights = F.multi_head_attention_forward(
        query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
        self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask, need_weights,
        attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
        average_attn_weights=average_attn_weights, is_causal=is_causal)
    return (out.transpose(0, 1) if swap else out), weights


def _encoder(self, src: Tensor, mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None,
             is_causal: Optional[bool] = None) -> Tensor:
    out = src
    causal = is_causal is not None and is_causal
    for layer in self.layers:
        out = layer(out, mask, src_key_padding_mask, causal)
    return out if self.norm is None else self.norm(out)


def _decoder(self, tgt: Tensor, memory: Tensor, tgt_mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None,
             tgt_key_padding_mask: Optional[Tensor] = None, memory_key_padding_mask: Optional[Tensor] = None,
             tgt_is_causal: Optional[bool] = None, memory_is_causal: bool = False) -> Tensor:
    out = tgt
    causal = tgt_is_causal is not None and tgt_is_causal
    for layer in self.layers:
        out = layer(out, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, causal, memory_is_causal)
    return out if self.norm is None else self.norm(out)


def _lstm(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
    single = input.dim() == 2
    x = input.unsqueeze(0 if self.batch_first else 1) if single else input
    count = self.num_layers * (2 if self.bidirectional else 1)
    batch = x.size(0) if self.batch_first else x.size(1)
    if hx is None:
        h = aten.zeros([count, batch, self.proj_size if self.proj_size > 0 else self.hidden_size], dtype=x.dtype, device=x.device)
        c = aten.zeros([count, batch, self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h, c = hx
        if single:
            h, c = h.unsqueeze(1), c.unsqueeze(1)
    out, h, c = aten.lstm(x, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
                          self.batch_first)
    if single:
        return out.squeeze(0 if self.batch_first else 1), (h.squeeze(1), c.squeeze(1))
    return out, (h, c)


def _recurrent(self, input: Tensor, hx: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    single = input.dim() == 2
    x = input.unsqueeze(0 if self.batch_first else 1) if single else input
    if hx is None:
        batch = x.size(0) if self.batch_first else x.size(1)
        h = aten.zeros([self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx.unsqueeze(1) if single else hx
    if self.mode == "GRU":
        out, h = aten.gru(x, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
                          self.batch_first)
    elif self.mode == "RNN_TANH":
        out, h = aten.rnn_tanh(x, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
                               self.batch_first)
    else:
        out, h = aten.rnn_relu(x, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
                               self.batch_first)
    return (out.squeeze(0 if self.batch_first else 1), h.squeeze(1)) if single else (out, h)


def _lstm_cell(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    single = input.dim() == 1
    x = input.unsqueeze(0) if single else input
    if hx is None:
        h = aten.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
        c = h
    else:
        h, c = hx
        if single:
            h, c = h.unsqueeze(0), c.unsqueeze(0)
    h, c = aten.lstm_cell(x, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return (h.squeeze(0), c.squeeze(0)) if single else (h, c)


def _gru_cell(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
    single = input.dim() == 1
    x = input.unsqueeze(0) if single else input
    if hx is None:
        h = aten.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx.unsqueeze(0) if single else hx
    h = aten.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return h.squeeze(0) if single else h


def pad_sequence(sequences: List[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    if padding_side != "left" and padding_side != "right":
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    longest = max([s.size(0) for s in sequences])
    rows: List[Tensor] = []
    for s in sequences:
        filler = aten.full([longest - s.size(0)] + s.shape[1:], padding_value, dtype=s.dtype, device=s.device)  # type: ignore[operator]
        rows.append(aten.cat([s, filler] if padding_side == "right" else [filler, s], 0))
    return aten.stack(rows, 0 if batch_first else 1)


_WRITTEN = (softmax, log_softmax, softmin, feature_dropout, softsign, tanhshrink, normalize, adaptive_avg_pool2d,
            adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, lp_pool2d, kl_div, embedding,
            embedding_bag, interpolate, grid_sample, affine_grid, gumbel_softmax, multi_head_attention_forward)

FORMS: dict[Any, Any] = {
    packing.pad_sequence: pad_sequence,
    **{getattr(F, fn.__name__): fn for fn in _WRITTEN}, F.dropout1d: feature_dropout, F.dropout2d: feature_dropout,
    F.dropout3d: feature_dropout, F.upsample: interpolate, _unique: unique, _unique_consecutive: unique_consecutive,
    **dict(zip((utils._single, utils._pair, utils._triple, utils._quadruple), (_single, _pair, _triple, _quadruple))),
    _plain_assert: _assert, _no_grad: no_grad, _enable_grad: enable_grad, _implicit_dim: _implicit_dim, _sizes: _sizes, _spatial:
    _spatial, **{OPERATORS[fn.__name__]: fn for fn in (lu, norm, stft, tensordot)},
    _factors: _factors, _wanted: _wanted, _additive: _additive, interpolate: interpolate,
}
"""TorchScript's forms of functions and classes; the forms themselves are their own."""

METHODS: dict[tuple[type, str], Any] = {
    (conv._ConvNd, "_conv_forward"): _conv_forward,
    (conv._ConvTransposeNd, "forward"): _conv_transpose,
    (pooling._MaxPoolNd, "forward"): _max_pool,
    (batchnorm._BatchNorm, "forward"): _batch_norm,
    (instancenorm._InstanceNorm, "_normalise"): _normalised,
    (nn.Sequential, "forward"): _sequential,
    (nn.Identity, "forward"): _identity,
    (activation.MultiheadAttention, "forward"): _attention,
    (nn.TransformerEncoder, "forward"): _encoder,
    (nn.TransformerDecoder, "forward"): _decoder,
    (rnn.RNNBase, "forward"): _recurrent,
    (nn.LSTM, "forward"): _lstm,
    (nn.LSTMCell, "forward"): _lstm_cell,
    (nn.GRUCell, "forward"): _gru_cell,
}
"""TorchScript's forms of methods."""
