"""Passes as functions of one value, in an order that has to keep to constraints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

logger = logging.getLogger(__name__)
Pass = Callable[[Any], Any]
Constraint = Callable[[Pass, Pass], bool]


def inplace_wrapper(fn: Pass) -> Pass:
    """A pass that changes what it is given, and returns nothing, as one that returns it."""

    @wraps(fn)
    def wrapped(source: Any) -> Any:
        fn(source)
        return source

    return wrapped


def log_hook(fn: Pass, level: int = logging.INFO) -> Pass:
    """A pass that logs what it gives."""

    @wraps(fn)
    def wrapped(source: Any) -> Any:
        result = fn(source)
        logger.log(level, "Ran pass %s\t Return value: %s", getattr(fn, "__name__", fn), result)
        return result

    return wrapped


def loop_pass(base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None) -> Pass:
    """A pass again and again: `n_iter` times, or while `predicate` holds of what it gave."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("loop_pass(): exactly one of n_iter and predicate must be given")

    @wraps(base_pass)
    def wrapped(source: Any) -> Any:
        done = 0
        while done < n_iter if n_iter is not None else predicate(source):     # type: ignore[misc]
            source = base_pass(source)
            done += 1
        return source

    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """`that` must not come before `this`."""
    return lambda first, second: first != that or second != this


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """The same of wrapped passes, which are told by what they wrap."""
    return lambda first, second: _unwrapped(first) != _unwrapped(those) or _unwrapped(second) != _unwrapped(these)


def _unwrapped(fn: Pass) -> Any:
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return fn


class PassManager:
    """`PassManager(passes, constraints)(source)`: what the passes make of a value, one after the other."""

    def __init__(self, passes: Sequence[Pass] | None = None, constraints: Sequence[Constraint] | None = None) -> None:
        self.passes, self.constraints = list(passes or ()), list(constraints or ())
        self._validated = False

    @classmethod
    def build_from_passlist(cls, passes: Sequence[Pass]) -> PassManager:
        """One of these passes, without constraints."""
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        """One more, at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """One more condition on the order."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: Sequence[str]) -> None:
        """Leave those out that have these names."""
        self.passes = [one for one in self.passes if getattr(one, "__name__", "") not in _passes]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Another one in the place of a pass."""
        name = getattr(_target, "__name__", _target)
        self.passes = [_replacement if getattr(one, "__name__", one) == name else one for one in self.passes]
        self._validated = False

    def validate(self) -> None:
        """RuntimeError if the order breaks a constraint."""
        for i, first in enumerate(self.passes if not self._validated else ()):
            for j, second in enumerate(self.passes[i + 1:], i + 1):
                if not all(allowed(first, second) for allowed in self.constraints):
                    raise RuntimeError(f"pass schedule constraint violated: {first} (at {i}) must not come before {second} (at {j})")
        self._validated = True

    def __call__(self, source: Any) -> Any:
        """Run them."""
        self.validate()
        for one in self.passes:
            source = one(source)
        return source


__all__ = ["PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint",
           "this_before_that_pass_constraint"]
