"""The engine: walks the tape from the outputs to the leaves, adding up gradients on the way."""

from __future__ import annotations

import heapq
import inspect
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Container, Sequence
from contextlib import ContextDecorator
from typing import Any

from ..core import dispatch
from ..core.dtypes import promote_types
from ..core.size import is_dense
from ..core.sparse import SparseTensor
from ..core.tensor import AutogradMeta, Tensor, is_example, shape_of
from ..core.watching import watched
from ..ops.order import in_rows, like
from ..ops.registry import PRIMITIVES
from .graph import AccumulateGrad, Edge, GradientEdge, Node, Output, Settings, bare, edge_of, retain
from .handles import RemovableHandle


class _Callbacks:
    """Functions to run at the end of the backward pass in progress (DDP's final reduction, for one)."""

    queued: list[Callable[[], None]] = []


def queue_callback(fn: Callable[[], None]) -> None:
    """Run `fn` once when the current backward pass has ended."""
    _Callbacks.queued.append(fn)


_numbers = itertools.count()


class _Pass:
    """A backward pass under way: what is still to come, and the node that runs."""

    def __init__(self, counts: dict[Node, int], buffers: dict[Node, list], targets: dict[Node, set[int]] | None,
                 accumulate: Callable[[AccumulateGrad, Tensor], None] | None) -> None:
        self.counts, self.buffers, self.targets, self.accumulate = counts, buffers, targets, accumulate
        self.node: Node | None = None
        self.number = next(_numbers)

    def ends_with(self, node: Node) -> bool:
        """Whether what the running node sends to this one is all that it gets, and is accumulated as it is."""
        assert self.node is not None
        if self.node.post_hooks or node.pre_hooks or self.accumulate is not _accumulate:
            return False
        return self.counts.get(node) == 1 and node not in self.buffers and (self.targets is None or node in self.targets)


class _Passes(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Pass] = []


_passes = _Passes()


def current_pass() -> int:
    """The number of the backward pass under way in this thread; -1 where none is."""
    return _passes.stack[-1].number if _passes.stack else -1


def completes(leaves: Sequence[Tensor]) -> bool:
    """To a node that runs in a backward pass: whether these leaves' `.grad` will be what it computes for them and nothing else, as
    none have one yet, no other node sends them something, and no hook changes it."""
    if len(_passes.stack) != 1:     # a pass within another: the outer one may send more
        return False
    current = _passes.stack[0]
    return all((edge := edge_of(leaf)) is not None and leaf.grad is None and current.ends_with(edge.node) for leaf in leaves)


class Resumed:
    """The nodes that a pass still sends gradients to: all but those which an earlier one has `done`. It may start from these; hooks of the
    `hooked` have seen what it starts with."""

    def __init__(self, done: set[Node], hooked: set[Node]) -> None:
        self.done, self.hooked = done, hooked

    def __contains__(self, node: object) -> bool:
        return node not in self.done


def run_backward(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    *,
    inputs: Sequence[Tensor] | None,
    retain_graph: bool,
    create_graph: bool,
    accumulate: bool,
    resumed: Resumed | None = None,
) -> list[Tensor | None]:
    """Gradients of sum(root * grad) with respect to `inputs` (returned), or accumulated in the leaves' `.grad`.

    `resumed`: what an earlier pass has done (halves.py)."""
    start = [_root_edge(root) for root in roots]
    buffers: dict[Node, list] = {}
    for root, edge, grad in zip(roots, start, grads):
        _add(buffers, edge, _seed(root, grad))
    targets = _targets(inputs)
    counts, reaching = _dependencies([e.node for e in start], targets)
    useful: Container[Node] | None = reaching if resumed is None else resumed
    if reaching is not None:
        buffers = {node: gs for node, gs in buffers.items() if node in reaching}
    captured: dict[tuple[Node, int], Tensor] = {}
    _passes.stack.append(current := _Pass(counts, buffers, targets, _accumulate if accumulate else None))
    with dispatch.grad_enabled(create_graph):
        try:
            _walk(start, current, useful, captured, retain_graph, () if resumed is None else resumed.hooked)
        finally:
            _passes.stack.pop()
        while _Callbacks.queued:    # one may queue others
            callbacks, _Callbacks.queued = _Callbacks.queued, []
            for callback in callbacks:
                callback()
    if inputs is None:
        return []
    return [_captured(t, captured) for t in inputs]


def _captured(t: Tensor, captured: dict) -> Tensor | None:
    edge = edge_of(t)
    return None if edge is None else captured.get((edge.node, edge.nr))


def _root_edge(root: Tensor) -> Edge:
    edge = edge_of(root)
    if edge is None:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    return edge


def _seed(place: Tensor | GradientEdge, grad: Tensor | None) -> Tensor:
    root = place.ownership_token if isinstance(place, GradientEdge) else place
    if root is None:
        if grad is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs: get_gradient_edge(tensor) tells of which shape "
                               "an output is, a GradientEdge of a node and a number does not; pass its gradient")
        return grad
    if grad is not None:
        if grad.shape != root.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[0] has a shape of {grad.shape} and output[0] has a shape of {root.shape}."
            )
        if grad.dtype.is_complex != root.dtype.is_complex:
            raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                               f"grad_output[0] has a dtype of {grad.dtype} and output[0] has a dtype of {root.dtype}.")
        return grad if grad.dtype is root.dtype else grad.to(root.dtype)
    if root.shape.numel() != 1:
        raise RuntimeError(
            f"grad can be implicitly created only for scalar outputs (this output has shape {list(root.shape)}; pass its gradient)"
        )
    if root.dtype.category != 2:
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {root.dtype}")
    if root is not place:
        return PRIMITIVES["full"](tuple(root.shape), 1, root.dtype, root.device)
    if type(root) is Tensor:
        return root.detach().new_full(root.shape, 1)
    with dispatch.classes_off():
        return root.detach().new_full(root.shape, 1)


def _targets(inputs: Sequence[Tensor] | None) -> dict[Node, set[int]] | None:
    if inputs is None:
        return None
    targets: dict[Node, set[int]] = {}
    for t in inputs:
        edge = edge_of(t)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        targets.setdefault(edge.node, set()).add(edge.nr)
    return targets


def _dependencies(roots: list[Node], targets: dict | None) -> tuple[dict[Node, int], set[Node] | None]:
    """How many edges lead into each reachable node; and with targets, the nodes from which one can be reached."""
    counts: dict[Node, int] = {}
    order: list[Node] = []
    reached: set[Node] = set(roots)
    stack = list(reached)
    while stack:
        node = stack.pop()
        order.append(node)
        for edge in node.edges:
            if edge is not None:
                child = edge[0]
                if child in counts:
                    counts[child] += 1
                else:
                    counts[child] = 1
                    if child not in reached:
                        reached.add(child)
                        stack.append(child)
    if targets is None:
        return counts, None
    useful: set[Node] = set(targets)
    parents: dict[Node, list[Node]] = {}
    for node in order:
        for edge in node.edges:
            if edge is not None:
                parents.setdefault(edge[0], []).append(node)
    stack = list(useful)
    while stack:
        for node in parents.get(stack.pop(), ()):
            if node not in useful:
                useful.add(node)
                stack.append(node)
    return counts, useful


def _walk(
    start: list[Edge],
    current: _Pass,
    useful: Container[Node] | None,
    captured: dict,
    retain_graph: bool,
    hooked: Container[Node] = (),
) -> None:
    counts, buffers, targets, accumulate = current.counts, current.buffers, current.targets, current.accumulate
    ready = [(-n.sequence, id(n), n) for n in {e.node for e in start} if not counts.get(n)]
    heapq.heapify(ready)
    while ready:
        _, _, node = heapq.heappop(ready)
        gs = buffers.pop(node, None)
        if gs is not None:
            if node.pre_hooks and node not in hooked:
                gs = _run_pre_hooks(node, gs)
            if targets is not None and node in targets:
                for nr in targets[node]:
                    if nr < len(gs) and gs[nr] is not None:
                        captured[node, nr] = gs[nr]
            if type(node) is AccumulateGrad:
                if accumulate is not None and (targets is None or node in targets):
                    taken = tuple(gs) if node.post_hooks else None
                    g = gs[0]
                    gs = None
                    if dispatch.state.watchers:
                        box = [g]
                        del g
                        watched(_ENGINE + node.name(), _accumulate_watched, (accumulate, node, box), None, 2, -1, ())
                    else:
                        accumulate(node, g)
                        del g
                    if taken is not None:
                        _run_post_hooks(node, [], taken)
            elif useful is None or any(wanted := [e is not None and e[0] in useful for e in node.edges]):
                if useful is not None:
                    node.wanted = wanted
                if node.knows_last:
                    node.last = not retain_graph    # type: ignore[attr-defined]
                current.node = node
                if dispatch.state.watchers:
                    watched(_ENGINE + node.name(), _send, (node, gs, buffers), None, 2, node.sequence, ())
                else:
                    _send(node, gs, buffers)
                if useful is not None:
                    del node.wanted
                if not retain_graph:
                    node.release()
        for edge in node.edges:
            if edge is not None:
                child = edge[0]
                counts[child] -= 1
                if not counts[child]:
                    heapq.heappush(ready, (-child.sequence, id(child), child))


_ENGINE = "autograd::engine::evaluate_function: "


def _accumulate_watched(accumulate: Callable[[AccumulateGrad, Tensor], None], node: AccumulateGrad, box: list[Tensor]) -> None:
    watched(node.name(), lambda: accumulate(node, box.pop()), (), None, 1, -1, box)     # the box: nobody else may hold the gradient (_own)


def _send(node: Node, gs: list, buffers: dict) -> None:
    """Run one node and pass its gradients on along the edges."""
    for g in gs:
        if g is not None:
            break
    else:
        return
    if dispatch.state.watchers:
        grads = watched(node.name(), _apply, (node, gs), None, 1, node.sequence, gs)
    else:
        grads = _apply(node, gs)
    if node.post_hooks:
        grads = _run_post_hooks(node, grads, tuple(gs))
    if node.wanted is not None:
        grads = [grad if wanted else None for grad, wanted in zip(grads, node.wanted)]
    for edge, grad in zip(node.edges, grads):
        if edge is not None and grad is not None:
            _add(buffers, edge, _fit(grad, edge, node))


def _run_post_hooks(node: Node, grads: list, taken: tuple) -> list:
    for hook in list(node.post_hooks.values()):  # type: ignore[union-attr]
        answer = hook(tuple(grads), taken)
        if answer is not None:
            grads = list(answer)
    return grads


def _apply(node: Node, gs: list) -> list:
    try:
        return _checked(node, node.apply(gs))
    except Exception:
        if node.trace is not None:
            warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
                          f"{''.join(node.metadata['traceback_'])}", stacklevel=2)
        elif Settings.anomaly:
            warnings.warn(f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during forward "
                          "pass for more information.", stacklevel=2)
        raise


def _checked(node: Node, grads: list) -> list:
    if Settings.anomaly and Settings.check_nan:
        for i, g in enumerate(grads):
            if g is not None and g.dtype.category >= 2 and not g.is_fake and bool(g.isnan().any()):
                raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
    return grads


def _fit(grad: Tensor, edge: Edge, node: Node) -> Tensor:
    """`grad` in the dtype and shape of the tensor it belongs to; an error names the node that got it wrong."""
    to, nr = edge
    specs = to.output_specs
    spec: Output | None = specs[nr] if nr < len(specs) else None
    if spec is None:
        return grad
    if shape_of(grad) != spec.shape:
        if not _expandable(spec.shape, grad.shape):
            raise RuntimeError(
                f"Function {node.name()} returned an invalid gradient at index {edge.nr} - got "
                f"{list(grad.shape)} but expected shape compatible with {list(spec.shape)}"
            )
        grad = grad.sum_to_size(spec.shape)
    if grad.dtype is not spec.dtype:
        if grad.dtype.is_complex and not spec.dtype.is_complex:
            grad = grad.real
        if grad.dtype is not spec.dtype:
            grad = grad.to(spec.dtype)
    return grad


def _expandable(small: Sequence, large: Sequence) -> bool:
    if len(small) > len(large):
        return False
    return all(s == 1 or s == n for s, n in zip(reversed(small), reversed(large)))


def _add(buffers: dict, edge: Edge, grad: Tensor) -> None:
    node, nr = edge
    slots = buffers.get(node)
    if slots is None:
        slots = buffers[node] = [None] * max(len(node.output_specs), 1)
    have = slots[nr]
    slots[nr] = grad if have is None else _plus(have, grad)


def _plus(have: Tensor, grad: Tensor) -> Tensor:
    if type(have) is SparseTensor:
        return grad + have      # in this order whatever the other is: a sparse tensor may be added to any
    return have + grad if have.dtype is grad.dtype else have.to(kind := promote_types(have.dtype, grad.dtype)) + grad.to(kind)


def _run_pre_hooks(node: Node, gs: list) -> list:
    hooks = list(node.pre_hooks.values())  # type: ignore[union-attr]
    for hook in sorted(hooks, key=_turn):
        nr = getattr(hook, "_output_nr", None)
        if nr is None:
            answer = hook(tuple(gs))
            if answer is not None:
                if not isinstance(answer, (tuple, list)):
                    raise TypeError(f"expected tuple, but hook returned '{type(answer).__name__}'")
                gs = list(answer)
        elif gs[nr] is not None:
            answer = hook(gs[nr])
            if answer is not None:
                _check_replaced(hook, gs[nr], answer)
                gs[nr] = answer
    return gs


def _turn(hook: Callable) -> int:
    """Hooks of tensors come first, then the node's own; what is retained is what they leave."""
    return 1 if hasattr(hook, "_retains") else 0 if hasattr(hook, "_output_nr") else 2


def _check_replaced(hook: Callable, before: Tensor, after: Any) -> None:
    """What a tensor's hook puts in a gradient's place is one of the same shape and dtype."""
    if not isinstance(after, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}'")
    name = getattr(inspect.unwrap(hook), "__name__", "?")
    if after.shape != before.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value: it was {list(before.shape)} and is {list(after.shape)}")
    if after.dtype is not before.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {before.type()} got {after.type()})")


def _accumulate(node: AccumulateGrad, g: Tensor) -> None:
    leaf = node.variable
    if is_example(g):
        raise RuntimeError("backward() within vmap: the gradients of the examples have no place in one tensor's .grad; use "
                           "torch.func.grad, or torch.autograd.grad")
    meta = leaf._grad
    if meta is None:
        meta = leaf._grad = AutogradMeta(True)
    if meta.grad is None:
        meta.grad = g if dispatch.state.grad_enabled and g.requires_grad else _own(g)
        if not _lies_alike(meta.grad, leaf):
            meta.grad = _laid_as(meta.grad, leaf)
    elif dispatch.state.grad_enabled or type(meta.grad) is SparseTensor:
        meta.grad = _plus(meta.grad, g)
    else:
        meta.grad.add_(g)
    if meta.post_accumulate_hooks:
        for hook in list(meta.post_accumulate_hooks.values()):
            returned = hook(leaf)
            if isinstance(returned, Tensor):
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
            if returned is not None:
                raise TypeError(f"expected Variable, but hook returned '{type(returned).__name__}'")


class _Policy(threading.local):
    enforced = True


_policy = _Policy()


class enforce_grad_layout_policy(ContextDecorator):
    """Whether a leaf's first gradient is brought to lie as the leaf does, where that is without gaps, else in rows; from here on, or as a
    context manager. `enable=False`: it stays as it comes, which saves a copy. Of this thread."""

    def __init__(self, enable: bool = True) -> None:
        self.before = _policy.enforced
        _policy.enforced = bool(enable)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        _policy.enforced = self.before


def _lies_alike(g: Tensor, leaf: Tensor) -> bool:
    if type(g) is SparseTensor or type(leaf) is SparseTensor:   # none lies in one array
        return True
    a, b = g._data, leaf._data
    if a is not None and b is not None and a.flags.c_contiguous and b.flags.c_contiguous:
        return True
    return g._layout.strides == leaf._layout.strides or not _policy.enforced


def _laid_as(g: Tensor, leaf: Tensor) -> Tensor:
    shape, strides, _ = leaf._layout
    return like(g, leaf) if is_dense(shape, strides) else in_rows(g)


_OWNED = 4  # references to a gradient nobody else holds: variables of _walk, _accumulate and _own, getrefcount's argument


def _own(g: Tensor) -> Tensor:
    """`g` itself if nobody else can see its memory, else a copy: `.grad` is written in place by users and optimizers."""
    if type(g) is SparseTensor:
        return g.clone()
    plain = g._view is None and g._grad is None
    if plain and g._store is None and sys.getrefcount(g) <= _OWNED:
        return g
    return g.clone() if plain else bare(g).clone()  # an alias asks for the storage, and the next leaf would copy it too


def tensor_hook(tensor: Tensor, hook: Callable) -> RemovableHandle:
    """Register `hook(grad)` on a tensor: on its node's output, or on the sink of a leaf."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")

    def call(grad: Tensor) -> Any:
        return hook(grad)

    call._output_nr, call.__wrapped__ = edge.nr, hook  # type: ignore[attr-defined]
    if edge.node.pre_hooks is None:
        edge.node.pre_hooks = {}
    if isinstance(edge.node, AccumulateGrad):
        tensor._grad.hooks = {**(tensor._grad.hooks or {}), id(edge.node): edge.node}  # type: ignore[union-attr]
    return RemovableHandle(edge.node.pre_hooks, call)


def retain_grad(tensor: Tensor) -> None:
    """Make backward leave the gradient of a non-leaf in its `.grad`."""
    if tensor.is_leaf:
        if not tensor.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        return
    if not tensor._grad.retains_grad:  # type: ignore[union-attr]
        retain(tensor)
