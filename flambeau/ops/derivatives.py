"""The three kinds of derivative that a record of the op table may have."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from flambeau import _C


class Rule:
    """One derivative formula; its parameter names say what it needs, and so what autograd saves.

    Names are inputs, attributes, `out` (or `outs`, or `out1` for one of several), `g`/`gs` (incoming gradients), `needs`
    (which inputs want one), and
    `<input>_shape`, `<input>_dtype`, `<input>_spec`, which keep no data alive.
    """

    __slots__ = ("fn", "names", "refuses")

    def __init__(self, fn: Callable | int | float):
        self.refuses = getattr(fn, "refuses", False)    # it raises, whatever it is asked
        if callable(fn):
            self.fn: Callable = _C.Traced(fn)
            self.names = tuple(inspect.signature(fn).parameters)
        else:
            constant = fn
            self.fn, self.names = (lambda: constant), ()


class Derivative:
    """Base of the three kinds of derivative."""

    rules: dict[str, Rule]


class Pointwise(Derivative):
    """Elementwise: `rules[x]` gives d out / d x (a mask selects), or, if it takes `g`, the product of `g` with it.

    The Jacobian being diagonal, the same rule serves reverse mode (`g` a gradient) and forward mode (`g` a tangent).
    """

    def __init__(self, **partials: Callable | int | float):
        self.rules = {name: Rule(fn) for name, fn in partials.items()}


class Linear(Derivative):
    """Linear in each named input: `rules[x](g, ...)` is the transpose; the tangent is the primitive itself."""

    def __init__(self, **transposes: Callable):
        self.rules = {name: Rule(fn) for name, fn in transposes.items()}


class General(Derivative):
    """Anything else: `vjp(g, ...)` gives a tuple with a gradient (or None) per tensor input; tangents come from it by transposing.

    `forwards`: of an operator, whose tangents are otherwise those of its body: the body has none where the gradient is defined.
    """

    def __init__(self, vjp: Callable, forwards: bool = False):
        self.vjp = Rule(vjp)
        self.rules = {"vjp": self.vjp}
        self.forwards = forwards
