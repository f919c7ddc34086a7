"""Making a failing program small: fewer steps, values in place of the steps that made them, plainer and smaller inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from . import compare
from .execute import Side
from .program import Input, Program, Step

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, theirs: Any, most: int = 400) -> Program:
    """The smallest program found that still fails in the same way."""
    tries = 0

    def still(candidate: Program) -> bool:
        nonlocal tries
        tries += 1
        if tries > most:
            return False
        try:
            return fails(candidate)
        except Exception:
            return False

    better = True
    while better and tries < most:
        better = False
        for way in (_without_steps, lambda p: _frozen(p, theirs), _fewer_arguments, _smaller_inputs, _plainer_inputs):
            again = True
            while again and tries < most:
                again = False
                for candidate in way(program):
                    if candidate != program and still(candidate):
                        program, better, again = candidate, True, True
                        break
    return program


def _without_steps(program: Program) -> Iterator[Program]:
    """Without a step and all that follows from it; the later half first."""
    steps = program.steps
    if len(steps) > 2:
        yield from (_pruned(program, set(range(half, len(steps)))) for half in (len(steps) // 2, len(steps) - 1))
    for i in reversed(range(len(steps))):
        yield _pruned(program, {i})


def _pruned(program: Program, dropped: set[int]) -> Program:
    kept: list[Step] = []
    gone: set[str] = set()
    for i, step in enumerate(program.steps):
        if i in dropped or step.refs() & gone:
            if step.has_value:
                gone.add(step.target)
        else:
            kept.append(step)
    return replace(program, steps=tuple(kept)).without_unused()


def _literal(name: str, value: Any) -> Input | None:
    """An input of a tensor's values, with its strides made plain."""
    flat = compare.array(value).reshape(-1).tolist()
    return Input(name, compare.dtype_name(value), tuple(value.shape), tuple(flat)) if len(flat) <= 61 else None


def _frozen(program: Program, theirs: Any) -> Iterator[Program]:
    """With a step's result given as an input, as torch has it just after the step."""
    for i, step in enumerate(program.steps):
        if not step.has_value or i == len(program.steps) - 1:
            continue
        side = Side(theirs, program)
        for earlier in program.steps[: i + 1]:
            side.run(earlier)
        value = side.values.get(step.target)
        if not isinstance(value, theirs.Tensor):
            continue
        made = _literal(step.target, value)
        if made is not None:
            rest = tuple(s for j, s in enumerate(program.steps) if j != i)
            yield replace(program, inputs=(*program.inputs, made), steps=rest).without_unused()


def _fewer_arguments(program: Program) -> Iterator[Program]:
    for i, step in enumerate(program.steps):

        def put(new: Step, i: int = i) -> Program:
            return replace(program, steps=program.steps[:i] + (new,) + program.steps[i + 1 :]).without_unused()

        for key in step.kwargs:
            yield put(replace(step, kwargs={k: v for k, v in step.kwargs.items() if k != key}))
        for at, value in enumerate(step.args[1:], 1):
            if isinstance(value, tuple) and len(value) > 1 and step.form in ("getitem", "setitem"):
                for drop in range(len(value)):
                    fewer = value[:drop] + value[drop + 1 :]
                    yield put(replace(step, args=(*step.args[:at], fewer if len(fewer) > 1 else fewer[0], *step.args[at + 1 :])))


def _put(program: Program, made: Input) -> Program:
    return replace(program, inputs=tuple(made if i.name == made.name else i for i in program.inputs))


def _smaller_inputs(program: Program) -> Iterator[Program]:
    """With one size of one input, or of all inputs that have it, smaller."""
    sizes = sorted({n for i in program.inputs for n in i.shape if n > 1}, reverse=True)
    for n in sizes:
        for smaller in (1, 2, n // 2):
            if smaller < n:
                yield replace(
                    program, inputs=tuple(_resized(i, [smaller if s == n else s for s in i.shape]) for i in program.inputs)
                )
    for made in program.inputs:
        for d, n in enumerate(made.shape):
            for smaller in {1, n // 2, n - 1}:
                if 0 < smaller < n:
                    yield _put(program, _resized(made, [smaller if e == d else s for e, s in enumerate(made.shape)]))


def _resized(made: Input, shape: list[int]) -> Input:
    return replace(made, shape=tuple(shape), values=made.values[: max(1, math.prod(shape))])


def _plainer_inputs(program: Program) -> Iterator[Program]:
    for made in program.inputs:
        if made.views:
            yield _put(program, replace(made, views=()))
            if len(made.views) > 1:
                yield _put(program, replace(made, views=made.views[:1]))
        if made.dtype in ("float64", "bfloat16", "float16"):
            yield _put(program, replace(made, dtype="float32"))
        if made.dtype in ("int32", "int16", "int8", "uint8"):
            yield _put(program, replace(made, dtype="int64"))
        count = len(made.values)
        kind = bool if made.dtype == "bool" else int if "int" in made.dtype else complex if "complex" in made.dtype else float
        for simple in (
            tuple(kind(1) for _ in range(count)),
            tuple(kind(i + 1) for i in range(count)),
            tuple(kind(0) for _ in range(count)),
        ):
            if simple != made.values and not _simple(made.values):
                yield _put(program, replace(made, values=simple))


def _simple(values: tuple) -> bool:
    return len(set(values)) == 1 or values == tuple(type(v)(i + 1) for i, v in enumerate(values))
