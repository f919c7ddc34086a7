"""Checks of library calls: the operation is known, its operands go together, and its results are what its own shape rule says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flambeau.core import dispatch
from flambeau.core.dtypes import int64
from flambeau.core.expr import Expr, free_variables
from flambeau.core.size import contiguous_strides
from flambeau.core.tensor import Tensor, fake
from flambeau.core.windows import ROLES, by_role, window_count
from flambeau.inductor.call import fill
from flambeau.inductor.cpu.externs import ATTENTION, CALLS, DRAWS, RUNNING
from flambeau.inductor.loop.boxes import Slot
from flambeau.inductor.loop.ir import Extern, View
from flambeau.inductor.verify.steps import Facts, Wrong, evaluate_all, views_are_inside
from flambeau.ops.registry import CompositeRecord, Primitive, Spec, is_operator

THROUGH_PYTHON = ("eager", "kernel")
LAYOUTS = ("given", "free")


def operation_is_known(step: Extern, facts: Facts) -> Wrong:
    """There is such a call, of something that can be called."""
    if step.op not in CALLS and step.op not in THROUGH_PYTHON and step.body is None:
        yield f"there is no library call {step.op!r}; there are {', '.join((*CALLS, *THROUGH_PYTHON))}"
    if not callable(step.target):
        yield f"the call {step.op} names no primitive: its target is {step.target!r}"
    if not step.outputs:
        yield f"the call {step.op} has no result"


def slots_are_operands(step: Extern, facts: Facts) -> Wrong:
    """The arguments take the operands, each once and in order."""
    taken = [int(slot) for slot in _slots(step.args)]
    rest = len(step.inputs) - sum(post.tensor for post in step.epilogue) - (step.activation is not None)
    if taken != list(range(rest)):
        yield f"its arguments take the operands {taken}, but it has {rest}"


def _slots(args: Any) -> Iterator[Slot]:
    for a in args if isinstance(args, (tuple, list)) else (args,):
        if isinstance(a, (tuple, list)):
            yield from _slots(a)
        elif isinstance(a, Slot):
            yield a


def results_follow(step: Extern, facts: Facts) -> Wrong:
    """The results have the shapes and dtypes that the primitive's shape rule gives for the operands, at sizes that may come."""
    target: Any = step.target
    if step.window or "custom" in getattr(target, "tags", ()) or not (
            isinstance(target, (Primitive, CompositeRecord)) or is_operator(target)):
        return
    if _unbacked(step.outputs) - _unbacked(step.inputs):     # sizes that the call finds out
        return
    floats = {name: 1.0 for name in facts.program.symbols if name[0] == "f"}
    for sizes in facts.sizes:
        operands = [_stand_in(step.op, view, sizes) for view in step.inputs]
        try:
            with dispatch.grad_enabled(False), dispatch.fake_mode():
                results = (target.shape if isinstance(target, Primitive) else target)(*fill(step.args, operands, {**sizes, **floats}))
        except (RuntimeError, ValueError, TypeError, IndexError) as refused:
            yield f"{step.op} refuses its operands {[list(t.shape) for t in operands]}: {refused}"
            return
        made = list(results) if type(results) in (tuple, list) else [results]
        want = [(_stand_in(step.op, view, sizes)) for view in step.outputs]
        if [(tuple(t.shape), t.dtype) for t in made] != [(tuple(t.shape), t.dtype) for t in want]:
            yield f"{step.op} gives {_described(made)}, but its results are {_described(want)}"
            return


def _unbacked(views: Sequence[View]) -> set[str]:
    return {name for v in views for n in v.shape for name in free_variables(n) if name[0] == "u"}


def _stand_in(op: str, view: View, sizes: Mapping[str, int]) -> Tensor:
    """A fake tensor like a view; two batch dimensions of a product are one."""
    shape, strides = evaluate_all((view.shape, view.strides), dict(sizes))
    if op == "bmm" and len(shape) == 4:
        return fake((shape[0] * shape[1], *shape[2:]), view.dtype)
    return fake(tuple(shape), view.dtype, strides=tuple(strides))


def _described(tensors: Sequence[Tensor | Spec]) -> str:
    return ", ".join(f"{t.dtype.name}{list(t.shape)}" for t in tensors)


def epilogue_goes_together(step: Extern, facts: Facts) -> Wrong:
    """What a call ends in is known, and its tensors broadcast to the result, in its type."""
    posts, out = step.epilogue, step.outputs[0]
    if step.op not in ("mm", "bmm", *ROLES) and posts:
        yield f"{step.op} takes no epilogue"
    tensors = step.inputs[len(step.inputs) - sum(post.tensor for post in posts):]
    if step.activation is not None:
        tensors = (*tensors, step.inputs[-1])
    for view in tensors:
        own = out.shape[len(out.shape) - len(view.shape):]
        if len(view.shape) > len(out.shape) or any(n is not m and n not in (1, m) for n, m in zip(view.shape, own)):
            yield f"{view.buffer}{list(view.shape)} of its epilogue does not broadcast to the result's {list(out.shape)}"
        if view.dtype is not out.dtype:
            yield f"{view.buffer} of its epilogue is {view.dtype.name}, the result {out.dtype.name}"


def operands_lie_as_claimed(step: Extern, facts: Facts) -> Wrong:
    """Operands of libraries that are called by address have the layouts that they take."""
    yield from _LIE.get(step.op, lambda step: iter(()))(step)


def _matrices(step: Extern) -> Wrong:
    """Products take strided matrices, of which one dimension is contiguous, and write such a one, in one type."""
    for view in (*step.inputs[:2], *step.outputs):
        if view.dtype is not step.outputs[0].dtype:
            yield f"{view.buffer} is {view.dtype.name}, the result {step.outputs[0].dtype.name}"
        near = [s for s, n in zip(view.strides[-2:], view.shape[-2:]) if s == 1 or n == 1]
        if not near:
            yield f"neither rows nor columns of {view.buffer} are contiguous: strides {list(view.strides)}"


def _convolved(step: Extern) -> Wrong:
    """Convolutions on CPUs say how each of x, w, y lies; those of cuDNN have the shapes that their window makes."""
    if step.window:
        yield from _windowed(step)
        return
    layouts = step.layouts
    if len(layouts) != 3 or any(name not in LAYOUTS for name in layouts):
        yield f"the layouts of x, w and y are {layouts!r}; each is one of {', '.join(LAYOUTS)}"
    if any(v.dtype is not step.outputs[0].dtype for v in step.inputs[:2]):
        yield f"it convolves {', '.join(v.dtype.name for v in step.inputs[:2])} to {step.outputs[0].dtype.name}"


def _windowed(step: Extern) -> Wrong:
    x, w, y = by_role(step.op, step.inputs, *step.outputs)
    groups = step.args[-1]
    if any(isinstance(n, Expr) for v in (x, w, y) for n in v.shape):
        return
    sizes = tuple(map(window_count, x.shape[2:], w.shape[2:], *step.window))
    if x.shape[1] != w.shape[1] * groups or y.shape != (x.shape[0], w.shape[0], *sizes):
        yield f"a convolution of {list(x.shape)} with {list(w.shape)} gives {[x.shape[0], w.shape[0], *sizes]}, not {list(y.shape)}"


def _heads(step: Extern) -> Wrong:
    """Attention takes float32 in four dimensions, of which the last is contiguous."""
    for view in (*step.inputs, *step.outputs):
        if view.dtype.name != "float32":
            yield f"{view.buffer} is {view.dtype.name}, not float32"
        if len(view.shape) == 4 and view.strides[-1] != 1 and view.shape[-1] != 1:
            yield f"the last dimension of {view.buffer} is not contiguous: strides {list(view.strides)}"


def _looped(step: Extern) -> Wrong:
    """A loop's operands are what its step takes, at one place of the sequence or whole, and its results what the step makes."""
    body = step.body
    if body is None:
        return
    count, program = body.carried, body.program
    rows = range(count, count + body.inputs)
    made = [program.outputs[k] for k in (*body.places, *body.stacked)]
    pairs = [(view, program.buffers[name], k in rows) for k, (view, name) in enumerate(zip(step.inputs, body.taken))]
    pairs += [(view, program.buffers[out.buffer], k >= count)
              for k, (view, out) in enumerate(zip(step.outputs, made)) if isinstance(out, View)]
    if len(pairs) != len(step.inputs) + len(step.outputs) or len(body.taken) != len(step.inputs) or len(made) != len(step.outputs):
        yield f"it has {len(step.inputs)} operands and {len(step.outputs)} results, its step {len(body.taken)} and {len(made)}"
    for view, buffer, moves in pairs:
        shape, strides = view.shape[moves:], view.strides[moves:]
        if (shape, strides, view.dtype) != (buffer.shape, buffer.strides, buffer.dtype):
            yield (f"{view.buffer} is {view.dtype.name}{list(shape)} with strides {list(strides)} at each step, which takes "
                   f"{buffer.dtype.name}{list(buffer.shape)} with strides {list(buffer.strides)} as {buffer.name}")
    if len({view.shape[0] for view in step.inputs[count:count + body.inputs]} | {v.shape[0] for v in step.outputs[count:]}) != 1:
        yield "what it goes over differs in length"


def _drawn(step: Extern) -> Wrong:
    """A draw takes the state (seed, offset) and fills contiguous memory."""
    state, out = step.inputs[0], step.outputs[0]
    if state.dtype is not int64 or list(state.shape) != [2] or list(state.strides) != [1]:
        yield f"its state {state.buffer} is {state.dtype.name}{list(state.shape)}, not a contiguous int64[2]"
    want: Any = 1
    for n, s in reversed(list(zip(out.shape, out.strides))):
        if s is not want and s != want and n != 1:
            yield f"the memory of {out.buffer} that it fills is not contiguous: strides {list(out.strides)}"
            return
        want = want * n


def _along(step: Extern) -> Wrong:
    """Running sums go over contiguous memory."""
    for view in (*step.inputs, *step.outputs):
        if list(view.strides) != list(contiguous_strides(view.shape)):
            yield f"{view.buffer} is not contiguous: strides {list(view.strides)}"


_LIE: dict[str, Callable[[Extern], Wrong]] = {
    "mm": _matrices, "bmm": _matrices, **dict.fromkeys(ROLES, _convolved), **dict.fromkeys(ATTENTION, _heads),
    **dict.fromkeys(DRAWS, _drawn), **dict.fromkeys(RUNNING, _along), "scan": _looped,
}

EXTERN: tuple[Callable[[Extern, Facts], Wrong], ...] = (
    operation_is_known, views_are_inside, slots_are_operands, epilogue_goes_together, results_follow, operands_lie_as_claimed)
