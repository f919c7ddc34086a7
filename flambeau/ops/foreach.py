"""torch._foreach_*: an operator over lists of tensors, one tensor after another. Names ending in _ write in place and give a list,
the others a tuple."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from .creation import tensor
from .registry import operator
from .writing import InPlace

UNARY = ("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac",
         "lgamma", "log", "log10",
         "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc")
BINARY = ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum", "pow", "lerp", "addcmul", "addcdiv")

BOUNDS = {"maximum": "clamp_min", "minimum": "clamp_max"}     # which have forms in place


def _each(values: Any, count: int) -> Sequence:
    """A list as it is; one number or tensor for all; a 1-D tensor of scalars element by element where asked for lists."""
    if type(values) in (list, tuple):
        if len(values) != count:
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(values)}")
        return values
    return (values,) * count


def _checked(tensors: Any, name: str) -> Sequence[Tensor]:
    if type(tensors) not in (list, tuple):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for target in tensors if name.endswith("_") else ():     # all are refused before any is written
        InPlace.check(target)
    return tensors


def _apply(method: str, name: str, tensors: Any, lists: tuple, options: dict[str, Any]) -> Sequence[Tensor]:
    items = _checked(tensors, name)
    columns = [_each(v, len(items)) for v in lists]
    if method in BOUNDS:    # which take no numbers
        columns = [[x if isinstance(x, Tensor) else tensor(x) for x in column] for column in columns]
    extra = {k: _each(v, len(items)) for k, v in options.items()}
    out = [getattr(t, method)(*(c[i] for c in columns), **{k: v[i] for k, v in extra.items()}) for i, t in enumerate(items)]
    return out if name.endswith("_") else tuple(out)


def _ternary(method: str, name: str) -> Callable:
    def fn(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Sequence[Tensor]:
        return _apply(method, name, self, (tensor1, tensor2), {"value": value.tolist() if isinstance(value, Tensor) else value})
    return fn


def _binary(method: str, name: str) -> Callable:
    def fn(self: Any, other: Any, *rest: Any, **options: Any) -> Sequence[Tensor]:
        return _apply(method, name, self, (other, *rest), options)
    return fn


def _unary(method: str, name: str) -> Callable:
    def fn(self: Any) -> Sequence[Tensor]:
        return _apply(method, name, self, (), {})
    return fn


def _install(base: str, make: Callable) -> None:
    for suffix in ("", "_"):
        name = f"_foreach_{base}{suffix}"
        fn = make((BOUNDS.get(base, base) if suffix else base) + suffix, name)
        fn.__name__, fn.__doc__ = name, f"{base} of each tensor of a list{', in place' if suffix else ''}."
        globals()[name] = operator(fn, name=name)


for _base in UNARY:
    _install(_base, _unary)
for _base in BINARY:
    _install(_base, _ternary if _base in ("addcmul", "addcdiv") else _binary)


@operator
def _foreach_norm(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor of a list."""
    return tuple(t.norm(ord, dtype=dtype) for t in _checked(self, "_foreach_norm"))


@operator
def _foreach_zero_(self: Any) -> list[Tensor]:
    """Each tensor of a list set to zero."""
    return [t.zero_() for t in _checked(self, "_foreach_zero_")]


@operator
def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> list[Tensor]:
    """Each tensor of a list overwritten with its partner."""
    items = _checked(self, "_foreach_copy_")
    return [t.copy_(s) for t, s in zip(items, _each(src, len(items)))]


@operator
def _foreach_clone(self: Any) -> tuple[Tensor, ...]:
    """A copy of each tensor of a list."""
    return tuple(t.clone() for t in _checked(self, "_foreach_clone"))


@operator
def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The maximum of each tensor of a list."""
    return tuple(t.max() for t in _checked(self, "_foreach_max"))


@operator
def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """The product of each matrix of a list and its partner."""
    items = _checked(self, "_foreach_mm")
    return tuple(a.mm(b) for a, b in zip(items, _each(mat2, len(items))))


@operator
def _foreach_powsum(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|^ord of each tensor of a list."""
    return tuple(t.abs().pow(ord).sum(dtype=dtype) for t in _checked(self, "_foreach_powsum"))
