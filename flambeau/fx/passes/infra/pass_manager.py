"""Runs passes over a module, again and again until nothing changes or `steps` are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.infra.pass_base import PassResult


def pass_result_wrapper(fn: Callable[[GraphModule], Any]) -> Callable[[GraphModule], PassResult]:
    """A function of a module as a pass; what gives None is taken to have changed it."""

    def wrapped(gm: GraphModule) -> PassResult:
        result = fn(gm)
        if isinstance(result, PassResult):
            return result
        return PassResult(result if isinstance(result, GraphModule) else gm, True)

    wrapped.__name__ = getattr(fn, "__name__", type(fn).__name__)
    return wrapped


class PassManager:
    """`passes` in the order given, which has to keep to `constraints`: functions of two passes that say whether the
    first may come first."""

    def __init__(self, passes: Sequence[Callable] | None = None, constraints: Sequence[Callable] | None = None, steps: int | None = None,
                 run_checks_after_each_pass: bool = False) -> None:
        self.passes = list(passes or [])
        self.constraints = list(constraints or [])
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass

    def add_pass(self, _pass: Callable) -> None:
        """One more, at the end."""
        self.passes.append(_pass)

    def add_constraint(self, constraint: Callable) -> None:
        """One more condition on the order."""
        self.constraints.append(constraint)

    def add_checks(self, check: Callable[[GraphModule], None]) -> None:
        """What is asked of the module after each pass, by raising."""
        self.check = check  # type: ignore[method-assign,assignment]

    def check(self, module: GraphModule) -> None:
        """Nothing, unless `add_checks` was called."""

    def validate_constraints(self) -> None:
        """RuntimeError if the order breaks a constraint."""
        for i, first in enumerate(self.passes):
            for second in self.passes[i + 1:]:
                if not all(allowed(first, second) for allowed in self.constraints):
                    raise RuntimeError(f"pass schedule constraint violated: {first} must not come before {second}")

    def __call__(self, module: GraphModule) -> PassResult:
        """Run them."""
        self.validate_constraints()
        self.check(module)
        modified = False
        for _ in range(self.steps):
            changed = False
            for one in self.passes:
                try:
                    result = pass_result_wrapper(one)(module)
                except Exception as error:
                    raise Exception(f"An error occurred when running the '{getattr(one, '__name__', type(one).__name__)}' pass") from error
                module, changed = result.graph_module, changed or result.modified
                module.recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            modified |= changed
            if not changed:
                break
        return PassResult(module, modified)


__all__ = ["PassManager", "pass_result_wrapper"]
