"""Products, convolutions, pools, normalisations, activations, resizing and recurrent networks, in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import bool_, float32, int32, int64
from ..core.tensor import Tensor
from ..core.windows import unwound
from .forms import form, short
from .shapes import reshape_to
from .writer import Value, Writer


# -- products --------------------------------------------------------------------------------------------------------------------------
def _numbers(x: Tensor, *_: Any, **__: Any) -> bool:
    return not x.dtype.is_complex


@form("mm", "bmm", "matmul", "mv", "dot", "inner", "primitive:mm", "primitive:bmm", takes=lambda x, y: _numbers(x))
def matmul(o: Writer, x: Value, y: Value) -> Value:
    """A product of matrices, or of many."""
    return o.MatMul(x, y)


def _scaled(o: Writer, x: Value, by: Any) -> Value:
    return x if by == 1 else o.Mul(x, o.cast(by, x.dtype))


@form("addmm", takes=lambda c, a, b, **_: c.dtype.is_floating_point)
def addmm(o: Writer, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """beta c + alpha a b."""
    return o.Gemm(a, b, c, alpha=float(alpha), beta=float(beta))


@form("baddbmm", "addmv", "addmm")
def baddbmm(o: Writer, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """beta c + alpha a b, of many matrices."""
    return o.Add(_scaled(o, c, beta), _scaled(o, o.MatMul(a, b), alpha))


@form("linear", "operator:_linear", takes=lambda x, w, b=None: w.ndim == 2 and x.ndim)
def linear(o: Writer, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x times the transposed weight, and the bias: Gemm of a matrix."""
    if x.rank == 2 and x.dtype.is_floating_point:
        return o.Gemm(x, weight, bias, transB=1)
    made = o.MatMul(x, o.Transpose(weight, perm=[1, 0]))
    return made if bias is None else o.Add(made, bias)


@form("primitive:grouped_mm", takes=lambda a, b, ends: a.ndim == 2 and b.ndim == 3)
def grouped_mm(o: Writer, a: Value, b: Value, ends: Value) -> Value:
    """Rows times the matrix of their group: all matrices times all rows, of which each row keeps its own."""
    ends = o.cast(ends, int64)
    rows = o.Range(o.constant(0, int64), o.scalar(o.size(a, 0)), o.constant(1, int64), _dtype=int64)
    before = o.cast(o.GreaterOrEqual(o.Unsqueeze(rows, [0]), o.Unsqueeze(ends, [1])), int64)    # by group and row: it has ended
    group = o.Unsqueeze(o.ReduceSum(before, [0], keepdims=0), [0])
    assert b.shape is not None
    mine = o.Unsqueeze(o.Equal(group, o.constant([[g] for g in range(b.shape[0])], int64)), [2])
    products = o.MatMul(o.Unsqueeze(a, [0]), b)
    return o.ReduceSum(o.Where(mine, products, o.constant(0, a.dtype), _dtype=a.dtype), [0], keepdims=0)


@form("einsum", takes=lambda equation, tensors, **_: "..." not in equation and not any(t.dtype.is_complex for t in tensors))
def einsum(o: Writer, equation: str, tensors: Sequence[Value], **_: Any) -> Value:
    """A sum of products by letters."""
    return o.Einsum(*[o.cast(t, o.out.dtype) for t in tensors], equation=equation.replace(" ", ""))


# -- attention -------------------------------------------------------------------------------------------------------------------------
@form("scaled_dot_product_attention", takes=lambda q, k, v, mask=None, dropout=0.0, *_, dropout_p=0.0, **__: not dropout and not dropout_p)
def attention(o: Writer, q: Value, k: Value, v: Value, attn_mask: Value | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
              scale: float | None = None, enable_gqa: bool = False) -> Value:
    """softmax(q k^T scale + mask) v; where heads are fewer in k and v, each serves several of q."""
    width = o.size(q, -1)
    if enable_gqa and q.shape is not None and k.shape is not None and q.shape[-3] != k.shape[-3]:
        k, v = (_each_repeated(o, x, q.shape[-3]) for x in (k, v))
    if scale is None and not isinstance(width, int):
        factor: Any = o.Reciprocal(o.Sqrt(o.cast(o.Squeeze(width, [0]), q.dtype)))
    else:
        factor = o.constant(scale if scale is not None else 1 / math.sqrt(width), q.dtype)
    turned = o.Transpose(k, perm=[*range(k.rank - 2), k.rank - 1, k.rank - 2])
    scores = o.MatMul(o.Mul(q, factor), turned)
    if is_causal:
        rows, columns = o.size(q, -2), o.size(k, -2)
        seen = o.Trilu(o.Expand(o.constant(1, int32), o.sizes([rows, columns])), upper=0)
        scores = o.Where(o.cast(seen, bool_), scores, o.constant(-math.inf, q.dtype), _dtype=q.dtype)
    elif attn_mask is not None and attn_mask.dtype is bool_:
        scores = o.Where(attn_mask, scores, o.constant(-math.inf, q.dtype), _dtype=q.dtype)
    elif attn_mask is not None:
        scores = o.Add(scores, o.cast(attn_mask, q.dtype))
    weights = o.Softmax(scores, axis=-1)
    if attn_mask is not None:     # a row that sees nothing gives nothing
        weights = o.Where(o.IsNaN(o.cast(weights, float32)), o.constant(0, q.dtype), weights, _dtype=q.dtype)
    return o.MatMul(weights, v)


def _each_repeated(o: Writer, x: Value, heads: int) -> Value:
    """Each head several times, so that there are `heads`."""
    *ahead, mine, length, width = o.shape(x)
    made = o.Expand(o.Unsqueeze(x, [x.rank - 2]), o.sizes([*ahead, mine, heads // mine, length, width]))
    return reshape_to(o, made, [*ahead, heads, length, width])


# -- convolutions ----------------------------------------------------------------------------------------------------------------------
def _each(values: Any, count: int) -> list[Any]:
    values = [values] if isinstance(values, int) else list(values)
    return values * count if len(values) == 1 else values


def _convolution(o: Writer, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
                 output_padding: Any, groups: int) -> Value:
    dims = weight.rank - 2
    single = x.rank == dims + 1
    if single:
        x = o.Unsqueeze(x, [0])
    assert weight.shape is not None
    how: dict[str, Any] = {"strides": _each(stride, dims), "dilations": _each(dilation, dims), "group": groups,
                           "kernel_shape": list(weight.shape[2:]) if all(isinstance(n, int) for n in weight.shape[2:]) else None}
    if isinstance(padding, str):
        how["auto_pad"] = {"valid": "VALID", "same": "SAME_UPPER"}[padding]
        if padding == "same":     # what ONNX calls so counts strides, and takes no dilation everywhere
            del how["auto_pad"]
            total = [d * (k - 1) for d, k in zip(how["dilations"], weight.shape[2:])]
            how["pads"] = [*[n // 2 for n in total], *[n - n // 2 for n in total]]
    else:
        how["pads"] = _each(padding, dims) * 2
    if transposed:
        made = o.ConvTranspose(x, weight, bias, output_padding=_each(output_padding, dims), **how)
    else:
        made = o.Conv(x, weight, bias, **how)
    return o.Squeeze(made, [0]) if single else made


@form("convolution", "_convolution", "_convolution.deprecated", takes=_numbers)
def convolution(o: Writer, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
                output_padding: Any, groups: int, *_: Any) -> Value:
    """A convolution, or its transpose."""
    return _convolution(o, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@form("primitive:convolution", takes=_numbers)
def plain_convolution(o: Writer, x: Value, w: Value, stride: Any, padding: Any, dilation: Any, *groups: Any) -> Value:
    """A convolution without bias."""
    return _convolution(o, x, w, None, stride, padding, dilation, False, 0, groups[-1] if groups else 1)


@form("primitive:convolution_input_grad",
      takes=lambda g, w, shape, *_: all(isinstance(n, int) for n in (*g._layout.shape[2:], *w._layout.shape[2:], *shape[2:])))
def convolution_input_grad(o: Writer, g: Value, w: Value, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Value:
    """A transposed convolution, to a shape."""
    assert g.shape is not None and w.shape is not None
    rest = [n - least for n, least in zip(shape[2:], map(unwound, g.shape[2:], w.shape[2:], stride, padding, dilation))]
    return _convolution(o, g, w, None, stride, padding, dilation, True, rest, groups)


@form("conv1d", "conv2d", "conv3d", takes=_numbers)
def conv(o: Writer, x: Value, weight: Value, bias: Value | None = None, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,),
         groups: int = 1) -> Value:
    """A convolution."""
    return _convolution(o, x, weight, bias, stride, padding, dilation, False, 0, groups)


@form("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", takes=_numbers)
def conv_transpose(o: Writer, x: Value, weight: Value, bias: Value | None = None, stride: Any = (1,), padding: Any = (0,),
                   output_padding: Any = (0,), groups: int = 1, dilation: Any = (1,)) -> Value:
    """A transposed convolution."""
    return _convolution(o, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# -- pools -----------------------------------------------------------------------------------------------------------------------------
def _pooled(o: Writer, x: Value, dims: int, op: str, outputs: int = 1, **how: Any) -> Any:
    single = x.rank == dims + 1
    if single:
        x = o.Unsqueeze(x, [0])
    made = o.step(op, x, _outputs=outputs, **how)
    made = made if isinstance(made, tuple) else (made,)
    made = tuple([o.Squeeze(m, [0]) for m in made]) if single else made
    return made if outputs > 1 else made[0]


def _max_pool(dims: int, with_places: bool) -> Callable:
    def write(o: Writer, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
        kernel = _each(kernel, dims)
        how = dict(kernel_shape=kernel, strides=_each(stride, dims) if stride else kernel, pads=_each(padding, dims) * 2,
                   dilations=_each(dilation, dims), ceil_mode=int(ceil_mode))
        if not with_places:
            return _pooled(o, x, dims, "MaxPool", **how)
        values, places = _pooled(o, x, dims, "MaxPool", 2, **how)
        places = Value(places.name, int64)      # ONNX counts through the whole batch, ATen within an image
        assert x.shape is not None
        size: Any = o.constant(1, int64)
        for d in range(x.rank - dims, x.rank):
            size = o.Mul(size, o.scalar(o.size(x, d)))
        return values, o.Mod(places, size)

    return write


def _pools(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> bool:
    return x.dtype.is_floating_point


for _n in (1, 2, 3):
    form(f"max_pool{_n}d", takes=_pools)(_max_pool(_n, False))
    form(f"max_pool{_n}d_with_indices", takes=_pools)(_max_pool(_n, True))


def _avg_pool(dims: int) -> Callable:
    def write(o: Writer, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
              divisor_override: Any = None) -> Value:
        kernel = _each(kernel, dims)
        return _pooled(o, x, dims, "AveragePool", kernel_shape=kernel, strides=_each(stride, dims) if stride else kernel,
                       pads=_each(padding, dims) * 2, ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))

    return write


def _averages(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
              divisor_override: Any = None) -> bool:
    return x.dtype.is_floating_point and divisor_override is None and not ceil_mode


for _n in (1, 2, 3):
    form(f"avg_pool{_n}d", takes=_averages)(_avg_pool(_n))


def _whole(dims: int) -> Callable[..., bool]:
    """Adaptive pools to one element, or with windows of one size."""
    def takes(x: Tensor, size: Any) -> bool:
        want, have = _each(size, dims), x._layout.shape[-dims:]
        return x.dtype.is_floating_point and (all(n == 1 for n in want) or all(
            isinstance(h, int) and isinstance(n, int) and n and h % n == 0 for n, h in zip(want, have)))

    return takes


def _adaptive(dims: int, op: str, fold: str) -> Callable:
    def write(o: Writer, x: Value, size: Any) -> Any:
        want = _each(size, dims)
        if all(n == 1 for n in want):
            return o.step(fold, x, list(range(x.rank - dims, x.rank)), keepdims=1)
        assert x.shape is not None
        kernel = [h // n for n, h in zip(want, x.shape[-dims:])]
        return _pooled(o, x, dims, op, kernel_shape=kernel, strides=kernel)

    return write


for _n in (1, 2, 3):
    form(f"adaptive_avg_pool{_n}d", f"_adaptive_avg_pool{_n}d", takes=_whole(_n))(_adaptive(_n, "AveragePool", "ReduceMean"))


# -- normalisations --------------------------------------------------------------------------------------------------------------------
def _one_each(o: Writer, x: Value, weight: Value | None, number: float) -> Value:
    """A channel's factor or offset, or the same number for each."""
    return weight if weight is not None else o.Expand(o.constant(number, x.dtype), o.sizes([o.size(x, 1)]))


@form("batch_norm", takes=lambda x, w, b, mean, var, training, *_: not training and mean is not None)
def batch_norm(o: Writer, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, training: bool, momentum: float,
               eps: float, *_: Any) -> Value:
    """A normalisation by statistics that are known."""
    scale, offset = _one_each(o, x, weight, 1), _one_each(o, x, bias, 0)
    return o.BatchNormalization(x, scale, offset, mean, var, epsilon=float(eps))


@form("batch_norm", takes=lambda x, w, b, mean, var, training, *_: training and mean is None)
def batch_norm_of_its_own(o: Writer, x: Value, weight: Value | None, bias: Value | None, mean: None, var: None, training: bool,
                          momentum: float, eps: float, *_: Any) -> Value:
    """A normalisation by the batch's own statistics."""
    axes = [d for d in range(x.rank) if d != 1]
    apart = o.Sub(x, o.ReduceMean(x, axes, keepdims=1))
    spread = o.ReduceMean(o.Mul(apart, apart), axes, keepdims=1)
    return _by_channel(o, o.Div(apart, o.Sqrt(o.Add(spread, o.constant(eps, x.dtype)))), weight, bias, x.rank)


@form("_native_batch_norm_legit_no_training")
def batch_norm_no_training(o: Writer, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, momentum: float,
                           eps: float) -> tuple:
    """Likewise, with what is kept for gradients: nothing."""
    made = batch_norm(o, x, weight, bias, mean, var, False, momentum, eps)
    return (made, o.constant(np.zeros(0), x.dtype), o.constant(np.zeros(0), x.dtype))


@form("layer_norm", takes=lambda x, shape, *_, **__: x.dtype.is_floating_point)
def layer_norm(o: Writer, x: Value, shape: Sequence[Any], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
               *_: Any) -> Value:
    """A normalisation over the last dimensions."""
    scale = weight if weight is not None else o.Expand(o.constant(1, x.dtype), o.sizes(shape))
    return o.LayerNormalization(x, scale, bias, axis=-len(shape), epsilon=float(eps))


@form("native_layer_norm", takes=lambda x, shape, *_, **__: x.dtype is float32)
def native_layer_norm(o: Writer, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float) -> tuple:
    """Likewise, with the mean and what was divided by."""
    scale = weight if weight is not None else o.Expand(o.constant(1, x.dtype), o.sizes(shape))
    return o.step("LayerNormalization", x, scale, bias, axis=-len(shape), epsilon=float(eps), _outputs=3)


@form("rms_norm", since=23)
def rms_norm(o: Writer, x: Value, shape: Sequence[Any], weight: Value | None = None, eps: float | None = None) -> Value:
    """A division by the root of the mean square over the last dimensions."""
    scale = weight if weight is not None else o.Expand(o.constant(1, x.dtype), o.sizes(shape))
    return o.RMSNormalization(x, scale, axis=-len(shape), epsilon=float(np.finfo(np.float32).eps if eps is None else eps))


def _by_groups(o: Writer, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float) -> Value:
    """Rows normalised that hold a group each, then a factor and an offset for each channel."""
    batch = o.size(x, 0)
    rows = o.Reshape(x, o.sizes([batch, groups, -1]))
    ones, zeros = (o.constant(np.full(groups, n), x.dtype) for n in (1, 0))
    made = o.Reshape(o.InstanceNormalization(rows, ones, zeros, epsilon=float(eps)), o.Shape(x))
    return _by_channel(o, made, weight, bias, x.rank)


def _by_channel(o: Writer, x: Value, weight: Value | None, bias: Value | None, rank: int) -> Value:
    """A factor and an offset for each channel."""
    for op, values in (("Mul", weight), ("Add", bias)):
        if values is not None:
            x = o.step(op, x, o.Reshape(values, [-1, *[1] * (rank - 2)]))
    return x


@form("group_norm")
def group_norm(o: Writer, x: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
               *_: Any) -> Value:
    """A normalisation of each example's groups of channels."""
    return _by_groups(o, x, num_groups, weight, bias, eps)


@form("instance_norm", takes=lambda x, w, b, mean, var, use, *_: (use or mean is None))
def instance_norm(o: Writer, x: Value, weight: Value | None, bias: Value | None, mean: Any, var: Any, use: bool, momentum: float,
                  eps: float, *_: Any) -> Value:
    """A normalisation of each channel of each example."""
    scale, offset = _one_each(o, x, weight, 1), _one_each(o, x, bias, 0)
    return o.InstanceNormalization(x, scale, offset, epsilon=float(eps))


# -- activations -----------------------------------------------------------------------------------------------------------------------
short({
    # Exponentials as parts of their sum
    "softmax _softmax _safe_softmax operator:_softmax": lambda o, x, dim, *_, dtype=None: _along(o, "Softmax", x, dim),
    "log_softmax _log_softmax operator:_log_softmax": lambda o, x, dim, *_, dtype=None: _along(o, "LogSoftmax", x, dim),  # Its logarithm
    "silu": lambda o, x: o.Mul(x, o.Sigmoid(x)),  # x times its sigmoid
    "mish": lambda o, x: o.Mul(x, o.Tanh(o.Softplus(x))),  # x times the hyperbolic tangent of its softplus
    "hardswish": lambda o, x: o.HardSwish(x),  # x times its hard sigmoid
    "hardsigmoid": lambda o, x: o.HardSigmoid(x, alpha=1 / 6, beta=0.5),  # x / 6 + 1 / 2 within 0 and 1
    "clamp clip": lambda o, x, min=None, max=None: _clipped(o, x, min, max),  # x within bounds
    "clamp_min": lambda o, x, min: _clipped(o, x, min, None),  # x from a bound on
    "clamp_max": lambda o, x, max: _clipped(o, x, None, max),  # x up to a bound
    "hardtanh": lambda o, x, min_val=-1, max_val=1: _clipped(o, x, min_val, max_val),  # x within bounds
    "relu6": lambda o, x: _clipped(o, x, 0, 6),  # x within 0 and 6
    "selu": lambda o, x: o.Selu(x),  # The scaled ELU that normalises itself
    "leaky_relu": lambda o, x, negative_slope=0.01: o.LeakyRelu(x, alpha=float(negative_slope)),  # x, and a part of it below zero
    "softsign": lambda o, x: o.Softsign(x),  # x / (1 + |x|)
    "log_sigmoid": lambda o, x: o.Neg(o.Softplus(o.Neg(x))),  # The logarithm of the sigmoid
})


def _along(o: Writer, op: str, x: Value, dim: int) -> Value:
    shape, x = x.shape, o.cast(x, o.out.dtype)
    if not shape:
        return o.Squeeze(o.step(op, o.Unsqueeze(x, [0]), axis=0), [0])
    return o.step(op, x, axis=dim % len(shape))


@form("gelu", since=20)
def gelu(o: Writer, x: Value, *, approximate: str = "none") -> Value:
    """x times the chance that a normal number is below."""
    return o.Gelu(x, approximate=approximate)


@form("gelu")
def gelu_of_parts(o: Writer, x: Value, *, approximate: str = "none") -> Value:
    """The same before opset 20."""
    half, one = o.cast(0.5, x.dtype), o.cast(1.0, x.dtype)
    if approximate == "tanh":
        cubed = o.Mul(o.Mul(o.Mul(x, x), x), o.cast(0.044715, x.dtype))
        below = o.Tanh(o.Mul(o.Add(x, cubed), o.cast(math.sqrt(2 / math.pi), x.dtype)))
    else:
        below = o.Erf(o.Mul(x, o.cast(math.sqrt(0.5), x.dtype)))
    return o.Mul(o.Mul(x, half), o.Add(below, one))


def _clipped(o: Writer, x: Value, low: Any, high: Any) -> Value:
    kind = o.out.dtype
    x = o.cast(x, kind)
    if any(isinstance(n, Value) for n in (low, high)):
        x = x if low is None else o.Max(x, o.cast(low, kind))
        return x if high is None else o.Min(x, o.cast(high, kind))
    return o.Clip(x, None if low is None else o.constant(low, kind), None if high is None else o.constant(high, kind))


@form("elu", takes=lambda x, alpha=1, scale=1, input_scale=1: scale == 1 and input_scale == 1)
def elu(o: Writer, x: Value, alpha: Any = 1, *_: Any) -> Value:
    """x, and alpha (exp(x) - 1) below zero."""
    return o.Elu(x, alpha=float(alpha))


@form("celu", takes=lambda x, alpha=1: x.dtype is float32)
def celu(o: Writer, x: Value, alpha: Any = 1) -> Value:
    """x, and alpha (exp(x / alpha) - 1) below zero."""
    return o.Celu(x, alpha=float(alpha))


@form("prelu", "_prelu_kernel")
def prelu(o: Writer, x: Value, weight: Value) -> Value:
    """x, and a channel's part of it below zero."""
    if weight.shape != (1,) and x.rank > 2:
        weight = o.Reshape(weight, [-1, *[1] * (x.rank - 2)])
    elif not x.rank:
        weight = o.Squeeze(weight, [0])
    return o.PRelu(x, weight)


@form("softplus", takes=lambda x, beta=1, threshold=20: x.dtype.is_floating_point)
def softplus(o: Writer, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """log(1 + exp(beta x)) / beta; x itself where that is large."""
    scaled = x if beta == 1 else o.Mul(x, o.constant(beta, x.dtype))
    made = o.Softplus(scaled)
    made = made if beta == 1 else o.Div(made, o.constant(beta, x.dtype))
    return made if threshold == 20 else o.Where(o.Greater(scaled, threshold), x, made, _dtype=x.dtype)


@form("threshold")
def threshold(o: Writer, x: Value, threshold: Any, value: Any) -> Value:
    """x where it is above a number, else another one."""
    return o.Where(o.Greater(x, threshold), x, o.cast(value, x.dtype), _dtype=x.dtype)


# -- resizing and sampling -------------------------------------------------------------------------------------------------------------
def _resized(mode: str, coordinates: str, **how: Any) -> Callable:
    def write(o: Writer, x: Value, size: Any, *rest: Any, **named: Any) -> Value:
        aligned = bool(rest[0]) if mode != "nearest" else False
        factors = rest[-1] if rest and isinstance(rest[-1], (list, tuple)) else named.get("scale_factors")
        out = o.out._layout.shape
        ahead = x.rank - (len(out) - 2)
        attributes = dict(mode=mode, coordinate_transformation_mode="align_corners" if aligned else coordinates, **how)
        if size is None and not all(isinstance(n, int) for n in out[ahead:]):
            assert factors is not None
            scales = o.constant(np.asarray([*[1.0] * ahead, *factors]), float32)
            return o.Resize(x, None, scales, None, **attributes)
        wanted = [n if isinstance(n, int) else s for n, s in zip(out[ahead:], size or out[ahead:])]
        if factors is None or size is not None or any(f is None for f in factors):
            return o.Resize(x, None, None, o.sizes([*o.shape(x)[:ahead], *wanted]), **attributes)
        sizes = [int(h * f) for h, f in zip((x.shape or ())[ahead:], factors)]
        if sizes == list(wanted):     # places are those of the factors, not of the sizes
            return o.Resize(x, None, o.constant(np.asarray([*[1.0] * ahead, *factors]), float32), None, **attributes)
        return o.Resize(x, None, None, o.sizes([*o.shape(x)[:ahead], *wanted]), **attributes)

    return write


for _kind, _dims, _mode in (("nearest", (1, 2, 3), "nearest"), ("linear", (1,), "linear"), ("bilinear", (2,), "linear"),
                            ("trilinear", (3,), "linear"), ("bicubic", (2,), "cubic")):
    for _n in _dims:
        _how: dict[str, Any] = {"nearest_mode": "floor"} if _mode == "nearest" else {"cubic_coeff_a": -0.75} if _mode == "cubic" else {}
        form(f"upsample_{_kind}{_n}d", takes=lambda x, *_, **__: x.dtype.is_floating_point)(
            _resized(_mode, "asymmetric" if _mode == "nearest" else "half_pixel", **_how))
for _n in (1, 2, 3):
    form(f"_upsample_nearest_exact{_n}d")(_resized("nearest", "half_pixel", nearest_mode="round_prefer_ceil"))


@form("grid_sampler", "grid_sampler_2d", takes=lambda x, grid, *_: x.ndim == 4)
def grid_sampler(o: Writer, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """Elements at places that a grid tells."""
    modes = ("linear", "nearest", "cubic") if o.opset >= 20 else ("bilinear", "nearest", "bicubic")
    return o.GridSample(x, grid, mode=modes[mode], padding_mode=("zeros", "border", "reflection")[padding],
                        align_corners=int(align_corners))


@form("grid_sampler", "grid_sampler_3d", since=20, takes=lambda x, *_: x.ndim == 5)
def grid_sampler_3d(o: Writer, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """Likewise in three dimensions."""
    return grid_sampler(o, x, grid, mode, padding, align_corners)


@form("col2im", takes=lambda x, size, *_, **__: x.ndim == 3)
def col2im(o: Writer, x: Value, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Blocks added into an image."""
    return o.Col2Im(x, o.sizes(_each(size, 2)), o.sizes(_each(kernel, 2)), dilations=_each(dilation, 2), pads=_each(padding, 2) * 2,
                    strides=_each(stride, 2))


# -- recurrent networks ----------------------------------------------------------------------------------------------------------------
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}     # where ONNX has the gates that ATen has in order


def _gates(o: Writer, x: Value, kind: str) -> Value:
    """Weights of the gates in ONNX's order, with a dimension for the direction."""
    order = _ORDER[kind]
    if len(order) == 1:
        return o.Unsqueeze(x, [0])
    parts = o.step("Split", x, [x.shape[0] // len(order)] * len(order), axis=0, _outputs=len(order))    # type: ignore[index]
    return o.Unsqueeze(o.Concat(*[parts[i] for i in order], axis=0), [0])


def _recurrent(kind: str, activation: str = "") -> Callable:
    def write(o: Writer, x: Value, states: Any, params: Sequence[Value], has_biases: bool, layers: int, dropout: float, train: bool,
              bidirectional: bool, batch_first: bool) -> tuple:
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        if batch_first:
            x = o.Transpose(x, perm=[1, 0, 2])
        ways = 1 + bidirectional
        per = 4 if has_biases else 2
        ends: list[list[Value]] = [[] for _ in states]
        for layer in range(layers):
            given = [params[(layer * ways + w) * per:(layer * ways + w + 1) * per] for w in range(ways)]
            inner, outer = ([_gates(o, g[i], kind) for g in given] for i in range(2))
            biases = [o.Concat(*[_gates(o, b, kind) for b in g[2:]], axis=1) for g in given] if has_biases else []
            first = [o.Slice(s, [layer * ways], [(layer + 1) * ways], [0], [1]) for s in states]
            joined = [parts[0] if len(parts) == 1 else o.Concat(*parts, axis=0) if parts else None for parts in (inner, outer, biases)]
            how: dict[str, Any] = {"hidden_size": params[1].shape[1], "direction": "bidirectional" if bidirectional else "forward"}    # type: ignore[index]
            if kind == "GRU":
                how["linear_before_reset"] = 1
            if activation:
                how["activations"] = [activation] * ways
            made = o.step(kind, x, *joined, None, *first, _outputs=1 + len(states), **how)
            for end, state in zip(ends, made[1:]):
                end.append(state)
            x = made[0]     # (time, way, batch, width)
            x = o.Squeeze(x, [1]) if ways == 1 else o.Reshape(o.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, -1])
        out = o.Transpose(x, perm=[1, 0, 2]) if batch_first else x
        return (out, *[end[0] if len(end) == 1 else o.Concat(*end, axis=0) for end in ends])

    return write


def _steps(x: Tensor, states: Any, params: Any, has_biases: bool, layers: int, dropout: float, train: bool, *_: Any) -> bool:
    count = len(states) if isinstance(states, (list, tuple)) else 1
    widths = 4 if has_biases else 2
    return x.ndim == 3 and not (dropout and train) and len(params) % widths == 0 and count <= 2


form("lstm.input", takes=_steps)(_recurrent("LSTM"))
form("gru.input", takes=_steps)(_recurrent("GRU"))
form("rnn_tanh.input", takes=_steps)(_recurrent("RNN", "Tanh"))
form("rnn_relu.input", takes=_steps)(_recurrent("RNN", "Relu"))
