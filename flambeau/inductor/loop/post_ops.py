"""What libraries do to a product before they store it: the rows of POSTS in core/scalar.py.

By the form of their bodies steps that do the same are recognised, however they group and order sums and products; read by NumPy
they are the way without the library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flambeau.core.dtypes import float32
from flambeau.core.scalar import POSTS, evaluate
from flambeau.inductor.loop.ir import Tracer, Value, walk

LARGEST = 16    # terms of a form


@dataclass(frozen=True)
class PostOp:
    """One operation on the result: `kind` as oneDNN names it; `tensor` says that it takes one (broadcast to the result)."""

    kind: str
    tensor: bool = False
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, o: Any, *operands: Any) -> Any:
        """The loop body."""
        return POSTS[self.kind].body(o, *operands, **({"alpha": self.alpha, "beta": self.beta} if self.kind == "linear" else {}))


SLOW = ("tanh", "gelu_tanh")    # in oneDNN: a layer of 512 x 768 x 3072 takes a tenth longer than with a kernel for it (Zen 3)
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu_erf", "gelu_tanh")


def finish(posts: Sequence[PostOp], result: np.ndarray, operands: Sequence[np.ndarray]) -> np.ndarray:
    """What the operations make of `result`, by NumPy; the last of `operands` are the tensors that they take."""
    rest = list(operands[len(operands) - sum(post.tensor for post in posts):])
    for post in posts:
        result = evaluate(post, result, *([rest.pop(0)] if post.tensor else []))
    return result


# A polynomial of what is not one: products of names, in order, and their factors.
Polynomial = dict[tuple[str, ...], float]


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    made: Polynomial = {}
    for names, factor in a.items():
        for others, other in b.items():
            key = tuple(sorted(names + others))
            made[key] = made.get(key, 0.0) + factor * other
    return made


def _plus(a: Polynomial, b: Polynomial, sign: float = 1.0) -> Polynomial:
    return {key: a.get(key, 0.0) + sign * b.get(key, 0.0) for key in (*a, *(key for key in b if key not in a))}


_ARITHMETIC: dict[str, Callable[..., Polynomial]] = {
    "add": _plus, "sub": lambda a, b: _plus(a, b, -1.0), "mul": _times, "neg": lambda a: _plus({}, a, -1.0),
}


def form(value: Value, x: Value, rounded: bool = False) -> str | None:
    """`value` as a function of x, alike for all that come to the same by arithmetic; None where it is large or hangs on more than x.
    `rounded`: whatever is rounded on the way."""
    known: dict[int, Polynomial] = {x.uid: {("x",): 1.0}}
    for v in walk([value]):
        if v.uid in known:
            continue
        args = [known.get(a.uid) for a in v.args]
        if None in args or (not args and not (v.op == "constant" and isinstance(v.attr, float))):
            continue
        if not args:
            known[v.uid] = {(): float(v.attr)}
        elif v.op == "round_to" and rounded:
            known[v.uid] = args[0]      # type: ignore[assignment]
        elif v.op in _ARITHMETIC:
            known[v.uid] = _ARITHMETIC[v.op](*args)
        elif v.attr is None:
            known[v.uid] = {(f"{v.op}({', '.join(map(_written, args))})",): 1.0}     # type: ignore[arg-type]
        if len(known.get(v.uid, ())) > LARGEST:
            return None
    return _written(known[value.uid]) if value.uid in known else None


def _written(polynomial: Polynomial) -> str:
    return " + ".join(sorted("*".join((f"{factor:.5g}", *names)) for names, factor in polynomial.items() if factor))


@functools.cache
def _forms() -> dict[str, str]:
    o = Tracer()
    x = o.make("held", (), float32, "x")
    return {str(form(POSTS[name].body(o, x), x)): name for name in ACTIVATIONS}


def activation(value: Value, x: Value, rounded: bool = False) -> str | None:
    """Which of ACTIVATIONS `value` is of x."""
    found = form(value, x, rounded)
    return _forms().get(found) if found is not None else None
