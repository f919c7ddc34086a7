"""Native Philox draws for the random primitives: the same numbers as their NumPy reading, on all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _C

_DRAWS: dict[str, Any] = {"uniform": _C.philox_uniform, "normal": _C.philox_normal, "bits": _C.philox_bits}


def draw(name: str, seed: int, start: int, n: int, kind: np.dtype) -> np.ndarray:
    """`n` elements of the draw `name` (uniform, normal, bits) by generator state (seed, start)."""
    return _DRAWS[name](np.empty(n, kind), seed & 0xFFFFFFFFFFFFFFFF, start & 0xFFFFFFFFFFFFFFFF)
