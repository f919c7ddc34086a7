"""The calls of libraries that compiled graphs make: a record for each family of them.

A record of the op table says by `library` which family computes it. What a call means, costs, and takes within autocast is said there
(its kernel, `flops`, `autocast`); here stands how graphs are lowered to it and how generated code makes it on each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flambeau.inductor.call import Step
from flambeau.inductor.loop.ir import Extern, Program

Pointer = Callable[..., str]
Lower = Callable[[Any, Any, Any, list], Any]


def nothing_wrong(step: Extern) -> Iterator[str]:
    """Whatever the operands are."""
    return iter(())


@dataclass(frozen=True)
class LibraryCall:
    """One family of calls."""

    lower: Mapping[str, Lower]
    """By type of device: `(lowering, node, primitive, arguments)` -> the boxes of the results; None where there is no such call."""
    cpp: Callable[[Extern, Program, Pointer], list[str]] | None = None
    """C++ that makes the call; None for a loop, whose step is a function of the unit."""
    cuda: Callable[[Any, int, Extern], Step] | None = None
    """The step number so and so of a call on a GPU, which writes into given buffers; `look` of the first argument sees a view as an array."""
    wrongs: Callable[[Extern], Iterator[str]] = field(default=nothing_wrong)
    """What is wrong with the layouts and types of the operands."""
    fast: Callable[[Extern], bool] | None = None
    """Of calls that take an epilogue: whether there is a fast kernel for all of it, right on every number."""
