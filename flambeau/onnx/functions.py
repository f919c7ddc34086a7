"""cond, while_loop, scan and products of groups, in ONNX: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.dtypes import bool_, int64
from .forms import form
from .writer import Body, Value, Writer


def _inputs(o: Writer, like: Sequence[Value], keep: bool = True) -> list[Value]:
    """A body's own inputs for values."""
    return [Value(o.name(f"{o.at}_in"), v.dtype, v.shape if keep else None if v.shape is None else v.shape[1:]) for v in like]


def _several(made: Any) -> tuple:
    return made if isinstance(made, tuple) else (made,)


def _typed(made: tuple, like: Sequence[Value]) -> tuple:
    return tuple([Value(m.name, v.dtype) for m, v in zip(made, like, strict=True)])


@form("cond")
def cond(o: Writer, pred: Value, yes: Any, no: Any, operands: Sequence[Value]) -> tuple:
    """One of two graphs, which read the operands from around."""
    bodies = [o.inner(module, list(operands)) for module in (yes, no)]
    made = o.step("If", o.Squeeze(pred) if pred.rank else pred, then_branch=bodies[0], else_branch=bodies[1],
                  _outputs=len(bodies[0].outputs))
    return _typed(_several(made), bodies[0].outputs)


@form("while_loop")
def while_loop(o: Writer, test: Any, body: Any, carried: Sequence[Value], captured: Sequence[Value]) -> tuple:
    """A graph over and over, while another one holds of what it gives."""
    first = o.inner(test, [*carried, *captured])
    o.steps.extend(first.steps)
    counter, held = Value(o.name(f"{o.at}_i"), o.constant(0).dtype, ()), Value(o.name(f"{o.at}_holds"), bool_, ())
    state = _inputs(o, carried)
    step = o.inner(body, [*state, *captured])
    again = o.inner(test, [*step.outputs, *captured])
    flat = Body([*step.steps, *again.steps], [counter, held, *state], [again.outputs[0], *step.outputs])
    made = o.step("Loop", None, _once(o, first.outputs[0]), *carried, body=flat, _outputs=len(carried))
    return _typed(_several(made), carried)


def _once(o: Writer, pred: Value) -> Value:
    return o.Reshape(pred, o.value([]))


@form("scan")
def scan(o: Writer, function: Any, carried: Sequence[Value], rows: Sequence[Value], captured: Sequence[Value], reverse: bool) -> tuple:
    """A graph for each row of tensors, which carries a state along and gives a row each time."""
    state, row = _inputs(o, carried), _inputs(o, rows, keep=False)
    body = o.inner(function, [*state, *row, *captured])
    body.inputs = [*state, *row]
    count = len(body.outputs) - len(state)
    made = o.step("Scan", *carried, *rows, body=body, num_scan_inputs=len(row), _outputs=len(body.outputs),
                  scan_input_directions=[int(reverse)] * len(row), scan_output_directions=[int(reverse)] * count)
    return _typed(_several(made), body.outputs)


def loop(o: Writer, count: Any, state: Sequence[Value], step: Callable[..., Sequence[Value]], kept: int = 0) -> list[Value]:
    """`state` after `count` times `state = step(k, *state)`, with k as a tensor of one element; the last `kept` results of `step` are
    not carried, but come one after the other along a new first dimension."""
    before, o.steps = o.steps, []
    k, going = Value(o.name(f"{o.at}_k"), int64, ()), Value(o.name(f"{o.at}_going"), bool_, ())
    carried = [Value(o.name(f"{o.at}_state"), v.dtype, v.shape) for v in state]
    made = step(o.Reshape(k, o.value([1])), *carried)
    body, o.steps = Body(o.steps, [k, going, *carried], [o.Identity(going), *made]), before
    times = o.scalar(count)
    found = o.step("Loop", times, None, *state, body=body, _outputs=len(state) + kept)
    found = found if isinstance(found, tuple) else (found,)
    return [Value(v.name, like.dtype, like.shape) for v, like in zip(found, [*state, *made[len(state):]], strict=True)]


@form("primitive:grouped_mm", takes=lambda a, b, ends: a.ndim == 2 and b.ndim == 3)
def grouped_mm(o: Writer, a: Value, b: Value, ends: Value) -> Value:
    """The rows of each group times a matrix of its own, one group after the other; what lies behind the last group is zero."""
    ends = o.cast(ends, int64)
    starts = o.Concat(o.value([0]), o.Slice(ends, [0], [-1], [0], [1]), axis=0)
    width = o.Slice(o.Shape(b), [2], [3], [0], [1])
    nothing = o.Expand(o.constant(0.0, a.dtype), o.Concat(o.value([0]), width, axis=0))

    def group(k: Value, done: Value) -> list[Value]:
        rows = o.Slice(a, o.Gather(starts, k), o.Gather(ends, k), o.value([0]))
        return [o.Concat(done, o.MatMul(rows, o.Squeeze(o.Gather(b, k), o.value([0]))), axis=0)]

    made, = loop(o, o.size(ends, 0), [nothing], group)
    last = o.Gather(ends, o.value([-1]))
    left = o.Sub(o.Slice(o.Shape(a), [0], [1], [0], [1]), last)
    return o.Concat(made, o.Expand(o.constant(0.0, a.dtype), o.Concat(left, width, axis=0)), axis=0)
