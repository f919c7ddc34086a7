"""Random numbers: draws, and the in-place fillers.

In eager code on the CPU an engine fills an array with torch's numbers (csrc/mt19937.h). On GPUs and in compiled code a draw of n elements
is a pure function of a state (seed, offset), which moves the offset on (Philox; see ops/prims/random.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from .._C import MT19937
from ..backends.cuda.recording import under_way
from ..core import dispatch
from ..core.device import as_device, device
from ..core.dtypes import (
    BOOL,
    COMPLEX,
    FLOAT,
    bfloat16,
    bool_,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from ..core.lazy import LazyFunctions
from ..core.memory_format import memory_format, preserve_format
from ..core.size import plain_numbers
from ..core.tensor import Tensor, fake, from_array
from . import prims
from .checks import checked
from .counting import one_or_two_bounds
from .creation import _in_layout, _named_size, count, faking_like, finish, kind_for, sizes
from .generators import Generator, default_generator, fake_draws, take_place
from .ints import Ints, Sized
from .primitives import read
from .prims.random import blocks
from .promotion import broadcast, cast, default_dtype
from .registry import PRIMITIVES, Absent, Spec, operator, primitive
from .writing import with_out

special = LazyFunctions("scipy.special")

# -- who draws -------------------------------------------------------------------------------------------------
Source = Any    # a CPU generator's engine (MT19937), or (Philox state, blocks already used of it)


def source(count: Any, generator: Generator | None, where: device) -> Source:
    """Who gives the numbers of one draw: Philox draws use up `count` blocks.

    A mode may answer instead: `rng_state(count, device, generator) -> (state, increment)`, or None to leave it to those further out.
    So a tracer makes Philox's state an input of its graph. Fake draws leave the generator where it is.
    """
    for mode in reversed(dispatch.state.modes):
        ask = getattr(mode, "rng_state", None)
        answer = None if ask is None else ask(count, where, generator)
        if answer is not None:
            return answer
    if dispatch.state.fake or type(count) is not int:
        fake_draws[0] += 1
        return fake((2,), int64, where), 0
    return _engine_of(generator) if where.type == "cpu" else take_place(count, generator, where)


def _engine_of(generator: Generator | None) -> MT19937:
    engine = (generator or default_generator).engine
    if type(engine) is not MT19937:
        raise RuntimeError(f"Expected a 'cpu' device type for generator but found '{generator.device.type}'")  # type: ignore[union-attr]
    return engine


def draw_state(count: Any, generator: Generator | None, where: device) -> tuple[Tensor, Any]:
    """(state, blocks already used of it) of Philox for one draw of `count` blocks, whoever gives the numbers."""
    found = source(count, generator, where)
    return found if type(found) is tuple else take_place(count, generator, where)


def engine_for(where: device, generator: Generator | None) -> MT19937 | None:
    """The engine that draws on `where` read now; None where they are not of a CPU's generator, or a mode has a say."""
    state = dispatch.state
    if where.type != "cpu" or state.fake or (state.modes and any(hasattr(mode, "rng_state") for mode in state.modes)):
        return None
    return _engine_of(generator)


# -- filling arrays ----------------------------------------------------------------------------------------------
Fill = Callable[[np.ndarray], Any]      # fills a contiguous array
_NATIVE = frozenset((bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64))


def fill_array(fill: Fill, out: np.ndarray, kind: dtype) -> np.ndarray:
    """Fill a contiguous array of any dtype: the parts of complex numbers, and what the engine does not know by way of a wider dtype."""
    if kind in _NATIVE:
        fill(out)
    elif kind.is_complex:
        fill(out.reshape(-1).view(kind.to_real().numpy))
    else:
        wide = np.empty(out.shape, np.float32 if kind.category >= FLOAT else np.int64)
        fill(wide)
        out[...] = wide.astype(kind.numpy)
    return out


def new_filled(fill: Fill, shape: tuple, kind: dtype) -> Tensor:
    """A contiguous tensor on the CPU, filled."""
    return from_array(fill_array(fill, np.empty(shape, kind.numpy), kind), kind)


def _refuse_integers(kind: dtype, what: str) -> None:
    if kind.category < FLOAT:
        raise NotImplementedError(f'"{what}" not implemented for \'{kind.name}\': draw a floating dtype and convert')


def _uniform(shape: tuple, kind: dtype, where: device, generator: Generator | None, low: float = 0.0, high: float = 1.0) -> Tensor:
    if where.type == "meta":
        return prims.empty(shape, kind, where)
    _refuse_integers(kind, "check_uniform_bounds")
    if kind.category == COMPLEX:
        engine, part = engine_for(where, generator), kind.to_real()
        if engine is not None:
            return new_filled(lambda out: engine.fill("uniform", out, low, high), shape, kind)
        return prims.complex(*[_uniform(shape, part, where, generator, low, high) for _ in range(2)])
    wide = kind if kind.itemsize >= 4 else float32
    who = source(blocks(shape, wide), generator, where)
    if type(who) is not tuple:
        return new_filled(lambda out: who.fill("uniform", out, low, high), shape, kind)
    out = prims.philox_uniform(*who, shape, wide)
    # rounding to a narrow float must not reach 1
    out = out if wide is kind else prims.convert(prims.minimum(out, 1 - finfo(kind).eps / 2), kind)
    return out if (low, high) == (0, 1) else out * (high - low) + low


def _normal(shape: tuple, kind: dtype, where: device, generator: Generator | None, mean: float = 0.0, std: float = 1.0) -> Tensor:
    if where.type == "meta":
        return prims.empty(shape, kind, where)
    _refuse_integers(kind, "normal_kernel_cpu")
    if kind.category == COMPLEX:
        engine, part, std = engine_for(where, generator), kind.to_real(), std / math.sqrt(2)
        if engine is not None:
            return new_filled(lambda out: engine.fill("normal", out, mean, std), shape, kind)
        return prims.complex(*[_normal(shape, part, where, generator, mean, std) for _ in range(2)])
    who = source(blocks(shape, float64 if kind is float64 else float32), generator, where)
    if type(who) is not tuple:
        return new_filled(lambda out: who.fill("normal", out, mean, std), shape, kind)
    out = prims.philox_normal(*who, shape, kind)
    return out if (mean, std) == (0, 1) else out * std + mean


def _digits(kind: dtype) -> int:
    """Up to 2**digits every integer is exact in this floating dtype."""
    return round(math.log2(2 / finfo(kind).eps))


def _exact_bounds(low: int, high: int, kind: dtype) -> tuple[int, int]:
    """The bounds, drawn together so far that rounding to a floating dtype stays within them."""
    def rounded(n: int) -> float:
        with np.errstate(over="ignore"):
            return float(np.float64(n).astype(kind.numpy))

    def step(n: int) -> int:
        return 1 << max(abs(n).bit_length() - _digits(kind), 0)

    return low + step(low + 1) if rounded(low) < low else low, high - step(high - 1) if rounded(high - 1) >= high else high


def _check_integers(low: int, high: int, kind: dtype) -> tuple[int, int]:
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if kind.category >= FLOAT:
        return _exact_bounds(low, high, kind)
    least, most = (0, 1) if kind.category == BOOL else (iinfo(kind).min, iinfo(kind).max)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {kind.name}: {value} is not in [{least}, {most}]")
    return low, high


def _integer_fill(engine: MT19937, low: int, high: int, short: bool | None = None) -> Fill:
    """Integers in [low, high) of 32 random bits where the range is short, else of 64."""
    span = high - low
    if span == 1 << 64:
        return lambda out: engine.integers(out, 0, 0, False)
    return lambda out: engine.integers(out, low, span, span < 1 << 28 if short is None else short)


def _integers(shape: tuple, low: int, high: int, kind: dtype, where: device, generator: Generator | None) -> Tensor:
    low, high = _check_integers(low, high, kind)
    if where.type == "meta":
        return prims.empty(shape, kind, where)
    who = source(blocks(shape, int64), generator, where)
    if type(who) is not tuple:
        return new_filled(_integer_fill(who, low, high), shape, kind)
    return cast(prims.philox_integers(*who, shape, low, high), kind)


def _filled_out(out: Tensor, shape: tuple, filler: str, generator: Generator | None, *args: Any) -> Tensor | None:
    """`out=` of the right size, filled in its own order of memory; None where it is not to be."""
    if tuple(out.shape) != shape or out._data is None or (dispatch.state.grad_enabled and out.requires_grad):
        return None
    return getattr(out, filler)(*args, generator=generator)


def _factory(name: str, draw: Any, filler: str, doc: str) -> Any:
    def fn(*dims: Ints, generator: Generator | None = None, out: Tensor | None = None, dtype: dtype | None = None,
           layout: Any = None, device: Any = None, requires_grad: bool | None = False, pin_memory: bool | None = False,
           **keyword: Unpack[Sized]) -> Tensor:
        size = _named_size(dims, keyword, name)
        shape, kind = sizes(size, name), kind_for(dtype, out, default_dtype())
        if out is not None and (filled := _filled_out(out, shape, filler, generator)) is not None:
            return filled
        return finish(draw(shape, kind, as_device(device), generator), requires_grad, out, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, doc
    return operator(fn, name=name, tags=("random",))


rand = _factory("rand", _uniform, "uniform_", "Uniform numbers in [0, 1).")
randn = _factory("randn", _normal, "normal_", "Standard normal numbers.")


@operator(tags=("random",))
def randint(low: Any = None, high: Any = None, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
            dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool | None = False,
            pin_memory: bool | None = False) -> Tensor:
    """Integers in [low, high): randint(high, size) or randint(low, high, size); int64 unless a dtype is given."""
    if size is None and isinstance(high, (tuple, list)):
        low, high, size = None, low, high
    low, high = one_or_two_bounds("randint", low, high)
    if size is None:
        raise TypeError("randint(): missing the argument 'size', a tuple of ints")
    kind = kind_for(dtype, out, int64)
    shape, low, high = sizes((size,), "randint"), *map(math.trunc, plain_numbers(map(_number, (low, high))))
    if out is not None and (filled := _filled_out(out, shape, "random_", generator, low, high)) is not None:
        return filled
    made = _integers(shape, low, high, kind, as_device(device), generator)
    return finish(made, requires_grad, out, layout, pin_memory)


@operator(tags=("random",))
def randperm(n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: dtype | None = None,
             layout: Any = None, device: Any = None, requires_grad: bool | None = False, pin_memory: bool | None = False) -> Tensor:
    """The integers 0 to n - 1 in random order: shuffled, or in the order of n random keys."""
    n = count(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    where = as_device(device)
    engine = engine_for(where, generator) if type(n) is int else None
    if engine is not None:
        order = new_filled(engine.permutation, (n,), int64)
        return finish(cast(order, kind_for(dtype, out, int64)), requires_grad, out, layout, pin_memory)
    keys = _integers((n,), 0, (1 << 63) - 1, int64, where, generator)
    return finish(cast(prims.sort(keys, 0, False, True)[1], kind_for(dtype, out, int64)), requires_grad, out, layout, pin_memory)


def _drawn_like(input: Tensor, kind: dtype, where: device, format: memory_format | None, generator: Generator | None,
                draw: Callable[[tuple], Tensor], filler: str, *args: Any) -> Tensor:
    """A draw in the layout of `input`."""
    with faking_like(input):
        if engine_for(where, generator) is None or input._layout[1] is None:
            return _in_layout(input, format, draw)
        made = _in_layout(input, format, lambda shape: prims.empty(shape, kind, where))
        return getattr(made, filler)(*args, generator=generator)


def _like(name: str, draw: Any, filler: str) -> Any:
    def fn(input: Tensor, *, generator: Generator | None = None, dtype: dtype | None = None, layout: Any = None,
           device: Any = None, requires_grad: bool | None = False, pin_memory: bool | None = False,
           memory_format: memory_format = preserve_format) -> Tensor:
        kind, where = dtype or input.dtype, input.device if device is None else as_device(device)
        made = _drawn_like(input, kind, where, memory_format, generator, lambda shape: draw(shape, kind, where, generator), filler)
        return finish(made, requires_grad, None, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, f"{name[:-5]} in the shape, dtype and device of `input` unless given."
    return operator(fn, tags=("random",))


rand_like, randn_like = _like("rand_like", _uniform, "uniform_"), _like("randn_like", _normal, "normal_")


@operator(tags=("random",))
def randint_like(input: Tensor, low: int | None = None, high: int | None = None, *, generator: Generator | None = None,
                 dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool | None = False,
                 pin_memory: bool | None = False, memory_format: memory_format = preserve_format) -> Tensor:
    """randint in the shape, dtype and device of `input` unless given."""
    low, high = one_or_two_bounds("randint_like", low, high)
    kind, where = dtype or input.dtype, input.device if device is None else as_device(device)
    made = _drawn_like(input, kind, where, memory_format, generator, lambda shape: _integers(shape, low, high, kind, where, generator),
                       "random_", low, high)
    return finish(made, requires_grad, None, layout, pin_memory)


@operator(tags=("random",))
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
           dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool | None = False,
           pin_memory: bool | None = False) -> Tensor:
    """Normal numbers of this mean and standard deviation: numbers (also in tensors without dimensions) with a size, or tensors that broadcast.

    As of every draw, no gradient leads back to them; distributions.Normal.rsample has one.
    """
    mean, std = (_number(v) for v in (mean, std)) if size is not None else (v.detach() if isinstance(v, Tensor) else v for v in (mean, std))
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    _check_std(std)
    if tensors:
        if any(v is not None for v in (size, dtype, layout, device)) or requires_grad or pin_memory:
            raise TypeError("normal(): with a tensor as mean or std the numbers are like it; size, dtype, layout, device, requires_grad "
                            "and pin_memory are for numbers as mean and std")
        like = broadcast(*tensors)[0]
        scaled = isinstance(std, Tensor)
        with faking_like(like):
            z = _normal(tuple(like.shape), like.dtype, like.device, generator, 0.0, 1.0 if scaled else std)
        made = (z * std if scaled else z) + mean
        if isinstance(std, Tensor) and std._data is None:
            made = checked(made, std >= 0)
        return finish(made, False, out)
    if size is None:
        raise TypeError("normal(): with numbers for mean and std a size is needed")
    shape, kind = sizes((size,), "normal"), kind_for(dtype, out, default_dtype())
    if out is not None and (filled := _filled_out(out, shape, "normal_", generator, mean, std)) is not None:
        return filled
    return finish(_normal(shape, kind, as_device(device), generator, mean, std), requires_grad, out, layout, pin_memory)


def _number(value: Any) -> Any:
    """What a tensor without dimensions holds, where a number is asked for and no gradient is lost; other values as they are."""
    return value.item() if isinstance(value, Tensor) and not value.ndim and not value.requires_grad else value


def _check_std(std: Any) -> None:
    least = min(read(std, "min"), default=0) if isinstance(std, Tensor) else std
    if least < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {least}")


@operator(method=True, tags=("random",))
@with_out
def bernoulli(input: Tensor, p: float | Absent = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that `input` (or `p`) gives, else 0."""
    chance = input if p is None else p
    _check_probability(chance)
    kind = input.dtype if input.dtype.category == FLOAT else float32
    engine = engine_for(input.device, generator) if known(input, chance) else None
    if engine is not None:
        out = np.empty(input.shape, input.dtype.numpy)
        fill_bernoulli(engine, out, input, None, chance)
        return from_array(out, input.dtype)
    with faking_like(input):
        u = _uniform(tuple(input.shape), kind if kind.itemsize >= 4 else float32, input.device, generator)
    return _fair(cast(u < chance, input.dtype), chance)


def known(*values: Any) -> bool:
    """Whether numbers can be read out of all of these, numbers or tensors."""
    return all(not isinstance(value, Tensor) or type(value._data) is np.ndarray for value in values)


def _parameter(p: Tensor, shape: Sequence[int], order: Sequence[int] | None = None) -> np.ndarray:
    """A parameter for each element of a draw, in the order of its memory: a contiguous array, of float64 if it is of that, else float32."""
    array = np.broadcast_to(p._data, shape)
    array = array if order is None else array.transpose(order)
    return np.asarray(array, np.float64 if p.dtype is float64 else np.float32, order="C")    # `ascontiguousarray` adds a dimension to none


def fill_bernoulli(engine: MT19937, out: np.ndarray, x: Tensor, order: Sequence[int] | None, p: Any) -> None:
    if isinstance(p, Tensor):
        out[...] = _variates(engine, "bernoulli", _parameter(p, x.shape, order))
    elif out.dtype.kind in "fV" or x.dtype in _NATIVE:
        engine.fill("bernoulli", out, p)
    else:
        out[...] = engine.fill("bernoulli", np.empty(out.shape, np.bool_), p)


def _variates(engine: MT19937, name: str, *parameters: np.ndarray) -> np.ndarray:
    """Draws of a distribution by an array of each parameter."""
    return engine.variate(name, np.empty_like(parameters[0]), *parameters)


def _fair(drawn: Tensor, p: Any) -> Tensor:
    """What was drawn with these probabilities, checked when it is drawn if they aren't known yet."""
    return drawn if not isinstance(p, Tensor) or p._data is not None else checked(drawn, (p >= 0) & (p <= 1))


def _check_probability(p: Any) -> None:
    if isinstance(p, Tensor):
        found = () if under_way and p.is_cuda else read(p, "min", "max")     # a recording reads nothing
        if found and not 0 <= found[0] <= found[1] <= 1:
            low, high = found
            raise RuntimeError(f"Expected p_in >= 0 && p_in <= 1 to be true, but got values from {low} to {high}")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")


@operator(method=True, tags=("random",))
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
                out: Tensor | None = None) -> Tensor:
    """Indices drawn with probabilities proportional to each row of `input`: (n,) -> (k,) or (m, n) -> (m, k), int64."""
    _check_distribution(input, num_samples, replacement)
    if out is not None and out.dtype is not int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype}")
    engine = engine_for(input.device, generator) if known(input) else None
    if engine is not None:
        return finish(_multinomial(engine, input.detach(), num_samples, replacement), False, out)
    kind = float64 if input.dtype is float64 else float32
    p = cast(input, kind).detach()
    if input._data is None:
        p = checked(p, ((p >= 0) & (p < math.inf)).all() & (p.sum(-1) > 0).all())
    with faking_like(input):
        if replacement and num_samples > 1:
            edges = prims.cumsum(p, p.ndim - 1, False)
            u = _uniform((*p.shape[:-1], num_samples), kind, p.device, generator)
            found = PRIMITIVES["searchsorted"](edges, u * edges.narrow(-1, p.shape[-1] - 1, 1), True)
            return finish(found.clamp(max=p.shape[-1] - 1), False, out)
        u = _uniform(tuple(p.shape), kind, p.device, generator)
    keys = p / -prims.log1p(-u).masked_fill(u == 0, -finfo(kind).tiny)  # exponential races (Efraimidis and Spirakis, 2006)
    return finish(prims.topk(keys, num_samples, p.ndim - 1, True, True)[1], False, out)


def _multinomial(engine: MT19937, p: Tensor, n: int, replacement: bool) -> Tensor:
    """Positions of uniform numbers among the cumulated probabilities; for one draw and without replacement, exponential races."""
    if not replacement or n == 1:
        races = p / new_filled(lambda out: engine.fill("exponential", out, 1.0), tuple(p.shape), p.dtype)
        return prims.topk(races, n, p.ndim - 1, True, True)[1] if n > 1 else races.argmax(-1, keepdim=True)
    rows = np.ascontiguousarray(p._data, np.float64 if p.dtype is float64 else np.float32).reshape(-1, p.shape[-1])
    u = np.empty((len(rows), n), np.float64)
    engine.fill("uniform", u)
    edges = rows.cumsum(-1)
    edges /= edges[:, -1:]
    found = [np.minimum(row.searchsorted(drawn), rows.shape[-1] - 1) for row, drawn in zip(edges, u)]
    return from_array(np.array(found, np.int64).reshape((*p.shape[:-1], n)))


def _check_distribution(p: Tensor, n: int, replacement: bool) -> None:
    if p.dtype.category != FLOAT:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {p.dtype}")
    if p.ndim not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got shape {list(p.shape)}")
    if n <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {n}")
    if not replacement and n > p.shape[-1]:
        raise RuntimeError(f"cannot sample n_sample > prob_dist.size(-1) samples without replacement ({n} of {p.shape[-1]})")
    if p._data is None:
        return
    data = p._data.astype(np.float64)
    if not np.isfinite(data).all() or (data < 0).any():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if data.size and (data.sum(-1) <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


def _by_inversion(quantile: str, cumulative: str) -> Any:
    """The smallest k whose cumulative probability reaches u, for SciPy's quantile and distribution functions of k."""
    def kernel(u: np.ndarray, *params: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            k = np.ceil(getattr(special, quantile)(u, *params))
            below = np.maximum(k - 1, 0)
            return np.where(getattr(special, cumulative)(below, *params) >= u, below, k).astype(u.dtype)
    return kernel


_WHY = {"derivative": "a count is not differentiable", "loop": "an inversion is not a fixed number of scalar steps"}


@primitive("poisson_quantile", kernel=_by_inversion("pdtrik", "pdtr"), tensors=2, why_absent=_WHY,
           samples=lambda r: [(r.uniform(0, 1, (2, 3)), r.uniform(0.1, 20, (2, 3)))])
def _poisson_quantile(u: Tensor, rate: Tensor) -> Spec:
    """The Poisson-distributed number with cumulative probability `u`."""
    return Spec(u._layout.shape, u.dtype)


@primitive("binomial_quantile", kernel=_by_inversion("bdtrik", "bdtr"), tensors=3, why_absent=_WHY,
           samples=lambda r: [(r.uniform(0, 1, (2, 3)), r.integers(1, 20, (2, 3)), r.uniform(0.1, 0.9, (2, 3)))])
def _binomial_quantile(u: Tensor, count: Tensor, prob: Tensor) -> Spec:
    """The binomially distributed number with cumulative probability `u`."""
    return Spec(u._layout.shape, u.dtype)


@operator(tags=("random",))
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson-distributed counts of these rates, by inversion."""
    if not min(read(input, "min"), default=0) >= 0:
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    engine = engine_for(input.device, generator) if known(input) else None
    if engine is not None:
        return cast(from_array(_variates(engine, "poisson", _parameter(input, input.shape))), input.dtype)
    rate = cast(input.detach(), float64)
    with faking_like(input):
        u = _uniform(tuple(input.shape), float64, input.device, generator)
    drawn = cast(_poisson_quantile(u, rate.masked_fill(rate == 0, 1)).masked_fill(rate == 0, 0), input.dtype)
    return drawn if input._data is not None else checked(drawn, rate >= 0)


@operator(tags=("random",))
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials of probability `prob` succeed, by inversion."""
    n, p = broadcast(cast(count.detach(), int64), cast(prob.detach(), float64))
    _check_probability(p)
    engine = engine_for(n.device, generator) if known(n, p) else None
    if engine is not None:
        kind = float64 if float64 in (count.dtype, prob.dtype) else float32
        given = [_parameter(cast(x.detach(), kind), n.shape) for x in (count, prob)]
        return cast(from_array(_variates(engine, "binomial", *given)), count.dtype)
    with faking_like(n):
        u = _uniform(tuple(n.shape), float64, n.device, generator)
    k = _binomial_quantile(u, n, p.clamp(1e-300, 1 - 1e-16))
    return _fair(cast(k.masked_fill(p == 0, 0).where(p < 1, cast(n, float64)), count.dtype), p)


def _drawn_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma-distributed numbers of these shapes and rate 1, without gradients."""
    engine = engine_for(input.device, generator) if known(input) else None
    if engine is not None:
        return cast(from_array(_variates(engine, "gamma", _parameter(input, input.shape))), input.dtype)
    return _gamma_by_rejection(input, generator)


_ROUNDS = 10    # each accepts at least 0.95 of what is drawn: less than one number in 10^13 is none of the distribution's


def _gamma_by_rejection(shape: Tensor, generator: Generator | None) -> Tensor:
    """Marsaglia and Tsang's rejection (ACM TOMS 26, 2000), all rounds at once, so that nobody has to read what was accepted; below 1 by
    a power of a uniform number."""
    sizes_, kind, where = tuple(shape.shape), shape.dtype, shape.device
    small = shape < 1
    d = (shape + 1).where(small, shape) - 1 / 3
    rounds = (_ROUNDS, *sizes_)
    with faking_like(shape):
        x, u, w = (draw(size, kind, where, generator) for draw, size in ((_normal, rounds), (_uniform, rounds), (_uniform, sizes_)))
    v = (1 + x / (9 * d).sqrt()) ** 3
    accepted = (v > 0) & (u.log() < 0.5 * x * x + d - d * v + d * v.clamp(min=finfo(kind).tiny).log())
    first = cast(accepted, int64).argmax(0, keepdim=True)
    made = prims.squeeze(v.gather(0, first), (0,)) * d
    return (made * w ** (1 / shape)).where(small, made).clamp(min=finfo(kind).tiny)


def coins(shape: Sequence[Any], p: Any, where: device) -> Tensor:
    """True with probability 1 - p, independently."""
    engine = engine_for(where, None)
    if engine is not None:
        return new_filled(lambda out: engine.fill("bernoulli", out, 1.0 - p), tuple(shape), bool_)
    return prims.ge(_uniform(tuple(shape), float32, where, None), p)


def slopes(x: Tensor, low: float, high: float) -> Tensor:
    """1 where `x` is positive, else uniform in [low, high). Natively only those are drawn."""
    engine = engine_for(x.device, None) if known(x) else None
    if engine is None:
        return _uniform(tuple(x.shape), x.dtype, x.device, None, low, high).where(x <= 0, 1.0)
    out = np.ones(x.shape, x.dtype.numpy)
    where = x._data <= 0
    low, high = (float(np.float64(bound).astype(out.dtype)) for bound in (low, high))
    out[where] = engine.fill("uniform", np.empty(int(np.count_nonzero(where)))) * (high - low) + low
    return from_array(out, x.dtype)
