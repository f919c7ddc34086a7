"""Generators of random numbers: one on the CPU, a Mersenne Twister, and one for GPUs, Philox's pair of a seed and an offset.

A seed gives torch's numbers on the CPU, to the last bit (docs/random.md). Compiled code draws by Philox on every device: for the CPU it
takes a seed from the CPU's generator at each call.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from .._C import MT19937
from ..backends.cuda.recording import under_way
from ..core.device import as_device, device
from ..core.dtypes import uint8
from ..core.locks import lock
from ..core.tensor import Tensor, from_array
from .registry import operator

_MASK = (1 << 64) - 1
_DEFAULT_SEED = 67280421310721
_OLD_SIZE = 16      # of the states that CPU generators had when they were a seed and an offset


def _signed(word: int) -> int:
    """The int64 with the same bits as a 64-bit word."""
    word &= _MASK
    return word - (1 << 64) if word >> 63 else word


class Philox:
    """The engine of a GPU's generator: a seed, and how many blocks of its stream are used up."""

    def __init__(self) -> None:
        self._seed, self.offset = _DEFAULT_SEED, 0
        self._lock = lock()
        self.beginnings: dict[tuple[int, device], Tensor] = {}      # of the streams of seeds, as states on GPUs: the last one's

    def seed(self, number: int) -> None:
        """Start the stream of a seed from its beginning."""
        self._seed, self.offset = number & _MASK, 0

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def take(self, count: int) -> tuple[int, int]:
        """The seed, and the offset at which `count` blocks begin, which are now used up."""
        with self._lock:
            start = self.offset
            self.offset = (start + count) & _MASK
        return self._seed, start

    def get_state(self) -> np.ndarray:
        """Seed and offset as 16 bytes."""
        return np.array([self._seed, self.offset], np.uint64).view(np.uint8)

    def set_state(self, state: np.ndarray) -> None:
        """Go back to what get_state returned."""
        if state.size != 16:
            raise RuntimeError(f"RNG state is wrong size: {state.size} bytes, expected the 16 of a generator for GPUs")
        self._seed, self.offset = map(int, np.frombuffer(state.tobytes(), np.uint64))


class Generator:
    """A stream of random numbers for a device."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = as_device(device)
        self.engine: Any = Philox() if self.device.type == "cuda" else MT19937()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` (any 64-bit integer) from its beginning."""
        if not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"Overflow when unpacking long long: the seed {seed} does not fit into 64 bits")
        self.engine.seed(seed & _MASK)
        return self

    def seed(self) -> int:
        """Start a stream that nobody can foretell, and return its seed."""
        self.manual_seed(secrets.randbits(63))
        return self.initial_seed()

    def initial_seed(self) -> int:
        """The seed of the current stream."""
        return self.engine.initial_seed()

    def get_offset(self) -> int:
        """How many Philox blocks of a GPU's stream are used up."""
        self._check_offset("get_offset")
        return self.engine.offset

    def set_offset(self, offset: int) -> None:
        """Move to a position in a GPU's stream."""
        self._check_offset("set_offset")
        self.engine.offset = int(offset)

    def _check_offset(self, name: str) -> None:
        if not isinstance(self.engine, Philox):
            raise RuntimeError(f"Generator.{name}(): CPU Generator does not use offset; get_state() and set_state() say where it stands")

    def get_state(self) -> Tensor:
        """Where the stream stands, as bytes: 5056 of them on the CPU, as torch lays them out, and 16 for GPUs."""
        return from_array(self.engine.get_state())

    def set_state(self, new_state: Tensor) -> None:
        """Go back to what get_state returned."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not uint8:
            raise TypeError(f"expected a torch.ByteTensor, but got {getattr(new_state, 'dtype', type(new_state).__name__)}")
        state = np.ascontiguousarray(new_state.detach().cpu()._data).reshape(-1)
        if isinstance(self.engine, MT19937) and state.size == _OLD_SIZE:    # another stream than it was, but always the same one
            self.engine.seed(int(np.frombuffer(state.tobytes(), np.uint64).sum()))
        else:
            self.engine.set_state(state)

    def clone_state(self) -> Generator:
        """Another generator at the same place."""
        made = Generator(self.device)
        made.engine.set_state(self.engine.get_state())
        return made

    graphsafe_get_state, graphsafe_set_state = get_state, set_state

    def take(self, count: Any, draws: int = 1) -> Tensor:
        """A Philox state (seed, offset), as int64, for `draws` of `count` blocks together; the stream moves on. A CPU's gives a seed to each
        draw; the first one's is that of all."""
        if isinstance(self.engine, Philox):
            seed, start = self.engine.take(int(count))
        else:
            seed, start = ([self.engine.bits64() for _ in range(draws)] or [0])[0], 0
        return from_array(np.array([_signed(seed), _signed(start)], np.int64))

    def __reduce__(self) -> tuple:
        offset = self.engine.offset if isinstance(self.engine, Philox) else None
        return Generator, (self.device,), (self.initial_seed(), offset, self.get_state())

    def __setstate__(self, state: tuple) -> None:
        self.set_state(state[-1])


default_generator, default_gpu_generator = Generator(), Generator("cuda")
_DEFAULTS = (default_generator, default_gpu_generator)

# How many draws there were of which nothing was drawn: who traces a program knows by it that the program draws.
fake_draws = [0]


def default_for(where: device) -> Generator:
    """The generator that draws on a device go to by themselves."""
    return default_gpu_generator if where.type == "cuda" else default_generator


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices; returns the CPU's."""
    default_gpu_generator.manual_seed(int(seed))
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the default generators from the system's entropy; returns the seed."""
    made = default_generator.seed()
    default_gpu_generator.manual_seed(made)
    return made


def random_seed(generator: Generator | None = None) -> int:
    """A seed of 63 bits, drawn on the CPU."""
    return (generator or default_generator).engine.bits64() % (1 << 63)


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


@operator
def get_rng_state() -> Tensor:
    """The CPU's default generator's state as a uint8 tensor."""
    return default_generator.get_state()


@operator
def set_rng_state(new_state: Tensor) -> None:
    """Set the CPU's default generator's state."""
    default_generator.set_state(new_state)


def all_states() -> list[np.ndarray]:
    """Where the default generators of all devices stand."""
    return [generator.engine.get_state() for generator in _DEFAULTS]


def set_all_states(states: list[np.ndarray]) -> None:
    """Go back to what all_states returned."""
    for generator, state in zip(_DEFAULTS, states, strict=True):
        generator.engine.set_state(state)


def take_place(count: int, generator: Generator | None, where: device) -> tuple[Tensor, int]:
    """(state, blocks already used of it) for a draw of `count` blocks: what is told to a GPU once, and where the draw begins."""
    engine = (generator or default_for(where)).engine
    if under_way or not isinstance(engine, Philox):
        return take_state(count, generator, where), 0
    seed, start = engine.take(count)
    state = engine.beginnings.get((seed, where))
    if state is None:
        state = from_array(np.array([_signed(seed), 0], np.int64)).to(where)
        engine.beginnings = {(seed, where): state}
    return state, _signed(start)


def take_state(count: int, generator: Generator | None, where: device, draws: int = 1) -> Tensor:
    """The Philox state (seed, offset) for `draws` of `count` blocks together, on its device; a recorded CUDA graph draws anew at each
    replay."""
    if where.type == "cuda" and under_way and generator in (None, default_gpu_generator):
        return under_way[-1].draw(count)
    state = (generator or default_for(where)).take(count, draws)
    return state if where.type == "cpu" else state.to(where)
