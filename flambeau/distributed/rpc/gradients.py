"""A process's part of distributed autograd: what it sent and received within a context, and the gradients of its leaves.

A tensor that needs a gradient leaves its history behind when it travels: here stands a `SendRpcBackward`, into whose outputs gradients
come from the other side; there a `RecvRpcBackward`, which ends that side's graph. `backward.py` lets the processes' graphs work together.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ...autograd.graph import Node, _spec, bare, edge_of
from ...core import locks
from ...core.tensor import AutogradMeta, Tensor
from .options import WorkerInfo

_BITS = 48  # of an id: its number; above them stands the rank of its maker


class SendRpcBackward(Node):
    """Tensors that left for another process: gradients come back here."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__([edge_of(t) for t in tensors])
        self.output_specs = tuple(_spec(t) for t in tensors)

    def apply(self, gs: list) -> list:
        return gs


class RecvRpcBackward(Node):
    """Tensors that came from another process: their gradients go back."""

    def __init__(self, context: Context, sender: WorkerInfo, message: int) -> None:
        super().__init__([])
        self.context, self.sender, self.message = context, sender, message

    def attach(self, tensor: Tensor, nr: int) -> Tensor:
        """`tensor` as output `nr` of this node."""
        made = bare(tensor)
        made._grad = AutogradMeta(False, self, nr)
        missing = nr + 1 - len(self.output_specs)
        self.output_specs += (None,) * missing
        self.output_specs = (*self.output_specs[:nr], _spec(tensor), *self.output_specs[nr + 1 :])
        return made

    def apply(self, gs: list) -> list:
        self.context.leaving[self] = gs
        return []


@dataclass
class Walk:
    """One backward pass in this process: the messages that take part, how far the engine is, and where it has not come yet of the
    nodes whose gradients others wait for."""

    messages: set[int] = field(default_factory=set)
    buffers: dict = field(default_factory=dict)
    counts: dict | None = None
    waited_for: list[RecvRpcBackward] = field(default_factory=list)


class Context:
    """What one `with dist_autograd.context()` keeps in this process."""

    def __init__(self, number: int) -> None:
        self.id, self.known, self.sent = number, set[int](), dict[int, SendRpcBackward]()
        self.grads: dict[Tensor, Tensor] = {}
        self.walks: dict[int, Walk] = {}
        self.leaving: dict[RecvRpcBackward, list] = {}
        self.lock = locks.lock()


class _Here(threading.local):
    """The context in which this thread is."""

    context: int | None = None


class _Contexts:
    rank = 0
    open: dict[int, Context] = {}
    numbers, messages = count(), count()
    lock = locks.lock()


_here = _Here()


def begin(rank: int) -> None:
    """Ids are this process's from now on; contexts of an earlier job are gone."""
    _Contexts.rank = rank
    _Contexts.open.clear()


def new_message() -> int:
    """The id of a message that no other has."""
    return (_Contexts.rank << _BITS) + next(_Contexts.messages)


def current() -> Context | None:
    """The context of this thread."""
    return None if _here.context is None else of(_here.context)


def of(number: int) -> Context:
    """The context of this id, made if this process meets it for the first time."""
    with _Contexts.lock:
        if number not in _Contexts.open:
            _Contexts.open[number] = Context(number)
        return _Contexts.open[number]


def known(number: int) -> Context:
    """The context of this id; RuntimeError if there is none (any more)."""
    found = _Contexts.open.get(number)
    if found is None:
        raise RuntimeError(f"Could not find autograd context with id: {number}; a context ends with its `with` block")
    return found


def forget(number: int) -> set[int]:
    """Let go of a context; the workers that know of it too."""
    gone = _Contexts.open.pop(number, None)
    return set() if gone is None else gone.known


@contextlib.contextmanager
def within(number: int | None) -> Iterator[None]:
    """This thread works in this context."""
    before, _here.context = _here.context, number
    try:
        yield
    finally:
        _here.context = before


def new_context() -> int:
    """The id of a new one; RuntimeError within another."""
    if _here.context is not None:
        raise RuntimeError("Already have an autograd context id for this thread")
    return of((_Contexts.rank << _BITS) + next(_Contexts.numbers)).id


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """{leaf: gradient} of what `backward` accumulated in this process within the context."""
    return dict(known(context_id).grads)


def accumulate(context: Context, node: Any, g: Tensor) -> None:
    """Add to the gradient that the context has of a leaf."""
    have = context.grads.get(node.variable)
    context.grads[node.variable] = g.detach().clone() if have is None else have + g

