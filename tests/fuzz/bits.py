"""Which results of a program must be equal to the bit, compiled or not: those that elementwise operators, views and moves alone come to."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.aot.trace import make_fx
from flambeau.ops.registry import Primitive

from .program import Program

ELEMENTWISE = ("pointwise", "view", "factory", "inplace")


def promised(prim: Any) -> bool:
    """Whether the record of a primitive says that each element of its result hangs on elements of its inputs, not on a sum of them."""
    return not isinstance(prim, Primitive) or prim.kind in ELEMENTWISE or callable(prim.loop)


def exact(program: Program, function: Any, inputs: dict[str, Any]) -> set[str]:
    """The steps whose values are promised to the bit; none where the program cannot be traced."""
    try:
        graph = make_fx(function)(*[t.detach() for t in inputs.values()]).graph
    except Exception:
        return set()
    sound: dict[Any, bool] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        real = not (isinstance(value, flambeau.Tensor) and value.dtype.is_complex)
        sound[node] = real and promised(node.target) and all(sound.get(n, True) for n in node.all_input_nodes)
    out = next(n for n in graph.nodes if n.op == "output").args[0]
    names = [s.target for s in program.steps if s.has_value]
    return {name for name, value in zip(names, out) if _all_sound(value, sound)}


def _all_sound(value: Any, sound: dict[Any, bool]) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_all_sound(v, sound) for v in value)
    return sound.get(value, True) if isinstance(value, flambeau.fx.Node) else True


def differing(a: np.ndarray, b: np.ndarray) -> Any:
    """A mask of the elements that are not equal to the bit, but for which NaN it is."""
    if a.dtype != b.dtype:
        return np.ones(a.shape, bool)
    if a.dtype.kind != "f":
        return a != b
    return ((a != b) | (np.signbit(a) != np.signbit(b))) & ~(np.isnan(a) & np.isnan(b))
