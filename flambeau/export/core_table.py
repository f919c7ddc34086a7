"""What core ATen lacks, made of what it has; and how to put a part back into what a view was taken of."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..core.memory_format import contiguous_format
from ..core.symbolic import expr_of
from ..core.tables import enters
from ..core.tensor import Tensor
from ..ops import aten as _aten
from ..ops.aten import AtenOperator, Overload
from ..ops.aten_forms import FORMS
from ..ops.aten_schemas import behind, operation, schemas
from ..ops.promotion import default_dtype
from ..ops.registry import OPERATORS, PRIMITIVES

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
    if x.ndim < 3 or x.ndim != y.ndim or any(expr_of(n) != expr_of(m) for n, m in zip(x.shape[:-2], y.shape[:-2])):
        return NotImplemented
    a, b = (t if t.ndim == 3 else aten.reshape.default(t, [math.prod(t.shape[:-2]), *t.shape[-2:]]) for t in (x, y))
    out = aten.bmm.default(a, b)
    return out if x.ndim == 3 else aten.view.default(out, [*x.shape[:-1], y.shape[-1]])


def _transposed(dims: int) -> Callable:
    def conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence = (1,), padding: Sequence = (0,),
             output_padding: Sequence = (0,), groups: int = 1, dilation: Sequence = (1,)) -> Any:
        if x.ndim != dims + 2:
            return NotImplemented
        strides, pads, more, dilations = (list(n) * dims if len(n) == 1 else list(n) for n in (stride, padding, output_padding, dilation))
        return aten.convolution.default(x, weight, bias, strides, pads, dilations, True, more, groups)

    return conv


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
    _for("conv_transpose1d" if _dims == 1 else f"conv_transpose{_dims}d.input")(_transposed(_dims))


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
_SHORT |= {     # steps that many bodies come to
    "sum": lambda x, *, dtype=None: aten.sum.dim_IntList(x, list(range(x.ndim)), dtype=dtype),
    "all": lambda x: _not(aten.any.default(_not(x))), "all.dim": lambda x, dim, keepdim=False: _not(aten.any.dim(_not(x), dim, keepdim)),
    "all.dims": lambda x, dim=None, keepdim=False: _not(aten.any.dims(_not(x), dim, keepdim)),
    "detach": lambda x: aten.alias.default(x), "square": lambda x: aten.pow.Tensor_Scalar(x, 2),
    "where.ScalarOther": lambda mask, x, y: aten.where.self(mask, x, _number(y)),
    "where.ScalarSelf": lambda mask, x, y: aten.where.self(mask, _number(x), y),
    "masked_fill.Scalar": lambda x, mask, value: aten.where.self(mask, _like(x, value), x),
    "masked_fill.Tensor": lambda x, mask, value: aten.where.self(mask, aten._to_copy.default(value, dtype=x.dtype), x),
    "arange": lambda end, **how: aten.arange.start_step(0, end, **how),
    "arange.start": lambda start, end, **how: aten.arange.start_step(start, end, **how),
    "stack": lambda xs, dim=0: aten.cat.default([aten.unsqueeze.default(x, dim) for x in xs], dim),
    "unbind.int": lambda x, dim=0: [aten.select.int(x, dim, i) for i in range(x.shape[dim])],
    "split.Tensor": lambda x, size, dim=0: _split(x, size, dim), "chunk": lambda x, parts, dim=0: _split(x, -(-x.shape[dim] // parts), dim),
    "silu": lambda x: aten.mul.Tensor(x, aten.sigmoid.default(x)),
    "glu": lambda x, dim=-1: (lambda half: aten.mul.Tensor(
        aten.slice.Tensor(x, dim, 0, half), aten.sigmoid.default(aten.slice.Tensor(x, dim, half, x.shape[dim]))))(x.shape[dim] // 2),
    "mish": lambda x: aten.mul.Tensor(x, aten.tanh.default(aten.softplus.default(x))),
    "softplus": lambda x, beta=1, threshold=20: aten.where.self(
        aten.gt.Scalar(aten.mul.Scalar(x, beta), threshold), x,
        aten.div.Scalar(aten.log1p.default(aten.exp.default(aten.mul.Scalar(x, beta))), beta)),
    "log_sigmoid": lambda x: aten.sub.Tensor(aten.clamp.default(x, None, 0), aten.log1p.default(aten.exp.default(aten.neg.default(
        aten.abs.default(x))))),
    "hardsigmoid": lambda x: aten.div.Scalar(aten.clamp.default(aten.add.Scalar(x, 3), 0, 6), 6),
    "hardswish": lambda x: aten.div.Scalar(aten.mul.Tensor(x, aten.clamp.default(aten.add.Scalar(x, 3), 0, 6)), 6),
    "threshold": lambda x, threshold, value: aten.where.self(aten.le.Scalar(x, threshold), _number(value), x),
    "tril": lambda x, k=0: _of_a_triangle(x, k, aten.le.Scalar), "triu": lambda x, k=0: _of_a_triangle(x, k, aten.ge.Scalar),
    "eye": lambda n, **how: aten.eye.m(n, n, **how),
    "eye.m": lambda n, m, *, dtype=None, device=None, **_: aten._to_copy.default(
        aten.eq.Scalar(_distances(n, m, device), 0), dtype=dtype or default_dtype()),
    "nansum": lambda x, dim=None, keepdim=False, *, dtype=None: aten.sum.dim_IntList(
        aten.where.self(aten.isnan.default(x), _like(x, 0), x), list(range(x.ndim)) if dim is None else dim, keepdim, dtype=dtype),
    "sinc": lambda x: aten.where.self(aten.eq.Scalar(x, 0), _like(x, 1), (lambda a: aten.div.Tensor(aten.sin.default(a), a))(
        aten.mul.Scalar(x, math.pi))) if x.is_floating_point() else NotImplemented,
    "grid_sampler": lambda x, *how: aten.grid_sampler_2d.default(x, *how) if x.ndim == 4 else NotImplemented,
    "pad": lambda x, pad, mode="constant", value=None:
        aten.constant_pad_nd.default(x, pad, 0 if value is None else value) if mode == "constant" else NotImplemented,
    "group_norm": lambda x, groups, weight=None, bias=None, eps=1e-5, _=True: aten.native_group_norm.default(
        x, weight, bias, x.shape[0], x.shape[1], math.prod(x.shape[2:]), groups, eps)[0],
}
for _ending in ("default", "dim", "correction"):
    _SHORT[f"std.{_ending}".removesuffix(".default")] = lambda x, *how, _var=getattr(aten.var, _ending), **named: aten.sqrt.default(
        _var(x, *how, **named))
_SHORT["var"] = lambda x, unbiased=True: aten.var.correction(x, None, correction=int(unbiased))
_SHORT["var.dim"] = lambda x, dim, unbiased=True, keepdim=False: aten.var.correction(x, dim, correction=int(unbiased), keepdim=keepdim)
for _name, _form in _SHORT.items():
    _for(_name)(_form)


def _not(x: Tensor) -> Tensor:
    return aten.logical_not.default(x)


def _number(value: Any) -> Tensor:
    return aten.full.default([], value, dtype=default_dtype() if isinstance(value, float) else None)


def _like(x: Tensor, value: Any) -> Tensor:
    return aten.full.default([], value, dtype=x.dtype, device=x.device)


def _split(x: Tensor, size: Any, dim: int) -> Any:
    length = x.shape[dim]
    if type(length) is not int or type(size) is not int or size < 1:
        return NotImplemented
    return aten.split_with_sizes.default(x, [min(size, length - at) for at in range(0, length, size)], dim)


def _distances(rows: Any, columns: Any, device: Any) -> Tensor:
    """How far right of the diagonal each place of a matrix is."""
    down = aten.unsqueeze.default(aten.arange.start_step(0, rows, device=device), -1)
    return aten.sub.Tensor(aten.arange.start_step(0, columns, device=device), down)


def _of_a_triangle(x: Tensor, k: int, holds: Callable) -> Tensor:
    here = holds(_distances(x.shape[-2], x.shape[-1], x.device), k)
    return aten.where.self(here, x, _like(x, 0))


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


# -- all else ----------------------------------------------------------------------------------------------------------------------
def body_of(target: Any, args: tuple, kwargs: dict, again: bool) -> Any:
    """What an operator's own body gives (`again`: not ATen's form of it, which called it); NotImplemented of a primitive."""
    if isinstance(target, AtenOperator):
        if again and target.__name__ in PRIMITIVES:
            return NotImplemented       # it is nothing else
        own = isinstance(target, Overload) and (again or target.__name__ not in FORMS)
        try:
            target, args, kwargs = operation(target._schema, args, kwargs) if own else target.resolve(args, kwargs)    # type: ignore
        except NotImplementedError:
            inside = getattr(OPERATORS.get(f"_{target.__name__}") if again else None, "_operator", None)      # what it is inside
            return NotImplemented if inside is None else inside.body(*args, **kwargs)
        if not own:
            return target(*args, **kwargs)
    info = getattr(target, "_operator", None)
    return NotImplemented if info is None else info.body(*args, **kwargs)


class OwnBody:
    """Computes an operator by its own body; whoever records keeps it whole where that comes to more than core operators."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return body_of(self.operator, args, kwargs, False)


@functools.cache
def core_names() -> frozenset[str]:
    """The overloads of the documented core ATen IR."""
    return frozenset(Path(_aten.__file__).with_name("core_aten.txt").read_text().split())


def is_core(target: Any) -> bool:
    """Whether an overload is one of core ATen's."""
    return isinstance(target, Overload) and str(target).removeprefix("aten.").removesuffix(".default") in core_names()


@functools.cache
def default_table() -> dict[Any, Callable]:
    """What is taken apart: the forms of this file, and all other overloads that are not core ATen's, by their bodies."""
    known = (aten._overload(schema) for name, several in schemas().items() if not name.endswith("_") for schema in several
             if not schema.overload_name.endswith("out") and (behind(name) is not None or name in FORMS))
    return {overload: OwnBody(overload) for overload in known if not is_core(overload)} | TABLE


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
