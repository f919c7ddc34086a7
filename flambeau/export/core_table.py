"""What core ATen lacks, made of what it has; and how to put a part back into what a view was taken of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..core.memory_format import contiguous_format
from ..core.tables import enters
from ..core.tensor import Tensor
from ..ops import aten as _aten
from ..ops.promotion import default_dtype

TABLE: dict[Any, Callable] = {}
aten: Any = _aten   # mypy reads tables before it knows what a module's `__getattr__` gives


def _for(*names: str) -> Callable[[Callable], Callable]:
    return enters(TABLE, *map(aten.overload_named, names))


# -- products ----------------------------------------------------------------------------------------------------------------------
@_for("linear")
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2 or x.ndim < 2:
        return NotImplemented
    columns = aten.permute.default(weight, [1, 0])
    rows = x if x.ndim == 2 else aten.reshape.default(x, [-1, x.shape[-1]])
    out = aten.mm.default(rows, columns) if bias is None else aten.addmm.default(bias, rows, columns)
    return out if x.ndim == 2 else aten.view.default(out, [*x.shape[:-1], weight.shape[0]])


@_for("matmul")
def _matmul(x: Tensor, y: Tensor) -> Any:
    if x.ndim == 2 and y.ndim == 2:
        return aten.mm.default(x, y)
    return aten.bmm.default(x, y) if x.ndim == 3 and y.ndim == 3 and x.shape[0] == y.shape[0] else NotImplemented


def _convolution(dims: int) -> Callable:
    def conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence = (1,), padding: Sequence = (0,),
             dilation: Sequence = (1,), groups: int = 1) -> Any:
        if x.ndim != dims + 2:
            return NotImplemented
        sizes = [list(n) * dims if len(n) == 1 else list(n) for n in (stride, padding, dilation)]
        return aten.convolution.default(x, weight, bias, *sizes, False, [0] * dims, groups)

    return conv


for _dims in (1, 2, 3):
    _for(f"conv{_dims}d")(_convolution(_dims))


def _softmax(of: Callable) -> Callable:
    return lambda x, dim, dtype=None: of(x if dtype in (None, x.dtype) else aten._to_copy.default(x, dtype=dtype), dim, False)


_SHORT: dict[str, Callable] = {
    "layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5, _=True: aten.native_layer_norm.default(x, shape, weight, bias, eps)[0],
    "softmax.int": _softmax(aten._softmax.default), "log_softmax.int": _softmax(aten._log_softmax.default),
    "dropout": lambda x, p, train: NotImplemented if train and p else aten.clone.default(x),
    "max_pool2d": lambda x, *how: aten.max_pool2d_with_indices.default(x, *how)[0] if x.ndim == 4 else NotImplemented,
    "t": lambda x: aten.permute.default(x, [1, 0]) if x.ndim == 2 else aten.alias.default(x),
    "contiguous": lambda x, *, memory_format=contiguous_format:
        x if x.is_contiguous(memory_format=memory_format) else aten.clone.default(x, memory_format=memory_format),
}
for _name, _form in _SHORT.items():
    _for(_name)(_form)


# -- layers ------------------------------------------------------------------------------------------------------------------------
@_for("batch_norm")
def _batch_norm(x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, _: bool) -> Any:
    if mean is None or var is None:
        return NotImplemented
    if not training:
        return aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, momentum, eps)[0]
    made = aten._native_batch_norm_legit_functional.default(x, weight, bias, mean, var, True, momentum, eps)
    aten.copy_.default(mean, made[3])
    aten.copy_.default(var, made[4])
    return made[0]


# -- shapes ------------------------------------------------------------------------------------------------------------------------
@_for("transpose.int")
def _transpose(x: Tensor, a: int, b: int) -> Any:
    if x.ndim == 0:
        return NotImplemented
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return aten.permute.default(x, order)


@_for("reshape")
def _reshape(x: Tensor, shape: Any) -> Any:
    try:
        return aten.view.default(x, shape)
    except RuntimeError:     # it lies otherwise
        return aten.view.default(aten.clone.default(x, memory_format=contiguous_format), shape)


def _filled(value: int) -> Callable:
    def fill(size: Any, **kwargs: Any) -> Any:
        return aten.full.default(size, value, **({"dtype": default_dtype()} | kwargs))

    return fill


_for("ones")(_filled(1))
_for("zeros")(_filled(0))


@_for("flatten.using_ints")
def _flatten(x: Tensor, start: int = 0, end: int = -1) -> Any:
    if x.ndim == 0:
        return NotImplemented
    first, last = start % x.ndim, end % x.ndim
    return aten.reshape.default(x, [*x.shape[:first], math.prod(x.shape[first:last + 1]), *x.shape[last + 1:]])


@_for("to.dtype")
def _to_dtype(x: Tensor, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    if x.dtype is dtype and not copy and memory_format is None:
        return x
    return aten._to_copy.default(x, dtype=dtype, **({"memory_format": memory_format} if memory_format is not None else {}))


# -- parts of tensors --------------------------------------------------------------------------------------------------------------
_AS_THEY_LIE = ("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "_unsafe_view", "contiguous", "alias", "detach", "to",
                "lift_fresh", "view_as")


def undo(base: Tensor, step: tuple, new: Tensor) -> Tensor:
    """`base` with `new` in the place of the view of it that the step `(overload, args, kwargs, which of several)` takes."""
    target, args, _, place = step
    name = target.__name__
    if place is None and name in ("slice", "select", "diagonal"):
        scatter = aten.overload_named(f"{name}_scatter")
        return scatter(base, new, *args)
    if place is None and name in _AS_THEY_LIE:
        return aten.reshape.default(new, list(base.shape)) if list(new.shape) != list(base.shape) else new
    if place is None and name == "permute":
        order = [d % base.ndim for d in args[0]]
        return aten.permute.default(new, sorted(range(len(order)), key=order.__getitem__))
    if place is None and name in ("transpose", "t"):
        return aten.transpose.int(new, *(args or (0, 1)))
    raise NotImplementedError(f"run_decompositions: a write through {target}; write to the tensor itself, or use the form of the operation "
                              "that does not write")
