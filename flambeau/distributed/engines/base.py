"""What an engine is: the operations of one group on arrays without gaps, posted now and done later."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from ...core.device import device as Device
from .. import arrays
from ..reduce_op import RedOpType
from ..work import Request, Work


class Posted(NamedTuple):
    """An operation under way: its request (None: done), and what is to be done with its results when it is."""

    request: Request | None
    finish: Callable[[], None] | None = None


class Engine(Protocol):
    """The operations of one group, whose ranks count from 0. Arrays have no gaps; those that are results are written in place."""

    rank: int
    size: int

    @property
    def work(self) -> Callable[..., Work]:
        """What it hands out."""

    def device(self) -> Device:
        """Whose arrays it takes."""

    def beside(self, array: Any, out: Any) -> Any:
        """`array`, or a copy of one that lies where it can't beside the result `out`."""

    def together(self) -> AbstractContextManager:
        """What is posted in the block may end together."""

    def meet(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Be ready to `send` for each of these (sender, receiver); both call it, with whatever other pairs."""

    def broadcast(self, array: Any, src: int) -> Posted:
        """`array` of `src` into everyone's."""

    def all_reduce(self, array: Any, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, into everyone's."""

    def reduce(self, array: Any, dst: int, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, into that of `dst`."""

    def all_gather(self, out: Any, array: Any) -> Posted:
        """Everyone's `array`, one after another, into everyone's `out`."""

    def gather(self, out: Any | None, array: Any, dst: int) -> Posted:
        """Everyone's `array`, one after another, into `out` of `dst`."""

    def scatter(self, out: Any, arrays: Any | None, src: int) -> Posted:
        """The parts of `arrays` of `src`, one for each rank, into everyone's `out`."""

    def reduce_scatter(self, out: Any, arrays: Any, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `arrays` combined, a part for each rank, into its `out`."""

    def all_to_all(self, out: Any, array: Any, received: Sequence[int], sent: Sequence[int]) -> Posted:
        """`sent[r]` elements of `array` to each rank r, and `received[r]` from it into `out`."""

    def barrier(self) -> Posted:
        """Done when all ranks have come here."""

    def send(self, array: Any, dst: int, tag: int) -> Posted:
        """`array` to `dst`."""

    def recv(self, array: Any, src: int | None, tag: int, came: Callable[[int], None]) -> Posted:
        """Into `array` from `src` or, with None, from anyone: `came(rank)` tells from whom."""

    def close(self) -> None:
        """Nothing more comes."""


class HostEngine:
    """What engines have in common whose arrays are NumPy's."""

    work = Work

    def device(self) -> Device:
        """The CPU."""
        return Device("cpu")

    def beside(self, array: Any, out: Any) -> Any:
        """`array`, or a copy of one that may share memory with `out`."""
        return array.copy() if out is not None and arrays.overlap(out, array) else array

    def together(self) -> AbstractContextManager:
        """Each ends by itself."""
        return nullcontext()

    def meet(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Always ready."""


@functools.cache
def refuse(op: RedOpType, dtype: Any) -> None:
    """RuntimeError for a reduction that has no meaning for a dtype (torch's names, without "torch.")."""
    name = str(dtype).removeprefix("torch.")
    if name.startswith("complex") and op not in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM):
        raise ValueError(f"all_reduce does not support {op} on complex tensors")
    floating = name.startswith(("float", "bfloat", "complex"))
    if op in (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR) and floating:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype ({dtype})")
    if op in (RedOpType.AVG, RedOpType.PREMUL_SUM) and not floating:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with dtype {dtype}: result type Float can't be cast to it; use ReduceOp.SUM "
                           "and divide, or a floating dtype")
