"""Run a function eagerly and compiled with the `eager` backend; compare results and what capture did."""

from __future__ import annotations

import collections
import copy
import enum
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch
from flambeau import dynamo
from flambeau.dynamo.api import Explanation
from flambeau.dynamo.compiler import observing


class Counter:
    """A backend that counts graphs, operations and calls."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.calls = 0

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        gm.graph.lint()

        def run(*args: Any) -> Any:
            self.calls += 1
            return gm.forward(*args)

        return run

    @property
    def ops(self) -> int:
        return sum(node.op.startswith("call") for gm in self.graphs for node in gm.graph.nodes)


def same(a: Any, b: Any) -> bool:
    """Deep equality, tensors by value, shape and dtype."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype is b.dtype and a.requires_grad == b.requires_grad
            and np.array_equal(a.detach().numpy(), b.detach().numpy(), equal_nan=a.dtype.is_floating_point)
        )
    if type(a) is not type(b) and _name(a) != _name(b):
        return False
    if isinstance(a, enum.Enum):
        return a.name == b.name
    if isinstance(a, torch.nn.Module):
        plain = [{k: v for k, v in vars(m).items() if isinstance(v, (int, float, str))} for m in (a, b)]
        return plain[0] == plain[1] and same(dict(a.state_dict()), dict(b.state_dict()))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dict__") and not callable(a) and not isinstance(a, (type, torch.dtype)):
        return same(vars(a), vars(b))
    return bool(a == b)


def _name(value: Any) -> tuple[str, str]:
    """The class that a program made, in each of its runs anew."""
    return type(value).__module__, type(value).__qualname__


def run(fn: Callable[..., Any], *args: Any, **settings: Any) -> tuple[Any, Explanation, Counter]:
    """The compiled result, what was captured, and the graphs."""
    counter = Counter()
    with observing(Explanation()) as seen:
        result = dynamo.compile(fn, backend=counter, **settings)(*args)
    return result, seen, counter


def check(fn: Callable[..., Any], *args: Any, graphs: int | None = 1, breaks: int | None = 0, **settings: Any) -> Explanation:
    """Eager and compiled agree (also about what they did to the arguments), and capture made so many graphs and breaks."""
    mine, yours = copy.deepcopy(args), copy.deepcopy(args)
    expected = fn(*mine)
    result, seen, counter = run(fn, *yours, **settings)
    assert same(expected, result), f"eager gave {expected}, compiled {result}"
    assert same(mine, yours), f"eager left the arguments as {mine}, compiled as {yours}"
    if breaks is not None:
        assert len(seen.breaks) == breaks, "\n".join(map(str, seen.breaks)) or "no breaks"
    if graphs is not None:
        assert len(counter.graphs) == graphs, "\n".join(gm.code for gm in counter.graphs)
    return seen
