"""Complex numbers in ONNX, which has none: two tensors, of real and imaginary parts. A model gives them as `view_as_real` does."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..core.dtypes import dtype
from ..core.tensor import Tensor, fake
from ..export.forms import Forms
from ..fx import map_aggregate
from .forms import FORMS
from .writer import Value, Writer


class Complex(NamedTuple):
    """The parts of a tensor of complex numbers."""

    real: Value
    imag: Value


_TABLE = Forms()
form, short = _TABLE.form, _TABLE.short


def is_complex(x: Any) -> bool:
    """Whether a fake tensor is one of complex numbers."""
    return isinstance(x, Tensor) and x.dtype.is_complex


def leaves_of(args: Any) -> list[Any]:
    """What is in a step's arguments."""
    found: list[Any] = []
    map_aggregate(args, found.append)
    return found


def _real(x: Any) -> Any:
    """A fake tensor of the parts of one."""
    return fake(tuple(x._layout.shape), x.dtype.to_real(), x.device) if is_complex(x) else x


def find(target: Any, args: tuple, kwargs: dict, opset: int) -> Callable | None:
    """The function that writes a call which has to do with complex numbers; None of another, and of what is to be taken apart."""
    found = _TABLE.find(target, args, kwargs, opset)
    leaves = leaves_of((args, kwargs))
    given = [x for x in leaves if isinstance(x, (Tensor, complex))]
    if found is not None and any(isinstance(x, dtype) and x.is_complex for x in leaves):
        return found
    if found is not None and any(is_complex(x) for x in given):
        return found
    if not any(is_complex(x) or isinstance(x, complex) for x in given):
        return found if getattr(target, "__name__", getattr(target, "name", "")).split(".")[0] in _MAKE else None
    if any(row.write is _each for row in _TABLE.rows_of(target)) and all(map(is_complex, given)):
        plain = FORMS.find(target, map_aggregate(args, _real), map_aggregate(kwargs, _real), opset)
        return functools.partial(_each, plain) if plain is not None else None
    return found


# -- what is done to each part -------------------------------------------------------------------------------------------------------
def _pick(at: int, x: Any) -> Any:
    if isinstance(x, Complex):
        return x[at]
    return [_pick(at, v) for v in x] if isinstance(x, (list, tuple)) else x


def _each(plain: Callable, o: Writer, *args: Any, **kwargs: Any) -> Any:
    """An operator that is linear, and does the same to real and imaginary parts."""
    out, given = o.out, o.given
    o.out, o.given = map_aggregate((out, given), _real)
    made = [plain(o, *_pick(at, args), **kwargs) for at in (0, 1)]
    o.out, o.given = out, given
    return tuple([Complex(*parts) for parts in zip(*made)]) if isinstance(made[0], tuple) else Complex(*made)


form("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "squeeze", "unsqueeze", "expand", "slice", "select", "clone", "alias",
     "detach", "cat", "stack", "flatten", "unflatten", "sum", "mean", "index_select", "flip", "roll", "split", "split_with_sizes", "unbind",
     "repeat", "neg", "contiguous", "primitive:permute", "primitive:expand", "primitive:slice", "primitive:select", "primitive:unsqueeze",
     "primitive:squeeze", "primitive:reshape", "primitive:cat", "primitive:flip", "primitive:neg", "primitive:sum",
     "primitive:alias", "primitive:clone", takes=lambda *_, **__: False)(_each)


# -- arithmetic ------------------------------------------------------------------------------------------------------------------------
def _parts(o: Writer, x: Any, kind: dtype) -> tuple[Any, Any]:
    """Real and imaginary part of an operand; None where there is nothing imaginary."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return o.constant(x.real, kind), o.constant(x.imag, kind)
    return o.cast(x, kind), None


def _sum(o: Writer, a: Any, b: Any, op: str = "Add") -> Any:
    if b is None:
        return a
    if a is None:
        return b if op == "Add" else o.Neg(b)
    return o.step(op, a, b)


def _product(o: Writer, a: Any, b: Any, op: str = "Mul") -> Any:
    return None if a is None or b is None else o.step(op, a, b)


def _kind(o: Writer) -> dtype:
    return o.out.dtype.to_real() if o.out.dtype.is_complex else o.out.dtype


@form("add", "primitive:add")
def add(o: Writer, x: Any, y: Any, *, alpha: Any = 1, op: str = "Add") -> Complex:
    """x + alpha y."""
    (a, b), (c, d) = _parts(o, x, _kind(o)), _parts(o, y, _kind(o))
    if alpha != 1:
        c, d = [None if part is None else o.Mul(part, o.constant(alpha, _kind(o))) for part in (c, d)]
    return _spread(o, _sum(o, a, c, op), _sum(o, b, d, op))


def _spread(o: Writer, real: Value, imag: Value) -> Complex:
    """Parts of one shape: a number beside a tensor may have left one of them smaller."""
    zero = o.Sub(real, real), o.Sub(imag, imag)
    return Complex(o.Add(real, zero[1]), o.Add(imag, zero[0]))


short({
    "sub primitive:sub": lambda o, x, y, *, alpha=1: add(o, x, y, alpha=alpha, op="Sub"),  # x - alpha y
    "mm bmm matmul mv primitive:mm primitive:bmm": lambda o, x, y: mul(o, x, y, op="MatMul"),  # A product of matrices
    "conj _conj conj_physical primitive:conj": lambda o, x: Complex(x.real, o.Neg(x.imag)),  # The conjugate
    "abs primitive:abs": lambda o, x: o.Sqrt(o.Add(o.Mul(x.real, x.real), o.Mul(x.imag, x.imag))),  # The length
})


@form("mul", "primitive:mul")
def mul(o: Writer, x: Any, y: Any, *, op: str = "Mul") -> Complex:
    """x y."""
    (a, b), (c, d) = _parts(o, x, _kind(o)), _parts(o, y, _kind(o))
    return Complex(_sum(o, _product(o, a, c, op), _product(o, b, d, op), "Sub"), _sum(o, _product(o, a, d, op), _product(o, b, c, op)))


@form("div", "primitive:truediv", takes=lambda x, y, **kw: not kw)
def div(o: Writer, x: Any, y: Any) -> Complex:
    """x / y: times the conjugate, by the square of the length."""
    c, d = _parts(o, y, _kind(o))
    if d is None:
        return Complex(*[o.Div(part, c) for part in _parts(o, x, _kind(o))])
    made = mul(o, x, Complex(c, o.Neg(d)))
    length = o.Add(o.Mul(c, c), o.Mul(d, d))
    return Complex(o.Div(made.real, length), o.Div(made.imag, length))


form("resolve_conj")(lambda _, x: x)


form("real", "primitive:real")(lambda _, x: x.real)
form("imag", "primitive:imag")(lambda _, x: x.imag)
form("resolve_neg")(lambda _, x: x)


# -- from real numbers and to them -----------------------------------------------------------------------------------------------------
_MAKE = frozenset(("view_as_complex", "complex", "polar", "fft_r2c", "_make_complex"))
"""What makes complex numbers of real ones."""


@form("view_as_real", "primitive:view_as_real")
def pairs(o: Writer, x: Complex) -> Value:
    """The parts in a last dimension of two."""
    return o.Concat(o.Unsqueeze(x.real, [-1]), o.Unsqueeze(x.imag, [-1]), axis=-1)


def of_pairs(o: Writer, x: Value) -> Complex:
    """The parts of what has them in a last dimension."""
    return Complex(*[o.Squeeze(part, [-1]) for part in o.Split(x, num_outputs=2, axis=-1, _outputs=2)])


form("view_as_complex", "primitive:view_as_complex")(of_pairs)


form("complex", "primitive:complex")(lambda _, real, imag: Complex(real, imag))


@form("primitive:convert")
def convert(o: Writer, x: Any, kind: dtype) -> Any:
    """In another dtype: real numbers have no imaginary part, and of complex ones that become real it is left out."""
    if not kind.is_complex:
        return o.cast(x.real, kind)
    if isinstance(x, Complex):
        return Complex(*[o.cast(part, kind.to_real()) for part in x])
    real = o.cast(x, kind.to_real())
    return Complex(real, o.Sub(real, real))


@form("polar", "primitive:polar")
def polar(o: Writer, length: Value, angle: Value) -> Complex:
    """A length in the direction of an angle."""
    return Complex(o.Mul(length, o.Cos(angle)), o.Mul(length, o.Sin(angle)))


# -- Fourier transforms ------------------------------------------------------------------------------------------------------------------
def _known_size(x: Any, dims: Sequence[int]) -> bool:
    return all(type(x._layout.shape[d]) is int for d in dims)


def _dft(o: Writer, x: Value, dim: int, rank: int, **how: int) -> Value:
    if o.opset < 20:
        return o.DFT(x, axis=dim % rank, **how)
    return o.DFT(x, None, o.constant(dim % rank), **how)


def _scaled(o: Writer, x: Complex, n: int, forward: bool, norm: str) -> Complex:
    """ONNX divides by the number of elements where it transforms back, and nowhere else."""
    by = {"ortho": 1 / math.sqrt(n), "forward": 1 / n if forward else 1.0, "backward": 1.0 if forward else 1 / n}[norm]
    by *= 1 if forward else n
    return x if by == 1 else Complex(*[o.Mul(part, o.constant(by, part.dtype)) for part in x])


@form("primitive:fft_c2c", takes=lambda x, dims, *_: _known_size(x, dims))
def fft_c2c(o: Writer, x: Complex, dims: Sequence[int], forward: bool, norm: str) -> Complex:
    """The transform over `dims`, one after another."""
    shape, made = o.given[0]._layout.shape, pairs(o, x)
    for d in dims:
        made = _dft(o, made, d, len(shape), inverse=int(not forward))
    return _scaled(o, of_pairs(o, made), math.prod(shape[d] for d in dims), forward, norm)


@form("primitive:fft_r2c", takes=lambda x, dim, *_: _known_size(x, [dim]))
def fft_r2c(o: Writer, x: Value, dim: int, norm: str) -> Complex:
    """The half that determines the rest."""
    shape = o.given[0]._layout.shape
    return _scaled(o, of_pairs(o, _dft(o, o.Unsqueeze(x, [-1]), dim, len(shape), onesided=1)), shape[dim], True, norm)


@form("primitive:fft_c2r", takes=lambda x, dim, n, *_: _known_size(x, [dim]) and type(n) is int)
def fft_c2r(o: Writer, x: Complex, dim: int, n: int, norm: str) -> Value:
    """Real numbers back from their half: the other half is its mirror image."""
    rank, have = len(o.given[0]._layout.shape), n // 2 + 1
    at, mirrored = o.constant(list(range(have))), o.constant(list(range(n - have, 0, -1)))
    parts = [(o.Gather(part, at, axis=dim % rank), o.Gather(part, mirrored, axis=dim % rank)) for part in x]
    whole = Complex(o.Concat(*parts[0], axis=dim % rank), o.Concat(parts[1][0], o.Neg(parts[1][1]), axis=dim % rank))
    return _scaled(o, of_pairs(o, _dft(o, pairs(o, whole), dim, rank, inverse=1)), n, False, norm).real
