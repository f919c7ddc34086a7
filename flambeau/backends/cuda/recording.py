"""What a CUDA graph under way has to keep or be told at each replay: the host memory it copies from, and where random draws begin."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ...core.device import device
from ...core.tensor import Tensor, from_array

under_way: list[Recording] = []     # the innermost is the last


class Recording:
    """One recording, as a context while it is made.

    Copies from the host happen anew at each replay, from memory that is kept here. Draws read where the stream of random numbers
    begins from memory on the GPU, which `begin` fills: so each replay draws new numbers.
    """

    def __init__(self, where: int) -> None:
        self.kept: list[np.ndarray] = []
        self.drawn = 0      # blocks
        self._cupy, self._device = importlib.import_module("cupy"), device("cuda", where)
        self._start = self._cupy.zeros(2, np.int64)     # (seed, offset)
        self._later = self._cupy.ElementwiseKernel("int64 start, int64 used", "int64 out", "out = i == 1 ? start + used : start",
                                                   "flambeau_later_state")

    def __enter__(self) -> Recording:
        under_way.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        under_way.remove(self)

    def draw(self, count: int) -> Tensor:
        """The state (seed, offset) for a draw of `count` blocks, on the GPU."""
        state = self._later(self._start, self.drawn)
        self.drawn += count
        return from_array(state, None, self._device)

    def upload(self, array: np.ndarray) -> Any:
        """A contiguous array's copy on the GPU, made anew at each replay."""
        out = self._cupy.empty(array.shape, array.dtype)
        if not array.size:
            return out
        pinned = self._cupy.cuda.alloc_pinned_memory(array.nbytes)
        host = np.frombuffer(pinned, array.dtype, array.size)
        host[:] = array.reshape(-1)
        self.kept.append(host)
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
        runtime.memcpyAsync(out.data.ptr, host.ctypes.data, host.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        return out

    def begin(self, generator: Any) -> None:
        """Before a replay: the draws go on where the generator stands, which moves on by them."""
        if self.drawn:
            self._start.set(generator.take(self.drawn)._data)
