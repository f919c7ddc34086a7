"""Type promotion and broadcasting: the two things primitives do not do, as functions for the operators."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.device import as_device
from ..core.dtypes import BOOL, COMPLEX, FLOAT, INT, bool_, dtype, promote_types, scalar_type
from ..core.settings import add_setting
from ..core.size import broadcast_shapes
from ..core.symbolic import SymFloat, SymInt, must, refuse_text
from ..core.tensor import Tensor, is_example
from . import prims
from .primitives import one_device
from .telling import NotANumber


class Defaults:
    """The dtype of float literals and factories."""

    kind: dtype = dtypes.float32


add_setting("default dtype", Defaults, "kind", traced=True)


def default_dtype() -> dtype:
    """The dtype of float literals and factories (torch.get_default_dtype)."""
    return Defaults.kind


def set_default_dtype(kind: dtype) -> None:
    """Make `kind` (a floating dtype) the default; TypeError otherwise."""
    if not isinstance(kind, dtype) or not kind.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {kind}")
    Defaults.kind = kind


def _check_width(x: numbers.Integral | int) -> None:
    """OverflowError for an integer that 64 bits, with a sign or without, don't hold."""
    if not -(1 << 63) <= x < 1 << 64:  # type: ignore[operator]
        raise OverflowError(f"int too big to convert: {x if abs(x) < 1 << 200 else 'it'} takes more than 64 bits")  # type: ignore[operator]


_CATEGORIES = {bool: BOOL, float: FLOAT, complex: COMPLEX}


def category_of_number(x: Any) -> int:
    """Promotion category of a Python or NumPy number, or symbolic size. OverflowError for integers of more than 64 bits."""
    plain = _CATEGORIES.get(type(x))    # most are; asking the abstract classes takes ten times as long
    if plain is not None:
        return plain
    if isinstance(x, np.bool_):
        return BOOL
    if type(x) is int or isinstance(x, numbers.Integral):
        _check_width(x)
        return INT
    if isinstance(x, numbers.Real):
        return FLOAT
    if isinstance(x, numbers.Complex):
        return COMPLEX
    kind = type(x).__name__
    found = {"SymInt": INT, "SymFloat": FLOAT, "SymBool": BOOL}.get(kind)
    if found is None:
        raise NotANumber(x)
    return found


def result_type(*args: Any) -> dtype:
    """torch.result_type for any number of operands.

    Tensors with dimensions decide; a 0-dim tensor, and after it a number, counts only if it is of a higher category.
    """
    best: list[dtype | None] = [None, None]  # dimensioned, 0-dim
    number = -1
    for a in args:
        if isinstance(a, Tensor):
            rank = 0 if a.ndim else 1
            best[rank] = a.dtype if best[rank] is None else promote_types(best[rank], a.dtype)  # type: ignore[arg-type]
        elif isinstance(a, dtype):
            best[0] = a if best[0] is None else promote_types(best[0], a)
        elif a is not None:
            number = max(number, category_of_number(a))
    result, zero = best
    if result is None:
        result, zero = zero, None
    if zero is not None and zero.category > result.category:  # type: ignore[union-attr]
        floats = zero.category == COMPLEX and result.category == FLOAT  # type: ignore[union-attr]
        result = result.to_complex() if floats else promote_types(result, zero)  # type: ignore[union-attr, arg-type]
    if number >= 0 and (result is None or number > result.category):
        weak = (dtypes.bool_, dtypes.int64, Defaults.kind, Defaults.kind.to_complex())[number]
        if result is None:
            return weak
        result = result.to_complex() if number == COMPLEX and result.category == FLOAT else weak
    if result is None:
        raise TypeError("result_type(): needs at least one Tensor, dtype or number")
    return result


def is_number(x: Any) -> bool:
    """Whether `x` is a number rather than a tensor or a container."""
    return type(x) in (float, int) or isinstance(x, numbers.Number) or type(x).__name__ in ("SymInt", "SymFloat", "SymBool")


def cast(x: Any, kind: dtype) -> Any:
    """`x` converted to `kind`; numbers are converted to the Python number of that category."""
    if isinstance(x, Tensor):
        return x if x.dtype is kind else prims.convert(x, kind)
    if type(x).__name__ in ("SymInt", "SymFloat", "SymBool"):
        return x
    if kind.category == FLOAT:
        return x if type(x) is float else float(x.real if isinstance(x, complex) else x)
    if kind.category == COMPLEX:
        return complex(x)
    if kind.category == INT:
        return _wrapped(int(x), kind)
    return bool(x)


@functools.cache
def limits(kind: dtype) -> tuple[float, float]:
    """What numbers `kind` takes; an unsigned dtype takes negative integers too, modulo 2^bits."""
    info = dtypes.finfo(kind.to_real()) if kind.category >= FLOAT else dtypes.iinfo(kind)
    return (info.min if info.min < 0 else -info.max), info.max


def _fixed_if_large(x: Any, low: float, high: float) -> Any:
    """A float that a graph is given: what a dtype may not hold is fixed. One that was read from a tensor is no larger than that's dtype."""
    if x.op == "variable" and x.env.largest.get(x.left, math.inf) <= high:
        return x
    return x if low <= x and x <= high else float(x)


def fitting(x: Any, kind: dtype) -> Any:
    """A number, or a 0-dim tensor in the place of one, as `kind` holds it, for values that are to be stored: a float loses its fraction in
    an integer dtype. RuntimeError for what does not fit: too large, imaginary, or NaN as an integer. (What a tensor holds that a GPU or a
    traced program has is not looked at.)"""
    if type(x) is float and kind.category == FLOAT and (within := limits(kind))[0] <= x <= within[1]:
        return x
    if isinstance(x, Tensor):
        if type(x._data) is np.ndarray and x.dtype is not kind and kind.category != BOOL:
            fitting(x.item(), kind)
        return cast(x, kind)
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, numbers.Integral):
        _check_width(x)
    if isinstance(x, SymFloat) and x.given and kind.category != BOOL:
        x = _fixed_if_large(x, *limits(kind))
    refuse_text(x)
    if kind.category == BOOL or not isinstance(x, numbers.Number) or type(x) is bool:
        return cast(x, kind)
    real: Any = x
    if isinstance(x, complex):
        if x.imag and kind.category != COMPLEX:
            raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow: {x} is not real")
        real = x.real
    low, high = limits(kind)
    if isinstance(real, float) and kind.category == INT and not kind.is_signed:
        low = 0
    if not low <= real <= high and (kind.category == INT or (real == real and abs(real) != math.inf)):
        raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow: {x}")
    return cast(real if kind.category < COMPLEX else x, kind)


def rounded(x: Any, kind: dtype) -> Any:
    """A number as `kind` holds it: what does not fit is refused for integers, infinite for floats. A tensor as it is."""
    if kind.category == FLOAT and isinstance(x, numbers.Real) and not limits(kind)[0] <= x <= limits(kind)[1]:  # type: ignore[operator]
        x = math.copysign(math.inf, x) if x == x else math.nan
    return fitting(x, kind)


def stored(x: Any, kind: dtype) -> Any:
    """A number that stands among elements of `kind`: what does not fit is infinite in narrow floats, and refused by others."""
    return rounded(x, kind) if kind.itemsize < 4 else fitting(x, kind)


def factor(x: Any, kind: dtype) -> Any:
    """A number that operands of `kind` are computed with, which is in float32 for narrow floats; RuntimeError for what does not fit. A
    tensor as it is."""
    return fitting(x, dtypes.float32 if kind.category == FLOAT and kind.itemsize < 4 else kind)


def operand(x: Any, kind: dtype) -> Any:
    """`factor`, but for what float32 doesn't hold beside narrow floats, which is infinite."""
    return rounded(x, dtypes.float32) if kind.category == FLOAT and kind.itemsize < 4 else fitting(x, kind)


def as_elements(x: Any, y: Any) -> tuple[Any, Any]:
    """Prepared operands that are to be compared: beside a narrow float a number is what that dtype holds of it, so that 0.1 is equal to
    what was made of 0.1."""
    like = x if isinstance(x, Tensor) else y
    if like.dtype.category != FLOAT or like.dtype.itemsize >= 4:
        return x, y
    return tuple(v if isinstance(v, Tensor) else _element(v, like) for v in (x, y))  # type: ignore[return-value]


def number_in(x: float, kind: dtype) -> float:
    """What a narrow float dtype holds of a number."""
    with np.errstate(over="ignore"):
        return float(np.float32(x).astype(kind.numpy))


def _element(x: Any, like: Tensor) -> Any:
    if isinstance(x, float):
        return number_in(x, like.dtype)
    return expand_to(prims.full((), x, like.dtype, like.device), tuple(like.shape))


def _wrapped(x: int, kind: dtype) -> int:
    """An integer modulo 2^bits, in the range of `kind`."""
    bits = 8 * kind.itemsize
    x &= (1 << bits) - 1
    return x - (1 << bits) if kind.is_signed and x >> (bits - 1) else x


def broadcast(*args: Any) -> tuple:
    """The tensors among `args` expanded to their common shape, on one device; numbers stay as they are."""
    args = together(args)
    shapes = [a._array_shape or a._layout.shape for a in args if isinstance(a, Tensor)]
    first = shapes[0]
    if all(s is first or (len(s) == len(first) and not _unknown(s) and not _unknown(first) and s == first) for s in shapes):
        return args         # tuples of other lengths compare elements, too
    shape = tuple(broadcast_shapes(*shapes))
    return tuple(expand_to(a, shape) if isinstance(a, Tensor) else a for a in args)


def _unknown(shape: Sequence) -> bool:
    """Whether there may be sizes among these that only a run knows: `broadcast_shapes` finds out what they have to be."""
    return any(type(n) is SymInt and n.env.unbacked for n in shape)


def expand_to(x: Tensor, shape: Sequence) -> Tensor:
    """`x` broadcast to `shape` (no check); itself if it has that shape."""
    have = x._layout.shape
    if len(have) == len(shape) and all(a is b or (not (type(a) is int and a == 1 and type(b) is SymInt) and must(a == b))
                                       for a, b in zip(have, shape)):
        return x
    return prims.expand(x, tuple(shape))


def of_one_dtype(*tensors: Tensor) -> None:
    """RuntimeError for tensors of several dtypes, where an operator does not promote."""
    first = tensors[0].dtype
    for t in tensors:
        if t.dtype is not first:
            raise RuntimeError(f"expected scalar type {scalar_type(first)} but found {scalar_type(t.dtype)}")


def only_tensors(name: str, **operands: Any) -> None:
    """TypeError for an operand that is a number, where an operator takes tensors alone."""
    for position, (key, value) in enumerate(operands.items(), 1):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}(): argument '{key}' (position {position}) must be Tensor, not {type(value).__name__}")


def prepare(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands promoted to their common dtype and broadcast to their common shape."""
    if isinstance(x, Tensor):
        if isinstance(y, Tensor):
            if x.dtype is not y.dtype:
                kind = result_type(x, y)
                x, y = cast(x, kind), cast(y, kind)
            x, y = together((x, y))
            a, b = x._array_shape, y._array_shape
            if a is None or b is None or a != b:
                return broadcast(x, y)
            return x, y
        kind = x.dtype
        number = category_of_number(y)
        if number > kind.category:
            kind = result_type(x, y)
            x = cast(x, kind)
        return x, cast(y, kind)
    if not isinstance(y, Tensor):
        from_numbers = as_tensor_operand(x)
        return prepare(from_numbers, y)
    y, x = prepare(y, x)
    return x, y


def as_tensor_operand(x: Any) -> Tensor:
    """A number as a 0-dim tensor of its default dtype; TypeError for anything else."""
    if not is_number(x):
        raise NotANumber(x)
    return prims.full((), x, result_type(x), as_device(None))


def together(args: tuple) -> tuple:
    """Operands of which the 0-dim tensors of the CPU have joined the others' device; RuntimeError if two remain."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    where = tensors[0].device
    if all(t.device is where or t.device == where for t in tensors):
        return args
    where = next((t.device for t in tensors if t.ndim or t.device.type != "cpu"), where)
    joined = tuple([a.to(where) if isinstance(a, Tensor) and not a.ndim and a.device.type == "cpu" else a for a in args])
    one_device(joined)
    return joined


def apart(result: Tensor, source: Tensor) -> Tensor:
    """`result`, copied where it shows memory of `source`: an operator that is no view answers with memory of its own."""
    return result.clone() if result is source or _root(result) is _root(source) else result


def _root(x: Tensor) -> Tensor:
    """The tensor that this one is a view of, or itself; behind an example, that of the batch."""
    while is_example(x):
        x = x._store.values  # type: ignore[union-attr]
    return x._root


def to_float(x: Any) -> Any:
    """Integers and bools as the default float; floats and complex numbers as they are."""
    return x if x.dtype.category >= FLOAT else prims.convert(x, Defaults.kind)


def times_alpha(input: Any, other: Any, alpha: Any) -> Any:
    """other * alpha in the dtype of the sum."""
    kind = result_type(input, other)
    number = category_of_number(alpha) if not isinstance(alpha, Tensor) else BOOL
    if number == FLOAT and kind.category <= INT:
        raise RuntimeError(f"For integral input tensors, argument alpha must not be a floating point number. Got {alpha} for {kind}")
    if number == COMPLEX and kind.category < COMPLEX:
        raise RuntimeError(f"For non-complex input tensors, argument alpha must not be a complex number. Got {alpha} for {kind}")
    if number == BOOL and kind is not bool_ and not isinstance(alpha, Tensor):
        raise RuntimeError(f"Boolean alpha only supported for Boolean results. Got {alpha} for {kind}")
    if not isinstance(other, Tensor):
        return bool(other * alpha) if kind is bool_ else other * alpha
    scaled = cast(other, kind) * operand(alpha, kind)
    return cast(scaled, bool_) if kind is bool_ else scaled
