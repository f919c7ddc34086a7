"""The engine: walks the tape from the outputs to the leaves, adding up gradients on the way."""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ContextDecorator
from typing import Any, NamedTuple

from flambeau import _C

from ..core import dispatch
from ..core.dtypes import promote_types
from ..core.forms import FormTensor
from ..core.size import Size, is_dense
from ..core.sparse import SparseTensor
from ..core.tensor import AutogradMeta, Tensor, is_example, shape_of
from ..core.watching import watched
from ..ops.order import in_rows, like
from ..ops.registry import PRIMITIVES
from . import graph
from .graph import AccumulateGrad, Edge, GradientEdge, Node, Output, Settings, bare, edge_of, retain
from .handles import RemovableHandle


class _Callbacks:
    """Functions to run at the end of the backward pass in progress (DDP's final reduction, for one)."""

    queued: list[Callable[[], None]] = []


def queue_callback(fn: Callable[[], None]) -> None:
    """Run `fn` once when the current backward pass has ended. RuntimeError where none is under way."""
    if not _passes.stack:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    _Callbacks.queued.append(fn)


_numbers = itertools.count()


class _Pass:
    """A backward pass under way: what is still to come, and the node that runs."""

    def __init__(self, counts: dict[Node, int], buffers: dict[Node, list], targets: dict[Node, set[int]] | None,
                 accumulate: Callable[[AccumulateGrad, Tensor], None] | None, hooked: AbstractSet[Node] = frozenset()) -> None:
        self.hooked = hooked    # whose hooks have run
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


def _is_checkpoint_valid() -> bool:
    """Whether the passes under way in this thread go to all leaves: one that was asked for some inputs' gradients would miss others', of
    what a node runs again and goes back through by itself."""
    return all(running.targets is None for running in _passes.stack)


def completes(leaves: Sequence[Tensor]) -> bool:
    """To a node that runs in a backward pass: whether these leaves' `.grad` will be what it computes for them and nothing else, as
    none have one yet, no other node sends them something, and no hook changes it."""
    if len(_passes.stack) != 1:     # a pass within another: the outer one may send more
        return False
    current = _passes.stack[0]
    return all((edge := edge_of(leaf)) is not None and leaf.grad is None and current.ends_with(edge.node) for leaf in leaves)


class Resumed(NamedTuple):
    """What an earlier pass has `done`: these nodes get no gradients any more, but a pass may start from them, and hooks of the `hooked` have
    seen what it starts with."""

    done: set[Node]
    hooked: set[Node]


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
        _C.add_gradient(buffers, edge, _seed(root, grad))
    targets = _targets(inputs)
    counts, useful = _dependencies([e.node for e in start], targets)
    if useful is not None:
        buffers = {node: gs for node, gs in buffers.items() if node in useful}
    if resumed is not None:
        useful = counts.keys() - resumed.done
    captured: dict[tuple[Node, int], Tensor] = {}
    current = _Pass(counts, buffers, targets, _accumulate if accumulate else None, frozenset() if resumed is None else resumed.hooked)
    with dispatch.grad_enabled(create_graph):
        _passes.stack.append(current)
        try:
            _walk(start, current, useful, captured, retain_graph)
        finally:
            _passes.stack.pop()
        while _Callbacks.queued:    # one may queue others
            callbacks, _Callbacks.queued = _Callbacks.queued, []
            for callback in callbacks:
                callback()
    if inputs is None:
        return []
    if accumulate:
        _accumulate_in_results(inputs, captured)
    return [_captured(t, captured) for t in inputs]


def _accumulate_in_results(inputs: Sequence[Tensor], captured: dict) -> None:
    """What backward was asked for by results of the graph, added to their `.grad` as to that of leaves."""
    for t in {id(t): t for t in inputs}.values():
        if isinstance(t, Tensor) and (meta := t._grad) is not None and meta.grad_fn is not None and not meta.retains_grad \
                and (g := _captured(t, captured)) is not None:
            meta.grad = g if meta.grad is None else _plus(meta.grad, g)


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
        if not isinstance(grad, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
        if shape_of(grad) != shape_of(root):
            raise RuntimeError(
                f"Mismatch in shape: grad_output[0] has a shape of {Size(shape_of(grad))} and output[0] has a shape of {Size(shape_of(root))}."
            )
        if grad.dtype.is_complex != root.dtype.is_complex:
            raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                               f"grad_output[0] has a dtype of {grad.dtype} and output[0] has a dtype of {root.dtype}.")
        return grad if grad.dtype is root.dtype else grad.to(root.dtype)
    if root.numel() != 1:
        raise RuntimeError(
            f"grad can be implicitly created only for scalar outputs (this output has shape {list(shape_of(root))}; pass its gradient)"
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
    counts, order = _C.dependencies(set(roots))
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
    useful: set[Node] | None,
    captured: dict,
    retain_graph: bool,
) -> None:
    """Run what is ready and what becomes so, the last recorded first. Gradients are plain tensors to what is run `plainly`."""
    counts = current.counts
    ready = [n for n in {e.node for e in start} if not counts.get(n)]
    plainly = not Settings.anomaly and not (dispatch.override_classes and not dispatch.state.classes_off)
    _C.walk(ready, counts, current.buffers, current.targets, current.accumulate, useful, captured, retain_graph, plainly, current)


def _capture(captured: dict, node: Node, numbers: set[int], gs: list) -> None:
    for nr in numbers:
        if nr < len(gs) and gs[nr] is not None:
            captured[node, nr] = gs[nr]


_ENGINE = "autograd::engine::evaluate_function: "


def _accumulate_watched(accumulate: Callable[[AccumulateGrad, Tensor], None], node: AccumulateGrad, box: list[Tensor]) -> None:
    """`box` holds the gradient: nobody else may (_own)."""
    watched(node.name(), lambda: accumulate(node, box.pop()), (), None, 1, -1, box)


def _arrive_watched(accumulate: Callable[[AccumulateGrad, Tensor], None], node: AccumulateGrad, box: list[Tensor]) -> None:
    watched(_ENGINE + node.name(), _accumulate_watched, (accumulate, node, box), None, 2, -1, ())


def _send_watched(node: Node, gs: list, buffers: dict) -> None:
    watched(_ENGINE + node.name(), _C.send, (node, gs, buffers), None, 2, node.sequence, ())


def _run_post_hooks(node: Node, grads: list, taken: Sequence) -> list:
    for hook in list(node.post_hooks.values()):  # type: ignore[union-attr]
        answer = hook(tuple(grads), tuple(taken))
        if answer is None:
            continue
        if not isinstance(answer, (tuple, list)):
            raise TypeError(f"expected tuple, but hook returned '{type(answer).__name__}'")
        if len(answer) != len(grads):
            raise RuntimeError(f"hook '{_hook_name(hook)}' has returned an incorrect number of values (got {len(answer)}, but expected "
                               f"{len(grads)})")
        grads = list(answer)
    return grads


def _apply(node: Node, gs: list) -> list:
    try:
        if dispatch.state.watchers:
            return _checked(node, watched(node.name(), node.apply, (gs,), None, 1, node.sequence, gs))
        return _checked(node, node.apply(gs))
    except Exception:
        _explain(node)
        raise


def _explain(node: Node) -> None:
    """In anomaly mode, say where the operation was recorded whose gradient failed."""
    if node.trace is not None:
        warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
                      f"{''.join(node.metadata['traceback_'])}", stacklevel=2)
    elif Settings.anomaly:
        warnings.warn(f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during forward "
                      "pass for more information.", stacklevel=2)


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


def _plus(have: Tensor, grad: Tensor) -> Tensor:
    if type(have) is SparseTensor:
        return grad + have      # in this order whatever the other is: a sparse tensor may be added to any
    return have + grad if have.dtype is grad.dtype else have.to(kind := promote_types(have.dtype, grad.dtype)) + grad.to(kind)


def _run_pre_hooks(node: Node, gs: list) -> list:
    if _passes.stack and node in _passes.stack[-1].hooked:
        return gs
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
    name = _hook_name(hook)
    if after.shape != before.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value: it was {list(before.shape)} and is {list(after.shape)}")
    if after.dtype is not before.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {before.type()} got {after.type()})")


def _hook_name(hook: Callable) -> str:
    return getattr(inspect.unwrap(hook), "__name__", "?")


def _accumulate(node: AccumulateGrad, g: Tensor) -> None:
    leaf = node.variable
    if is_example(g):
        raise RuntimeError("backward() within vmap: the gradients of the examples have no place in one tensor's .grad; use "
                           "torch.func.grad, or torch.autograd.grad")
    meta = leaf._grad
    if meta is None:
        meta = leaf._grad = AutogradMeta(True)
    if not meta.requires_grad and meta.grad_fn is None:     # it wants none any more
        return
    if meta.grad is None:
        meta.grad = g if dispatch.state.grad_enabled and g.requires_grad else _own(g)
        if not _lies_alike(meta.grad, leaf):
            meta.grad = _laid_as(meta.grad, leaf)
    elif dispatch.state.grad_enabled or isinstance(meta.grad, FormTensor):
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
    if isinstance(g, FormTensor) or isinstance(leaf, FormTensor):   # none lies in one array
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
    if isinstance(g, FormTensor):
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


_C.know_tape(Node, graph.PrimitiveNode, AccumulateGrad, graph.Saved, graph.TapePlan, graph.Rule, Edge, Output, graph._RELEASED, {
    "plan": graph.TapePlan.of, "kind": graph.kind_of, "edge_of": edge_of, "spec": graph._spec, "trace": graph._trace, "keep": graph.keep,
    "expand": PRIMITIVES["expand"], "accumulator": graph.accumulator, "times": graph.times,
    "apply": _apply, "explain": _explain, "fit": _fit, "plus": _plus,
    "accumulate": _accumulate, "capture": _capture, "run_pre_hooks": _run_pre_hooks, "run_post_hooks": _run_post_hooks,
    "release": lambda node: node.release(), "send_watched": _send_watched, "accumulate_watched": _arrive_watched,
})
