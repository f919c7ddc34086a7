"""From an exported program to an NNAPI model: a row for each operator that NNAPI has; images keep their order, by NNAPI's NCHW flag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dispatch import grad_enabled
from ..core.dtypes import bool_, float32, int32, int64
from ..core.tensor import Tensor, from_array
from ..export.forms import Apart, Forms, key_of, line_of, told
from ..export.graph_signature import InputKind, OutputKind
from ..export.program import ExportedProgram
from ..export.record import COMPARISONS, set_grad_enabled
from ..fx import Node, map_arg
from ..ops import aten
from ..ops.aten import Overload
from .codes import Fuse, NnapiError, Operation, Type
from .model import Model, Operand, Step
from .quantise import Grid, in_eight_bits

TYPES = {float32: Type.TENSOR_FLOAT32, int32: Type.TENSOR_INT32, int64: Type.TENSOR_INT32, bool_: Type.TENSOR_BOOL8}
NCHW = True
FORMS = Forms()
form, short = FORMS.form, FORMS.short


class Ref:
    """A value of the model: its operand, or an array for a constant that is no operand yet; its shape, with None for sizes that vary."""

    def __init__(self, shape: Sequence[Any], kind: Any, index: int | None = None, array: np.ndarray | None = None) -> None:
        self.shape, self.dtype, self.index, self.array = tuple(shape), kind, index, array
        self.users = 2
        self.grid: Grid | None = None       # of a constant that has been to eight bits and back

    @property
    def rank(self) -> int:
        """How many dimensions."""
        return len(self.shape)


class Network:
    """A model while it is written."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.steps: list[Step] = []
        self.out: Any = None        # what the operator that is being written gives: fake tensors
        self.fusable: dict[int, tuple[int, int]] = {}       # operand -> the step that makes it, and where that has its activation
        self.filters: dict[int, tuple[int, int, int]] = {}      # operand -> filter and bias of what makes it, and the filter's channels
        self.grids: dict[int, Grid] = {}        # filter -> what its elements are multiples of
        self.named = ""       # its name
        self._scalars: dict[Any, int] = {}

    def operand(self, operand: Operand) -> int:
        """Its number."""
        self.operands.append(operand)
        return len(self.operands) - 1

    def number(self, value: Any) -> int:
        """A scalar operand: a bool, an int or a float."""
        kind = Type.BOOL if isinstance(value, bool) else Type.INT32 if isinstance(value, int) else Type.FLOAT32
        array = np.asarray(value, {Type.BOOL: np.uint8, Type.INT32: np.int32, Type.FLOAT32: np.float32}[kind])
        key = kind, array.tobytes()
        if key not in self._scalars:
            self._scalars[key] = self.operand(Operand(kind, (), value=array))
        return self._scalars[key]

    def constant(self, array: np.ndarray) -> int:
        """A tensor operand with these elements."""
        array = np.ascontiguousarray(array)
        if array.dtype == np.int64:
            array = array.astype(np.int32)
        kind = {"float32": Type.TENSOR_FLOAT32, "int32": Type.TENSOR_INT32, "bool": Type.TENSOR_BOOL8}[array.dtype.name]
        return self.operand(Operand(kind, array.shape or (1,), value=array.reshape(array.shape or (1,))))

    def index(self, x: Any, like: Any = None) -> int:
        """The operand of a value or a number."""
        if isinstance(x, Ref):
            if x.index is None:
                assert x.array is not None
                x.index = self.constant(x.array)
            return x.index
        if isinstance(x, (list, tuple, np.ndarray)):
            return self.constant(np.asarray(x, np.int32) if not isinstance(x, np.ndarray) else x)
        return self.number(x) if like is None else self.constant(np.full((1,), x, like))

    def step(self, code: Operation, *inputs: Any, fake: Any = None, fuse: int | None = None, quantised: tuple | None = None) -> Ref:
        """An operation with one result, of the shape of `fake` (the operator's); `fuse`: which input is its activation."""
        fake = self.out if fake is None else fake
        made = ref_of(fake)
        kind, scale, zero = quantised or (_type(fake.dtype), 0.0, 0)
        made.index = self.operand(Operand(kind, tuple([n or 0 for n in made.shape]), scale, zero))
        if fuse is not None:
            self.fusable[made.index] = len(self.steps), fuse
        self.steps.append(Step(code, tuple([self.index(x) for x in inputs]), (made.index,)))
        return made

    def several(self, code: Operation, *inputs: Any) -> tuple[Ref, ...]:
        """An operation with several results."""
        made = [ref_of(fake) for fake in self.out]
        for ref, fake in zip(made, self.out):
            ref.index = self.operand(Operand(_type(fake.dtype), tuple([n or 0 for n in ref.shape])))
        self.steps.append(Step(code, tuple([self.index(x) for x in inputs]), tuple([r.index for r in made])))    # type: ignore[misc]
        return tuple(made)

    def activated(self, x: Ref, fuse: Fuse) -> Ref | None:
        """`x` with an activation in the operation that makes it; None if that has another one, or others read it too."""
        if x.index not in self.fusable or x.users > 1:
            return None
        at, place = self.fusable.pop(x.index)
        step = self.steps[at]
        self.filters.pop(x.index, None)
        self.steps[at] = step._replace(inputs=(*step.inputs[:place], self.number(int(fuse)), *step.inputs[place + 1:]))
        return Ref(x.shape, x.dtype, x.index)

    def scaled(self, x: Ref, scale: np.ndarray, offset: np.ndarray) -> Ref | None:
        """`x` with a factor and an offset for each channel, in the filter of the convolution that makes it; None if it can't be."""
        if x.index not in self.filters or x.users > 1:
            return None
        filter_, bias, axis = self.filters.pop(x.index)
        weight, shift = self.operands[filter_].value, self.operands[bias].value
        assert weight is not None and shift is not None
        wide = [1] * weight.ndim
        wide[axis] = -1
        self.grids.pop(filter_, None)
        for i, array in ((filter_, weight * scale.reshape(wide)), (bias, shift * scale + offset)):
            self.operands[i] = self.operands[i]._replace(value=array.astype(np.float32))
        return Ref(x.shape, x.dtype, x.index)


def ref_of(fake: Tensor) -> Ref:
    """A value like a fake tensor, without an operand."""
    return Ref([n if isinstance(n, int) else None for n in fake._layout.shape], fake.dtype)


def _type(kind: Any) -> Type:
    if kind not in TYPES:
        raise NnapiError(f"NNAPI has no tensors of {kind} here; float32, int32, int64 (as int32) and bool can be")
    return TYPES[kind]


# -- rows ------------------------------------------------------------------------------------------------------------------------------
def _array(x: Any, what: str) -> np.ndarray:
    if not isinstance(x, Ref) or x.array is None:
        raise NnapiError(f"NNAPI takes {what} that is known beforehand")
    return x.array


def _filter(o: Network, weight: Any, order: Sequence[int]) -> Ref:
    """A filter with its dimensions in another order, as an operand."""
    array = np.ascontiguousarray(_array(weight, "a filter").transpose(order))
    made = Ref(array.shape, float32, o.constant(array))
    if weight.grid is not None and made.index is not None:
        o.grids[made.index] = weight.grid._replace(channel=order.index(weight.grid.channel))
    return made


def _pair(value: Any) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * 2 if len(values) == 1 else values


def _pads(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Left, right, top, bottom."""
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return [total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2]
    y, x = (0, 0) if padding == "valid" else _pair(padding)
    return [x, x, y, y]


def _images(x: Tensor, *_: Any, **__: Any) -> bool:
    return x.ndim == 4 and x.dtype is float32


def _convolution(o: Network, x: Ref, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Ref:
    w = _array(weight, "a filter")
    b = np.zeros(w.shape[0], np.float32) if bias is None else _array(bias, "a bias")
    (sy, sx), (dy, dx) = _pair(stride), _pair(dilation)
    pads = _pads(padding, w.shape[2:], (dy, dx))
    channels = x.shape[1]
    if groups == 1:
        code, order, axis, mine = Operation.CONV_2D, (0, 2, 3, 1), 0, [sx, sy, int(Fuse.NONE), NCHW, dx, dy]
    elif groups == channels:
        code, order, axis, mine = Operation.DEPTHWISE_CONV_2D, (1, 2, 3, 0), 3, [
            sx, sy, w.shape[0] // groups, int(Fuse.NONE), NCHW, dx, dy]
    elif (dy, dx) == (1, 1):
        code, order, axis, mine = Operation.GROUPED_CONV_2D, (0, 2, 3, 1), 0, [sx, sy, groups, int(Fuse.NONE), NCHW]
    else:
        raise NnapiError("NNAPI has no convolution with groups and dilation")
    filter_, shift = _filter(o, weight, order), o.constant(b)
    made = o.step(code, x, filter_, Ref(b.shape, float32, shift), *pads, *mine, fuse=9 if code is Operation.CONV_2D else 10)
    assert made.index is not None and filter_.index is not None
    o.filters[made.index] = filter_.index, shift, axis
    return made


@form("conv2d", takes=_images)
def conv2d(o: Network, x: Ref, weight: Any, bias: Any = None, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,),
           groups: int = 1) -> Ref:
    """A convolution: plain, depthwise or grouped."""
    return _convolution(o, x, weight, bias, stride, padding, dilation, groups)


@form("convolution", takes=lambda x, *rest: _images(x) and not rest[5])
def convolution(o: Network, x: Ref, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, _: Any,
                groups: int) -> Ref:
    """Likewise."""
    return _convolution(o, x, weight, bias, stride, padding, dilation, groups)


@form("conv_transpose2d", takes=_images)
def conv_transpose2d(o: Network, x: Ref, weight: Any, bias: Any = None, stride: Any = (1,), padding: Any = (0,), output_padding: Any = (0,),
                     groups: int = 1, dilation: Any = (1,)) -> Ref:
    """A transposed convolution."""
    if groups != 1 or set(_pair(dilation)) != {1}:
        raise NnapiError("NNAPI has no transposed convolution with groups or dilation")
    w = _filter(o, weight, (1, 2, 3, 0))
    b = np.zeros(w.shape[0], np.float32) if bias is None else _array(bias, "a bias")
    (sy, sx), (py, px), (ey, ex) = _pair(stride), _pair(padding), _pair(output_padding)
    pads = (px, px - ex, py, py - ey)
    return o.step(Operation.TRANSPOSE_CONV_2D, x, w, b, *pads, sx, sy, int(Fuse.NONE), NCHW, fuse=9)


@form("max_pool2d", takes=lambda x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False: _images(x) and not ceil_mode and set(
    _pair(dilation)) == {1})
def max_pool2d(o: Network, x: Ref, kernel: Any, stride: Any = (), padding: Any = 0, *_: Any) -> Ref:
    """Greatest elements of windows."""
    return _pool(o, Operation.MAX_POOL_2D, x, kernel, stride, padding)


@form("avg_pool2d", takes=lambda x, kernel, stride=(), padding=0, ceil_mode=False, count=True, divisor=None: _images(x) and not ceil_mode
      and divisor is None and (not count or not any(_pair(padding))))
def avg_pool2d(o: Network, x: Ref, kernel: Any, stride: Any = (), padding: Any = 0, *_: Any) -> Ref:
    """Means of windows, of what is no padding."""
    return _pool(o, Operation.AVERAGE_POOL_2D, x, kernel, stride, padding)


def _pool(o: Network, code: Operation, x: Ref, kernel: Any, stride: Any, padding: Any) -> Ref:
    (ky, kx), (sy, sx) = _pair(kernel), _pair(stride or kernel)
    return o.step(code, x, *_pads(padding, (ky, kx), (1, 1)), sx, sy, kx, ky, int(Fuse.NONE), NCHW, fuse=9)


@form("adaptive_avg_pool2d", takes=lambda x, size: _images(x) and all(
    n == 1 or (isinstance(m, int) and m % n == 0) for n, m in zip(_pair(size), x._layout.shape[2:])))
def adaptive_avg_pool2d(o: Network, x: Ref, size: Any) -> Ref:
    """Means of parts of an image."""
    if set(_pair(size)) == {1}:
        return o.step(Operation.MEAN, x, [2, 3], 1)
    return _pool(o, Operation.AVERAGE_POOL_2D, x, [m // n for n, m in zip(_pair(size), x.shape[2:])], (), 0)


@form("linear", takes=lambda x, w, b=None: x.dtype is float32)
def linear(o: Network, x: Ref, weight: Any, bias: Any = None) -> Ref:
    """Rows times a matrix; of more dimensions as rows, and back."""
    w = _filter(o, weight, (0, 1))
    b = np.zeros(w.shape[0], np.float32) if bias is None else _array(bias, "a bias")
    if x.rank == 2:
        return o.step(Operation.FULLY_CONNECTED, x, w, b, int(Fuse.NONE), fuse=3)
    index = o.operand(Operand(Type.TENSOR_FLOAT32, (0, w.shape[0])))
    o.steps.append(Step(Operation.FULLY_CONNECTED, (o.index(x), o.index(w), o.constant(b), o.number(int(Fuse.NONE))), (index,)))
    return o.step(Operation.RESHAPE, Ref((None, w.shape[0]), float32, index), _sizes(o.out))


def _sizes(fake: Tensor) -> list[int]:
    """A shape, with -1 for a size that varies."""
    shape = [n if isinstance(n, int) else -1 for n in fake._layout.shape]
    if shape.count(-1) > 1:
        raise NnapiError(f"NNAPI cannot reshape to {list(fake._layout.shape)}: more than one size varies")
    return shape


@form("batch_norm", takes=lambda x, w, b, mean, var, training, *_: not training and mean is not None and x.ndim == 4)
def batch_norm(o: Network, x: Ref, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float,
               *_: Any) -> Ref:
    """A factor and an offset for each channel: of the convolution before, or by themselves."""
    scale = 1 / np.sqrt(_array(var, "a variance") + eps)
    scale = (scale * _array(weight, "a weight") if weight is not None else scale).astype(np.float32)
    offset = ((_array(bias, "a bias") if bias is not None else 0) - _array(mean, "a mean") * scale).astype(np.float32)
    made = o.scaled(x, scale, offset)
    if made is not None:
        return made
    wide = (1, -1, 1, 1)
    made = o.step(Operation.MUL, x, scale.reshape(wide), int(Fuse.NONE))
    return o.step(Operation.ADD, made, offset.reshape(wide), int(Fuse.NONE), fuse=2)


def _binary(code: Operation) -> Callable:
    def write(o: Network, x: Any, y: Any, alpha: Any = 1) -> Ref:
        if alpha != 1:
            raise NnapiError("NNAPI adds without a factor; multiply before")
        kind = np.float32 if o.out.dtype is float32 else np.int32
        operands = [Ref((), None, o.index(v, kind)) if not isinstance(v, Ref) else v for v in (x, y)]
        return o.step(code, *operands, int(Fuse.NONE), fuse=2)

    return write


def _of_one_kind(*args: Any, **kwargs: Any) -> bool:
    kinds = {a.dtype for a in args if isinstance(a, Tensor)}
    return len(kinds) == 1 and kinds <= {float32, int32}


for _name, _code in (("add", Operation.ADD), ("sub", Operation.SUB), ("mul", Operation.MUL), ("div", Operation.DIV)):
    form(_name, takes=lambda *args, rounding_mode=None, **kwargs: _of_one_kind(*args) and rounding_mode is None)(_binary(_code))


def _activation(fuse: Fuse, code: Operation) -> Callable:
    def write(o: Network, x: Ref) -> Ref:
        return o.activated(x, fuse) or o.step(code, x)

    return write


form("relu")(_activation(Fuse.RELU, Operation.RELU))
form("relu6")(_activation(Fuse.RELU6, Operation.RELU6))


_BOUNDS = {(0, 6): (Fuse.RELU6, Operation.RELU6), (-1, 1): (Fuse.RELU1, Operation.RELU1), (0, None): (Fuse.RELU, Operation.RELU)}


@form("clamp", takes=lambda x, low=None, high=None: (low, high) in _BOUNDS)
def clamp(o: Network, x: Ref, low: Any = None, high: Any = None) -> Ref:
    """Bounds that NNAPI has an activation for."""
    return _activation(*_BOUNDS[low, high])(o, x)


@form("hardtanh", takes=lambda x, low=-1, high=1: (low, high) in _BOUNDS)
def hardtanh(o: Network, x: Ref, low: Any = -1, high: Any = 1) -> Ref:
    """Likewise."""
    return clamp(o, x, low, high)


def _unary(code: Operation, *more: Any) -> Callable:
    return lambda o, x, *rest, **named: o.step(code, x, *more)


for _name, _code in (("sigmoid", Operation.LOGISTIC), ("tanh", Operation.TANH), ("abs", Operation.ABS), ("exp", Operation.EXP),
                     ("log", Operation.LOG), ("neg", Operation.NEG), ("sqrt", Operation.SQRT), ("rsqrt", Operation.RSQRT),
                     ("sin", Operation.SIN), ("floor", Operation.FLOOR), ("hardswish", Operation.HARD_SWISH)):
    form(_name, takes=lambda x: x.dtype is float32)(_unary(_code))
form("logical_not", takes=lambda x: x.dtype is bool_)(_unary(Operation.LOGICAL_NOT))


def _relation(code: Operation) -> Callable:
    def write(o: Network, x: Any, y: Any) -> Ref:
        like = next(v.dtype for v in (x, y) if isinstance(v, Ref))
        return o.step(code, *[v if isinstance(v, Ref) else Ref((), None, o.index(v, np.float32 if like is float32 else np.int32))
                              for v in (x, y)])

    return write


for _name, _code in (("eq", Operation.EQUAL), ("ne", Operation.NOT_EQUAL), ("lt", Operation.LESS), ("le", Operation.LESS_EQUAL),
                     ("gt", Operation.GREATER), ("ge", Operation.GREATER_EQUAL), ("maximum", Operation.MAXIMUM),
                     ("minimum", Operation.MINIMUM)):
    form(_name, takes=_of_one_kind)(_relation(_code))
for _name, _code in (("logical_and", Operation.LOGICAL_AND), ("logical_or", Operation.LOGICAL_OR)):
    form(_name, takes=lambda x, y: x.dtype is bool_ and y.dtype is bool_)(_relation(_code))


@form("pow", takes=lambda x, y: isinstance(x, Tensor) and x.dtype is float32)
def pow_(o: Network, x: Ref, y: Any) -> Ref:
    """A power."""
    return _relation(Operation.POW)(o, x, y)


@form("where.self", takes=lambda c, x, y: x.dtype is y.dtype and list(x.shape) == list(y.shape) == list(c.shape))
def where(o: Network, condition: Ref, x: Ref, y: Ref) -> Ref:
    """x where the condition holds, else y."""
    return o.step(Operation.SELECT, condition, x, y)


@form("hardsigmoid")
def hardsigmoid(o: Network, x: Ref) -> Ref:
    """x / 6 + 1 / 2 within 0 and 1: a sixth of ReLU6 of x + 3."""
    three, sixth = (np.full((1,), n, np.float32) for n in (3, 1 / 6))
    return o.step(Operation.MUL, o.step(Operation.ADD, x, three, int(Fuse.RELU6)), sixth, int(Fuse.NONE), fuse=2)


short({
    "silu": lambda o, x: o.step(Operation.MUL, x, o.step(Operation.LOGISTIC, x), int(Fuse.NONE), fuse=2),  # x times its sigmoid
    "leaky_relu": lambda o, x, slope=0.01: o.step(Operation.PRELU, x, np.full((1,), slope, np.float32)),  # x, and a part of it below zero
    # x, and a channel's part of it below zero
    "prelu": lambda o, x, weight: o.step(Operation.PRELU, x, _array(weight, "a weight").reshape(-1, *[1] * (x.rank - 2))),
    "softmax.int _softmax": lambda o, x, dim, *_: o.step(Operation.SOFTMAX, x, 1.0, dim % x.rank),  # Exponentials as parts of their sum
    "log_softmax.int _log_softmax": lambda o, x, dim, *_: o.step(Operation.LOG_SOFTMAX, x, 1.0, dim % x.rank),  # Its logarithm
})


@form("channel_shuffle", takes=_images)
def channel_shuffle(o: Network, x: Ref, groups: int) -> Ref:
    """Channels of groups, one of each in turn."""
    return o.step(Operation.CHANNEL_SHUFFLE, x, groups, 1)


@form("elu", takes=lambda x, alpha=1, scale=1, input_scale=1: scale == 1 and input_scale == 1)
def elu(o: Network, x: Ref, alpha: Any = 1, *_: Any) -> Ref:
    """x, and alpha (exp(x) - 1) below zero."""
    return o.step(Operation.ELU, x, float(alpha))


# -- shapes ----------------------------------------------------------------------------------------------------------------------------
@form("view.default", "reshape", "flatten", "_unsafe_view", "unflatten")
def reshape(o: Network, x: Ref, *_: Any) -> Ref:
    """The elements in order in another shape."""
    if x.array is not None:
        return Ref(_sizes(o.out), x.dtype, None, x.array.reshape(_sizes(o.out)))
    return o.step(Operation.RESHAPE, x, _sizes(o.out))


@form("permute")
def permute(o: Network, x: Ref, dims: Sequence[int]) -> Ref:
    """Dimensions in another order."""
    if x.rank > 4:
        raise NnapiError("NNAPI transposes at most four dimensions")
    return o.step(Operation.TRANSPOSE, x, [d % x.rank for d in dims])


@form("transpose.int")
def transpose(o: Network, x: Ref, a: int, b: int) -> Ref:
    """Two dimensions exchanged."""
    order = list(range(x.rank))
    order[a], order[b] = order[b], order[a]
    return permute(o, x, order)


short({
    "unsqueeze": lambda o, x, dim: o.step(Operation.EXPAND_DIMS, x, dim % (x.rank + 1)),  # A dimension of one element more
    # One after another along a dimension
    "cat primitive:cat": lambda o, tensors, dim=0: o.step(Operation.CONCATENATION, *tensors, dim % tensors[0].rank),
    "_to_copy to": lambda o, x, *_, **__: x if x.dtype is o.out.dtype else o.step(Operation.CAST, x),  # Conversion
})


@form("squeeze.dim", "squeeze.dims")
def squeeze(o: Network, x: Ref, dim: Any) -> Ref:
    """Without dimensions of one element."""
    dims = [d % x.rank for d in ([dim] if isinstance(dim, int) else dim) if x.shape[d] == 1]
    return o.step(Operation.SQUEEZE, x, dims) if dims else x


@form("slice.Tensor", "select.int")
def slice_(o: Network, x: Ref, dim: int = 0, start: Any = None, end: Any = ..., step: int = 1) -> Ref:
    """A range of a dimension, or one place of it."""
    axis, select = dim % x.rank, end is ...
    if any(isinstance(n, (Node, Ref)) for n in (start, end)):
        raise NnapiError("NNAPI takes ranges that are known beforehand")
    begin, stop, strides = [0] * x.rank, [0] * x.rank, [1] * x.rank
    start = start or 0
    begin[axis], strides[axis] = start, step
    stop[axis] = start + 1 if select else min(end, 2**31 - 1) if end is not None else 2**31 - 1
    whole = (1 << x.rank) - 1 - (1 << axis)
    return o.step(Operation.STRIDED_SLICE, x, begin, stop, strides, whole, whole, (1 << axis) if select else 0)


@form("chunk", "split.Tensor", takes=lambda x, how, dim=0: isinstance(n := x._layout.shape[dim], int) and n % how == 0)
def split(o: Network, x: Ref, how: int, dim: int = 0) -> tuple:
    """Equal parts."""
    return o.several(Operation.SPLIT, x, dim % x.rank, len(o.out))


@form("constant_pad_nd", "pad", takes=lambda x, pad, *rest, **_: all(isinstance(n, int) and n >= 0 for n in pad) and (
    not rest or not isinstance(rest[0], str) or rest[0] == "constant"))
def pad(o: Network, x: Ref, pad: Sequence[int], *rest: Any) -> Ref:
    """More elements at the ends of the last dimensions."""
    value = float(rest[-1] or 0) if rest and not isinstance(rest[-1], str) else 0.0
    pairs = [[0, 0] for _ in range(x.rank)]
    for i in range(len(pad) // 2):
        pairs[-1 - i] = list(pad[2 * i:2 * i + 2])
    table = np.asarray(pairs, np.int32)
    return o.step(Operation.PAD, x, table) if value == 0 else o.step(Operation.PAD_V2, x, table, value)


@form("repeat", "tile")
def repeat(o: Network, x: Ref, times: Sequence[int]) -> Ref:
    """The whole several times along each dimension."""
    if len(times) != x.rank:
        raise NnapiError("NNAPI repeats along the dimensions that there are")
    return o.step(Operation.TILE, x, list(times))


def _fold(code: Operation) -> Callable:
    def write(o: Network, x: Ref, dim: Any = None, keepdim: bool = False, **_: Any) -> Ref:
        dims = [dim] if isinstance(dim, int) else dim or list(range(x.rank))
        return o.step(code, x, [d % x.rank for d in dims], int(keepdim) if code is Operation.MEAN else bool(keepdim))

    return write


for _name, _code in (("mean.dim", Operation.MEAN), ("sum.dim_IntList", Operation.REDUCE_SUM), ("amax", Operation.REDUCE_MAX),
                     ("amin", Operation.REDUCE_MIN), ("mean.default", Operation.MEAN)):
    form(_name, takes=lambda x, *_, dtype=None, **__: x.dtype is float32)(_fold(_code))


@form("argmax", "argmin", takes=lambda x, dim=None, keepdim=False: dim is not None and not keepdim)
def argmax(o: Network, x: Ref, dim: int, keepdim: bool = False) -> Ref:
    """The place of the greatest element; of the least one by its negative."""
    return o.step(Operation.ARGMAX if o.named == "argmax" else Operation.ARGMIN, x, dim % x.rank)


@form("topk", takes=lambda x, k, dim=-1, largest=True, sorted=True: largest and dim in (-1, x.ndim - 1))
def topk(o: Network, x: Ref, k: int, *_: Any) -> tuple:
    """The k largest of the last dimension."""
    return o.several(Operation.TOPK_V2, x, k)


@form("alias", "clone", "detach", "contiguous", "lift_fresh_copy", "dropout",
      takes=lambda x, *rest, **_: not (len(rest) == 2 and all(rest)))
def same(o: Network, x: Ref, *_: Any, **__: Any) -> Ref:
    """The value itself."""
    return x


def _resized(code: Operation, centers: bool) -> Callable:
    def write(o: Network, x: Ref, size: Any, *rest: Any) -> Ref:
        align = bool(rest[0]) if code is Operation.RESIZE_BILINEAR else False
        factors = rest[-1] if rest and isinstance(rest[-1], (list, tuple)) else None
        out = o.out._layout.shape[2:]
        if all(isinstance(n, int) for n in out):
            high, wide = out
        elif factors:
            high, wide = map(float, factors)
        else:
            raise NnapiError("NNAPI resizes to sizes or by factors that are known beforehand")
        return o.step(code, x, wide, high, NCHW, align, centers and not align)

    return write


form("upsample_bilinear2d", takes=_images)(_resized(Operation.RESIZE_BILINEAR, True))
form("upsample_nearest2d", takes=_images)(_resized(Operation.RESIZE_NEAREST_NEIGHBOR, False))


@form("instance_norm", takes=lambda x, w, b, mean, var, use, *_: _images(x) and w is None and (use or mean is None))
def instance_norm(o: Network, x: Ref, *args: Any) -> Ref:
    """A normalisation of each channel of each image."""
    return o.step(Operation.INSTANCE_NORMALIZATION, x, 1.0, 0.0, float(args[6]), NCHW)


QUANTISED = "operator:_fake_quantize"


def _grid(scales: np.ndarray, zero_points: np.ndarray) -> Grid | None:
    """What a constant's elements are multiples of, after eight bits; None where NNAPI has no such filter."""
    wide = [d for d, n in enumerate(scales.shape) if n > 1]
    if len(wide) > 1 or np.ptp(zero_points):
        return None
    return Grid(scales.reshape(-1), int(zero_points.flat[0]), wide[0] if wide else 0)


@form(QUANTISED, takes=lambda x, scale, zero, low, high: high - low < 256)
def fake_quantize(o: Network, x: Ref, scale: Ref, zero: Ref, low: int, high: int) -> Ref:
    """To eight bits and back: QUANTIZE and DEQUANTIZE. Of constants it is computed now, in any eight bits and by channel too."""
    if (low, high) not in ((0, 255), (-128, 127)) or scale.rank:
        raise NnapiError(f"NNAPI quantises what is computed to 0 .. 255 or -128 .. 127 with one scale, not to {low} .. {high} with "
                         f"{scale.shape or 'one'}")
    kind = Type.TENSOR_QUANT8_ASYMM if low == 0 else Type.TENSOR_QUANT8_ASYMM_SIGNED
    step, middle = float(_array(scale, "a scale")), int(_array(zero, "a zero point"))
    return o.step(Operation.DEQUANTIZE, o.step(Operation.QUANTIZE, x, quantised=(kind, step, middle)))


@form("full", "new_full", takes=lambda *args, **_: all(isinstance(n, int) for n in next(a for a in args if isinstance(a, (list, tuple)))))
def full(o: Network, *args: Any, **_: Any) -> Ref:
    """One number everywhere: a constant."""
    size, number = args[-2:]
    return Ref(size, o.out.dtype, None, np.full(size, number, np.float32 if o.out.dtype is float32 else np.int32))


# -- the program -----------------------------------------------------------------------------------------------------------------------
_SIZES = (aten.sym_size, set_grad_enabled, *COMPARISONS.values())


class Conversion:
    """One program, written."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program.run_decompositions(Apart(lambda target, args, kwargs: FORMS.find(target, args, kwargs) is not None))
        self.o = Network()
        self.values: dict[Node, Any] = {}

    def run(self) -> Model:
        """The model; NnapiError tells all that NNAPI has not."""
        graph, inputs = self.program.graph, []
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        for node in [n for n in graph.nodes if n.op == "placeholder"]:
            value, spec = node.meta["val"], specs[node.name]
            self.values[node] = value
            if spec.kind is not InputKind.USER_INPUT:
                path = str(spec.target)
                tensor = self.program.state_dict.get(path, self.program.constants.get(path))
                assert isinstance(tensor, Tensor)
                array = np.array(tensor.detach().cpu().contiguous().numpy())
                self.values[node] = Ref(array.shape, tensor.dtype, None, array)
            elif isinstance(value, Tensor):
                ref = self.values[node] = ref_of(value)
                ref.index = self.o.operand(Operand(_type(value.dtype), tuple([n or 0 for n in ref.shape])))
                inputs.append(ref.index)
        missing: dict[str, list[str]] = {}
        for node in graph.nodes:
            if node.op == "call_function":
                self._step(node, missing)
        if missing:
            raise NnapiError(f"NNAPI cannot run this model:\n{told(missing)}\nCompute it outside of the model, or write it by other "
                             "operators.")
        outs = [self.values[out] for out, spec in zip(graph.output_node().args[0], self.program.graph_signature.output_specs, strict=True)
                if spec.kind is OutputKind.USER_OUTPUT]
        made = Model(self.o.operands, self.o.steps, tuple(inputs), tuple([self.o.index(out) for out in outs]))
        return in_eight_bits(made, self.o.grids)

    def _step(self, node: Node, missing: dict[str, list[str]]) -> None:
        o, value = self.o, node.meta.get("val")
        if getattr(node.target, "__name__", "") == "getitem":
            several = self.values[node.args[0]]
            self.values[node] = several[node.args[1]] if isinstance(several, tuple) else several
            return
        if not isinstance(value, (Tensor, tuple, list)):      # sizes: a row takes them from the shape of the result
            self.values[node] = node
            return
        if (known := self._folded(node)) is not None:
            self.values[node] = known
            return
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: n.meta.get("val", n))
        write = FORMS.find(node.target, args, kwargs)
        args, kwargs = map_arg((node.args, dict(node.kwargs)), self.values.__getitem__)
        o.out, o.named = value, node.target.__name__ if isinstance(node.target, Overload) else ""
        try:
            if write is None:
                missing.setdefault(key_of(node.target), []).append(line_of(node))
                raise NotImplementedError
            self.values[node] = write(o, *args, **kwargs)
        except NnapiError as error:
            missing.setdefault(f"{key_of(node.target)}: {error}", []).append(line_of(node))
            self._go_on(node, value)
        except NotImplementedError:
            self._go_on(node, value)
        ref = self.values[node]
        if isinstance(ref, Ref):
            ref.users = len(node.users)

    def _folded(self, node: Node) -> Any:
        """What an operator of constants alone gives, computed now; None of any other."""
        given = [self.values[n] for n in node.all_input_nodes]
        if not given or not all(isinstance(ref, Ref) and ref.array is not None for ref in given):
            return None
        with grad_enabled(False):
            args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: from_array(np.ascontiguousarray(self.values[n].array)))
            made = node.target(*args, **kwargs)     # type: ignore[operator]
        refs = [Ref(tuple(t.shape), t.dtype, None, np.array(t.numpy())) for t in (made if isinstance(made, (tuple, list)) else (made,))]
        if key_of(node.target) == QUANTISED:
            refs[0].grid = _grid(*[self.values[n].array for n in node.args[1:3]])
        return tuple(refs) if isinstance(made, (tuple, list)) else refs[0]

    def _go_on(self, node: Node, value: Any) -> None:
        """A value that nothing makes: only to find all that is missing."""
        made = [ref_of(v) for v in (value if isinstance(value, (tuple, list)) else [value])]
        for ref in made:
            ref.index = self.o.operand(Operand(Type.TENSOR_FLOAT32, tuple([n or 0 for n in ref.shape])))
        self.values[node] = tuple(made) if isinstance(value, (tuple, list)) else made[0]
