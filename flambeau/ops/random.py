"""Random numbers: generators, draws, and the in-place fillers.

A generator is a pair (seed, offset). A draw of n elements is a pure function of it (Philox; see ops/prims/random.py) and moves
the offset on, so that a seed gives the same numbers whatever the number of threads, eager or compiled.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backends.cpu import random as native
from ..backends.cuda.recording import under_way
from ..core import dispatch
from ..core.device import CPU, as_device, device
from ..core.dtypes import BOOL, COMPLEX, FLOAT, dtype, finfo, float32, float64, iinfo, int64, uint8
from ..core.lazy import LazyFunctions
from ..core.locks import lock
from ..core.memory_format import memory_format, preserve_format
from ..core.tensor import Tensor, bump_version, fake, from_array, refuse_inference_write
from . import prims
from .checks import checked
from .creation import _in_layout, _named_size, count, faking_like, finish, kind_for, sizes
from .pointwise import InPlace, assign, with_out, write
from .prims import random as random_prims
from .prims.random import blocks
from .promotion import broadcast, cast, default_dtype
from .registry import PRIMITIVES, Spec, operator, primitive

special = LazyFunctions("scipy.special")

random_prims.native_draw = lambda name, seed, start, n, kind: native.draw(name, seed, start, n, kind.numpy)

_MASK = (1 << 64) - 1


def _signed(word: int) -> int:
    """The int64 with the same bits as a 64-bit word."""
    word &= _MASK
    return word - (1 << 64) if word >> 63 else word


class Generator:
    """A stream of random numbers: a seed and an offset that every draw moves on."""

    def __init__(self, device: Any = "cpu"):
        self.device = as_device(device)
        self._seed, self._offset = 67280421310721, 0
        self._lock = lock()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` (any 64-bit integer) from its beginning."""
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise RuntimeError(f"Overflow when unpacking long: the seed {seed} does not fit into 64 bits")
        self._seed, self._offset = seed & _MASK, 0
        return self

    def seed(self) -> int:
        """Start a stream that nobody can foretell, and return its seed."""
        self.manual_seed(secrets.randbits(63))
        return self._seed

    def initial_seed(self) -> int:
        """The seed of the current stream."""
        return self._seed

    def get_offset(self) -> int:
        """How many Philox blocks of the stream are used up."""
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Move to a position in the stream."""
        self._offset = int(offset)

    def get_state(self) -> Tensor:
        """Seed and offset as 16 bytes."""
        return from_array(np.array([self._seed, self._offset], np.uint64).view(np.uint8))

    def set_state(self, new_state: Tensor) -> None:
        """Go back to what get_state returned."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not uint8:
            raise TypeError(f"expected a torch.ByteTensor, but got {getattr(new_state, 'dtype', type(new_state).__name__)}")
        if new_state.numel() != 16:
            raise RuntimeError(f"RNG state is wrong size: {new_state.numel()} bytes, expected the 16 of a Flambeau generator")
        seed, offset = np.frombuffer(new_state.contiguous().numpy().tobytes(), np.uint64)
        self._seed, self._offset = int(seed), int(offset)

    def clone_state(self) -> Generator:
        """Another generator at the same place."""
        made = Generator(self.device)
        made._seed, made._offset = self._seed, self._offset
        return made

    graphsafe_get_state, graphsafe_set_state = get_state, set_state

    def take(self, count: Any) -> Tensor:
        """The state (seed, offset), as int64, for a draw of `count` blocks; the stream moves on by them."""
        with self._lock:
            start = self._offset
            self._offset = (start + int(count)) & _MASK
        return from_array(np.array([_signed(self._seed), _signed(start)], np.int64))

    def __reduce__(self) -> tuple:
        return _generator_from, (str(self.device), self._seed, self._offset)


def _generator_from(where: str, seed: int, offset: int) -> Generator:
    made = Generator(where)
    made._seed, made._offset = seed, offset
    return made


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; returns it."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the system's entropy; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


@operator
def get_rng_state() -> Tensor:
    """The default generator's state as a uint8 tensor."""
    return default_generator.get_state()


@operator
def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state."""
    default_generator.set_state(new_state)


# -- draws ----------------------------------------------------------------------------------------------------
def draw_state(count: Any, generator: Generator | None = None, where: device = CPU) -> tuple[Tensor, Any]:
    """(state tensor, blocks already used of it) for one draw of `count` blocks.

    A mode may answer instead: `rng_state(count, device, generator) -> (state, increment)`, or None to leave it to those further out.
    So a tracer makes the default generator's numbers an input of its graph. Fake draws leave the generator where it is.
    """
    for mode in reversed(dispatch.state.modes):
        ask = getattr(mode, "rng_state", None)
        answer = None if ask is None else ask(count, where, generator)
        if answer is not None:
            return answer
    if dispatch.state.fake or type(count) is not int:
        return fake((2,), int64, where), 0
    return take_state(count, generator, where), 0


def take_state(count: int, generator: Generator | None, where: device) -> Tensor:
    """The state (seed, offset) for a draw of `count` blocks, on its device; a CUDA graph being recorded draws anew at each replay."""
    if where.type == "cuda" and under_way and generator in (None, default_generator):
        return under_way[-1].draw(count)
    state = (generator or default_generator).take(count)
    return state if where.type == "cpu" else state.to(where)


def _uniform(shape: tuple, kind: dtype, where: device, generator: Generator | None) -> Tensor:
    if where.type == "meta":
        return prims.empty(shape, kind, where)
    if kind.category < FLOAT:
        raise NotImplementedError(f'"check_uniform_bounds" not implemented for \'{kind.name}\': draw a floating dtype and convert')
    if kind.category == COMPLEX:
        part = kind.to_real()
        return prims.complex(_uniform(shape, part, where, generator), _uniform(shape, part, where, generator))
    wide = kind if kind.itemsize >= 4 else float32
    state, used = draw_state(blocks(shape, wide), generator, where)
    out = prims.philox_uniform(state, used, shape, wide)
    # rounding to a narrow float must not reach 1
    return out if wide is kind else prims.convert(prims.minimum(out, 1 - finfo(kind).eps / 2), kind)


def _normal(shape: tuple, kind: dtype, where: device, generator: Generator | None) -> Tensor:
    if where.type == "meta":
        return prims.empty(shape, kind, where)
    if kind.category < FLOAT:
        raise NotImplementedError(f'"normal_kernel_cpu" not implemented for \'{kind.name}\': draw a floating dtype and convert')
    if kind.category == COMPLEX:
        part = kind.to_real()
        half = [_normal(shape, part, where, generator) * math.sqrt(0.5) for _ in range(2)]
        return prims.complex(*half)
    state, used = draw_state(blocks(shape, float64 if kind is float64 else float32), generator, where)
    return prims.philox_normal(state, used, shape, kind)


def _integers(shape: tuple, low: int, high: int, kind: dtype, where: device, generator: Generator | None) -> Tensor:
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if where.type == "meta":
        return prims.empty(shape, kind, where)
    state, used = draw_state(blocks(shape, int64), generator, where)
    return cast(prims.philox_integers(state, used, shape, low, high), kind)


def _factory(name: str, draw: Any, doc: str) -> Any:
    def fn(*size: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: dtype | None = None,
           layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **keyword: Any) -> Tensor:
        size = _named_size(size, keyword, name)
        made = draw(sizes(size, name), kind_for(dtype, out, default_dtype()), as_device(device), generator)
        return finish(made, requires_grad, out, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, doc
    return operator(fn, name=name, tags=("random",))


rand = _factory("rand", _uniform, "Uniform numbers in [0, 1).")
randn = _factory("randn", _normal, "Standard normal numbers.")


@operator(tags=("random",))
def randint(low: Any, high: Any = None, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
            dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
            pin_memory: bool = False) -> Tensor:
    """Integers in [low, high): randint(high, size) or randint(low, high, size); int64 unless a dtype is given."""
    if size is None and isinstance(high, (tuple, list)):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise TypeError("randint(): missing the argument 'size', a tuple of ints")
    kind = kind_for(dtype, out, int64)
    made = _integers(sizes((size,), "randint"), math.trunc(low), math.trunc(high), kind, as_device(device), generator)
    return finish(made, requires_grad, out, layout, pin_memory)


@operator(tags=("random",))
def randperm(n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: dtype | None = None,
             layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """The integers 0 to n - 1 in random order: the order of n random keys."""
    n = count(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    keys = _integers((n,), 0, (1 << 63) - 1, int64, as_device(device), generator)
    return finish(cast(prims.sort(keys, 0, False, True)[1], kind_for(dtype, out, int64)), requires_grad, out, layout, pin_memory)


def _like(name: str, draw: Any) -> Any:
    def fn(input: Tensor, *, generator: Generator | None = None, dtype: dtype | None = None, layout: Any = None,
           device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
           memory_format: memory_format = preserve_format) -> Tensor:
        kind, where = dtype or input.dtype, input.device if device is None else as_device(device)
        with faking_like(input):
            made = _in_layout(input, memory_format, lambda shape: draw(shape, kind, where, generator))
        return finish(made, requires_grad, None, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, f"{name[:-5]} in the shape, dtype and device of `input` unless given."
    return operator(fn, tags=("random",))


rand_like, randn_like = _like("rand_like", _uniform), _like("randn_like", _normal)


@operator(tags=("random",))
def randint_like(input: Tensor, low: int, high: int | None = None, *, generator: Generator | None = None, dtype: dtype | None = None,
                 layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
                 memory_format: memory_format = preserve_format) -> Tensor:
    """randint in the shape, dtype and device of `input` unless given."""
    low, high = (0, low) if high is None else (low, high)
    kind, where = dtype or input.dtype, input.device if device is None else as_device(device)
    with faking_like(input):
        made = _in_layout(input, memory_format, lambda shape: _integers(shape, low, high, kind, where, generator))
    return finish(made, requires_grad, None, layout, pin_memory)


@operator(tags=("random",))
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
           dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """Normal numbers of this mean and standard deviation: numbers with a size, or tensors that broadcast."""
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    _check_std(std)
    if tensors:
        if any(v is not None for v in (size, dtype, layout, device)) or requires_grad or pin_memory:
            raise TypeError("normal(): with a tensor as mean or std the numbers are like it; size, dtype, layout, device, requires_grad "
                            "and pin_memory are for numbers as mean and std")
        like = broadcast(*tensors)[0]
        with faking_like(like):
            z = _normal(tuple(like.shape), like.dtype, like.device, generator)
        made = z * std + mean
        if isinstance(std, Tensor) and std._data is None:
            made = checked(made, std >= 0)
        return finish(made, False, out)
    if size is None:
        raise TypeError("normal(): with numbers for mean and std a size is needed")
    z = _normal(sizes((size,), "normal"), kind_for(dtype, out, default_dtype()), as_device(device), generator)
    return finish(z * std + mean, requires_grad, out, layout, pin_memory)


def _check_std(std: Any) -> None:
    least = std if not isinstance(std, Tensor) else (float(std._data.min()) if std._data is not None and std._data.size else 0)
    if least < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {least}")


@operator(method=True, tags=("random",))
@with_out
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that `input` (or `p`) gives, else 0."""
    chance = input if p is None else p
    _check_probability(chance)
    kind = input.dtype if input.dtype.category == FLOAT else float32
    with faking_like(input):
        u = _uniform(tuple(input.shape), kind if kind.itemsize >= 4 else float32, input.device, generator)
    return _fair(cast(u < chance, input.dtype), chance)


def _fair(drawn: Tensor, p: Any) -> Tensor:
    """What was drawn with these probabilities, checked when it is drawn if they aren't known yet."""
    return drawn if not isinstance(p, Tensor) or p._data is not None else checked(drawn, (p >= 0) & (p <= 1))


def _check_probability(p: Any) -> None:
    if isinstance(p, Tensor):
        if p._data is None or not p._data.size or (under_way and p.is_cuda):     # a recording reads nothing
            return
        low, high = float(p._data.min()), float(p._data.max())
        if not (low >= 0 and high <= 1):
            raise RuntimeError(f"Expected p_in >= 0 && p_in <= 1 to be true, but got values from {low} to {high}")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")


@operator(method=True, tags=("random",))
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
                out: Tensor | None = None) -> Tensor:
    """Indices drawn with probabilities proportional to each row of `input`: (n,) -> (k,) or (m, n) -> (m, k), int64."""
    _check_distribution(input, num_samples, replacement)
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
    if input._data is not None and input._data.size and not float(input._data.min()) >= 0:
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
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
    with faking_like(n):
        u = _uniform(tuple(n.shape), float64, n.device, generator)
    k = _binomial_quantile(u, n, p.clamp(1e-300, 1 - 1e-16))
    return _fair(cast(k.masked_fill(p == 0, 0).where(p < 1, cast(n, float64)), count.dtype), p)


# -- filling in place -----------------------------------------------------------------------------------------------
_PIECE = 1 << 20  # elements: a multiple of those of a block


def _fill_in_pieces(self: Tensor, draw: Callable[[Tensor], Tensor]) -> None:
    """The same numbers as one draw for the whole: element i of a draw is block and lane i of the stream, and a piece begins where the
    one before ends. What is made on the way is as small as a piece."""
    InPlace.check(self)
    flat = self._data.reshape(-1)
    for begin in range(0, flat.size, _PIECE):
        piece = from_array(flat[begin : begin + _PIECE], self.dtype)
        write(piece, cast(draw(piece), self.dtype))
    bump_version(self)


def _may_fill_in_pieces(self: Tensor, given: Iterable[Any]) -> bool:
    data = self._data
    return (type(data) is np.ndarray and data.size > _PIECE and data.flags.c_contiguous and data.flags.writeable
            and not self.dtype.is_complex  # two draws
            and not dispatch.state.word and not any(isinstance(value, Tensor) for value in given)
            and not (dispatch.state.grad_enabled and self.requires_grad))


def _filler(name: str, draw: Any, doc: str) -> None:
    def fn(self: Tensor, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Tensor:
        if _may_fill_in_pieces(self, (*args, *kwargs.values())):
            refuse_inference_write(self)
            _fill_in_pieces(self, lambda piece: draw(piece, generator, *args, **kwargs))
            return self
        with faking_like(self):
            value = draw(self, generator, *args, **kwargs)
        return assign(self, cast(value, self.dtype), anew=True)

    fn.__name__, fn.__doc__ = name, doc
    operator(fn, name=name, method=True, tags=("random", "inplace"))


def _work(x: Tensor) -> dtype:
    """The dtype in which numbers for `x` are drawn."""
    return float64 if x.dtype in (float64,) or x.dtype.category < FLOAT else x.dtype if x.dtype.is_complex else float32


def _draw_uniform(x: Tensor, generator: Generator | None, from_: float = 0.0, to: float = 1.0, **given: Any) -> Tensor:
    low, high = given.get("from", from_), to
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    if x.dtype.category < FLOAT:
        raise NotImplementedError(f'"check_uniform_bounds" not implemented for \'{x.dtype.name}\'')
    u = _uniform(tuple(x.shape), x.dtype, x.device, generator)
    return u if (low, high) == (0, 1) else u * (high - low) + low


def _draw_normal(x: Tensor, generator: Generator | None, mean: float = 0.0, std: float = 1.0) -> Tensor:
    _check_std(std)
    z = _normal(tuple(x.shape), x.dtype, x.device, generator)
    return z if (mean, std) == (0, 1) else z * std + mean


def _draw_bernoulli(x: Tensor, generator: Generator | None, p: Any = 0.5) -> Tensor:
    _check_probability(p)
    return _fair(_uniform(tuple(x.shape), float32, x.device, generator) < p, p)


def _draw_exponential(x: Tensor, generator: Generator | None, lambd: float = 1.0) -> Tensor:
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return -prims.log1p(-_uniform(tuple(x.shape), _work(x), x.device, generator)) / lambd


def _draw_integers(x: Tensor, generator: Generator | None, from_: int = 0, to: int | None = None, **given: Any) -> Tensor:
    low, high = given.get("from", from_), to
    if "from" not in given and to is None and from_ != 0:
        low, high = 0, from_
    if high is None:
        high = _largest(x.dtype) + 1
    return _integers(tuple(x.shape), int(low), int(high), int64, x.device, generator)


def _largest(kind: dtype) -> int:
    """The largest integer below which every one is exact in `kind`."""
    if kind.category == BOOL:
        return 1
    return min(iinfo(kind).max, (1 << 63) - 2) if kind.category < FLOAT else round(2 / finfo(kind).eps)


def _draw_log_normal(x: Tensor, generator: Generator | None, mean: float = 1.0, std: float = 2.0) -> Tensor:
    return prims.exp(_draw_normal(x, generator, mean, std))


def _draw_cauchy(x: Tensor, generator: Generator | None, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return prims.tan((_uniform(tuple(x.shape), _work(x), x.device, generator) - 0.5) * math.pi) * sigma + median


def _draw_geometric(x: Tensor, generator: Generator | None, p: float) -> Tensor:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    u = _uniform(tuple(x.shape), _work(x), x.device, generator)
    return prims.ceil(prims.log1p(-u) / math.log1p(-p)).clamp(min=1)


for _name, _draw, _doc in (
        ("uniform_", _draw_uniform, "Uniform numbers in [from, to)."),
        ("normal_", _draw_normal, "Normal numbers of this mean and standard deviation."),
        ("bernoulli_", _draw_bernoulli, "1 with probability p (a number or tensor), else 0."),
        ("exponential_", _draw_exponential, "Exponential numbers of rate lambd."),
        ("random_", _draw_integers, "Integers in [from, to); without bounds all that the dtype holds exactly."),
        ("log_normal_", _draw_log_normal, "exp of normal numbers."),
        ("cauchy_", _draw_cauchy, "Cauchy numbers."),
        ("geometric_", _draw_geometric, "Trials up to the first success of probability p.")):
    _filler(_name, _draw, _doc)
