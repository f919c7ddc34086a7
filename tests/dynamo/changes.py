"""Programs that are called again and again while something changes that their result depends on: eager and compiled agree each time.

A program is a function that makes a fresh (function, steps): `function(x)` is called first and after each step, which changes something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import same

import flambeau as torch
from flambeau import dynamo

Program = Callable[[], tuple[Callable[..., Any], list[Callable[[], Any]]]]


class Programs(dict[str, Program]):
    """The programs of a file, of which each is entered by calling this with it."""

    def __call__(self, make: Program) -> Program:
        assert make.__name__ not in self
        self[make.__name__] = make
        return make

    def test(self) -> Callable[..., None]:
        """The test that goes through them."""
        @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
        @pytest.mark.parametrize("name", self)
        def test_changes(name: str, backend: str) -> None:
            plain, plain_steps = self[name]()
            function, steps = self[name]()
            compiled = dynamo.compile(function, backend=backend)
            for number in range(len(steps) + 1):
                outcomes = []
                for call in (plain, compiled):
                    try:
                        outcomes.append(call(x()))
                    except Exception as error:
                        outcomes.append((type(error).__name__, str(error)))
                assert same(outcomes[0], outcomes[1]), f"after {number} changes: expected {outcomes[0]}, got {outcomes[1]}"
                if number < len(steps):
                    plain_steps[number]()
                    steps[number]()

        return test_changes


def x() -> Any:
    return torch.tensor([1.0, 2.0, 3.0])


class Counter:
    """An object with attributes, for programs that need one."""

    kind = "counter"

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)
