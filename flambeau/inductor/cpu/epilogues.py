"""Pointwise steps that only finish a library call's result move into the call: bias, activation, residual.

A step qualifies when it reads the call's result element by element, nobody else does, and its body is a chain from that
load through operations that oneDNN applies as post-ops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from flambeau.core.expr import Index, modulo, substitute, var
from flambeau.inductor.cpu.channels import extend, finish_convolution
from flambeau.inductor.library import runs_fast, takes_epilogue
from flambeau.inductor.loop.ir import Access, Compute, Extern, Program, Step, Value, View, numel, walk
from flambeau.inductor.loop.post_ops import PostOp, activation
from flambeau.inductor.loop.views import divisors_in, linear_strides, split_batch

LONGEST = 4


def fuse_epilogues(program: Program) -> None:
    """Move what can be moved, in place."""
    uses: Counter[str] = Counter()
    readers: dict[str, Step] = {}
    writers: dict[str, Step] = {}       # the last ones
    for step in program.steps:
        for name in [a.buffer for a in step.loads] if isinstance(step, Compute) else [v.buffer for v in step.inputs]:
            uses[name] += 1
            readers[name] = step
        for name in step.writes:
            uses[name] += name in writers       # a scatter writes to what another step made
            writers[name] = step
    uses.update(out.buffer for out in program.outputs if isinstance(out, View))
    for step in list(program.steps):
        if isinstance(step, Extern) and takes_epilogue(step):
            while uses[name := step.outputs[0].buffer] == 1 and _finish(program, step, readers.get(name), writers):
                writers[step.outputs[0].buffer] = step


def _finish(program: Program, call: Extern, found: Step | None, writers: Mapping[str, Step]) -> bool:
    """Move `found`, the one step that reads a call's result, into the call, if it qualifies."""
    name, position = call.outputs[0].buffer, program.steps.index(call)
    if not isinstance(found, Compute) or found.kind != "pointwise" or found not in program.steps:
        return False
    if _redirect(found, call, program):
        program.steps.remove(found)
        program.buffers.pop(name, None)
        return False
    if call.op == "convolution":
        return finish_convolution(program, position, found)
    posts = _match(found, call, program)
    if posts is None:
        return False
    target = program.buffers[found.buffer]
    out = call.outputs[0]
    if target.dtype is not out.dtype or any(post.tensor and not _early(program, view, position, writers)
                                            for post, view in posts):
        return False
    views = [view for post, view in posts if post.tensor and view is not None]
    if not extend(call, found, views, [post for post, _ in posts]):
        return False
    program.steps.remove(found)
    program.buffers.pop(name, None)
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


def _early(program: Program, view: View | None, position: int, writers: Mapping[str, Step]) -> bool:
    """Whether the buffer is complete before the call."""
    return view is not None and (view.buffer not in writers or program.steps.index(writers[view.buffer]) < position)


def _match(step: Compute, call: Extern, program: Program) -> list[tuple[PostOp, View | None]] | None:
    """The post-ops that `step` amounts to, or None."""
    out = call.outputs[0]
    name = out.buffer
    if numel(step.loops) != program.buffers[name].numel or step.index_values:
        return None
    loads = [v for v in step.values if v.op == "load" and v.attr.buffer == name]
    if len(loads) != 1 or loads[0].attr.index is not step.index or loads[0].attr.masked:
        return None
    above = {v.uid for v in step.values if any(w is loads[0] for w in walk([v]))}
    posts: list[tuple[PostOp, View | None]] = []
    value = step.body
    while value is not loads[0]:
        if len(posts) >= LONGEST:
            return None
        found = _one(value, above, out, step, program)
        if found is None:
            return None
        post, view, value = found
        posts.append((post, view))
    late = posts if call.epilogue else posts[:-1]
    if any(view is not None and isinstance(view.shape[0], int) and view.shape[0] == 1 for _, view in late):
        return None  # a bias after other operations is a broadcast post-op, which is slow
    return posts[::-1]


Found = tuple[PostOp, "View | None", Value]


def _one(v: Value, above: set[int], out: View, step: Compute, program: Program) -> Found | None:
    for x in (w for w in walk([v]) if w.uid in above and w is not v):
        if (kind := activation(v, x)) is not None:
            return PostOp(kind), None, x
    if v.op not in ("add", "sub", "mul") or sum(a.uid in above for a in v.args) != 1:
        return None
    mine, other = v.args if v.args[0].uid in above else v.args[::-1]
    if v.op == "sub" and mine is not v.args[0]:
        return None
    if other.op == "constant" and isinstance(other.attr, float):
        alpha, beta = {"add": (1.0, other.attr), "sub": (1.0, -other.attr), "mul": (other.attr, 0.0)}[v.op]
        return PostOp("linear", alpha=alpha, beta=beta), None, mine
    if other.op != "load":
        return None
    view = _operand(other.attr, out, step, program)
    return None if view is None else (PostOp(v.op, tensor=True), view, mine)


def _operand(access: Access, out: View, step: Compute, program: Program) -> View | None:
    """The load as a tensor of the result's shape, or a row vector that broadcasts to it."""
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
