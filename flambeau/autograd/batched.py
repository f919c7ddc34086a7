"""vmap's rung of the dispatch ladder: operators on a tensor that stands for each example of a batch compute the whole batch.

A `Level` is one vmap under way. Its function sees tensors with the layout of one example (`core.tensor.example_of`); whatever
primitive is called on them runs on the batches behind them, by its batching rule, so autograd and the modes of further out see
ordinary operators on ordinary tensors. Levels nest: the batch behind a tensor may itself be an example for a level further out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from flambeau import _C

from ..core import dispatch
from ..core.device import device
from ..core.storage import Examples
from ..core.tensor import Tensor, example_of, fake, is_example
from ..ops.batching import spread
from ..ops.generators import Generator
from ..ops.higher_order import HigherOrder
from ..ops.primitives import node_name
from ..ops.random import draw_state
from ..ops.writing import write
from . import engine, graph
from .graph import Edge, PrimitiveNode, TapePlan, _spec, bare, edge_of


class VmapInfo(NamedTuple):
    """What a program's own batching rule is told of the vmap under way."""

    batch_size: int
    randomness: str


class Transform:
    """A mode of dispatch that computes primitives anew where they are called on tensors that it `holds`, above autograd."""

    def holds(self, value: Any) -> Any:
        """Whether a tensor, or which tensors of a list, are this transform's."""
        raise NotImplementedError

    def compute(self, record: Any, args: tuple, has: tuple, position: int) -> Any:
        """What a primitive or operator gives for such tensors; `position`: where among the modes this one is."""
        raise NotImplementedError

    def written(self, target: Tensor, source: Any) -> None:
        """Told of every `source` that was written in place into a `target`."""

    def handle(self, prim: Any, args: tuple) -> Any:
        """As a mode, it sees only what isn't its own."""
        return dispatch.run(prim, args)


class Level(Transform):
    """One vmap under way: a mode of dispatch, on top of those that were active when it began."""

    def __init__(self, size: int, randomness: str):
        self.size, self.randomness = size, randomness

    def rng_state(self, count: Any, where: device, generator: Generator | None) -> tuple[Tensor, Any] | None:
        """A draw for the whole batch; None for one that all examples share (see `ops.random.draw_state`)."""
        if self.randomness == "same":
            return None
        if self.randomness == "error":
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                               "randomness flags on vmap or perform the randomness operation out of vmap")
        with below(position_of(self)):
            state, used = draw_state(count * self.size, generator, where)
        return fake((2,), state.dtype, state.device, storage=Examples(state, self)), used   # one state for all: see its rule

    def holds(self, value: Any) -> Any:
        """Whether a tensor, or which tensors of a list, are examples of this level's batch."""
        if isinstance(value, Tensor):
            store = value._store
            return type(store) is Examples and store.level is self
        if type(value) in (list, tuple):
            flags = tuple([self.holds(v) for v in value])
            return flags if any(flags) else False
        return False

    def behind(self, value: Any) -> Any:
        """The batch behind an example of this level; anything else as it is."""
        if type(value) in (list, tuple):
            return type(value)(self.behind(v) for v in value)
        return value._store.values if self.holds(value) else value

    def handle(self, prim: Any, args: tuple) -> Any:
        """As a mode, it sees only what isn't of its batch; but writes come here directly, below autograd."""
        if prim.kind == "inplace" and any(map(self.holds, args)):
            return self._write(*args)
        return dispatch.run(prim, args)

    def _write(self, target: Tensor, value: Any) -> Tensor:
        if not self.holds(target):
            raise RuntimeError("vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in "
                               f"extra_args that is vmapped over, but `self`, of shape {list(target.shape)}, is not: it is the same for all "
                               "examples. Please use the form of the operation that is not in place")
        write(self.behind(target), self.spread(value))
        return target

    def call(self, function: Callable, values: Sequence[Any], has: Sequence[bool]) -> Any:
        """`function` of examples of those `values` that have the batch in front, and of the others as they are."""
        with entered([self]):
            return function(*[example_of(v, self) if h else v for v, h in zip(values, has)])

    def spread(self, value: Any) -> Any:
        """The batch behind a tensor, repeated if it is the same for all examples."""
        return spread(self.behind(value), self.holds(value), self.size)

    def compute(self, record: Any, args: tuple, has: tuple, position: int) -> Any:
        """A primitive or operator with examples of this level among its arguments."""
        if record.vmap is not None:
            return self.by_program(record.vmap, args, has, position)
        if record.batch is not None:
            values = tuple([self.behind(a) if h else a for a, h in zip(args, has, strict=True)])
            with below(position):
                out = (record.batch if dispatch.state.overwriting is None else _overwriting)(record, self.size, values, has)
            if out is not NotImplemented:
                return tuple([example_of(o, self) for o in out]) if isinstance(out, tuple) else example_of(out, self)
        if record.derivative is None or record.answers_views or not (dispatch.state.grad_enabled and _wants_grad(args)):
            return record.fn(*args)
        return _recorded(record, args)

    def by_program(self, rule: Callable, args: tuple, has: tuple, position: int) -> Any:
        """`rule(info, in_dims, *args)`, the program's own, on the batches: it answers with results and where their batches are."""
        values = [self.behind(a) if h else a for a, h in zip(args, has, strict=True)]
        with below(position):
            out, dims = rule(VmapInfo(self.size, self.randomness), tuple(map(_in_dims, has)), *values)
            several = isinstance(out, (tuple, list))
            outs = out if several else (out,)
            dims = dims if isinstance(dims, (tuple, list)) else (dims,) * len(outs)
            if len(dims) != len(outs):
                raise ValueError(f"vmap: the batching rule gives {len(outs)} results and {len(dims)} out_dims; give one for each result")
            made = [o if d is None else example_of(o.movedim(d, 0), self) for o, d in zip(outs, dims)]
        return tuple(made) if several else made[0]


def _over_batches(function: Callable, size: int, has: Sequence[bool]) -> Callable:
    def of_batches(*operands: Any) -> list[Tensor]:
        level = Level(size, "error")
        return [level.spread(r).contiguous() for r in level.call(function, operands, has)]

    return of_batches


HigherOrder.over_batches = staticmethod(_over_batches)


def _in_dims(has: Any) -> Any:
    return [_in_dims(h) for h in has] if type(has) is tuple else 0 if has else None


def _overwriting(record: Any, size: int, values: tuple, has: tuple) -> Any:
    """The rule, while a new value for some tensor is computed in place: what will be overwritten is what is behind that."""
    state = dispatch.state
    target = state.overwriting
    state.overwriting = stripped(target)[0]
    try:
        return record.batch(record, size, values, has)
    finally:
        state.overwriting = target


def _innermost(args: tuple, kind: type[Transform] = Transform) -> tuple[Any, tuple, int] | None:
    """The innermost active transform that has tensors among `args`, which they are, and the transform's position."""
    modes = dispatch.state.modes
    for position in range(len(modes) - 1, -1, -1):
        level = modes[position]
        if isinstance(level, kind):
            has = tuple([level.holds(a) for a in args])
            if any(has):
                return level, has, position
    return None


def _batched(prim: Any, args: tuple) -> Any:
    """The call, if an argument is a tensor of an active transform (the innermost decides); NotImplemented otherwise."""
    found = _innermost(args)
    return NotImplemented if found is None else found[0].compute(prim, args, *found[1:])


def by_program(rule: Callable, args: tuple) -> Any:
    """A function with a batching rule of its own, if an argument is an example; NotImplemented otherwise."""
    found = _innermost(args, Level)
    return NotImplemented if found is None else found[0].by_program(rule, args, *found[1:])


def position_of(level: Transform) -> int:
    """Where among the modes a transform is."""
    modes = dispatch.state.modes
    return len(modes) - 1 - modes[::-1].index(level)


def below(position: int) -> AbstractContextManager[None]:
    """A block without the modes from `position` on."""
    modes = dispatch.state.modes
    return dispatch.scope(modes[:position], position - len(modes))


def entered(levels: Sequence[Transform]) -> AbstractContextManager[None]:
    """Within the block `levels` are the innermost ones."""
    dispatch.batched = _batched     # from the first of them on
    return dispatch.scope((*dispatch.state.modes, *levels), len(levels))


def levels() -> tuple[Level, ...]:
    """The active levels, outermost first."""
    return tuple([mode for mode in dispatch.state.modes if type(mode) is Level])


# -- through all levels ---------------------------------------------------------------------------------------------------------
def stripped(tensor: Any, within: Sequence[Level] | None = None) -> tuple[Any, tuple[Level, ...]]:
    """What is behind an example for all levels (of `within`), and the levels to which its first dimensions belong, in order."""
    found: list[Level] = []
    while isinstance(tensor, Tensor) and is_example(tensor) and (within is None or tensor._store.level in within):  # type: ignore[union-attr]
        found.append(tensor._store.level)  # type: ignore[union-attr]
        tensor = tensor._store.values  # type: ignore[union-attr]
    return tensor, tuple(reversed(found))


def wrapped(tensor: Tensor, of: Sequence[Level]) -> Tensor:
    """An example for the levels `of`, to which the tensor's first dimensions belong, in order."""
    for level in of:
        tensor = example_of(tensor, level)
    return tensor


def arranged(tensor: Tensor, has: Sequence[Level], wants: Sequence[Level]) -> Tensor:
    """The first dimensions brought from the levels `has` to `wants`: summed over those that are missing there, repeated for new ones."""
    gone = tuple(d for d, level in enumerate(has) if level not in wants)
    if gone:
        tensor = tensor.sum(gone)
        has = [level for level in has if level in wants]
    new = [level for level in wants if level not in has]
    if new:
        tensor = tensor.expand((*[level.size for level in new], *tensor.shape))
    order = [*new, *has]
    if order != list(wants):
        tensor = tensor.movedim(tuple(range(len(order))), tuple([list(wants).index(level) for level in order]))
    return tensor


def lowered(tensor: Tensor, through: Sequence[Level]) -> Tensor:
    """A tensor whose first dimensions are those of the levels `through`: an example for deeper levels only."""
    inner, has = stripped(tensor)
    deeper = [level for level in has if level not in through]
    return wrapped(arranged(inner, has, [*deeper, *through]), deeper)


def raised(tensor: Tensor, to: Sequence[Level]) -> Tensor:
    """The inverse of `lowered`."""
    inner, deeper = stripped(tensor)
    every = [*to, *deeper]
    return wrapped(arranged(inner, [*deeper, *to], every), every)


# -- writing in place ------------------------------------------------------------------------------------------------------------
def check_inplace(target: Tensor, value: Any = None) -> None:
    """`graph.check_inplace` of what is behind an example."""
    graph.check_inplace(stripped(target)[0], value)


def rebase(target: Tensor, source: Any, anew: bool = False) -> None:
    """`graph.rebase` of what is behind an example."""
    _tell(target, source)
    while is_example(target):
        level: Level = target._store.level  # type: ignore[union-attr]
        target, source = level.behind(target), level.spread(source)
        _tell(target, source)
    graph.rebase(target, source, anew)


def _tell(target: Tensor, source: Any) -> None:
    for mode in dispatch.state.modes:
        if isinstance(mode, Transform):
            mode.written(target, source)


# -- backward --------------------------------------------------------------------------------------------------------------------
def run_backward(roots: Sequence[Tensor], grads: Sequence[Tensor | None], **settings: Any) -> list[Tensor | None]:
    """`engine.run_backward` for each of several gradients along the first dimension of `grads`: so have its results."""
    sizes = {g.shape[0] for g in grads if g is not None and g.ndim}
    if len(sizes) != 1:
        raise RuntimeError(f"is_grads_batched: grad_outputs must have one size along their first dimension, got {sorted(sizes)}")
    level = Level(sizes.pop(), "same")
    with entered([level]):
        found = engine.run_backward(roots, [None if g is None else example_of(g, level) for g in grads], **settings)
        return [None if f is None else level.spread(f) for f in found]


# -- the tape -------------------------------------------------------------------------------------------------------------------
def _wants_grad(args: Sequence[Any]) -> bool:
    return any(_wants_grad(a) if type(a) in (list, tuple) else isinstance(a, Tensor) and stripped(a)[0].requires_grad for a in args)


class OnExamples:
    """A node whose rule sees examples, while the tape has the tensors behind them."""

    __slots__ = ()

    levels: tuple[Level, ...]                   # active when it was recorded
    of_outputs: list[tuple[Level, ...]]         # to which the first dimensions of each output belong
    of_inputs: list[tuple[Level, ...]]          # the same for each edge

    def apply(self, gs: list) -> list:
        """Gradients for the edges, summed over the levels that an input isn't batched by."""
        with entered(self.levels):
            wide = [None if g is None else wrapped(g, has) for g, has in zip(gs, self.of_outputs, strict=True)]
            answers = [None if a is None else stripped(a, self.levels) for a in super().apply(wide)]  # type: ignore[misc]
        return [None if a is None else arranged(*a, wants) for a, wants in zip(answers, self.of_inputs)]


class _ExamplesNode(OnExamples, PrimitiveNode):
    """A recorded operator with a gradient of its own."""


def on_tape(out: Tensor) -> Tensor:
    """A result whose batch may be given a history: an alias of it, if it has one already or is a view."""
    inner, has = stripped(out)
    return out if inner._grad is None and inner._view is None else wrapped(bare(inner), has)


def _recorded(record: Any, args: tuple) -> Any:
    """An operator with a gradient of its own as one node: its body is not what is differentiated."""
    with dispatch.grad_enabled(False):
        out = record.fn(*args)
    outs = tuple(map(on_tape, out if isinstance(out, tuple) else (out,)))
    edges: list[Edge | None] = []
    of_inputs: list[tuple[Level, ...]] = []
    needs, list_sizes = [], {}
    for i in record.tensor_positions:
        items = args[i] if type(args[i]) in (list, tuple) and any(isinstance(v, Tensor) for v in args[i]) else None
        if items is not None:
            list_sizes[i] = len(items)
        found = [stripped(v) for v in (items if items is not None else [args[i]])]
        edges += [edge_of(v) for v, _ in found]
        of_inputs += [has for _, has in found]
        if any(edge is not None for edge in edges[-len(found):]):
            needs.append(i)
    kind = graph.node_type(record, _ExamplesNode, node_name(record, args))
    node = kind(record, edges, tuple(needs), list_sizes or None, TapePlan.of(record, tuple(needs)))
    node.saved = node.plan.keep(record, args, outs)
    node.levels, node.of_inputs = levels(), of_inputs
    attach_all(node, outs)
    return outs if isinstance(out, tuple) else outs[0]


def attach_all(node: Any, outs: Sequence[Any], but: Sequence[int] = ()) -> None:
    """Make `node` the history of what is behind `outs`, `but` those numbers."""
    found = [stripped(o) for o in outs]
    node.of_outputs = [has for _, has in found]
    node.output_specs = tuple([_spec(o) if isinstance(o, Tensor) else None for o, _ in found])
    for nr, (inner, _) in enumerate(found):
        if isinstance(inner, Tensor) and inner.dtype.category >= 2 and nr not in but:
            _C.attach(inner, node, nr)
