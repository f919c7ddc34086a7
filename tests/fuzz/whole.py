"""Running programs whole: forward and backward, compiled, batched; each beside a plain run that says what is right."""

from __future__ import annotations

import linecache
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import flambeau

from . import bits, compare, execute, known
from .compare import Difference
from .execute import NAMES, Side, disturbable, plain, reached, same_plain
from .program import Input, Program, Step, code, references

DISTURBANCES = 12


@dataclass
class Outcome:
    """What a run came to: the values of the steps, the inputs afterwards, and gradients of the inputs; or an exception."""

    values: dict[str, Any]
    inputs: dict[str, Any]
    grads: dict[str, Any] | None = None
    error: BaseException | None = None
    backward_error: BaseException | None = None


def tensors_of(program: Program, lib: Any, shake: np.random.Generator | None = None) -> dict[str, Any]:
    """The inputs; shaken by their last place where asked."""
    space: dict[str, Any] = {"torch": lib, **NAMES}
    for made in program.inputs:
        exec(replace(made, grad=False, views=()).code(), space)
        if shake is not None:
            space[made.name] = _shaken(space[made.name], lib, shake)
        space["it"] = space[made.name]
        space[made.name] = eval("it" + "".join(made.views) + (".requires_grad_()" if made.grad else ""), space)
    return {made.name: space[made.name] for made in program.inputs}


class Widened(Program):
    """A program that computes widely what it does in narrow dtypes, on the same numbers."""

    def __init__(self, inputs: tuple[Input, ...], steps: tuple[Step, ...]) -> None:
        wide = [replace(i, views=(f".to(torch.{execute.WIDER.get(i.dtype, i.dtype)})", *i.views)) for i in inputs]
        super().__init__(tuple(wide), steps)

    def function(self) -> str:
        return execute.widened(super().function())


def _shaken(value: Any, lib: Any, draw: np.random.Generator) -> Any:
    if not (value.is_floating_point() or value.is_complex()):
        return value
    # half a unit too, for below a power of two it is a whole one; complex numbers turn, so that none lies on an axis for good
    noise = draw.choice([-1.5, -0.5, 0.5, 1.5], size=tuple(value.shape))
    noise = noise * draw.choice([1, 1j], size=noise.shape) if value.is_complex() else noise
    wide = lib.complex128 if value.is_complex() else lib.float64
    moved = 1 + lib.finfo(value.dtype).eps * lib.from_numpy(np.asarray(noise)).reshape(tuple(value.shape))
    return (value.to(wide) * moved).to(value.dtype)


def rounded(program: Program, every: bool) -> str:
    """The program, shaking by their last place the floats that each step makes, for each rounds; or those made of integers alone, which
    no shaken input moves."""
    lines = program.function().splitlines()
    kinds = {made.name: made.dtype for made in program.inputs}
    exact = {name for name, kind in kinds.items() if every or ("float" not in kind and "complex" not in kind)}
    shaken = []
    for line, step in zip(lines[1:], program.steps):
        shaken.append(line)
        if step.has_value and step.refs() and step.refs() <= exact:
            exact.add(step.target)
            shaken.append(f"    shake({step.target})")
    return "\n".join([lines[0], *shaken, lines[-1]]) + "\n"


def function(program: Program, lib: Any, text: str | None = None) -> Callable:
    """The program as a function over a library, with source that a tracer can read."""
    text = text or program.function()
    name = f"<program {abs(hash(text))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"torch": lib, **NAMES}
    exec(compile(text, name, "exec"), space)
    return space["program"]


def _shaking(program: Program, lib: Any, draw: np.random.Generator) -> Callable:
    every = lib is not flambeau     # whose writes through `data` are counted

    def shake(value: Any) -> None:
        for _, t in reached("", value, lib):
            whole = t.is_contiguous() and (t.is_complex() or (t.is_floating_point() and bool((t != t.to(lib.int64)).any())))
            if whole and (every or not t.requires_grad):
                t.data.copy_(_shaken(t.detach().clone(), lib, draw))

    call = function(program, lib, rounded(program, every))
    call.__globals__["shake"] = shake
    return call


def run(program: Program, lib: Any, call: Callable | None = None, shake: np.random.Generator | None = None,
        roots: frozenset[str] | None = None) -> Outcome:
    """Run a program whole, and backward where an input requires grad; from `roots` alone, if they are given."""
    inputs = tensors_of(program, lib, shake)
    try:
        answers = (call or (function(program, lib) if shake is None else _shaking(program, lib, shake)))(*inputs.values())
    except Exception as error:
        return Outcome({}, inputs, error=error)
    values = dict(zip([s.target for s in program.steps if s.has_value], answers))
    return backward(program, lib, Outcome(values, inputs), shake, roots)


def backward(program: Program, lib: Any, outcome: Outcome, shake: np.random.Generator | None = None,
             roots: frozenset[str] | None = None) -> Outcome:
    """The outcome with the gradients of a weighted sum of everything that has one (or of `roots`), inputs afterwards too; the weights,
    too, are shaken where asked."""
    wanted = _wanted(program, outcome)
    if not wanted:
        return outcome
    try:
        reach = [t for name, t in _with_history(outcome, lib).items() if roots is None or name in roots]
        if reach:
            grads = lib.autograd.grad(reach, list(wanted.values()), [_weights(t, lib, shake) for t in reach], allow_unused=True)
            outcome.grads = dict(zip(wanted, grads))
    except Exception as error:
        outcome.backward_error = error
    return outcome


def _wanted(program: Program, outcome: Outcome) -> dict[str, Any]:
    return {made.name: outcome.inputs[made.name] for made in program.inputs if made.grad}


def _with_history(outcome: Outcome, lib: Any) -> dict[str, Any]:
    """What has a gradient, by name: values, and inputs that were written to."""
    everything = (*outcome.values.items(), *outcome.inputs.items())
    return {n: t for name, value in everything for n, t in reached(name, value, lib) if t.requires_grad and t.grad_fn is not None}


def differentiable(program: Program, lib: Any) -> frozenset[str]:
    """The names of what a backward pass of its own can begin from."""
    outcome, found = run(program, lib, roots=frozenset()), set()
    try:
        history = _with_history(outcome, lib)
    except RuntimeError:    # torch tells of some writes as soon as it is asked for a history
        return frozenset()
    for name, t in history.items():
        try:
            lib.autograd.grad(t, list(_wanted(program, outcome).values()), _weights(t, lib, None), retain_graph=True, allow_unused=True)
        except Exception:
            continue
        found.add(name)
    return frozenset(found)


def _weights(t: Any, lib: Any, shake: np.random.Generator | None) -> Any:
    weights = lib.from_numpy(1.0 + np.arange(t.numel()) % 3).to(t.dtype).reshape(tuple(t.shape))
    return (weights if shake is None else _shaken(weights, lib, shake)).to(t.device)


def flat(outcome: Outcome, lib: Any) -> dict[str, Any]:
    """Every tensor of an outcome by name: values, inputs afterwards, gradients."""
    found = dict(pair for name, value in outcome.values.items() for pair in reached(name, value, lib))
    found.update({f"{name} afterwards": t for name, t in outcome.inputs.items()})
    found.update({f"gradient of {name}": t for name, t in (outcome.grads or {}).items() if t is not None})
    return found


# -- comparing whole runs
def difference(
    program: Program,
    got: Outcome,
    expected: Outcome,
    theirs: Any,
    *,
    again: Callable[[np.random.Generator], Outcome],
    exact: bool = False,
    layouts: bool = True,
    sound: bool = False,
) -> Difference | None:
    """Where a run parts from the one that is right. `again` repeats the right one with shaken inputs; `exact`: the dtypes,
    shapes, strides and memory shared are the right one's own, so that errors are the same too; without `layouts` they may differ;
    `sound`: no gradient went through a step of which it is excused."""
    last, op = len(program.steps) - 1, ""  # which step is at fault only a smaller program tells
    if not exact and any(known.excuses_step(step, expected.values.get(step.target)) for step in program.steps):
        return None     # nor does what follows from it compare
    if got.error is not None or expected.error is not None:
        at = raised_at(program, got.error or expected.error)
        kind = _raising(got.error, expected.error)
        if not exact and program.steps and known.excuses_error(got.error, expected.error, program.steps[at]):
            return None
        return kind and Difference(
            at, program.steps[at].name if at < last else "", kind, f"{got.error!r}; expected {expected.error!r}"[:600]
        )
    found = _values(program, got, expected, theirs)
    if found is not None:
        return None if not exact and (
            _excuses_values(program, expected, theirs, again) or _as_unrecorded(program, got, said=True)) else found
    if not (exact or sound) and _excuses_gradients(program, expected, theirs):
        got, expected = (replace(outcome, grads=None, backward_error=None) for outcome in (got, expected))
    if got.backward_error is not None or expected.backward_error is not None:
        if known.excuses_backward(got.backward_error, expected.backward_error, program.steps):
            return None
        kind = _raising(got.backward_error, expected.backward_error)
        return kind and Difference(
            last, op, "backward " + kind, f"{got.backward_error!r}; expected {expected.backward_error!r}"[:600]
        )
    if (got.grads is None) != (expected.grads is None):
        return Difference(last, op, "gradient", "gradients" if got.grads is not None else "no gradients")
    for name in got.grads or {}:
        if (got.grads[name] is None) != (expected.grads[name] is None):
            if not exact and expected.grads[name] is None and known.excuses_unused(program.steps):
                return None
            return Difference(last, op, "gradient", f"{name}: {'none' if got.grads[name] is None else 'one'}, expected otherwise")
    return _numbers(program, got, expected, theirs, again, exact, layouts)


def _excuses_gradients(program: Program, outcome: Outcome, lib: Any) -> bool:
    tensors = {name.split()[0]: t for name, t in flat(outcome, lib).items() if not name.startswith("gradient")}
    return any(known.excuses_gradients(step, tensors) for step in program.steps)


def _as_unrecorded(program: Program, got: Outcome, said: bool = False) -> bool:
    """Whether Flambeau's values are, to the bit, those that it has where no gradient is asked for. What each step comes to there the
    eager mode compares, a step at a time, so that rounding and what follows from it do not add up."""
    plainly = run(program.without_gradients(), flambeau)
    got, plainly = (replace(outcome, grads=None) for outcome in (got, plainly))
    a, b = flat(got, flambeau), flat(plainly, flambeau)
    if said and plainly.error is None and _values(program, got, plainly, flambeau):     # what is no tensor, too
        return False
    return plainly.error is None and a.keys() == b.keys() and all(
        a[name].shape == b[name].shape and compare.array(a[name]).tobytes() == compare.array(b[name]).tobytes() for name in a)


def _excused_before(program: Program, theirs: Any) -> bool:
    """Whether there is a value or an index, a step at a time, that is excused, on which gradients hang."""
    if theirs is flambeau:
        return False
    mine, other = Side(flambeau, program), Side(theirs, program)
    views = False
    for step in program.steps:
        inputs = disturbable(step, other)
        if views and known.target(step) is not None:
            return True     # what is a view of what is excused too
        views = views or known.excuses_layout(step)
        if mine.run(step) is not None or other.run(step) is not None:
            return False
        roots = {step.target, code(known.target(step))}
        ours = mine.tensors()
        for name, t in other.tensors().items():
            if name.split("[")[0] not in roots or name not in ours:
                continue
            a, b = compare.array(ours[name]), compare.array(t)
            if a.shape != b.shape:
                return False
            apart = (a != b) & ~((a != a) & (b != b))
            if _other_sides(a, b) or np.any(known.excused_values(step, inputs, a, b)) or (
                    known.excuses_index(step, name) and np.any(apart)):
                return True
    return False


def _other_sides(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether some zeros differ in sign, or complex numbers that aren't finite in which part that is: nobody's promise, and it shows
    in what comes next."""
    if a.dtype.kind == "c" and np.any(~np.isfinite(a) & ~np.isfinite(b) & (np.isnan(a.real) | np.isnan(b.real) | (a != b))):
        return True
    pairs = [(a.real, b.real), (a.imag, b.imag)] if a.dtype.kind == "c" else [(a, b)] if a.dtype.kind == "f" else []
    return any(np.any((x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))) for x, y in pairs)


def _excuses_values(program: Program, expected: Outcome, theirs: Any, again: Callable) -> bool:
    """Whether what is no tensor may differ: because of an excused value or gradient before it, or where rounding decides."""
    if _excuses_gradients(program, expected, theirs) or _excused_before(program, theirs):
        return True
    draw = np.random.default_rng(0)
    shaken = (again(draw) for _ in range(DISTURBANCES))
    return any(other.error is not None or _values(program, other, expected, theirs, theirs) for other in shaken)


def raised_at(program: Program, error: BaseException | None) -> int:
    """The step whose line an exception came from; the last where no line of the program is in its traceback."""
    lines = [
        frame.lineno - 2
        for frame in traceback.extract_tb(error and error.__traceback__)
        if frame.filename.startswith("<program") and frame.lineno
    ]
    return min(max(lines[-1], 0), len(program.steps) - 1) if lines else len(program.steps) - 1


def _raising(error: BaseException | None, expected: BaseException | None) -> str | None:
    if expected is None:
        return f"raises {type(error).__name__}"
    if error is None:
        return f"accepts what is refused ({type(expected).__name__})"
    return (
        None
        if isinstance(error, type(expected)) or isinstance(expected, type(error))
        else f"raises {type(error).__name__} for {type(expected).__name__}"
    )


def step_of(program: Program, name: str) -> int:
    """The number of the step that a value belongs to; the last for what is not a step's."""
    return next((i for i, s in enumerate(program.steps) if s.has_value and s.target == _root(name)), len(program.steps) - 1)


def _values(program: Program, got: Outcome, expected: Outcome, theirs: Any, ours: Any = flambeau) -> Difference | None:
    kinds = [compare.dtype_name(t) for t in flat(expected, theirs).values()]
    narrowest = max([1e-5, *(4 * compare.TOLERANCE.get(kind, 0.0) for kind in kinds)])
    for name, value in expected.values.items():
        number = step_of(program, name)
        a, b = plain(got.values[name], ours), plain(value, theirs)
        if not same_plain(a, b, narrowest) and not known.excuses_step(program.steps[number], value):
            return Difference(number, program.steps[number].name, "result", f"{name}: {a!r}, expected {b!r}"[:300])
    return None


def _numbers(
    program: Program, got: Outcome, expected: Outcome, theirs: Any, again: Callable, exact: bool, layouts: bool = True
) -> Difference | None:
    ours, right = flat(got, flambeau), flat(expected, theirs)
    layouts = layouts and (exact or not any(map(known.excuses_layout, program.steps)))
    loose_gradients = not exact and _excuses_gradients(program, expected, theirs)
    # torch's integers require grad where floats were written to them, and what is made of them
    from_integers = any(t.requires_grad and not (t.is_floating_point() or t.is_complex()) for t in right.values())
    for name, want in right.items():
        number = step_of(program, name)
        found = compare.layout(ours[name], want) if layouts and not name.startswith("gradient") else None
        if found is not None and found[0] == "shape" and not exact and _as_unrecorded(program, got):
            return None     # it hangs on values
        if found is not None and found[0] in ("shape", "strides") and not exact and _excused_alone(program, theirs, found[0], again):
            return None
        excused = name.startswith("gradient") or loose_gradients or from_integers
        excused |= not (want.is_floating_point() or want.is_complex())
        if found is None and not excused and ours[name].requires_grad != want.requires_grad:
            found = "requires_grad", f"requires_grad is {ours[name].requires_grad}"
        if found is not None:
            if found[0] == "requires_grad" and not exact and _excused_before(program, theirs):
                return None     # a copy where the other is a view, of what is written to
            return Difference(number, program.steps[number].name, found[0], f"{name}: {found[1]}")
    if exact:
        a, b = memory(ours), memory(right)
        for name in a:
            if a[name] != b[name]:
                number = step_of(program, name)
                return Difference(
                    number,
                    program.steps[number].name,
                    "aliasing",
                    f"{name} shares memory with {sorted(a[name])}, expected {sorted(b[name])}",
                )
    suspects, excused = {}, {}
    for name, want in right.items():
        a, b = compare.array(ours[name]), compare.array(want)
        if a.shape != b.shape:
            return Difference(
                step_of(program, name),
                program.steps[step_of(program, name)].name,
                "shape",
                f"{name}: {a.shape}, expected {b.shape}",
            )
        excused[name] = False
        if not exact and name.startswith("gradient of "):
            at = compare.array(expected.inputs[name.removeprefix("gradient of ")])
            excused[name] = known.excused_gradients(program.steps, at, a, b)
        if a.tobytes() != b.tobytes() and compare.unlike(a, b, compare.dtype_name(want), excused=excused[name]):
            suspects[name] = (a, b)
    if exact and not suspects:
        return to_the_bit(program, ours, right)
    if not suspects:
        return None
    moved = spread(right, list(suspects), theirs, again, exact)
    for name, (a, b) in suspects.items():
        kind = compare.dtype_name(right[name])
        said = compare.unlike(a, b, kind, moved[name], excused[name])
        if said and not exact and name.startswith("gradient") and np.any(overflown := np.isfinite(a) & ~np.isfinite(b)):
            wide = flat(again(None, Widened(program.inputs, program.steps)), theirs).get(name)
            right_one = None if wide is None else compare.array(wide)
            explained = overflown & execute.explained(a, b, kind, right_one, right_one)
            said = compare.unlike(a, b, kind, moved[name], excused[name] | explained)
        if said:
            number = step_of(program, name)
            kind = "gradient" if name.startswith("gradient") else "value"
            if not exact and theirs is not flambeau and (
                    _as_unrecorded(program, got) if kind == "value" else
                    _loses_views(program, name) or _excused_before(program, theirs)):
                return None     # what follows from another choice
            return Difference(
                number,
                program.steps[number].name if kind == "value" else "",
                f"{kind} ({compare.dtype_name(right[name])})",
                f"{name}: {said}",
            )
    return None


def _loses_views(program: Program, name: str) -> bool:
    """Whether torch may lose a part of a gradient: of a leaf that is a view."""
    of = next(made for made in program.inputs if made.name == name.removeprefix("gradient of "))
    return bool(of.views) and known.excuses_unused(program.steps)


def _excused_alone(program: Program, theirs: Any, kind: str, again: Callable) -> bool:
    """Whether a step at a time tells no such difference of layout apart; a shape may hang on values too."""
    found = execute.eager(program, theirs)
    if found is None or kind != "shape":
        return found is None
    draw = np.random.default_rng(0)
    shapes = [{name: tuple(t.shape) for name, t in flat(again(draw), theirs).items()} for _ in range(DISTURBANCES)]
    return any(s != shapes[0] for s in shapes) or _excused_before(program, theirs)


def to_the_bit(program: Program, ours: dict[str, Any], right: dict[str, Any]) -> Difference | None:
    """A value that is close to the right one but for its last bits, where elementwise operators and views alone made it."""
    found = {name: compare.array(ours[name]) for name in right if not name.startswith("gradient") and not name.endswith("afterwards")}
    found = {name: a for name, a in found.items() if bits.differing(a, compare.array(right[name])).any()}
    exact = bits.exact(program, function(program, flambeau), tensors_of(program, flambeau)) if found else ()
    for name, a in found.items():
        if name.split("[")[0] in exact:
            number, b = step_of(program, name), compare.array(right[name])
            at = tuple(np.argwhere(bits.differing(a, b))[0]) if a.ndim else ()
            return Difference(number, program.steps[number].name, f"bits ({compare.dtype_name(right[name])})",
                              f"{name}: at {tuple(map(int, at))}: {a[at]!r}, expected {b[at]!r}")
    return None


def memory(tensors: dict[str, Any], empty: bool = False) -> dict[str, frozenset[str]]:
    """Which tensors share memory, gradients apart, and with `empty` also those that see no element of it."""
    where = {name: t.untyped_storage().data_ptr() for name, t in tensors.items()
             if (t.numel() or (empty and t.untyped_storage().nbytes())) and not name.startswith("gradient")}
    return {name: frozenset(n for n, p in where.items() if p == where[name]) for name in where}


def spread(right: dict[str, Any], names: list[str], lib: Any, again: Callable, exact: bool) -> dict[str, Any]:
    """How far results move when the inputs move by their last place. A gradient went through the dtypes of all values: the narrowest
    says how near it is, where it is another library's."""
    reference = {name: compare.array(right[name]) for name in names}
    narrowest = max(map(compare.dtype_name, right.values()), key=lambda kind: compare.TOLERANCE.get(kind, 0.0))
    kinds = {name: narrowest if name.startswith("gradient") and not exact else compare.dtype_name(right[name]) for name in names}
    gradients = [compare.array(t) for name, t in right.items() if name.startswith("gradient")]  # sums of parts as large as the largest
    moved = {}
    for name, a in reference.items():
        parts = gradients if name.startswith("gradient") else [a]
        moved[name] = np.full(a.shape, 4 * max(compare.closeness(kinds[name], part) for part in parts))
    draw = np.random.default_rng(0)
    for _ in range(DISTURBANCES):
        other = again(draw)
        if other.error is not None:
            continue
        found = flat(other, lib)
        for name, a in reference.items():
            if name not in found or tuple(found[name].shape) != a.shape:
                continue
            b = compare.array(found[name])
            with np.errstate(all="ignore"):
                change = (a != b).astype(float) if a.dtype.kind not in "fc" else np.abs(a - b) * 8
                change = np.where(np.isfinite(change), change, np.where(np.isfinite(a) == np.isfinite(b), 0.0, np.inf))
            moved[name] = np.maximum(moved[name], change)
    return moved


# -- the modes
def gradient(program: Program, theirs: Any) -> Difference | None:
    """Flambeau beside torch, forward and backward; where one of them refuses, backward from what both can begin from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(program, theirs)
        if expected.error is not None:
            return None
        got = run(program, flambeau)
        found = difference(program, got, expected, theirs, again=lambda draw, of=program: run(of, theirs, shake=draw))
        tainted = _tainted(program, expected, theirs)
        if found is not None or not (tainted or expected.backward_error or got.backward_error):
            return found
        both = differentiable(program, theirs) & differentiable(program, flambeau)
        roots = frozenset(name for name in both if _root(name) not in tainted)
        if not roots:
            return None
        return difference(program, run(program, flambeau, roots=roots), run(program, theirs, roots=roots), theirs, sound=True,
                          again=lambda draw, of=program: run(of, theirs, shake=draw, roots=roots))


def _tainted(program: Program, outcome: Outcome, lib: Any) -> set[str]:
    """The names of what an excused gradient may pass through: results of such a step, what reads them, and what they were written to,
    with all that shares its memory in the end."""
    tensors = {name.split()[0]: t for name, t in flat(outcome, lib).items() if not name.startswith("gradient")}
    shared = memory(flat(outcome, lib), empty=True)
    tainted: set[str] = set()
    for step in program.steps:
        if step.refs() & tainted or known.excuses_gradients(step, tensors):
            tainted.add(step.target)
            written = {ref.root for ref in references(step.written)}
            beside = (names for name, names in shared.items() if _root(name) in written | {step.target})
            tainted |= written.union(*({_root(name) for name in names} for names in beside))
    return tainted


def _root(name: str) -> str:
    return name.split("[")[0].split(" ")[0]


def compiled(programs: list[Program], dynamic: bool) -> list[Difference | None]:
    """Compiled Flambeau beside eager Flambeau, many programs in one graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [run(p, flambeau) for p in programs]
        whole = [i for i, outcome in enumerate(expected) if outcome.error is None]
        found: list[Difference | None] = [None] * len(programs)
        if len(whole) > 1:
            outcomes = _together([programs[i] for i in whole], dynamic)
            for i, got in zip(whole, outcomes or []):
                found[i] = _beside(programs[i], got, expected[i])
            alone = [i for i in whole if found[i] is not None] if outcomes is not None else whole
        else:
            alone = whole
        for i in alone + [i for i in range(len(programs)) if i not in whole]:
            found[i] = _alone(programs[i], expected[i], dynamic)
        return found


def _beside(program: Program, got: Outcome, expected: Outcome) -> Difference | None:
    return difference(program, got, expected, flambeau, again=lambda draw: run(program, flambeau, shake=draw), exact=True)


def captured(program: Program) -> Difference | None:
    """Captured and made functional, forward and backward, but run by eager kernels: no code is generated, so that it takes a tenth of
    the time; with static sizes, then with dynamic ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(program, flambeau)
        return _alone(program, expected, False, "aot_eager") or _alone(program, expected, True, "aot_eager")


def _alone(program: Program, expected: Outcome, dynamic: bool, backend: str = "inductor") -> Difference | None:
    flambeau._dynamo.reset()
    call = flambeau.compile(function(program, flambeau), dynamic=dynamic or None, backend=backend)
    found = _beside(program, run(program, flambeau, call), expected)
    if found is None and dynamic:
        for other in resized(program):
            found = _beside(other, run(other, flambeau, call), run(other, flambeau))
            if found is not None and not (found.kind.startswith("bits") and any(map(known.ordered_by_size, program.steps))):
                return found._replace(kind=found.kind + " at other sizes")
        return None
    return found


def _together(programs: list[Program], dynamic: bool) -> list[Outcome] | None:
    """The programs as one compiled function; None where it raises."""
    flambeau._dynamo.reset()
    functions = [function(p, flambeau) for p in programs]

    def batch(arguments: list) -> list:
        return [f(*a) for f, a in zip(functions, arguments)]

    call = flambeau.compile(batch, dynamic=dynamic or None)
    answers = _answers(programs, call)
    if answers is not None and dynamic:
        others = [next(iter(resized(p)), p) for p in programs]
        again = _answers(others, call)
        if again is None or any(_beside(p, got, run(p, flambeau)) for p, got in zip(others, again)):
            return None
    return answers


def _answers(programs: list[Program], call: Callable) -> list[Outcome] | None:
    inputs = [tensors_of(p, flambeau) for p in programs]
    try:
        answers = call([list(i.values()) for i in inputs])
    except Exception:
        return None
    outcomes = []
    for program, given, answer in zip(programs, inputs, answers):
        values = dict(zip([s.target for s in program.steps if s.has_value], answer))
        outcomes.append(Outcome(values, given))
    return [backward(p, flambeau, o) for p, o in zip(programs, outcomes)]


def resized(program: Program) -> list[Program]:
    """The program at other sizes of its inputs, where it can run at them: one way, at most."""
    sizes = {n for made in program.inputs for n in made.shape if n > 1}
    for changed in [sizes, *({n} for n in sorted(sizes))]:
        other = replace(program, inputs=tuple(_grown(made, changed) for made in program.inputs))
        try:
            if run(other, flambeau).error is None:
                return [other]
        except Exception:
            continue
    return []


def _grown(made: Input, sizes: set[int]) -> Input:
    return replace(made, shape=tuple(n + 2 if n in sizes else n for n in made.shape))


# -- another device
def on_a_gpu(program: Program) -> Difference | None:
    """Eager on a GPU beside eager on the CPU."""
    return _there(program, None)


def compiled_on_a_gpu(program: Program) -> Difference | None:
    """Compiled on a GPU beside eager on the CPU."""
    flambeau._dynamo.reset()
    return _there(program, flambeau.compile(function(program, flambeau)))


def _there(program: Program, call: Callable | None) -> Difference | None:
    """What has no kernel on a GPU says so; an index out of range is told of at the end, by an IndexError in any operator; which of
    several writes to one place comes last is told by nobody."""
    if any(map(known.tells_the_device, program.steps)):
        return None
    with warnings.catch_warnings(), flambeau.backends.cudnn.flags(allow_tf32=False):
        warnings.simplefilter("ignore")
        expected = run(program, flambeau)
        with flambeau.device("cuda"):
            got = run(program, flambeau, call)
        try:
            flambeau.cuda.synchronize()
        except IndexError as stray:
            got.error = got.error or stray
        if isinstance(got.error or got.backward_error, NotImplementedError):
            return None
        if "before this synchronisation" in str(got.error) and isinstance(expected.error, RuntimeError):
            return None
        found = difference(program, got, expected, flambeau, again=lambda draw: run(program, flambeau, shake=draw), layouts=False)
        if found is None or not found.kind.startswith(("value", "gradient")):
            return found
        wild = not all(np.isfinite(made.values).all() for made in program.inputs)
        return None if any(known.written_in_order(s) or (wild and known.by_a_library(s)) for s in program.steps) else found


# -- vmap
BATCH = 3


def batched(program: Program, theirs: Any) -> Difference | None:
    """vmap of Flambeau beside a loop over the examples; what torch's vmap refuses may be refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examples = [_example(program, i) for i in range(BATCH)]
        loops = [run(e, flambeau) for e in examples]
        if any(o.error is not None for o in loops):
            return None
        names = [name for name, t in flat(replace(loops[0], inputs={}), flambeau).items()]
        loops = [replace(o, inputs={}) for o in loops]
        flats = [flat(o, flambeau) for o in loops]
        if not names or any(f.keys() != flats[0].keys() or any(f[n].shape != flats[0][n].shape for n in names) for f in flats):
            return None
        text = _returning(program, names)
        try:
            got = _mapped(program, examples, flambeau, text)
        except Exception as error:
            if isinstance(error, NotImplementedError) or any(words in str(error) for words in ("depends on values", "their values differ")):
                return None
            at = raised_at(program, error)
            if known.excuses_error(error, None, program.steps[at]):
                return None
            try:
                _mapped(program, examples, theirs, text)
            except Exception:
                return None
            return Difference(at, program.steps[at].name, f"raises {type(error).__name__}", repr(error)[:500])
        expected = Outcome({n: flambeau.stack([f[n] for f in flats]) for n in names}, {})

        def again(draw: np.random.Generator) -> Outcome:
            shaken = [flat(replace(run(e, flambeau, shake=draw), inputs={}), flambeau) for e in examples]
            return Outcome({n: flambeau.stack([f[n] for f in shaken]) for n in names}, {})

        ours = Outcome({n: t.contiguous() for n, t in zip(names, got)}, {})
        found = _numbers(program, ours, expected, flambeau, again, False, layouts=False)
        if found is None:
            return None
        parted = {n: t for n, t in ours.values.items() if compare.unlike(
            *(compare.array(o.values[n]) for o in (ours, expected)), compare.dtype_name(t))}
        return None if _as_theirs(program, replace(ours, values=parted), theirs, examples, _returning(program, list(parted))) else found


def _returning(program: Program, names: list[str]) -> str:
    return program.function().rpartition("return")[0] + f"return ({', '.join(names)},)\n"


def _as_theirs(program: Program, ours: Outcome, theirs: Any, examples: list[Program], text: str) -> bool:
    """Whether torch's vmap parts from the loop in the same way: what is a view of one example and what a copy (an index of no dimensions
    selects one, and what lies together in the batch needs none) shows in what is written later. A step that it refuses is left out."""
    if any(map(known.shows_places, program.steps)):
        return True
    try:
        right = Outcome(dict(zip(ours.values, _mapped(program, examples, theirs, text))), {})
    except Exception as error:
        lines, at = text.splitlines(keepends=True), raised_at(program, error)
        names = [n for n in ours.values if step_of(program, n) != at]
        if not names or len(names) == len(ours.values) or not program.steps[at].has_value:
            return False
        fewer = replace(program, steps=program.steps[:at] + program.steps[at + 1 :])
        text = "".join(lines[: at + 1] + lines[at + 2 : -1]) + f"    return ({', '.join(names)},)\n"
        return _as_theirs(fewer, replace(ours, values={n: ours.values[n] for n in names}), theirs, examples, text)
    return _numbers(program, ours, right, theirs, lambda draw: right, False, layouts=False) is None


def _example(program: Program, number: int) -> Program:
    """The program over inputs whose values are moved along; none is expanded, for the batch that stacks them is not."""

    def moved(made: Input) -> Input:
        at = number % max(1, len(made.values))
        views = (*made.views, ".contiguous()") if any("expand" in view for view in made.views) else made.views
        return replace(made, values=made.values[at:] + made.values[:at], views=views)

    return replace(program, inputs=tuple(moved(made) for made in program.inputs))


def _mapped(program: Program, examples: list[Program], lib: Any, text: str) -> Any:
    inputs = [tensors_of(e, lib) for e in examples]
    dims = [i % 2 if t.ndim else 0 for i, t in enumerate(inputs[0].values())]
    stacked = [lib.stack([i[name] for i in inputs], dim) for name, dim in zip(inputs[0], dims)]
    return lib.func.vmap(function(program, lib, text), in_dims=tuple(dims))(*stacked)
