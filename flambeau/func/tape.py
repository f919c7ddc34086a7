"""What transforms do on the tape. Capture puts a call of these into the graph whole and traces through everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd import engine
from ..autograd.batched import levels, lowered, raised, stripped
from ..autograd.graph import AccumulateGrad, Node, edge_of
from ..core import dispatch
from ..core.tensor import Tensor, no_view


class recording(dispatch.scope):
    """`with recording():` the tape runs, and compiled functions run operator by operator: their gradients have no gradients.
    `randomness="error"`: nobody draws random numbers (in captured code they do)."""

    def __new__(cls, randomness: str = "same") -> recording:
        if randomness == "error":
            return super().__new__(cls, (*dispatch.state.modes, _WithoutDraws()), 1, grad=True)
        return super().__new__(cls, word=1, grad=True)


class _WithoutDraws:
    def handle(self, prim: Any, args: tuple) -> Any:
        return dispatch.run(prim, args)

    def rng_state(self, count: Any, where: Any, generator: Any) -> None:
        raise RuntimeError("jacfwd: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                           "randomness flags on jacfwd or perform the randomness operation out of it")


def fresh(x: Tensor) -> Tensor:
    """A tensor to differentiate by: the same values, connected to what `x` came from. Within vmap, each example has its own."""
    through = levels()
    if through:
        return raised(_fresh(lowered(x, through)), through)
    return _fresh(x)


def _fresh(x: Tensor) -> Tensor:
    return x.view_as(x) if x.requires_grad else dispatch.carried(x, x.detach()).requires_grad_()


def opened(x: Tensor) -> Tensor:
    """A fresh tensor as a function may write to it: the same memory, neither a leaf nor a view of one."""
    through = levels()
    return raised(_opened(lowered(x, through)), through) if through else _opened(x)


def _opened(x: Tensor) -> Tensor:
    return no_view(x.view_as(x))


def leaf(x: Tensor) -> Tensor:
    """What `x.requires_grad_()` makes of a tensor of a captured function."""
    return fresh(x)


def gradients(outs: Sequence[Any], seeds: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients with a graph of their own; zeros where nothing flows."""
    through = stripped(inputs[0])[1] if inputs else ()
    if through:
        def behind(values: Sequence[Any]) -> list[Any]:
            return [lowered(v, through) if isinstance(v, Tensor) else v for v in values]

        return [raised(g, through) for g in _gradients(behind(outs), behind(_seeds(outs, seeds)), behind(inputs))]
    return _gradients(outs, seeds, inputs)


def _seeds(outs: Sequence[Any], seeds: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [o.detach().new_full(o.shape, 1) if s is None and isinstance(o, Tensor) else s for o, s in zip(outs, seeds, strict=True)]


def _gradients(outs: Sequence[Any], seeds: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> list[Tensor]:
    pairs = [(o, s) for o, s in zip(outs, seeds) if isinstance(o, Tensor) and o.requires_grad]
    if not pairs:
        return [x.new_zeros(x.shape) for x in inputs]
    found = engine.run_backward([o for o, _ in pairs], [s for _, s in pairs], inputs=inputs, retain_graph=True,
                                create_graph=True, accumulate=False)
    return [x.new_zeros(x.shape) if g is None else g for x, g in zip(inputs, found)]


def derived(outs: Sequence[Any], seeds: Sequence[Tensor | None], inputs: Sequence[Tensor], retain_graph: bool,
            create_graph: bool) -> list[Tensor | None]:
    """What `torch.autograd.grad` gives in a captured function; None where nothing flows."""
    return engine.run_backward(list(outs), list(seeds), inputs=inputs, retain_graph=retain_graph, create_graph=create_graph,
                               accumulate=False)


def is_freed(result: Tensor) -> bool:
    """Has the history of a tensor, or a part of it, been freed by an earlier backward pass?"""
    return any(node.is_freed() for node in _nodes_behind(result))


def independent(outs: Sequence[Any], inputs: Sequence[Tensor]) -> bool:
    """Whether one of the results has nothing to do with the fresh `inputs`."""
    return any(not isinstance(o, Tensor) or not depends(o, inputs) for o in outs)


def depends(result: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Has a result one of the fresh `inputs` in its history?"""
    own = {edge.node for x in inputs if (edge := edge_of(stripped(x)[0])) is not None}
    return not own.isdisjoint(_nodes_behind(stripped(result)[0]))


def _nodes_behind(result: Tensor) -> set[Node]:
    edge = edge_of(result) if result.requires_grad else None
    stack, seen = [] if edge is None else [edge.node], set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += [edge.node for edge in node.edges if edge is not None]
    return seen


def released(results: Sequence[Any], inputs: Sequence[Tensor]) -> list[Any]:
    """A transform's results for its caller: with their graph if it leads to anything but the fresh `inputs`, or else without."""
    own = {edge.node for x in inputs if (edge := edge_of(stripped(x)[0])) is not None}
    done: set[Node] = set()
    return [dispatch.carried(r, r.detach())
            if isinstance(r, Tensor) and stripped(r)[0].requires_grad and not _leads_out(stripped(r)[0], own, done) else r
            for r in results]


def _leads_out(result: Tensor, own: set[Node], done: set[Node]) -> bool:
    """Does the graph reach a leaf that isn't one of `own`? `done` holds nodes from which it doesn't."""
    edge = edge_of(result)
    if edge is None or not dispatch.state.grad_enabled:
        return False
    stack, seen = [edge.node], set(done)
    while stack:
        node = stack.pop()
        if isinstance(node, AccumulateGrad) and node not in own:
            return True
        if node not in seen:
            seen.add(node)
            stack += [edge.node for edge in node.edges if edge is not None]
    done |= seen
    return False
