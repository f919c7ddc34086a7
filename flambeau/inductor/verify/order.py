"""Checks of a compiled call: what its steps name is there when they run, and is still there when it is returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.core.expr import Expr, free_variables
from flambeau.inductor.call import (
    ByAddress,
    ByArrays,
    Call,
    Clear,
    Drop,
    Keep,
    Launch,
    Look,
    Make,
    Primitive,
    Run,
    Step,
    Store,
    Take,
)

# What each kind of step needs to be there, and what is there after it.
_NEEDS: dict[type[Step], Any] = {
    Drop: lambda s: s.buffers, Run: lambda s: [b for b in s.buffers if b is not None], Launch: lambda s: [b for b, _ in s.pointers],
    ByAddress: lambda s: [b for b, _ in s.pointers], ByArrays: lambda s: [a.buffer for a in s.arguments if isinstance(a, Look)],
    Primitive: lambda s: [a.buffer for a in s.inputs], Store: lambda s: [s.part.buffer, s.source],
}
_GIVES: dict[type[Step], Any] = {
    Take: lambda s: [s.buffer], Make: lambda s: [s.buffer], Keep: lambda s: s.buffers, Primitive: lambda s: [b for b, _ in s.results],
}


def wrongs_of(call: Call) -> Iterator[str]:
    """What is wrong with a call, by its steps."""
    there: set[str] = set()
    gone: set[str] = set()
    known = {symbol.name for symbol in call.symbols}
    cleared = False
    for k, step in enumerate(call.steps):
        at = f"step {k} ({type(step).__name__})"
        if isinstance(step, Take) and cleared and step.position is not None:
            yield f"{at} takes {step.buffer} from the inputs, which were cleared"
        for name in _NEEDS.get(type(step), lambda s: ())(step):
            if name not in there:
                yield f"{at} needs {name}, which {'is gone' if name in gone else 'is not there yet'}"
        for name in _GIVES.get(type(step), lambda s: ())(step):
            if name in there:
                yield f"{at} makes {name}, which is there already"
            there.add(name)
        if isinstance(step, Drop):
            there -= set(step.buffers)
            gone |= set(step.buffers)
        cleared |= isinstance(step, Clear)
        for name in sorted(_sizes(step) - known):
            yield f"{at} needs the size {name}, which the call does not find"
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


__all__ = ["wrongs_of"]
