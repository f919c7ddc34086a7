"""Tensors made of numbers or drawn at random, in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.dtypes import bool_, float32, int64
from .forms import form, short
from .shapes import expand
from .writer import NUMBERS, Value, Writer


def _filled(o: Writer, shape: Sequence[Any] | Value, value: Any) -> Value:
    kind = o.out.dtype
    one = o.cast(value, kind)
    if not isinstance(shape, Value) and not len(shape):
        return one
    return o.Expand(one, o.value(shape))


short({
    "full primitive:full": lambda o, size, fill_value, *_, **__: _filled(o, size, fill_value),  # One number everywhere
    "new_full": lambda o, x, size, fill_value, **_: _filled(o, size, fill_value),  # One number everywhere, in another tensor's dtype
    "full_like fill": lambda o, x, value, **_: _filled(o, o.shape(x), value),  # One number in the shape of another tensor
    "scalar_tensor": lambda o, s, **_: o.cast(s, o.out.dtype),  # A number as a tensor
    "arange arange.default": lambda o, end, **_: arange(o, 0, end),  # 0, 1, ... up to `end`
})


def _factory(value: int) -> Callable:
    return lambda o, size, *_, **__: _filled(o, size, value)


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0), ("new_zeros", 0), ("new_ones", 1), ("new_empty", 0),
                      ("primitive:empty", 0), ("empty_strided", 0), ("primitive:empty_strided", 0), ("empty_permuted", 0)):
    form(_name)(_factory(_value) if not _name.startswith("new_") else (
        lambda o, x, size, *_, _value=_value, **__: _filled(o, size, _value)))


for _name, _value in (("zeros_like", 0), ("ones_like", 1), ("empty_like", 0)):
    form(_name)(lambda o, x, _value=_value, **_: _filled(o, o.shape(x), _value))


@form("arange.start", "arange.start_step")
def arange(o: Writer, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    """Numbers at equal distances, up to `end` but without it."""
    kind = o.out.dtype
    count = kind if kind in (float32, int64) or NUMBERS[kind] in (6, 11) else float32 if kind.is_floating_point else int64
    return o.cast(o.Range(*(o.cast(n, count) for n in (start, end, step)), _dtype=count), kind)


@form("primitive:iota")
def iota(o: Writer, n: Any, start: Any, step: Any, kind: Any, where: Any) -> Value:
    """start + i step for i below n."""
    places = o.Range(o.constant(0, int64), o.scalar(n), o.constant(1, int64), _dtype=int64)
    return o.Add(o.Mul(o.cast(places, kind), o.cast(step, kind)), o.cast(start, kind))


@form("eye")
def eye(o: Writer, n: Any, m: Any = None, **_: Any) -> Value:
    """Ones on the diagonal."""
    base = o.Expand(o.constant(0, float32), o.sizes([n, n if m is None else m]))
    return o.cast(o.EyeLike(base, k=0), o.out.dtype)


# -- random numbers ------------------------------------------------------------------------------------------------------------------
def _drawn(o: Writer, op: str, shape: Sequence[Any], **how: Any) -> Value:
    base = o.Expand(o.constant(0, float32), o.sizes(shape))
    return o.cast(o.step(op, base, **how), o.out.dtype)


short({
    "rand": lambda o, size, *_, **__: _drawn(o, "RandomUniformLike", size),  # Evenly between 0 and 1
    "randn": lambda o, size, *_, **__: _drawn(o, "RandomNormalLike", size),  # Of the normal distribution
    "rand_like": lambda o, x, *_, **__: _drawn(o, "RandomUniformLike", o.shape(x)),  # Evenly between 0 and 1, in the shape of another tensor
    # Of the normal distribution, in the shape of another tensor
    "randn_like": lambda o, x, *_, **__: _drawn(o, "RandomNormalLike", o.shape(x)),
    "randint randint.default": lambda o, high, size, *_, **__: randint_low(o, 0, high, size),  # Integers below `high`
})


@form("randint.low")
def randint_low(o: Writer, low: Any, high: Any, size: Sequence[Any], *_: Any, **__: Any) -> Value:
    """Integers from `low` up to `high`, without it."""
    base = o.RandomUniformLike(o.Expand(o.constant(0, float32), o.sizes(size)), low=float(low), high=float(high))
    return o.cast(o.Floor(base), o.out.dtype)


@form("randperm", takes=lambda n, **_: True)
def randperm(o: Writer, n: Any, *_: Any, **__: Any) -> Value:
    """The integers below n in a random order: those of random numbers, sorted."""
    base = o.RandomUniformLike(o.Expand(o.constant(0, float32), o.sizes([n])))
    _, places = o.step("TopK", base, o.sizes([n]), axis=0, _outputs=2)
    return o.cast(Value(places.name, int64), o.out.dtype)


@form("bernoulli", takes=lambda x, *_, **__: x.dtype.is_floating_point)
def bernoulli(o: Writer, x: Value, p: Any = None, **_: Any) -> Value:
    """1 with the chance that is said, else 0."""
    chance = x if p is None else expand(o, o.cast(p, x.dtype), o.shape(x))
    return o.Bernoulli(chance)


@form("dropout", "native_dropout")
def dropout(o: Writer, x: Value, p: float, train: bool) -> Any:
    """Elements left out by chance, while training."""
    several = isinstance(o.out, tuple)
    if not train or not p:
        whole = o.Expand(o.constant(True, bool_), o.Shape(x)) if several else None
        return (x, whole) if several else x
    made, mask = o.step("Dropout", x, o.constant(p, float32), o.constant(True, bool_), _outputs=2)
    return (made, Value(mask.name, bool_)) if several else made
