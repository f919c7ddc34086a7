"""Running a program: a step at a time beside torch, or whole, under a transformation, beside the plain eager run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flambeau

from . import compare, known
from .compare import Difference
from .program import Program, Step, code

NAMES = {"numpy": np}
DISTURBANCES = 4


class Side:
    """One library in the middle of a program: the names that have a value."""

    def __init__(self, lib: Any, program: Program):
        self.lib = lib
        self.space: dict[str, Any] = {"torch": lib, **NAMES}
        for made in program.inputs:
            exec(made.code(), self.space)
        self.values = {made.name: self.space[made.name] for made in program.inputs}

    def run(self, step: Step) -> BaseException | None:
        """Run a step; the exception, if it raises one."""
        try:
            exec(step.code(), self.space)
        except Exception as error:
            return error
        if step.has_value:
            self.values[step.target] = self.space[step.target]
        return None

    def tensors(self) -> dict[str, Any]:
        """Every tensor that can be reached, by an expression that reaches it."""
        return dict(pair for name, value in self.values.items() for pair in reached(name, value, self.lib))


def reached(name: str, value: Any, lib: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, lib.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from reached(f"{name}[{i}]", item, lib)


def plain(value: Any, lib: Any) -> Any:
    """What is not a tensor, comparable between libraries."""
    if isinstance(value, lib.Tensor):
        return "Tensor"
    if isinstance(value, (tuple, list)):
        return [plain(v, lib) for v in value]
    if isinstance(value, lib.dtype):
        return str(value).rpartition(".")[2]
    return value


def same_plain(a: Any, b: Any, tolerance: float = 1e-5) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same_plain(x, y, tolerance) for x, y in zip(a, b))
    if isinstance(a, (float, complex)) and isinstance(b, (float, complex)):
        return bool(np.isclose(a, b, rtol=tolerance, equal_nan=True)) and type(a) is type(b)
    if isinstance(a, str) and isinstance(b, str):
        a, b = (re.sub(r",\s+grad_fn=<\w+>", ", grad_fn", text) for text in (a, b))      # how nodes are called is a library's own
    return type(a) is type(b) and a == b


def versions(tensors: dict[str, Any]) -> dict[str, int]:
    return {name: t._version for name, t in tensors.items()}


def sharing(tensors: dict[str, Any], of: dict[str, Any]) -> dict[str, frozenset[str]]:
    """For each of some tensors, which tensors share its storage."""
    where = {name: t.untyped_storage().data_ptr() for name, t in tensors.items() if t.numel()}
    return {name: frozenset(n for n, p in where.items() if p == where[name]) for name in of if name in where}


# -- eager: a step at a time
def eager(program: Program, theirs: Any) -> Difference | None:
    """The first difference between Flambeau and torch, run a step at a time. After each step Flambeau's values are
    replaced by torch's, so that what is found is the step's own, and rounding does not add up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = Side(theirs, program)
        try:
            mine = Side(flambeau, program)
        except Exception as error:
            return Difference(-1, "input", f"raises {type(error).__name__}", str(error))
        found = _compare_all(-1, "input", mine, other, None)
        if found is not None:
            return found
        for number, step in enumerate(program.steps):
            try:
                found = _step(number, step, mine, other)
            except PartedWays:
                return None
            if found is not None:
                return found
    return None


def _step(number: int, step: Step, mine: Side, other: Side) -> Difference | None:
    before = versions(mine.tensors()), versions(other.tensors())
    inputs = disturbable(step, other)
    error, expected = mine.run(step), other.run(step)
    if known.excuses_step(step, other.space.get(step.target)):
        return _passed_over(step, mine, other)
    if error is not None or expected is not None:
        kind = raising(error, expected, step)
        if kind is not None:
            return Difference(number, step.name, kind, f"Flambeau: {error!r}; torch: {expected!r}"[:600])
        if error is None or expected is None or not step.has_value:  # only one has a value now; or torch half wrote before it raised
            return _passed_over(step, mine, other)
        if any(written(other.space[name], was, other.lib) for name, was in inputs.items()):     # torch raised half-way
            return _passed_over(step, mine, other)
    after = versions(mine.tensors()), versions(other.tensors())    # comparing puts torch's values into ours
    found = _compare_all(number, step.name, mine, other, lambda names: disturbed(step, inputs, other, names), step, inputs)
    if found is not None:
        return found
    if error is None and expected is None:
        for name in before[0]:
            a, b = after[0][name] != before[0][name], after[1][name] != before[1][name]
            if a != b and not known.excuses_version(step):
                return Difference(
                    number,
                    step.name,
                    "version",
                    f"the version of {name} {'changes' if a else 'stays'}, torch's {'changes' if b else 'stays'}",
                )
    return None


class PartedWays(Exception):
    """An excused step left tensors of different layouts: what follows compares nothing."""


def _passed_over(step: Step, mine: Side, other: Side) -> None:
    """After an excused step: neither side has its value, and what it wrote is torch's."""
    for side in (mine, other):
        if step.has_value:
            side.values.pop(step.target, None)
            side.space.pop(step.target, None)
    ours, theirs = mine.tensors(), other.tensors()
    for name in ours.keys() | theirs.keys():
        if name not in ours or name not in theirs or compare.layout(ours[name], theirs[name]):
            raise PartedWays    # one of them changed a tensor's layout in place
        _copy(ours[name], theirs[name])
        if compare.array(ours[name]).tobytes() != compare.array(theirs[name]).tobytes():
            raise PartedWays    # torch wrote to one place of an expanded tensor several times


def raising(error: BaseException | None, expected: BaseException | None, step: Step) -> str | None:
    """How two outcomes of which one at least is an exception differ."""
    if known.excuses_error(error, expected, step):
        return None
    if expected is None:
        return f"raises {type(error).__name__}"
    if error is None:
        return f"accepts what torch refuses ({type(expected).__name__})"
    if isinstance(error, type(expected)) or (isinstance(expected, type(error)) and type(error) is not Exception):
        return None
    if type(error).__name__ == type(expected).__name__:     # the libraries' own: _LinAlgError
        return None
    return f"raises {type(error).__name__} for torch's {type(expected).__name__}"


def _compare_all(
    number: int, op: str, mine: Side, other: Side, spread: Callable | None, step: Step | None = None, inputs: Any = None
) -> Difference | None:
    ours, theirs = mine.tensors(), other.tensors()
    target = step.target if step is not None and step.has_value else None
    if target is not None and target in mine.values and target in other.values:
        a, b = plain(mine.values[target], mine.lib), plain(other.values[target], other.lib)
        if not same_plain(a, b):
            return Difference(number, op, "result", f"{a!r}, torch {b!r}"[:300])
    fresh = {n: t for n, t in theirs.items() if n.split("[")[0] == target}
    excused = step is not None and known.excuses_layout(step)
    if step is not None and not excused:
        a, b = sharing(ours, fresh), sharing(theirs, fresh)
        for name in a.keys() & b.keys():
            if a[name] != b[name]:
                return Difference(
                    number,
                    op,
                    "aliasing",
                    f"{name} shares memory with {sorted(a[name] - {name})}, torch's with {sorted(b[name] - {name})}",
                )
    suspects: dict[str, str | None] = {}
    masks: dict[str, Any] = {}
    for name, expected in theirs.items():
        got = ours.get(name)
        if got is None:
            return Difference(number, op, "result", f"no tensor at {name}")
        if name in fresh or step is None or number < 0:
            found = compare.layout(got, expected)
            if found is not None and found[0] == "strides" and step is not None and _told_apart_by_ones(step, mine, other):
                excused = True
            if found is not None and not (excused and found[0] in ("strides", "offset")):
                return Difference(number, op, found[0], f"{name}: {found[1]}")
        if got.is_fake:
            return Difference(number, op, "no values", f"{name} is a fake tensor")
        a, b = compare.array(got), compare.array(expected)
        if a.shape != b.shape:
            return Difference(number, op, "shape", f"{name}: {a.shape}, torch {b.shape}")
        if a.dtype.kind == b.dtype.kind and a.tobytes() == b.tobytes():
            continue
        if step is not None and known.excuses_index(step, name):
            suspects[name] = None
            continue
        masks[name] = known.excused_values(step, inputs, a, b) if step is not None else False
        suspects[name] = compare.unlike(a, b, compare.dtype_name(expected), excused=masks[name])
    if any(s for s in suspects.values()) and spread is not None:
        names = [n for n, s in suspects.items() if s]
        allowed, right, own = spread(names), *(widely(step, inputs, side, names) for side in (other, mine))
        for name in names:
            a, b, kind = compare.array(ours[name]), compare.array(theirs[name]), compare.dtype_name(theirs[name])
            again = compare.unlike(a, b, kind, allowed[name], masks[name] | explained(a, b, kind, right.get(name), own.get(name)))
            if again:
                return Difference(number, op, f"value ({kind})", f"{name}: {again}")
    elif any(suspects.values()):
        name, said = next((n, s) for n, s in suspects.items() if s)
        return Difference(number, op, f"value ({compare.dtype_name(theirs[name])})", f"{name}: {said}")
    for name in suspects:
        _copy(ours[name], theirs[name])
    if excused and target in mine.values and target in other.values:
        _detach(target, mine, other)
    return None


def _told_apart_by_ones(step: Step, mine: Side, other: Side) -> bool:
    """Whether the strides of dimensions of one element decide how a result lies, where nothing else does: they may be others in torch,
    and conversions keep them there."""
    ours, theirs = ([t for name in sorted(step.refs()) for _, t in reached(name, side.space.get(name), side.lib)] for side in (mine, other))
    converted = len(theirs) > 1 and any(t.dtype != theirs[0].dtype or not t.is_floating_point() for t in theirs)
    return any(a.stride() != b.stride() for a, b in zip(ours, theirs)) or (converted and any(1 in t.shape for t in theirs))


def _map(fn: Callable[[Any], Any], value: Any) -> Any:
    """A function of every tensor of nested values."""
    if isinstance(value, dict):
        return {name: _map(fn, v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_map(fn, v) for v in value]
    return fn(value) if hasattr(value, "detach") else value


def _detach(name: str, *sides: Side) -> None:
    """After a step whose layout is excused later steps are not to meet it: copies in row-major order, of their own memory, go on."""
    for side in sides:
        def in_rows(t: Any, lib: Any = side.lib) -> Any:
            return t.clone(memory_format=lib.contiguous_format)

        side.space[name] = side.values[name] = _map(in_rows, side.values[name])


def _copy(ours: Any, theirs: Any) -> None:
    """Put torch's values into our tensor, where it can be written to."""
    with flambeau.no_grad():
        try:
            source = flambeau.from_numpy(np.array(compare.array(theirs)))
            ours.detach().copy_(source)
        except RuntimeError:  # an expanded tensor: the one that it looks into is written
            pass


# -- what rounding explains
def disturbable(step: Step, side: Side) -> dict[str, Any]:
    """Copies of the tensors that a step reads, by root name."""
    return {name: _map(lambda t: t.detach().clone(), side.space[name]) for name in step.refs() if name in side.space}


def written(value: Any, was: Any, lib: Any) -> bool:
    """Whether a value that was copied is another by now."""
    if isinstance(value, lib.Tensor):
        return bool(value.shape != was.shape or compare.array(value).tobytes() != compare.array(was).tobytes())
    return isinstance(value, (tuple, list)) and any(written(v, w, lib) for v, w in zip(value, was))


def _shaken(value: Any, lib: Any, draw: np.random.Generator, least: float) -> Any:
    """A tensor moved by its last place, or by that of the result (`least`) if this is more; integers that no float32, nor the result's
    dtype, holds by a few."""
    size = tuple(value.shape)       # of all sizes, so that what cancels does not cancel again
    noise = lib.from_numpy(np.asarray(draw.choice([-1.0, 1.0], size=size) * draw.uniform(0.6, 1.2, size=size))).reshape(value.shape)
    if not (value.is_floating_point() or value.is_complex()):
        unit = max(1.2e-7, least)
        if not least or value.dtype is lib.bool or not bool((value.double().abs() * unit > 2).any()):
            return value
        return value - (value.double() * 1.7 * unit * noise.abs()).to(value.dtype)    # towards 0, so that nothing overflows
    eps = max(lib.finfo(value.dtype).eps, least)
    return (
        (value * (1 + 1.5 * eps * noise.to(lib.float64))).to(value.dtype)
        if value.dtype in (lib.float32, lib.complex64, lib.float64, lib.complex128)
        else (value.double() * (1 + 1.5 * eps * noise)).to(value.dtype)
    )


WIDER = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}


def widened(text: str) -> str:
    """A program's text with wider dtypes for the narrow ones that it names."""
    return re.sub(r"torch\.(\w+)\b", lambda found: f"torch.{WIDER.get(found[1], found[1])}", text)


def widely(step: Step, inputs: dict[str, Any], side: Side, names: list[str]) -> dict[str, np.ndarray]:
    """What a library makes of a step in float64, of those results that are narrower."""
    kinds = WIDER.values()
    text = widened(step.code())
    space = {**side.space, **_map(lambda t: _wide(t, side.lib), inputs)}
    default = side.lib.get_default_dtype()
    side.lib.set_default_dtype(side.lib.float64)
    try:
        exec(text, space)
        found = {name: eval(name, space) for name in names if name.split("[")[0] in {step.target, *inputs}}
    except Exception:
        return {}
    finally:
        side.lib.set_default_dtype(default)
    return {name: compare.array(t) for name, t in found.items() if compare.dtype_name(t) in kinds}


def _wide(t: Any, lib: Any) -> Any:
    """A copy of one of torch's tensors in a library, wide."""
    kind = compare.dtype_name(t)
    return lib.from_numpy(np.array(compare.array(t))).to(getattr(lib, WIDER.get(kind, kind)))


def explained(ours: np.ndarray, theirs: np.ndarray, kind: str, right: np.ndarray | None, own: np.ndarray | None) -> Any:
    """A mask of the elements of a narrow result that its dtype explains. `right` and `own` are torch's and our results in float64: ours
    is that rounded, or a thousand times nearer to it than torch's; or the two are the same, and ours off by last places of 1."""
    if right is None or kind not in WIDER or right.shape != ours.shape:
        return False
    with np.errstate(all="ignore"):
        apart, most = np.abs(theirs - right) / 1000, max(1.0, np.abs(right[np.isfinite(right)]).max(initial=0))
        rounded = ~compare.wrong(ours, right.astype(ours.dtype), kind, np.where(np.isfinite(apart), apart, 0.0))
        same = own is not None and own.shape == right.shape and ~compare.wrong(own, right, "float64", compare.closeness("float64", right))
        return ~np.isnan(right) & (rounded | (same & (np.abs(ours - right) <= 16 * _EPS[kind] * most)))


_EPS = {"float32": 2.0**-23, "complex64": 2.0**-23, "float64": 2.0**-52, "complex128": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _computed_in(dtype: str, step: Step, inputs: dict[str, Any]) -> str:
    """The dtype in which a result was rounded: an out= may be wider than what the operands are computed in."""
    if "out" not in step.kwargs or dtype not in compare.TOLERANCE:
        return dtype
    operands = {compare.dtype_name(t) for name, t in inputs.items() if hasattr(t, "dtype") and name != code(step.kwargs["out"])}
    finest = min(operands & compare.TOLERANCE.keys() or {"float32"}, key=compare.TOLERANCE.__getitem__)
    return max(finest, dtype, key=compare.TOLERANCE.__getitem__)


def disturbed(step: Step, inputs: dict[str, Any], side: Side, names: list[str]) -> dict[str, Any]:
    """How far torch's own results move when the step's inputs move by their last place: element by element."""
    dtypes = {name: _computed_in(compare.dtype_name(side.tensors()[name]), step, inputs) for name in names}
    moved = {name: compare.closeness(dtypes[name], compare.array(side.tensors()[name])) for name in names}
    least = max(_EPS.get(dtype, 0.0) for dtype in dtypes.values())
    moved = {name: np.full(side.tensors()[name].shape, amount) for name, amount in moved.items()}
    reference = {name: compare.array(side.tensors()[name]) for name in names}
    draw = np.random.default_rng(0)
    for _ in range(DISTURBANCES):
        space = {**side.space, **_map(lambda t: _shaken(t, side.lib, draw, least), inputs)}
        try:
            exec(step.code(), space)
        except Exception:
            continue
        for name in names:
            try:
                again = compare.array(eval(name, space))
                if again.shape != reference[name].shape:
                    continue
                with np.errstate(all="ignore"):
                    if again.dtype.kind not in "fc":
                        change = (again != reference[name]).astype(float)
                    else:
                        change = np.abs(again - reference[name]) * 4
                        change = np.where(
                            np.isfinite(change), change, np.where(np.isfinite(again) == np.isfinite(reference[name]), 0.0, np.inf)
                        )
                moved[name] = np.maximum(moved[name], change)
            except Exception:
                continue
    own = [moved[name] for name in names if name.split("[")[0] in {step.target, *inputs}]
    for name in names:      # what shares memory with what the step wrote, of which only a copy was written again
        if name.split("[")[0] not in {step.target, *inputs} and own:
            moved[name] = np.maximum(moved[name], max(float(m.max(initial=0)) for m in own))
    return moved
