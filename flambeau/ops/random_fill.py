"""Random numbers in place: how each kind of draw fills a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._C import MT19937
from ..core import dispatch
from ..core.dtypes import BOOL, FLOAT, dtype, float32, float64, iinfo, int64
from ..core.size import elementwise_order
from ..core.tensor import Tensor, bump_version, from_array, refuse_inference_write
from . import prims
from .creation import faking_like
from .generators import Generator
from .promotion import cast
from .random import (
    _check_integers,
    _check_probability,
    _check_std,
    _digits,
    _fair,
    _integer_fill,
    _integers,
    _normal,
    _refuse_integers,
    _uniform,
    engine_for,
    fill_array,
    fill_bernoulli,
    known,
)
from .registry import operator
from .writing import assign


class Filler(NamedTuple):
    """How a tensor is filled: the parameters, checked, out of the arguments; by a CPU generator's engine, as an array in order of memory;
    and by a draw from whoever answers."""

    parameters: Callable[..., tuple]                # (tensor, *args, **kwargs)
    fill: Callable[..., Any]                        # (engine, array, tensor, order of its dimensions, *parameters)
    draw: Callable[..., Tensor]                     # (tensor, generator, *parameters)


def _fill(self: Tensor, filler: Filler, engine: MT19937, given: tuple) -> Tensor:
    """Fill `self` natively, in the order of its memory."""
    data, state, kind = self._data, dispatch.state, self.dtype
    plain = data.flags.c_contiguous
    if plain and data.flags.writeable and not state.word and not (state.grad_enabled and self.requires_grad):
        refuse_inference_write(self)
        fill_array(lambda out: filler.fill(engine, out, self, None, *given), data, kind)
        bump_version(self)
        return self
    order = None if plain else elementwise_order(self._layout[0], [self._layout[1]])
    shape = data.shape if order is None else tuple([data.shape[d] for d in order])
    made = fill_array(lambda out: filler.fill(engine, out, self, order, *given), np.empty(shape, kind.numpy), kind)
    if order is not None:
        made = made.transpose(sorted(range(len(order)), key=order.__getitem__))
    return assign(self, from_array(made, kind), anew=True)


def _filler(name: str, filler: Filler, doc: str) -> None:
    def fn(self: Tensor, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Tensor:
        given = filler.parameters(self, *args, **kwargs)
        engine = engine_for(self.device, generator) if known(self, *given) else None
        if engine is not None:
            return _fill(self, filler, engine, given)
        with faking_like(self):
            value = filler.draw(self, generator, *given)
        return assign(self, cast(value, self.dtype), anew=True)

    fn.__name__, fn.__doc__ = name, doc
    kept = ("from_generator",) if name in _FROM_GENERATOR else ()
    operator(fn, name=name, method=True, tags=("random", "inplace", *kept))


def _named(name: str) -> Callable[..., Any]:
    """The fill by a draw that the engine knows by name, with these parameters."""
    return lambda engine, out, x, order, *given: engine.fill(name, out, *given)


def _work(x: Tensor) -> dtype:
    """The dtype in which numbers for `x` are drawn."""
    return float64 if x.dtype is float64 or x.dtype.category < FLOAT else x.dtype if x.dtype.is_complex else float32


def _drawn(x: Tensor, generator: Generator | None) -> Tensor:
    """Uniform numbers in [0, 1) that numbers for `x` are made of."""
    return _uniform(tuple(x.shape), _work(x), x.device, generator)


def _uniform_parameters(x: Tensor, from_: float = 0.0, to: float = 1.0, **given: Any) -> tuple:
    low, high = given.get("from", from_), to
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    if x.dtype.category < FLOAT:
        raise NotImplementedError(f'"check_uniform_bounds" not implemented for \'{x.dtype.name}\'')
    return float(low), float(high)


def _normal_parameters(x: Tensor, mean: float = 0.0, std: float = 1.0) -> tuple:
    _check_std(std)
    _refuse_integers(x.dtype, "normal_kernel_cpu")
    return mean, std


def _fill_normal(engine: MT19937, out: np.ndarray, x: Tensor, order: Any, mean: float, std: float) -> None:
    """By blocks where the memory is contiguous, else one by one."""
    engine.fill("normal" if order is None else "normal_each", out, mean, std / math.sqrt(2) if x.dtype.is_complex else std)


def _draw_normal(x: Tensor, generator: Generator | None, mean: float, std: float) -> Tensor:
    return _normal(tuple(x.shape), x.dtype, x.device, generator, mean, std)


def _bernoulli_parameters(x: Tensor, p: Any = 0.5) -> tuple:
    _check_probability(p)
    return (p,)


def _exponential_parameters(x: Tensor, lambd: float = 1.0) -> tuple:
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    _refuse_integers(x.dtype, "exponential")
    return (lambd,)


def _integer_parameters(x: Tensor, *bounds: int | None, **given: Any) -> tuple:
    """(low, high): of one bound the upper one; of `from` and None up to the largest; of none all that the dtype holds exactly."""
    low, high = given.get("from", given.get("from_", 0)), given.get("to")
    if bounds:
        low, high = (0, bounds[0]) if len(bounds) == 1 and not given else (*bounds, high)[:2]
    if high is None:
        return int(low), _largest(x.dtype) + 1
    return int(low), int(high)


def _fill_integers(engine: MT19937, out: np.ndarray, x: Tensor, order: Any, low: int, high: int) -> None:
    everything = (low, high) == (0, _largest(x.dtype) + 1)
    low, high = (low, high) if everything else _check_integers(low, high, x.dtype)
    _integer_fill(engine, low, high, x.dtype.itemsize < 8 if everything else None)(out)


def _largest(kind: dtype) -> int:
    """The largest integer up to which every one is exact in `kind`."""
    if kind.category == BOOL:
        return 1
    return iinfo(kind).max if kind.category < FLOAT else 1 << _digits(kind)


def _log_normal_parameters(x: Tensor, mean: float = 1.0, std: float = 2.0) -> tuple:
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    _refuse_integers(x.dtype, "log_normal")
    return mean, std


def _cauchy_parameters(x: Tensor, median: float = 0.0, sigma: float = 1.0) -> tuple:
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    _refuse_integers(x.dtype, "cauchy")
    return median, sigma


def _geometric_parameters(x: Tensor, p: float) -> tuple:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return (p,)


_FROM_GENERATOR = frozenset(("uniform_", "normal_", "bernoulli_", "random_"))
"""Those that compiled code on CPUs leaves to the generator; it draws the others itself."""
_FILLERS: dict[str, tuple[Filler, str]] = {
    "uniform_": (Filler(_uniform_parameters, _named("uniform"), lambda x, generator, low, high: _uniform(
        tuple(x.shape), x.dtype, x.device, generator, low, high)), "Uniform numbers in [from, to)."),
    "normal_": (Filler(_normal_parameters, _fill_normal, _draw_normal), "Normal numbers of this mean and standard deviation."),
    "bernoulli_": (Filler(_bernoulli_parameters, fill_bernoulli, lambda x, generator, p: _fair(
        _uniform(tuple(x.shape), float32, x.device, generator) < p, p)), "1 with probability p (a number or tensor), else 0."),
    "exponential_": (Filler(_exponential_parameters, _named("exponential"), lambda x, generator, lambd: (
        -prims.log1p(-_drawn(x, generator)) / lambd)), "Exponential numbers of rate lambd."),
    "random_": (Filler(_integer_parameters, _fill_integers, lambda x, generator, low, high: _integers(
        tuple(x.shape), low, high, int64, x.device, generator)),
                "Integers in [from, to); without bounds all that the dtype holds exactly."),
    "log_normal_": (Filler(_log_normal_parameters, _named("log_normal"), lambda x, generator, mean, std: prims.exp(
        _draw_normal(x, generator, mean, std))), "exp of normal numbers."),
    "cauchy_": (Filler(_cauchy_parameters, _named("cauchy"), lambda x, generator, median, sigma: (
        prims.tan((_drawn(x, generator) - 0.5) * math.pi) * sigma + median)), "Cauchy numbers."),
    "geometric_": (Filler(_geometric_parameters, _named("geometric"), lambda x, generator, p: prims.ceil(
        prims.log1p(-_drawn(x, generator)) / math.log1p(-p)).clamp(min=1)), "Trials up to the first success of probability p."),
}
for _name, (_how, _doc) in _FILLERS.items():
    _filler(_name, _how, _doc)
