"""The core ATen operators whose documented arguments are not those of the operator here that computes them.

Each function below has ATen's name, without its overload, and the arguments of all its overloads; `torch.ops.aten` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.dtypes import uint8
from ..core.tensor import Tensor
from .nn.activations import _scaled_elu
from .nn.recurrent import packed_sequences, recurrent_step, sequences
from .primitives import PRIMITIVES
from .registry import OPERATORS

FORMS: dict[str, Callable] = {}
REDUCTIONS = ("none", "mean", "sum")        # as ATen numbers them
EVERY = slice(None)
_FFT_NORMS = ("backward", "ortho", "forward")


def _aten(fn: Callable) -> Callable:
    FORMS[fn.__name__.removesuffix("__")] = fn
    return fn


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    return OPERATORS[name](*args, **kwargs)


PLAIN = {"add": 2, "sub": 2}
"""With how many arguments a form is the operator of its name."""

FORMS.update({
    "_adaptive_avg_pool2d": lambda self, output_size: _call("adaptive_avg_pool2d", self, output_size),
    "_adaptive_avg_pool3d": lambda self, output_size: _call("adaptive_avg_pool3d", self, output_size),
    "_cdist_forward": lambda x1, x2, p, compute_mode=None: _call("cdist", x1, x2, p),
    "_pdist_forward": lambda self, p=2: _call("pdist", self, p),
    "_lu_with_info": lambda self, pivot=True, check_errors=True: tuple(_call("linalg_lu_factor_ex", self, pivot=pivot)),
    "_unsafe_view": lambda self, size: _call("view", self, size),
    "add": lambda self, other, alpha=1, *, out=None: _call("add", self, other, alpha=alpha, out=out),
    "alias": lambda self: PRIMITIVES["alias"](self),
    "arange": lambda *args, **kwargs: _call("arange", *args, **kwargs),
    "elu": lambda self, alpha=1, scale=1, input_scale=1: _scaled_elu(self, alpha, scale, input_scale),
    "item": lambda self: self.item(),
    "lift_fresh": lambda self: self,
    "lift_fresh_copy": lambda self: self.clone(),
    "log_sigmoid_forward": lambda self: (_call("logsigmoid", self), (-self.abs()).exp()),
    "mse_loss": lambda self, target, reduction=1: _call("mse_loss", self, target, reduction=REDUCTIONS[reduction]),
    "sigmoid_backward": lambda grad_output, output: grad_output * output * (1 - output),
    "sub": lambda self, other, alpha=1, *, out=None: _call("sub", self, other, alpha=alpha, out=out),
    "sym_numel": lambda self: self.numel(),
    "sym_size": lambda self, dim=None: self.shape if dim is None else self.shape[dim],
    "sym_storage_offset": lambda self: self.storage_offset(),
    "sym_stride": lambda self, dim=None: self.stride() if dim is None else self.stride()[dim],
    "tanh_backward": lambda grad_output, output: grad_output * (1 - output * output),
    "threshold_backward": lambda grad_output, self, threshold: grad_output.masked_fill(self <= threshold, 0),
    "_log_softmax_backward_data": lambda grad_output, output, dim, input_dtype: (
        grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype),
    # src in the shape, dtype and device of self
    "copy": lambda self, src, non_blocking=False: src.to(self.device, self.dtype, non_blocking).expand(self.shape).clone(),
    # self[indices], where None stands for a whole dimension
    "index": lambda self, indices: self[tuple([slice(None) if i is None else i for i in indices])],
    # self[start:end:step] along `dim`
    "slice": lambda self, dim=0, start=None, end=None, step=1: self[(slice(None),) * (dim % self.ndim) + (slice(start, end, step),)],
    # The gradient of adaptive_avg_pool2d
    "_adaptive_avg_pool2d_backward": lambda grad_output, self: _of_images("_adaptive_avg_backward", grad_output, self),
    # float16 in float32 if `half_to_float`
    "_softmax": lambda self, dim, half_to_float: _call("softmax", self.float() if half_to_float else self, dim),
    "_log_softmax": lambda self, dim, half_to_float: _call("log_softmax", self.float() if half_to_float else self, dim),
})
FORMS["_local_scalar_dense"] = FORMS["item"]
for _name, _form in FORMS.items():
    if _form.__name__ == "<lambda>":
        _form.__name__ = _form.__qualname__ = _name     # as errors of wrong calls have it


# -- elements ----------------------------------------------------------------------------------------------------------------------
@_aten
def _to_copy(self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool | None = None,
             non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """A copy of another dtype or device."""
    if layout is not None and layout is not self.layout:
        raise NotImplementedError(f"aten._to_copy: from {self.layout} to {layout}; tensors are strided here")
    made = self.to(device=device, dtype=dtype or self.dtype, non_blocking=non_blocking, copy=True, memory_format=memory_format)
    return made.pin_memory() if pin_memory else made


# -- sizes, views, indices ---------------------------------------------------------------------------------------------------------
def _padding(mode: str) -> Callable:
    def form(self: Tensor, padding: Sequence[int]) -> Tensor:
        return _call("pad", self, padding, mode)

    return form


for _n in (1, 2, 3):
    FORMS[f"reflection_pad{_n}d"], FORMS[f"replication_pad{_n}d"] = _padding("reflect"), _padding("replicate")


@_aten
def _fft_r2c(self: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """The transform of real numbers."""
    if not onesided:
        return _call("fft_fftn", self, None, list(dim), _norm(normalization))
    return _call("fft_rfftn", self, None, list(dim), _norm(normalization))


@_aten
def _fft_c2c(self: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """The transform of complex numbers, or the inverse: neither is scaled by normalization 0."""
    name = "fft_fftn" if forward else "fft_ifftn"
    return _call(name, self, None, list(dim), _norm(normalization) if forward else _inverse_norm(normalization))


@_aten
def _fft_c2r(self: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """The inverse that gives real numbers."""
    sizes = [*[self.shape[d] for d in dim[:-1]], last_dim_size]
    return _call("fft_irfftn", self, sizes, list(dim), _inverse_norm(normalization))


def _norm(normalization: int) -> str:
    return _FFT_NORMS[normalization]        # none, by the root, by the number of elements


def _inverse_norm(normalization: int) -> str:
    return _FFT_NORMS[2 - normalization]


# -- networks ----------------------------------------------------------------------------------------------------------------------
def _pool_with_indices(name: str) -> Callable:
    def form(self: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
        return OPERATORS[name](self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)

    return form


FORMS["max_pool2d_with_indices"], FORMS["max_pool3d_with_indices"] = _pool_with_indices("max_pool2d"), _pool_with_indices("max_pool3d")


def _resizing(mode: str, aligns: bool) -> Callable:
    def form(input: Tensor, output_size: Any, *rest: Any) -> Tensor:
        corners, scales = (rest[0] if aligns else None), rest[1 if aligns else 0 :]
        scale = scales[0] if output_size is None and scales else None
        return _call("interpolate", input, None if output_size is None else list(output_size), scale, mode, corners)

    return form


for _name, _mode, _aligns in (("nearest1d", "nearest", False), ("nearest2d", "nearest", False), ("nearest3d", "nearest", False),
                              ("linear1d", "linear", True), ("bilinear2d", "bilinear", True), ("bicubic2d", "bicubic", True),
                              ("trilinear3d", "trilinear", True)):
    FORMS[f"upsample_{_name}"] = _resizing(_mode, _aligns)


for _name, _mode in (("nearest-exact1d", "nearest-exact"), ("nearest-exact2d", "nearest-exact"), ("nearest-exact3d", "nearest-exact")):
    FORMS[f"_upsample_{_name.replace('-', '_')}"] = _resizing(_mode, False)


def _antialiased(mode: str) -> Callable:
    def form(input: Tensor, output_size: Any, align_corners: bool, *scales: Any) -> Tensor:
        scale = scales[0] if output_size is None and scales else None
        size = None if output_size is None else list(output_size)
        return _call("interpolate", input, size, scale, mode, align_corners, antialias=True)

    return form


FORMS["_upsample_bilinear2d_aa"], FORMS["_upsample_bicubic2d_aa"] = _antialiased("bilinear"), _antialiased("bicubic")


@_aten
def _native_multi_head_attention(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
                                 qkv_bias: Tensor,
                                 proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True,
                                 average_attn_weights: bool = True, mask_type: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Attention of (batch, time, features) in several heads, and its weights; `mask` is True where there is to be none, of two times
    (mask_type 0), of examples and times (1), or of all of these (2)."""
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3))
    q, k, v = (_call("linear", x, w, b).unflatten(-1, (num_head, -1)).transpose(1, 2) for x, w, b in parts)
    scores = q @ k.transpose(-2, -1) * (embed_dim // num_head) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None, :] if mask_type == 1 else mask, float("-inf"))
    weights = _call("softmax", scores, -1)
    out = _call("linear", (weights @ v).transpose(1, 2).flatten(-2), proj_weight, proj_bias)
    return out, (weights.mean(1) if average_attn_weights else weights) if need_weights else None


@_aten
def _transformer_encoder_layer_fwd(src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
                                   proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor,
                                       norm_bias_1: Tensor,
                                   norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor,
                                       ffn_weight_2: Tensor,
                                   ffn_bias_2: Tensor, mask: Tensor | None = None, mask_type: int | None = None) -> Tensor:
    """A layer of a transformer's encoder without dropout: attention, then two products, each added to what it was given."""
    def attend(x: Tensor) -> Tensor:
        return _native_multi_head_attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False,
                                            mask_type=mask_type)[0]

    def feed(x: Tensor) -> Tensor:
        return _call("linear", _call("gelu" if use_gelu else "relu", _call("linear", x, ffn_weight_1, ffn_bias_1)), ffn_weight_2,
            ffn_bias_2)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return _call("layer_norm", x, (embed_dim,), weight, bias, eps)

    if norm_first:
        src = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return src + feed(norm(src, norm_weight_2, norm_bias_2))
    src = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(src + feed(src), norm_weight_2, norm_bias_2)


@_aten
def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
                 output_padding: Any, groups: int, *choices: bool) -> Tensor:
    """`convolution`; `choices` are of kernels."""
    return _call("convolution", input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _recurrent(mode: str) -> Callable:
    def form(input: Tensor, second: Any, third: Any, *rest: Any) -> tuple[Tensor, ...]:
        packed = isinstance(third, Tensor) or (isinstance(third, list) and isinstance(rest[0], (list, tuple)))
        hx, given = (third, rest) if packed else (second, (third, *rest))
        states = tuple(hx) if mode == "LSTM" else (hx,)
        params, has_biases, _, dropout, *flags = given
        out, finals = packed_sequences(mode, input, second, states, params, has_biases, dropout, *flags) if packed else \
            sequences(mode, input, states, params, has_biases, dropout, *flags)
        return (out, *finals)

    return form


def _cell(mode: str) -> Callable:
    def form(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Any:
        after = recurrent_step(mode, _call("linear", input, w_ih, b_ih), tuple(hx) if mode == "LSTM" else (hx,), w_hh, b_hh)
        return after if mode == "LSTM" else after[0]

    return form


@_aten
def stft(self: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, *rest: Any,
         **named: Any) -> Tensor:
    """Spectra of frames; without center= and pad_mode= (of the overload `center`) there are no frames beyond the ends."""
    centers = "center" in named or "pad_mode" in named or (len(rest) > 1 and isinstance(rest[1], str))
    names = ("center", "pad_mode") if centers else ()
    given = dict(zip((*names, "normalized", "onesided", "return_complex", "align_to_window"), rest)) | named
    if given.pop("align_to_window", None):
        raise NotImplementedError("aten.stft(align_to_window=True) is not implemented")
    return _call("stft", self, n_fft, hop_length, win_length, window, **({} if centers else {"center": False}), **given)


for _name in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
    FORMS[_name.lower()], FORMS[f"{_name.lower()}_cell"] = _recurrent(_name), _cell(_name)


@_aten
def _safe_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax, 0 where all along `dim` is -inf."""
    empty = (self == float("-inf")).all(dim, keepdim=True)
    return _call("softmax", self.masked_fill(empty, 0), dim, dtype).masked_fill(empty, 0)


@_aten
def _native_batch_norm_legit(input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`native_batch_norm`; its overload `no_stats` has no running statistics."""
    running = rest[:2] if len(rest) == 5 else (None, None)
    return _call("native_batch_norm", input, weight, bias, *running, *rest[-3:])


@_aten
def _native_batch_norm_legit_no_training(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
                                         running_var: Tensor, momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`native_batch_norm` by the running statistics."""
    return _call("native_batch_norm", input, weight, bias, running_mean, running_var, False, momentum, eps)


@_aten
def _native_batch_norm_legit_functional(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
                                        running_var: Tensor, training: bool, momentum: float, eps: float) -> tuple[Tensor, ...]:
    """`native_batch_norm`, and what becomes of the running statistics."""
    mean, var = running_mean.clone(), running_var.clone()
    return *_call("native_batch_norm", input, weight, bias, mean, var, training, momentum, eps), mean, var


@_aten
def _batch_norm_with_update(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,
                            momentum: float, eps: float) -> tuple[Tensor, ...]:
    """`native_batch_norm` in training, and an empty tensor of bytes, where a library would keep something for the gradient."""
    made = _call("native_batch_norm", input, weight, bias, running_mean, running_var, True, momentum, eps)
    return *made, _call("empty", (0,), dtype=uint8, device=input.device)


@_aten
def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Each tensor cut into `num_chunks` along `dim`, with zeros at the end, and the chunks beside one another: (..., num_chunks, rest)."""
    if len({t.dtype for t in tensors}) > 1:
        raise RuntimeError(f"_chunk_cat expects all input tensors with the same dtype, got {[t.dtype for t in tensors]}")
    lacking = [-t.shape[dim] % num_chunks for t in tensors]
    whole = [_call("cat", [t, t.new_zeros(*t.shape[:dim], n, *t.shape[dim + 1:])], dim) if n else t for t, n in zip(tensors, lacking)]
    return _call("cat", [t.reshape(*t.shape[:dim], num_chunks, -1) for t in whole], -1)


def _within(mask: Tensor, indices: Sequence[Tensor | None]) -> tuple:
    """The indices, with 0 where the mask is false: there they may be anything."""
    return tuple(EVERY if index is None else _call("where", mask, index, 0) for index in indices)


@_aten
def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: float) -> Tensor:
    """`self[indices]`, `fill` where the mask is false."""
    return _call("where", mask, self[_within(mask, indices)], fill)


@_aten
def _unsafe_masked_index_put_accumulate(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Tensor:
    """`self` with `values` added at `indices` where the mask is true."""
    out, at = self.clone(), _within(mask, indices)
    return out.index_put(at, values.masked_fill(~mask, 0), accumulate=True)


@_aten
def native_layer_norm_backward(grad_out: Tensor, input: Tensor, normalized_shape: Sequence[int], mean: Tensor, rstd: Tensor,
                               weight: Tensor | None, bias: Tensor | None, output_mask: Sequence[bool]) -> tuple:
    """The gradients of `native_layer_norm`."""
    lead = tuple(input.shape[:input.ndim - len(normalized_shape)])
    mean, rstd = mean.reshape(lead), rstd.reshape(lead)
    by_input = _call("layer_norm_backward", grad_out, input, weight, mean, rstd) if output_mask[0] else None
    params = [param if wanted else None for param, wanted in zip((weight, bias), output_mask[1:])]
    sums = _call("layer_norm_backward_affine", grad_out, input, mean, rstd) if any(p is not None for p in params) else (None, None)
    return by_input, *[None if p is None else s.to(p.dtype) for s, p in zip(sums, params)]


@_aten
def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
                   per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = -1) -> tuple:
    """Rows of the weight summed (mode 0), averaged (1), or their maxima (2) within bags; what bags there are. Maxima don't say whose."""
    out = _call("functional_embedding_bag", indices, weight, offsets, None, 2.0, scale_grad_by_freq, ("sum", "mean", "max")[mode], sparse,
                per_sample_weights, include_last_offset, None if padding_idx is None or padding_idx < 0 else padding_idx)
    ends = offsets[1:] if include_last_offset else _call("cat", [offsets[1:], offsets.new_full((1,), indices.numel())])
    sizes = ends - (offsets[:-1] if include_last_offset else offsets)
    bags = _call("repeat_interleave", _call("arange", sizes.numel(), dtype=offsets.dtype), sizes)
    return out, bags, sizes, offsets


@_aten
def nll_loss_forward(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """nll_loss, and the sum of the weights that counted."""
    loss = _call("nll_loss", self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])
    return loss, self.new_zeros(()) if reduction == 0 else _weights(self, target, weight, ignore_index).sum()


def _weights(x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    counts = target != ignore_index
    each = x.new_ones(target.shape) if weight is None else weight[_call("where", counts, target, 0)]
    return each * counts.to(x.dtype)


# -- backward ----------------------------------------------------------------------------------------------------------------------
@_aten
def nll_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
                      total_weight: Tensor) -> Tensor:
    """The gradient of `nll_loss_forward`."""
    g = -_weights(self, target, weight, ignore_index) * grad_output
    g = g / total_weight if reduction == 1 else g
    at = _call("where", target != ignore_index, target, 0)
    return _call("zeros_like", self).scatter(-1, at.unsqueeze(-1), g.unsqueeze(-1))


@_aten
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax."""
    g = grad_output * output
    return (g - output * g.sum(dim, keepdim=True)).to(input_dtype)


@_aten
def embedding_dense_backward(grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    """The gradient of embedding by its weight."""
    return _call("embedding_backward", grad_output, indices, num_weights, None if padding_idx < 0 else padding_idx, scale_grad_by_freq)


@_aten
def convolution_backward(grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
                         transposed: bool, output_padding: Any, groups: int, output_mask: Sequence[bool]) -> tuple:
    """The gradients of `convolution` by input, weight and bias, those that are wanted."""
    del output_padding      # it only said which of several sizes the result has, which grad_output tells
    how = tuple(stride), tuple(padding), tuple(dilation), groups
    p = PRIMITIVES
    by_bias = grad_output.sum([d for d in range(grad_output.ndim) if d != 1]) if output_mask[2] and bias_sizes is not None else None
    if transposed:
        by_input, by_weight = (lambda: p["convolution"](grad_output, weight, *how),
                               lambda: p["convolution_weight_grad"](input, grad_output, tuple(weight.shape), *how))
    else:
        by_input, by_weight = (lambda: p["convolution_input_grad"](grad_output, weight, tuple(input.shape), *how),
                               lambda: p["convolution_weight_grad"](grad_output, input, tuple(weight.shape), *how))
    return by_input() if output_mask[0] else None, by_weight() if output_mask[1] else None, by_bias


def _of_images(name: str, g: Tensor, input: Tensor, *rest: Any) -> Tensor:
    """A gradient whose operator takes batches, of one image too."""
    return _call(name, g.reshape((1, *g.shape)[-4:]), (1, *input.shape)[-4:], *rest).reshape(input.shape)


@_aten
def avg_pool2d_backward(grad_output: Tensor, self: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
                        count_include_pad: bool, divisor_override: int | None) -> Tensor:
    """The gradient of avg_pool2d: each window's share goes back to its elements."""
    return _of_images("avg_pool_backward", grad_output, self, tuple(kernel_size), tuple(stride or kernel_size), tuple(padding), ceil_mode,
                      count_include_pad, divisor_override)


@_aten
def max_pool2d_with_indices_backward(grad_output: Tensor, self: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                                     ceil_mode: bool, indices: Tensor) -> Tensor:
    """The gradient of max_pool2d, whose windows `indices` tell."""
    del kernel_size, stride, padding, dilation, ceil_mode      # the indices know
    flat = self.new_zeros((*self.shape[:-2], self.shape[-2] * self.shape[-1]))
    return flat.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)

