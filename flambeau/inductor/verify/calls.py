"""Checks of library calls: the operation is known, its operands go together, and its results are what its own shape rule says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flambeau.core import dispatch
from flambeau.core.expr import free_variables
from flambeau.core.tensor import Tensor, fake
from flambeau.inductor.call import fill
from flambeau.inductor.library import LIBRARY, family_of, takes_epilogue
from flambeau.inductor.loop.boxes import Slot
from flambeau.inductor.loop.ir import THROUGH_PYTHON, Extern, View
from flambeau.inductor.verify.steps import Facts, Wrong, evaluate_all, views_are_inside
from flambeau.ops.registry import CompositeRecord, Primitive, Spec, is_operator


def operation_is_known(step: Extern, facts: Facts) -> Wrong:
    """There is such a call, of something that can be called."""
    if not step.in_python and (family_of(step) is None or step.op != step.target.name):
        yield f"there is no library call {step.op!r}; there are those of {', '.join(LIBRARY)}, and through Python {', '.join(THROUGH_PYTHON)}"
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
    if posts and not takes_epilogue(step):
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
    family = family_of(step)
    if family is not None:
        yield from family.wrongs(step)


EXTERN: tuple[Callable[[Extern, Facts], Wrong], ...] = (
    operation_is_known, views_are_inside, slots_are_operands, epilogue_goes_together, results_follow, operands_lie_as_claimed)
