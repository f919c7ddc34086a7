"""Gradients that somebody wants before a compiled backward ends: each group of them as soon as it is computed.

Who wants them stands in `here.receiver` while the program is called. Its groups are part of what the program is compiled for: behind the
gradients of a group the backward graph calls an operator of the receiver's, whose result is one more output that nobody reads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from flambeau.core.tensor import Tensor


class Group(NamedTuple):
    """Inputs whose gradients are wanted together, by their places; `number` and `receiver` say to the operator which they are."""

    receiver: int
    number: int
    places: tuple[int, ...]


class Receiver(Protocol):
    """Who wants gradients."""

    def groups(self, inputs: Sequence[Any]) -> tuple[Group, ...]:
        """The groups all of whose tensors are among `inputs`, in the order in which they are wanted."""

    def tell(self, group: Group, gradients: list[Tensor]) -> Tensor:
        """The call that a graph holds: it hands the gradients over."""


class _Here(threading.local):
    receiver: Receiver | None = None


here = _Here()


@contextmanager
def wanted_by(receiver: Receiver) -> Iterator[None]:
    """In the block compiled programs tell `receiver` of the gradients that they will have."""
    before, here.receiver = here.receiver, receiver
    try:
        yield
    finally:
        here.receiver = before
