"""Pointwise steps that only finish a library call's result move into the call: bias, activation, residual, batch norm.

A step qualifies when it reads the call's result element by element, nobody else does, and its body is a chain from that
load through operations that oneDNN applies as post-ops. What is done to an image channel by channel (`(y - mean) * rstd * gain + bias`,
however it is spelled) is one affine function: its scale and shift are computed for all channels by a small step before the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flambeau.core.expr import Index, coefficient, free_variables, modulo, substitute, var
from flambeau.inductor.library import runs_fast, takes_epilogue
from flambeau.inductor.loop.ir import Buffer, Compute, Extern, Program, Step, Tracer, Value, View, numel, walk
from flambeau.inductor.loop.post_ops import PostOp, activation
from flambeau.inductor.loop.ranges import simplified
from flambeau.inductor.loop.views import divisors_in, linear_strides, split_batch

LONGEST, LONGEST_OF_IMAGES = 4, 6       # post-ops
MOST_LINKS = 12                         # operations that may come to these
Read = Callable[[Value], "View | Value | float | None"]


def fuse_epilogues(program: Program) -> None:
    """Move what can be moved, in place."""
    uses: Counter[str] = Counter()
    readers: dict[str, Step] = {}
    written: set[str] = set()
    for step in program.steps:
        for name in [a.buffer for a in step.loads] if isinstance(step, Compute) else [v.buffer for v in step.inputs]:
            uses[name] += 1
            readers[name] = step
        uses.update(written.intersection(step.writes))      # a scatter writes to what another step made
        written.update(step.writes)
    uses.update(out.buffer for out in program.outputs if isinstance(out, View))
    for step in list(program.steps):
        if isinstance(step, Extern) and takes_epilogue(step):
            while uses[name := step.outputs[0].buffer] == 1 and _finish(program, step, readers.get(name)):
                pass


def _finish(program: Program, call: Extern, found: Step | None) -> bool:
    """Move `found`, the one step that reads a call's result, into the call, if it qualifies."""
    out, position = call.outputs[0], program.steps.index(call)
    if not isinstance(found, Compute) or found.kind != "pointwise" or found not in program.steps:
        return False
    if _redirect(found, call, program):
        program.steps.remove(found)
        program.buffers.pop(out.buffer, None)
        return False
    ends = _ends_of(found, call, program)
    if ends is None or not _ready(ends, program, position):
        return False
    before: list[Compute] = []
    operands = [operand for _, operand in ends.posts if operand is not None]
    views = [view if isinstance(view, View) else _per_channel(view, out, program, before, found) for view in operands]
    if not _extend(call, found, views, [post for post, _ in ends.posts]):
        return False
    program.steps.remove(found)
    program.steps[position:position] = before
    program.buffers.pop(out.buffer, None)
    return True


def _extend(call: Extern, step: Compute, views: list[View], posts: list[PostOp]) -> bool:
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


def _redirect(step: Compute, call: Extern, program: Program) -> bool:
    """Let the call write where `step` only copies its result to, in another order: whether that could be done."""
    out, value = call.outputs[0], step.body
    if call.op != "bmm" or call.epilogue or value.op != "load":
        return False
    if value.attr.masked or value.attr.names or value.attr.index is step.index:
        return False
    target = program.buffers[step.buffer]
    if target.dtype is not out.dtype or numel(step.loops) != program.buffers[out.buffer].numel:
        return False
    loops, cut = _divided_loops(step, value.attr.index)
    idx = [var(name, size=size) for name, size in loops]
    source = linear_strides(substitute(value.attr.index, cut), idx)
    destination = linear_strides(substitute(step.index, cut), idx)
    if source is None or destination is None or source[1] != 0:
        return False
    steps = [s for s in source[0] if isinstance(s, int)]
    if len(steps) != len(idx):
        return False
    order = sorted(range(len(idx)), key=lambda k: -steps[k])
    shape = tuple(loops[k][1] for k in order)
    strides = tuple(destination[0][k] for k in order)
    new = View(step.buffer, out.dtype, shape, strides, destination[1])
    if shape[-2:] != program.buffers[out.buffer].shape[-2:]:
        return False
    views = _same_batches(call.inputs, shape)
    if views is None:
        return False
    if strides[-1] != 1:  # the transpose of a product is the product of the transposes in the other order
        new, views = _transposed(new), [_transposed(v) for v in reversed(views)]
    before = call.inputs, call.outputs
    call.inputs, call.outputs = tuple(views), (new,)
    if not runs_fast(call):
        call.inputs, call.outputs = before
        return False
    call.origins = (*call.origins, *step.origins)
    return True


def _divided_loops(step: Compute, index: Index) -> tuple[list[tuple[str, Index]], dict[str, Index]]:
    """The step's loops, each that `index` divides by a number cut in two there, and the old variables in terms of the new."""
    loops: list[tuple[str, Index]] = []
    cut: dict[str, Index] = {}
    for name, size in step.loops:
        numbers = divisors_in(index, name)
        if len(numbers) == 1 and isinstance(size, int) and size % numbers[0] == 0:
            high, low = (f"{name}h", size // numbers[0]), (f"{name}l", numbers[0])
            loops += [high, low]
            cut[name] = var(high[0], size=high[1]) * numbers[0] + var(low[0], size=low[1])
        else:
            loops.append((name, size))
    return loops, cut


def _same_batches(views: Sequence[View], shape: Sequence[Index]) -> list[View] | None:
    """The operands with the batch dimensions of `shape`."""
    if len(shape) == 3:
        return list(views) if all(len(v.shape) == 3 for v in views) else None
    size = shape[1]
    if len(shape) != 4 or not isinstance(size, int) or any(len(v.shape) == 4 and v.shape[1] != size for v in views):
        return None
    return [v if len(v.shape) == 4 else split_batch(v, size) for v in views]


def _transposed(view: View) -> View:
    shape, strides = view.shape, view.strides
    return view._replace(shape=(*shape[:-2], shape[-1], shape[-2]), strides=(*strides[:-2], strides[-1], strides[-2]))


# -- what a step does to a result ----------------------------------------------------------------------------
@dataclass
class _Ends:
    """The post-ops found so far; `scale` and `shift` are what is pending of the channel-wise affine function."""

    o: Tracer = field(default_factory=Tracer)
    posts: list[tuple[PostOp, View | Value | None]] = field(default_factory=list)
    scale: Value | None = None
    shift: Value | None = None

    def take(self, op: str, operand: View | Value | float | None) -> None:
        """One more operation: with a tensor, with what goes by channel, with a number, or an activation."""
        if isinstance(operand, Value):
            if op == "mul":
                self.scale = operand if self.scale is None else self.o.mul(self.scale, operand)
                self.shift = None if self.shift is None else self.o.mul(self.shift, operand)
            else:
                operand = operand if op == "add" else self.o.neg(operand)
                self.shift = operand if self.shift is None else self.o.add(self.shift, operand)
            return
        self.flush()
        if isinstance(operand, float):
            alpha, beta = {"add": (1.0, operand), "sub": (1.0, -operand), "mul": (operand, 0.0)}[op]
            self.posts.append((PostOp("linear", alpha=alpha, beta=beta), None))
        else:
            self.posts.append((PostOp(op, tensor=operand is not None), operand))

    def flush(self) -> None:
        """Let what is pending be post-ops."""
        self.posts += [(PostOp(op, tensor=True), value) for op, value in (("mul", self.scale), ("add", self.shift)) if value is not None]
        self.scale = self.shift = None


def _ends_of(step: Compute, call: Extern, program: Program) -> _Ends | None:
    """What `step` does to the result of `call`; None where that is no chain of post-ops."""
    out = call.outputs[0]
    loads = [v for v in step.values if v.op == "load" and v.attr.buffer == out.buffer]
    if len(loads) != 1 or loads[0].attr.index is not step.index or loads[0].attr.masked or step.index_values or \
            numel(step.loops) != program.buffers[out.buffer].numel or program.buffers[step.buffer].dtype is not out.dtype:
        return None
    images = call.op == "convolution"
    dims = _dimensions(step, out) if images else []
    links = None if dims is None else _links(step, loads[0])
    if links is None or dims is None:
        return None
    ends = _Ends()
    for op, other in links:
        operand = None if other is None else _of_image(other, dims, out, program, ends.o) if images else _of_matrix(other, step, out, program)
        if operand is None and other is not None:
            return None
        ends.take(op, operand)
    ends.flush()
    if images:
        return ends if 0 < len(ends.posts) <= LONGEST_OF_IMAGES else None
    late = ends.posts if call.epilogue else ends.posts[1:]      # a bias after other operations is a broadcast post-op, which is slow
    late_bias = any(isinstance(view, View) and isinstance(view.shape[0], int) and view.shape[0] == 1 for _, view in late)
    return None if late_bias or len(ends.posts) > LONGEST else ends


def _links(step: Compute, load: Value) -> list[tuple[str, Value | None]] | None:
    """The operations from the load to what is stored, in order: activations, and sums and products with another operand."""
    above = {v.uid for v in step.values if any(w is load for w in walk([v]))}
    links: list[tuple[str, Value | None]] = []
    value = step.body
    while value is not load:
        if len(links) == MOST_LINKS:
            return None
        inner = ((activation(value, x), x) for x in walk([value]) if x.uid in above and x is not value)
        kind, found = next((pair for pair in inner if pair[0] is not None), (None, value))
        if kind is not None:
            links.append((kind, None))
            value = found
            continue
        mine = [a for a in value.args if a.uid in above]
        if value.op not in ("add", "sub", "mul") or len(mine) != 1 or (value.op == "sub" and mine[0] is not value.args[0]):
            return None
        links.append((value.op, value.args[1] if mine[0] is value.args[0] else value.args[0]))
        value = mine[0]
    return links[::-1]


def _ready(ends: _Ends, program: Program, position: int) -> bool:
    """Whether all operands are complete before the call."""
    needed: set[str] = set()
    for _, operand in ends.posts:
        if isinstance(operand, Value):
            needed |= {w.attr.buffer for w in walk([operand]) if w.op == "load"}
        elif operand is not None:
            needed.add(operand.buffer)
    return all(needed.isdisjoint(s.writes) for s in program.steps[position:])


# -- operands ------------------------------------------------------------------------------------------------
def _of_matrix(other: Value, step: Compute, out: View, program: Program) -> View | float | None:
    """A number, or the load of a tensor of the result's shape, or of a row vector that broadcasts to it."""
    if other.op == "constant" and isinstance(other.attr, float):
        return other.attr
    if other.op != "load":
        return None
    access = other.attr
    buffer = program.buffers[access.buffer]
    if access.names or access.masked or buffer.dtype is not out.dtype:
        return None
    gap = access.index - step.index
    if isinstance(gap, int) and access.buffer != out.buffer:
        return View(access.buffer, buffer.dtype, out.shape, out.strides, gap)
    width: Index = out.shape[-1]
    if out.strides[-1] == 1 and isinstance(width, int) and isinstance(access.index - modulo(step.index, width), int):
        lead = len(out.shape) - 1
        return View(access.buffer, buffer.dtype, (*[1] * lead, width), (*[width] * lead, 1), access.index - modulo(step.index, width))
    return None


def _of_image(other: Value, dims: list[str], out: View, program: Program, o: Tracer) -> View | Value | None:
    """What goes by channel, or the load of a tensor of the result's shape."""
    if _variables(other) <= {dims[1]}:
        return simplified(other, o, lambda x: x)
    return _same_place(other, dims, out, program)


def _dimensions(step: Compute, out: View) -> list[str] | None:
    """The loop variable of each of the result's dimensions ("" for size 1), if the step goes through it in order."""
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


def _per_channel(v: Value, out: View, program: Program, before: list[Compute], step: Compute) -> View:
    """A buffer of `v` for every channel, as a tensor that broadcasts to the result."""
    channels = out.shape[1]
    name = next(iter(_variables(v)), "channel")
    buffer = Buffer(f"{step.buffer}_channel{len(before)}", out.dtype, (channels,), (1,))
    program.buffers[buffer.name] = buffer
    before.append(Compute(buffer.name, var(name, size=channels), ((name, channels),), v, origins=step.origins))
    ones = [1] * (len(out.shape) - 2)
    return View(buffer.name, out.dtype, (1, channels, *ones), (channels, 1, *ones))
