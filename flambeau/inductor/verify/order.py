"""Checks of a compiled call: what its steps name is there when they run, and is still there when it is returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.core.expr import Expr, free_variables
from flambeau.inductor.call import NEEDS, Await, Call, Clear, Drop, Keep, Look, Make, Primitive, Step, Take

# What is there after each kind of step.
_GIVES: dict[type[Step], Any] = {
    Take: lambda s: [s.buffer], Make: lambda s: [s.buffer], Keep: lambda s: s.buffers, Primitive: lambda s: [b for b, _ in s.results],
}


def wrongs_of(call: Call) -> Iterator[str]:
    """What is wrong with a call, by its steps."""
    there: set[str] = set()
    gone: set[str] = set()
    known = {symbol.name for symbol in call.symbols}
    under_way: dict[str, int] = {}
    cleared = False
    for k, step in enumerate(call.steps):
        at = f"step {k} ({type(step).__name__})"
        if isinstance(step, Take) and cleared and step.position is not None:
            yield f"{at} takes {step.buffer} from the inputs, which were cleared"
        for name in NEEDS.get(type(step), lambda s: ())(step):
            if name not in there:
                yield f"{at} needs {name}, which {'is gone' if name in gone else 'is not there yet'}"
            if name in under_way:
                yield f"{at} needs {name}, for which nobody has waited"
        for name in _GIVES.get(type(step), lambda s: ())(step):
            if name in there:
                yield f"{at} makes {name}, which is there already"
            there.add(name)
        if isinstance(step, Drop):
            there -= set(step.buffers)
            gone |= set(step.buffers)
        cleared |= isinstance(step, Clear)
        if isinstance(step, Primitive) and step.step.begins:
            under_way |= dict.fromkeys([name for name, _ in step.results], step.number)
        if isinstance(step, Await):
            under_way = {name: number for name, number in under_way.items() if number != step.number}
        for name in sorted(_sizes(step) - known):
            yield f"{at} needs the size {name}, which the call does not find"
    for name in under_way:
        yield f"nobody waits for {name}"
    for k, result in enumerate(call.results):
        if isinstance(result, Look) and result.buffer not in there:
            yield f"result {k} is {result.buffer}, which {'is gone' if result.buffer in gone else 'nobody makes'}"
        for name in sorted(_sizes(result) - known):
            yield f"result {k} needs the size {name}, which the call does not find"


def _sizes(item: Any) -> set[str]:
    """The sizes in a step's shapes, strides, offsets and grids."""
    if isinstance(item, Expr):
        return set(free_variables(item))
    return set().union(*map(_sizes, item)) if isinstance(item, tuple) else set()
