"""torch.quasirandom: Sobol' sequences.

The direction numbers are those of Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections" (2008). The first ten
dimensions are here; those up to 21201 are read from the table that SciPy (an extra) has of them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from .core.dtypes import dtype as DType
from .core.tensor import Tensor
from .ops.random import Generator
from .ops.registry import OPERATORS

# Of dimensions 2, 3, ...: a primitive polynomial (its degree, and its coefficients but the first and last), and the first numbers.
_FIRST = (
    (1, 0, (1,)), (2, 1, (1, 3)), (3, 1, (1, 3, 1)), (3, 2, (1, 1, 1)), (4, 1, (1, 1, 3, 3)), (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)), (5, 4, (1, 1, 5, 5, 5)), (5, 7, (1, 1, 7, 11, 19)),
)
BITS = 30


def _rows(dimension: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """(degree, inner coefficients, first numbers) for dimensions 2 to `dimension`."""
    if dimension - 1 <= len(_FIRST):
        return list(_FIRST[: dimension - 1])
    spec = importlib.util.find_spec("scipy")
    table = None if spec is None or spec.origin is None else Path(spec.origin).parent / "stats" / "_sobol_direction_numbers.npz"
    if table is None or not table.exists():
        raise NotImplementedError(f"SobolEngine(dimension={dimension}): direction numbers beyond dimension {len(_FIRST) + 1} are read from "
                                  "SciPy's table; pip install scipy")
    with np.load(table) as found:
        polynomials, numbers = found["poly"], found["vinit"]
    rows = []
    for polynomial, first in zip(polynomials[1:dimension], numbers[1:dimension]):
        degree = int(polynomial).bit_length() - 1
        rows.append((degree, (int(polynomial) >> 1) & ((1 << (degree - 1)) - 1), tuple(map(int, first[:degree]))))
    return rows


def _directions(dimension: int) -> np.ndarray:
    """The direction numbers as integers of BITS bits, one row for each dimension."""
    table = np.zeros((dimension, BITS), np.int64)
    table[0] = 1 << np.arange(BITS - 1, -1, -1)
    for row, (degree, inner, first) in zip(table[1:], _rows(dimension)):
        m = list(first)
        for k in range(degree, BITS):
            new = m[k - degree] ^ (m[k - degree] << degree)
            for i in range(1, degree):
                if inner >> (degree - 1 - i) & 1:
                    new ^= m[k - i] << i
            m.append(new)
        row[:] = [number << (BITS - 1 - k) for k, number in enumerate(m[:BITS])]
    return table


class SobolEngine:
    """Points of a Sobol' sequence in the unit cube of `dimension` dimensions; `scramble`: shuffled at random, by `seed`."""

    MAXBIT = BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        directions = _directions(dimension)
        shift = np.zeros(dimension, np.int64)
        if scramble:
            shift, directions = self._scrambled(directions)
        self.sobolstate = OPERATORS["tensor"](directions)
        self.shift = OPERATORS["tensor"](shift)
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def _scrambled(self, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A random shift, and direction numbers times random lower triangular matrices of bits (Owen, Matousek)."""
        rng = OPERATORS["randint"]
        generator = None
        if self.seed is not None:
            generator = Generator()
            generator.manual_seed(self.seed)
        bits = rng(2, (self.dimension, BITS), generator=generator).numpy()
        shift = bits @ (1 << np.arange(BITS))
        lower = np.tril(rng(2, (self.dimension, BITS, BITS), generator=generator).numpy())
        lower[:, np.arange(BITS), np.arange(BITS)] = 1
        columns = directions[:, :, None] >> np.arange(BITS - 1, -1, -1) & 1     # (dimension, number, bit)
        mixed = np.einsum("dij,dkj->dki", lower, columns) & 1
        return shift, mixed @ (1 << np.arange(BITS - 1, -1, -1))

    def _points(self, start: int, count: int) -> np.ndarray:
        """Points number `start` on, as integers."""
        n = np.arange(start, start + count, dtype=np.int64)
        gray, table = n ^ (n >> 1), self.sobolstate.numpy()
        points = np.repeat(self.shift.numpy()[None], count, 0)
        for bit in range(int(gray.max()).bit_length() if count else 0):
            points[(gray >> bit & 1).astype(bool)] ^= table[:, bit]
        return points

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `n` points, of shape (n, dimension)."""
        if n < 0 or self.num_generated + n > 1 << BITS:
            raise ValueError(f"draw(n={n}): there are {1 << BITS} points, of which {self.num_generated} were generated")
        kind = dtype or OPERATORS["empty"](0).dtype
        made = OPERATORS["tensor"](self._points(self.num_generated, n) / float(1 << BITS)).to(kind)
        self.fast_forward(n)
        if out is None:
            return made
        return out.resize_(made.shape).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next 2^m points, which together with those before have to be a power of two."""
        n = 1 << m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been "
                             f"previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                             "'SobolEngine.draw()' instead.")
        return self.draw(n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave `n` points out."""
        self.num_generated += n
        self.quasi = OPERATORS["tensor"](self._points(max(self.num_generated - 1, 0), 1)[0])
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"


__all__ = ["SobolEngine"]
