"""Checks of single steps of a loop program: variables, places, types of loop nests. Each yields what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flambeau.core.dtypes import bool_, dtype, int64
from flambeau.core.expr import Expr, bounds, evaluate, free_variables, known_nonnegative, to_python
from flambeau.core.scalar import FOLDS, TABLE, compute_dtype, result_dtype
from flambeau.core.size import extent, is_dense
from flambeau.core.symbolic import SymFloat, SymInt
from flambeau.core.tensor import Tensor
from flambeau.inductor.loop.ir import SCATTERS, Access, Compute, Extern, Program, Value, View, computed_names
from flambeau.inductor.verify.places import Memory, Site

Wrong = Iterator[str]


@dataclass
class Facts:
    """What checks look things up in."""

    program: Program
    sizes: list[dict[str, int]]
    memory: Memory


# --- loop nests ---


def kind_of_step(step: Compute, facts: Facts) -> Wrong:
    """Every step is of a known kind, and folds exactly if it is a fold."""
    if step.kind not in (*FOLDS, "pointwise", *SCATTERS):
        yield f"there is no kind of step {step.kind!r}; reductions are {', '.join(FOLDS)}"
    if bool(step.reduce_loops) != (step.kind in FOLDS):
        yield f"it is a {step.kind} over {len(step.reduce_loops)} reduction loops"
    if step.index_values and step.kind not in SCATTERS:
        yield f"only a scatter stores at computed positions, not a {step.kind}"


def loops_are_named_once(step: Compute, facts: Facts) -> Wrong:
    """Two loops with one variable would be one loop; sizes are known and not negative."""
    names = [name for name, _ in step.loops + step.reduce_loops]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two loops are called {name}"
    for name, size in step.loops + step.reduce_loops:
        unknown = free_variables(size) - facts.sizes[0].keys()
        if unknown:
            yield f"the loop over {name} has the unknown size {sorted(unknown)[0]}"
        elif bounds(size)[0] < 0 and any(evaluate(size, sizes) < 0 for sizes in facts.sizes):
            yield f"the loop over {name} has {to_python(size)} iterations"


def loads_in_bounds(step: Compute, facts: Facts) -> Wrong:
    """What is loaded lies in its buffer, for all values of the loops, where it is not masked."""
    for value in step.values:
        if value.op == "load":
            access: Access = value.attr
            site = Site(dict(step.loops + step.reduce_loops), facts.sizes, dict(zip(access.names, value.args, strict=False)),
                        value.args[-1] if access.masked else None)
            yield from _in_bounds(site, access.index, access.buffer, facts, f"the load {value} of", f"{value} reads")


def store_in_bounds(step: Compute, facts: Facts) -> Wrong:
    """What is stored lies in the buffer."""
    loops = step.loops + (step.reduce_loops if step.kind in SCATTERS else ())
    site = Site(dict(loops), facts.sizes, step.index_values, step.mask)
    return _in_bounds(site, step.index, step.buffer, facts, "the store to", "it stores to")


def _in_bounds(site: Site, index: Any, buffer: str, facts: Facts, access: str, does: str) -> Wrong:
    if (wrong := site.misnamed(index)) is not None:
        yield f"{access} {buffer} {wrong}"
    elif (wrong := site.outside(index, facts.program.buffers[buffer].numel)) is not None:
        yield f"{does} {buffer}{wrong}"


def store_has_its_type(step: Compute, facts: Facts) -> Wrong:
    """The body is computed in the type that the buffer is computed in."""
    buffer = facts.program.buffers[step.buffer]
    if step.body.dtype is not compute_dtype(buffer.dtype):
        yield f"it stores {step.body.dtype.name} to {buffer.name}, which is {buffer.dtype.name}"
    if step.mask is not None and step.mask.dtype is not bool_:
        yield f"its mask {step.mask} is {step.mask.dtype.name}, not bool"


def values_are_typed(step: Compute, facts: Facts) -> Wrong:
    """Every value has as many operands as its operation takes, of types that go together, and the type that follows."""
    loops = dict(step.loops + step.reduce_loops)
    for value in step.values:
        rule = _RULES.get(value.op, _scalar if value.op in TABLE else None)
        if rule is None:
            yield f"{value}: there is no operation {value.op}"
            continue
        wrong = rule(value, facts.program)
        if wrong is None and value.op == "index":
            wrong = Site(loops, facts.sizes, dict(zip(computed_names(value.attr), value.args))).misnamed(value.attr)
        if wrong is not None:
            yield f"{value} = {value.op} {wrong}"


MIXED = ("philox", "shl", "shr")        # their operands are of several types


def _scalar(value: Value, program: Program) -> str | None:
    row, kinds = TABLE[value.op], [a.dtype for a in value.args]
    if len(kinds) != row.arity:
        return f"has {len(kinds)} operands, not {row.arity}"
    if value.op == "where" and kinds[0] is not bool_:
        return f"has a condition of type {kinds[0].name}"
    if len(set(kinds[value.op == "where":])) > 1 and value.op not in MIXED:
        return f"has operands of types {[k.name for k in kinds]}"
    want = result_dtype(row, kinds)
    return None if value.dtype is want else f"of {', '.join(k.name for k in kinds)} is {want.name}, not {value.dtype.name}"


def _load(value: Value, program: Program) -> str | None:
    access: Access = value.attr
    kind = program.buffers[access.buffer].dtype
    if value.dtype is not compute_dtype(kind):
        return f"reads {access.buffer}, which is {kind.name}, as {value.dtype.name}"
    if len(value.args) != len(access.names) + access.masked:
        return f"has {len(value.args)} operands for {len(access.names)} computed positions{' and a mask' if access.masked else ''}"
    if access.masked and value.args[-1].dtype is not bool_:
        return f"has a mask of type {value.args[-1].dtype.name}"
    return None


def _constant(value: Value, program: Program) -> str | None:
    kind, number = value.dtype, value.attr
    if isinstance(number, SymFloat):
        unknown = number.variables - program.symbols.keys() - program.hints.keys()
        return f"of type {kind.name} is computed of the unknown size {min(unknown)}" if unknown else None
    fits = (isinstance(number, bool) if kind is bool_ else isinstance(number, complex) if kind.is_complex
            else isinstance(number, float) if kind.is_floating_point else isinstance(number, int) and not isinstance(number, bool))
    return None if fits else f"of type {kind.name} is {number!r}"


def _index(value: Value, program: Program) -> str | None:
    if not isinstance(value.attr, Expr) or value.dtype is bool_:
        return f"of type {value.dtype.name} is {value.attr!r}"
    names = computed_names(value.attr)
    return None if len(names) == len(value.args) else f"has {len(value.args)} operands for {len(names)} computed positions"


def _converted(value: Value, program: Program) -> str | None:
    if len(value.args) != 1:
        return f"has {len(value.args)} operands, not 1"
    source: dtype = value.args[0].dtype
    if value.op == "bitcast" and source.itemsize != value.dtype.itemsize:
        return f"makes {value.dtype.name} of {source.name}, which is of another size"
    if value.op == "round_to" and not (source is value.dtype is compute_dtype(value.attr) and value.attr is not value.dtype):
        return f"rounds {source.name} to {value.attr.name} and is {value.dtype.name}"
    return None


def _checked(value: Value, program: Program) -> str | None:
    if [a.dtype for a in value.args] != [int64, int64] or value.dtype is not int64:
        return f"checks {[a.dtype.name for a in value.args]}; positions are int64"
    return None


_RULES: dict[str, Callable[[Value, Program], str | None]] = {
    "load": _load, "constant": _constant, "index": _index, "to_dtype": _converted, "bitcast": _converted, "round_to": _converted,
    "checked": _checked,
}


# --- views ---


def view_is_inside(view: View, facts: Facts) -> str | None:
    """How a view leaves its buffer, or differs from it in type."""
    buffer = facts.program.buffers.get(view.buffer)
    if buffer is None:
        return f"there is no buffer {view.buffer}"
    if view.dtype is not buffer.dtype:
        return f"{view.buffer} is {buffer.dtype.name}, but is seen as {view.dtype.name}"
    if len(view.shape) != len(view.strides):
        return f"{view.buffer} is seen with {len(view.shape)} sizes and {len(view.strides)} strides"
    for sizes in facts.sizes if not _is_shown_inside(view, buffer.numel) else ():
        try:
            shape, strides, offset, end = evaluate_all((view.shape, view.strides, view.offset, buffer.numel), sizes)
        except KeyError as unknown:
            return f"the view of {view.buffer} has the unknown size {unknown.args[0]}"
        last = offset + extent(shape, strides) - 1
        if 0 not in shape and (offset < 0 or last >= end or min(strides, default=0) < 0):
            return f"the view {shape}:{strides}+{offset} of {view.buffer} is of elements {offset} to {last} of {end}" + (
                f" at {', '.join(f'{k}={n}' for k, n in sizes.items())}" if sizes else "")
    return None


def _is_shown_inside(view: View, size: Any) -> bool:
    """Whether the view is inside for all sizes, by bounds alone."""
    lowest = min([bounds(x)[0] for x in (*view.strides, view.offset)])
    return lowest >= 0 and all(bounds(n)[0] > 0 for n in view.shape) and known_nonnegative(
        size - 1 - view.index([n - 1 for n in view.shape]))


def result_is_like(view: View, tensor: Any, exact: bool) -> str | None:
    """How a result differs from the tensor that the graph says it is; where it is `exact`, also in its strides."""
    if not isinstance(tensor, Tensor):
        return f"{view.buffer} is a tensor, but the graph's result is {tensor!r}"
    lies = tensor._layout
    shape, strides = (tuple([n.expr if isinstance(n, SymInt) else n for n in numbers]) for numbers in (lies.shape, lies.strides))
    if view.dtype is not tensor.dtype or any(_differ(n, m) for n, m in zip(view.shape, shape)) or len(view.shape) != len(shape):
        return f"{view.buffer} is {view.dtype.name}{list(view.shape)}, but the graph's result is {tensor.dtype.name}{list(shape)}"
    numbers = [n for n in (*shape, *strides) if isinstance(n, int)]
    known = len(numbers) == 2 * len(shape) and 0 not in shape and is_dense(numbers[:len(shape)], numbers[len(shape):])
    if exact and known and any(n != 1 and s != t for n, s, t in zip(shape, view.strides, strides)):
        return f"{view.buffer} has strides {list(view.strides)}, but the graph's result {list(strides)}"
    return None


def _differ(n: Any, m: Any) -> bool:
    """Whether two sizes are different numbers; of symbolic ones guards may say that they are equal."""
    return isinstance(n, int) and isinstance(m, int) and n != m


def evaluate_all(x: Any, sizes: dict[str, int]) -> Any:
    """Expressions in nested tuples as numbers."""
    return [evaluate_all(item, sizes) for item in x] if isinstance(x, tuple) else int(evaluate(x, sizes))


def views_are_inside(step: Extern, facts: Facts) -> Wrong:
    """The operands and results of a call are views inside of their buffers."""
    for role, views in (("operand", step.inputs), ("result", step.outputs)):
        for k, view in enumerate(views):
            wrong = view_is_inside(view, facts)
            if wrong is not None:
                yield f"{role} {k}: {wrong}"


COMPUTE: tuple[Callable[[Compute, Facts], Wrong], ...] = (
    kind_of_step, loops_are_named_once, values_are_typed, store_has_its_type, loads_in_bounds, store_in_bounds)
