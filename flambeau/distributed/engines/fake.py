"""A group of any size in one process: no peer exists, operations leave results as a rank finds them and write down what they would
have sent. Shapes, memory a rank and the sequence of collectives, without a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..reduce_op import RedOpType
from .base import HostEngine, Posted

_DONE = Posted(None)


class FakeEngine(HostEngine):
    """Rank `rank` of `size`. Everyone else seems to hold what this rank holds; a sum stays what it was, as in torch."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def broadcast(self, array: Any, src: int) -> Posted:
        """Nothing changes."""
        return _DONE

    def all_reduce(self, array: Any, op: RedOpType, factor: Any = None) -> Posted:
        """Nothing changes."""
        return _DONE

    def reduce(self, array: Any, dst: int, op: RedOpType, factor: Any = None) -> Posted:
        """Nothing changes."""
        return _DONE

    def all_gather(self, out: Any, array: Any) -> Posted:
        """This rank's array for every rank."""
        if out is not None and array is not None:
            out.reshape(self.size, -1)[...] = array.reshape(1, -1)
        return _DONE

    def gather(self, out: Any | None, array: Any, dst: int) -> Posted:
        """As `all_gather`, at `dst`."""
        return self.all_gather(out, array)

    def scatter(self, out: Any, arrays: Any | None, src: int) -> Posted:
        """This rank's part, where there is one."""
        if out is not None and arrays is not None:
            np.copyto(out.reshape(-1), arrays.reshape(self.size, -1)[self.rank])
        return _DONE

    def reduce_scatter(self, out: Any, arrays: Any, op: RedOpType, factor: Any = None) -> Posted:
        """This rank's part."""
        return self.scatter(out, arrays, 0)

    def all_to_all(self, out: Any, array: Any, received: Sequence[int], sent: Sequence[int]) -> Posted:
        """As much of `array` as fits."""
        if out is not None and array is not None:
            fits = min(out.size, array.size)
            out.reshape(-1)[:fits] = array.reshape(-1)[:fits]
        return _DONE

    def barrier(self) -> Posted:
        """Nobody else to wait for."""
        return _DONE

    def send(self, array: Any, dst: int, tag: int) -> Posted:
        """Nobody takes it."""
        return _DONE

    def recv(self, array: Any, src: int | None, tag: int, came: Callable[[int], None]) -> Posted:
        """Nothing comes."""
        came(0 if src is None else src)
        return _DONE

    def close(self) -> None:
        """Nothing to close."""
