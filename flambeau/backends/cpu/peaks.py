"""What this machine does at most, measured when it is first asked for, so that a report can say what share of it a kernel reaches."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from flambeau import _C

from . import blas

ROWS = 1024             # of the square matrices that are multiplied
COPIED = 1 << 26        # bytes, beyond the caches of most processors
TRIES = 3


class Peaks(NamedTuple):
    """By all threads that kernels may use."""

    flops: float
    """Floating-point operations of a float32 product a second."""
    bandwidth: float
    """Bytes a second, read and written, of copies larger than the caches."""

    def reached(self, flops: int, moved: int, seconds: float) -> tuple[float, str]:
        """The share of what is possible (the roofline: Williams et al., 2009) that work reached which took so long, and of what."""
        return max((flops / self.flops / seconds, "arithmetic"), (moved / self.bandwidth / seconds, "memory"))


@functools.cache
def peaks() -> Peaks:
    """Measured once in some 100 ms."""
    return Peaks(2 * ROWS**3 / _fastest(_product()), 2 * COPIED / _fastest(_copy()))


def _fastest(run: Callable[[], object]) -> float:
    run()
    taken = []
    for _ in range(TRIES):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def _product() -> Callable[[], object]:
    a = np.ones((ROWS, ROWS), np.float32)
    return lambda: blas.mm(a, a)


def _copy() -> Callable[[], object]:
    threads = _C.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    source = np.ones(COPIED, np.uint8)
    pairs = list(zip(np.array_split(source, threads), np.array_split(np.empty_like(source), threads)))
    return lambda: list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))     # NumPy copies without the interpreter's lock
