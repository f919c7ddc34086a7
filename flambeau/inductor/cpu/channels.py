"""Epilogues of convolutions: batch norm, bias, activation and residual as post-ops.

What is done with the result channel by channel (`(y - mean) * rstd * gain + bias`, however it is spelled) is one affine
function: its scale and shift are computed for all channels by a small step before the call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flambeau.core.expr import Index, coefficient, free_variables, var
from flambeau.inductor.library import runs_fast
from flambeau.inductor.loop.ir import Buffer, Compute, Extern, Program, Tracer, Value, View, numel, walk
from flambeau.inductor.loop.post_ops import PostOp, activation
from flambeau.inductor.loop.ranges import simplified


@dataclass
class _Ends:
    """The post-ops found so far; `scale` and `shift` are what is pending of the channel-wise affine function."""

    o: Tracer
    posts: list[tuple[PostOp, View | Value | None]] = field(default_factory=list)
    scale: Value | None = None
    shift: Value | None = None

    def multiply(self, by: Value) -> None:
        self.scale = by if self.scale is None else self.o.mul(self.scale, by)
        self.shift = None if self.shift is None else self.o.mul(self.shift, by)

    def add(self, what: Value) -> None:
        self.shift = what if self.shift is None else self.o.add(self.shift, what)

    def flush(self) -> None:
        if self.scale is not None:
            self.posts.append((PostOp("mul", tensor=True), self.scale))
        if self.shift is not None:
            self.posts.append((PostOp("add", tensor=True), self.shift))
        self.scale = self.shift = None


def finish_convolution(program: Program, position: int, step: Compute) -> bool:
    """Move `step`, the only reader of the convolution at `position`, into it, if it qualifies."""
    call = program.steps[position]
    assert isinstance(call, Extern)
    out = call.outputs[0]
    dims = _dimensions(step, out)
    load = _only_load(step, out.buffer)
    target = program.buffers[step.buffer]
    if dims is None or load is None or target.dtype is not out.dtype:
        return False
    plan = _plan(step, load, dims, out, program)
    if plan is None or not _ready(plan, program, position):
        return False
    before: list[Compute] = []
    views = []
    for _, operand in plan.posts:
        if isinstance(operand, Value):
            views.append(_per_channel(operand, dims[1], out, program, before, step))
        elif operand is not None:
            views.append(operand)
    if not extend(call, step, views, [post for post, _ in plan.posts]):
        return False
    program.steps.remove(step)
    program.steps[position:position] = before
    program.buffers.pop(out.buffer, None)
    return True


def extend(call: Extern, step: Compute, views: list[View], posts: list[PostOp]) -> bool:
    """Give a call more post-ops, which read `views`, and the buffer of `step`; False, and no change, where that is slow."""
    before = call.inputs, call.outputs, call.epilogue
    call.outputs = (call.outputs[0]._replace(buffer=step.buffer),)
    call.inputs = (*call.inputs, *views)
    call.epilogue = (*call.epilogue, *posts)
    if not runs_fast(call):
        call.inputs, call.outputs, call.epilogue = before
        return False
    call.origins = (*call.origins, *step.origins)
    return True


def _dimensions(step: Compute, out: View) -> list[str] | None:
    """The loop variable of each of the result's dimensions ("" for size 1), if the step goes through it in order."""
    if step.index_values or numel(step.loops) != math.prod(out.shape):
        return None
    names = []
    left = list(step.loops)
    for size, stride in zip(out.shape, out.strides, strict=True):
        if size == 1:
            names.append("")
            continue
        hit = next((loop for loop in left if loop[1] == size and coefficient(step.index, loop[0]) == stride), None)
        if hit is None:
            return None
        left.remove(hit)
        names.append(hit[0])
    return None if left else names


def _only_load(step: Compute, buffer: str) -> Value | None:
    loads = [v for v in step.values if v.op == "load" and v.attr.buffer == buffer]
    if len(loads) != 1 or loads[0].attr.index is not step.index or loads[0].attr.masked:
        return None
    return loads[0]


def _plan(step: Compute, load: Value, dims: list[str], out: View, program: Program) -> _Ends | None:
    above = {v.uid for v in step.values if any(w is load for w in walk([v]))}
    chain: list[tuple[Value, Value | None, bool]] = []  # operation, other operand, whether the chain is its first operand
    v = step.body
    while v is not load:
        mine = [a for a in v.args if a.uid in above]
        if len(mine) != 1 or len(v.args) > 2:
            return None
        other = next((a for a in v.args if a is not mine[0]), None)
        chain.append((v, other, v.args[0] is mine[0]))
        v = mine[0]
    plan = _Ends(Tracer())
    for op, other, first in reversed(chain):
        if other is None:
            kind = activation(op, op.args[0])
            if kind is None:
                return None
            plan.flush()
            plan.posts.append((PostOp(kind), None))
        elif not _add(plan, op.op, other, first, dims, out, program):
            return None
    plan.flush()
    return plan if 0 < len(plan.posts) <= 6 else None


def _add(plan: _Ends, op: str, other: Value, first: bool, dims: list[str], out: View, program: Program) -> bool:
    """Take one binary operation into the plan."""
    if op not in ("add", "sub", "mul") or (op == "sub" and not first):
        return False
    if _variables(other) <= {dims[1]}:
        value = simplified(other, plan.o, lambda x: x)
        if op == "mul":
            plan.multiply(value)
        else:
            plan.add(value if op == "add" else plan.o.neg(value))
        return True
    view = _same_place(other, dims, out, program)
    if view is None:
        return False
    plan.flush()
    plan.posts.append((PostOp(op, tensor=True), view))
    return True


def _variables(v: Value) -> set[str]:
    used: set[str] = set()
    for w in walk([v]):
        if w.op in ("load", "index"):
            used |= free_variables(w.attr.index if w.op == "load" else w.attr)
    return used


def _same_place(v: Value, dims: list[str], out: View, program: Program) -> View | None:
    """A load that goes through a tensor of the result's shape."""
    if v.op != "load" or v.attr.masked or v.attr.names or program.buffers[v.attr.buffer].dtype is not out.dtype:
        return None
    strides: list[Index] = []
    rest = v.attr.index
    for name, size in zip(dims, out.shape, strict=True):
        step = coefficient(rest, name) if name else 1
        if step is None or step == 0:
            return None
        strides.append(step)
        rest = rest - step * var(name, size=size) if name else rest
    if not isinstance(rest, int):
        return None
    return View(v.attr.buffer, out.dtype, out.shape, tuple(strides), rest)


def _ready(plan: _Ends, program: Program, position: int) -> bool:
    """Whether all operands are complete before the call."""
    needed: set[str] = set()
    for _, operand in plan.posts:
        if isinstance(operand, Value):
            needed |= {w.attr.buffer for w in walk([operand]) if w.op == "load"}
        elif operand is not None:
            needed.add(operand.buffer)
    return all(needed.isdisjoint(s.writes) for s in program.steps[position:])


def _per_channel(v: Value, name: str, out: View, program: Program, before: list[Compute], step: Compute) -> View:
    """A buffer of `v` for every channel, as a tensor that broadcasts to the result."""
    channels = out.shape[1]
    buffer = Buffer(f"{step.buffer}_channel{len(before)}", out.dtype, (channels,), (1,))
    program.buffers[buffer.name] = buffer
    before.append(Compute(buffer.name, var(name, size=channels), ((name, channels),), v, origins=step.origins))
    ones = [1] * (len(out.shape) - 2)
    return View(buffer.name, out.dtype, (1, channels, *ones), (channels, 1, *ones))
