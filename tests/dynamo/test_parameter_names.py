"""A parameter of the program's may be called like what generated functions give names to: guards, replacements, graphs."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch
from flambeau import _C, dynamo

KEPT = "def program({name}, b, k, seen):\n    r = (({name} + b) * k).sum() + {name}.shape[0] * 2\n    seen.append(1)\n    " \
       "return net(r * {name}), {name} * K[0]"


def compiled_of(text: str) -> tuple[Any, Any]:
    """A program (an attribute of a model, a size that is used twice, an effect), as it is and compiled."""
    space: dict[str, Any] = {"K": [3], "net": torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)])}
    exec(text, space)
    return space["program"], dynamo.compile(space["program"], backend="aot_eager", dynamic=True)


def runs_as_written(name: str) -> None:
    dynamo.reset()
    program, compiled = compiled_of(KEPT.format(name=name))
    for rows in (5, 6, 5):
        x = torch.ones(rows, 4)
        expected: list[int] = []
        found: list[int] = []
        for ours, theirs in zip(compiled(x, x, 2.5, found), program(x, x, 2.5, expected), strict=True):
            assert torch.allclose(ours, theirs), name
        assert found == expected


def names_of_generated_code() -> set[str]:
    """Of the guard and the replacement of such a program, of graphs as they print, and what they may call."""
    dynamo.reset()
    program, compiled = compiled_of(KEPT.format(name="x"))
    x = torch.ones(5, 4)
    compiled(x, x, 2.5, [])
    (guard, replacement), *_ = _C.cache_entries(program.__code__)
    generated = {name for function in (guard, replacement) for name in (*function.__code__.co_names, *function.__code__.co_varnames)}
    assert {"_graph", "_surroundings"} <= generated
    return (generated | {"self", "torch", "_in", "_class", "_", "len", "id", "type", "input"}) - {"b", "k", "seen"}


def test_parameters_may_be_called_anything() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in sorted(names_of_generated_code()):
            runs_as_written(name)
