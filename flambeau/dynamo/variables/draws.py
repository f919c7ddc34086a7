"""Python's random numbers: what a `random.Random` draws is an input of the graph, drawn before it runs, in the program's order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from .base import Args, Kwargs, NamedMethod, ValueVariable, Variable

if TYPE_CHECKING:
    from ...dynamo.source import Source
    from ..trace import Trace

DRAWS: dict[str, type] = {
    **dict.fromkeys(("random", "uniform", "triangular", "betavariate", "expovariate", "gammavariate", "gauss", "lognormvariate",
                     "normalvariate", "paretovariate", "vonmisesvariate", "weibullvariate"), float),
    **dict.fromkeys(("randint", "randrange"), int),
}
"""Methods that draw one number, and of which type."""


class RandomVariable(ValueVariable):
    """An existing generator of Python's."""

    source: Source

    def attr(self, tx: Trace, name: str) -> Variable:
        return NamedMethod(self, name) if callable(getattr(random.Random, name, None)) else super().attr(tx, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name not in DRAWS:
            graph_break("random number as a Python value", f"{self.source.words}.{name}()")
        given = [tx.known(arg) for arg in args]
        named = {key: tx.known(value) for key, value in kwargs.items()}
        tx.checked(getattr(random.Random(0), name), *given, **named)    # the errors of its arguments
        words = [*map(repr, given), *[f"{key}={value!r}" for key, value in named.items()]]
        drawn = tx.draw(self.source.attr(name), words, DRAWS[name])
        if drawn is None:
            graph_break("random number as a Python value", f"{self.source.words}.{name}()")
        return drawn

    def make(self, w: Any) -> str:
        return w.fetch(self.source)
