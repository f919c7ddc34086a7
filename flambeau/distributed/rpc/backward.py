"""Distributed autograd: gradients through the graphs of several processes.

A backward pass has two halves. First the roots' process looks for messages that its graph reaches, and asks their senders to look on;
so each process knows which of its messages take part, and how many edges lead into each of its nodes. Then gradients flow: a
process's engine goes on when a message's gradients come back, and stops at nodes that wait for others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from flambeau import _C

from ...autograd.engine import _dependencies, _Pass, _seed, _walk
from ...autograd.graph import Edge, Node, edge_of
from ...core import dispatch
from ...core.tensor import Tensor
from ...futures import Future, collect_all
from . import gradients
from .calls import Here, agent, call
from .functions import async_execution

_passes = count()


def _received(nodes: Iterable[Node]) -> list[gradients.RecvRpcBackward]:
    return [node for node in nodes if isinstance(node, gradients.RecvRpcBackward)]


def _all(futures: list[Future]) -> Future:
    """A future that is complete when these are; with the first exception of theirs."""
    return collect_all(futures).then(lambda done: [future.wait() for future in done.wait()] and None)


def _look(context: gradients.Context, number: int, roots: Sequence[Node]) -> Future:
    """Tell the senders of what these roots reach; a future of their having told theirs."""
    by_sender: dict[Any, list[int]] = {}
    for node in _received({**dict.fromkeys(roots), **_dependencies(list(roots), None)[0]}):
        by_sender.setdefault(node.sender, []).append(node.message)
    return _all([call(who, _take_part, (context.id, number, messages)) for who, messages in by_sender.items()])


@async_execution
def _take_part(context_id: int, number: int, messages: list[int]) -> Future:
    """These messages of this process take part in a pass."""
    context = gradients.known(context_id)
    with context.lock:
        walk = context.walks.setdefault(number, gradients.Walk())
        new = [message for message in messages if message not in walk.messages]
        walk.messages.update(new)
        roots = [context.sent[message] for message in new]
    with gradients.within(None):
        return _look(context, number, roots)


def _go_on(context: gradients.Context, number: int, start: list[Edge], grads: list, roots: list[Node], retain: bool) -> Future:
    """Walk as far as these gradients allow, and send on what leaves; a future of the others' having done so."""
    with context.lock, dispatch.grad_enabled(False):
        walk = context.walks.setdefault(number, gradients.Walk())
        if walk.counts is None:
            every = [*roots, *(context.sent[message] for message in walk.messages)]
            walk.counts = _dependencies(every, None)[0]
            walk.waited_for = _received({**dict.fromkeys(every), **walk.counts})
        for edge, grad in zip(start, grads):
            if grad is not None:
                _C.add_gradient(walk.buffers, edge, grad)
        under_way = _Pass(walk.counts, walk.buffers, None, lambda node, g: gradients.accumulate(context, node, g))
        _walk(start, under_way, None, {}, retain)
        ended = [node for node in walk.waited_for if not walk.counts.get(node)]
        walk.waited_for = [node for node in walk.waited_for if walk.counts.get(node)]
        leaving = [(node, context.leaving.pop(node, [])) for node in ended]  # none came: others still count on hearing so
    with gradients.within(None):
        return _all([call(node.sender, _gradients_of, (context.id, number, node.message, gs, retain)) for node, gs in leaving])


@async_execution
def _gradients_of(context_id: int, number: int, message: int, gs: list, retain: bool) -> Future:
    """The gradients of what this process sent in `message`."""
    context = gradients.known(context_id)
    node = context.sent[message]
    gs = [*gs, *[None] * (len(node.edges) - len(gs))]
    return _go_on(context, number, [Edge(node, nr) for nr in range(len(gs))], gs, [], retain)


def backward(context_id: int, roots: list[Tensor], retain_graph: bool = False) -> None:
    """Gradients of the sum of `roots`, tensors of one element, wherever in the job their leaves are: there `get_gradients(context_id)`
    has them. Leaves' `.grad` stays as it is."""
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError(f"Roots for distributed autograd should be scalars, found one of shape {list(root.shape)}")
    here = agent()
    context, number = gradients.known(context_id), (here.me.id << 48) + next(_passes)
    edges: list[Edge] = [edge_of(root) for root in roots]  # type: ignore[misc]
    nodes = list(dict.fromkeys(edge.node for edge in edges))
    with gradients.within(None):
        _look(context, number, nodes).wait()
        _go_on(context, number, edges, [_seed(root, None) for root in roots], nodes, retain_graph).wait()


def _forget(context_id: int, asker: int) -> None:
    """Let go of a context, and let those do so that heard of it here."""
    for rank in gradients.forget(context_id) - {asker, agent().me.id}:
        call(rank, _forget, (context_id, agent().me.id))


@contextlib.contextmanager
def context() -> Iterator[int]:
    """What calls carry within the block belongs to one backward pass, whose context has this id: each process keeps what it
    sends until the end of the block."""
    agent()
    number = gradients.new_context()
    try:
        with gradients.within(number):
            yield number
    finally:
        if Here.agent is not None:
            _forget(number, -1)
        else:
            gradients.forget(number)
