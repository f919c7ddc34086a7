"""Random primitives: pure functions of a state tensor `(seed, offset)` and a position (Philox 4x32-10).

csrc/philox.cpp states which block and lane element i of a draw reads. Eager and compiled programs therefore see the same
numbers, and dropout recomputed in backward is the same. `increment` counts the blocks that earlier draws of the same
graph used up: `blocks(shape, dtype)` says how many one draw takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau import _C

from ...core.dtypes import dtype, float32, float64, int64, uint64
from ...core.size import contiguous_strides
from ...core.tensor import Tensor
from ..registry import Spec, primitive

_WHY = {"derivative": "a random draw depends on no differentiable input"}


def blocks(shape: Sequence[Any], kind: dtype) -> Any:
    """Philox blocks that a draw of this shape uses up: four 32-bit or two 64-bit words each."""
    n: Any = math.prod(shape)
    return (n + 1) // 2 if kind.itemsize == 8 else (n + 3) // 4


def _bits32(o: Any, seed: Any, start: Any, i: Any) -> Any:
    return o.philox(seed, o.add(start, o.index(i // 4, int64)), o.index(i % 4, int64))


def _bits64(o: Any, seed: Any, start: Any, i: Any) -> Any:
    block, lane = o.add(start, o.index(i // 2, int64)), i % 2 * 2
    low, high = (o.to_dtype(o.philox(seed, block, o.index(lane + k, int64)), uint64) for k in (0, 1))
    return o.bitwise_or(low, o.shl(high, o.constant(32, uint64)))


def _unit64(o: Any, bits: Any, half: float = 0.0) -> Any:
    x = o.to_dtype(o.to_dtype(o.shr(bits, o.constant(11, uint64)), int64), float64)
    return o.mul(o.add(x, o.constant(half, float64)), o.constant(2.0**-53, float64))


def _uniform(o: Any, seed: Any, start: Any, i: Any, kind: dtype) -> Any:
    return _unit64(o, _bits64(o, seed, start, i)) if kind is float64 else o.to_dtype(o.unit(_bits32(o, seed, start, i)), kind)


def _normal(o: Any, seed: Any, start: Any, i: Any, kind: dtype) -> Any:
    """Box and Muller (1958): elements 2k and 2k + 1 are r cos t and r sin t, r = sqrt(-2 log u), t = 2 pi v."""
    even = i // 2 * 2
    if kind is float64:
        u, v, wide = _unit64(o, _bits64(o, seed, start, even), 0.5), _unit64(o, _bits64(o, seed, start, even + 1)), float64
    else:
        first = o.to_dtype(_bits32(o, seed, start, even), float64)
        u = o.to_dtype(o.mul(o.add(first, o.constant(0.5, float64)), o.constant(2.0**-32, float64)), float32)
        v, wide = o.unit(_bits32(o, seed, start, even + 1)), float32
    radius = o.sqrt(o.mul(o.log(u), o.constant(-2.0, wide)))
    turn = o.mul(v, o.constant(2 * math.pi, wide))
    is_even = o.eq(o.index(i % 2, int64), o.constant(0, int64))
    return o.to_dtype(o.mul(radius, o.where(is_even, o.cos(turn), o.sin(turn))), kind)


def _integers(o: Any, seed: Any, start: Any, i: Any, low: int, high: int) -> Any:
    rest = o.remainder(_bits64(o, seed, start, i), o.constant(high - low, uint64))
    return o.add(o.to_dtype(rest, int64), o.constant(low, int64))


def _loop(draw: Any) -> Any:
    def loop(o: Any, idx: Sequence, state: Any, increment: Any, shape: Sequence, *attrs: Any) -> Any:
        linear: Any = 0
        for i, stride in zip(idx, contiguous_strides(shape)):
            linear = linear + i * stride
        start = o.add(state([0 * linear + 1]), o.index(increment, int64))
        return draw(o, state([0 * linear]), start, linear, *attrs)
    return loop


def _drawn(name: str, state: np.ndarray, increment: int, shape: Sequence[int], kind: dtype) -> np.ndarray:
    """The same numbers natively, on all threads."""
    return _C.philox_draw(name, np.empty(tuple(shape), kind.numpy), int(state[0]), int(state[1]) + increment)


def _floats(name: str) -> Any:
    def kernel(state: np.ndarray, increment: int, shape: Sequence[int], kind: dtype) -> np.ndarray:
        return _drawn(name, state, increment, shape, float64 if kind is float64 else float32).astype(kind.numpy, copy=False)
    return kernel


def _integers_kernel(state: np.ndarray, increment: int, shape: Sequence[int], low: int, high: int) -> np.ndarray:
    return (_drawn("bits", state, increment, shape, uint64) % np.uint64(high - low)).astype(np.int64) + low


def _batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    """One draw of as many numbers: what is behind the state that vmap gives is the state for all of them."""
    state, increment, shape, *rest = args
    return prim(state, increment, (size, *shape), *rest)


@primitive("philox_uniform", library="draw", batch=_batch, kernel=_floats("uniform"), loop=_loop(_uniform), tags=("random",), why_absent=_WHY,
           samples=lambda r: [(np.array([3, 5]), 1, (2, 3), float32), (np.array([3, 5]), 0, (5,), float64)])
def philox_uniform(state: Tensor, increment: int, shape: tuple[int, ...], kind: dtype) -> Spec:
    """Uniform numbers in [0, 1): 24 random bits each, 53 for f64."""
    return Spec(tuple(shape), kind)


@primitive("philox_normal", library="draw", batch=_batch, kernel=_floats("normal"), loop=_loop(_normal), tags=("random",), why_absent=_WHY,
           samples=lambda r: [(np.array([3, 5]), 1, (2, 3), float64), (np.array([3, 5]), 0, (5,), float32)])
def philox_normal(state: Tensor, increment: int, shape: tuple[int, ...], kind: dtype) -> Spec:
    """Standard normal numbers."""
    return Spec(tuple(shape), kind)


@primitive("philox_integers", batch=_batch, kernel=_integers_kernel, loop=_loop(_integers), tags=("random",), why_absent=_WHY,
           samples=lambda r: [(np.array([3, 5]), 1, (2, 3), -4, 9)])
def philox_integers(state: Tensor, increment: int, shape: tuple[int, ...], low: int, high: int) -> Spec:
    """Integers in [low, high) from 64 random bits each."""
    return Spec(tuple(shape), int64)


__all__ = ["philox_uniform", "philox_normal", "philox_integers", "blocks"]
