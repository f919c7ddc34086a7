"""Sets in which parameters and values of distributions lie; `constraint.check(value)` is a tensor of bools."""

from __future__ import annotations

from typing import Any

from .. import linalg
from ..core.tensor import Tensor


class Constraint:
    """A set of values."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Which values lie in the set."""
        raise NotImplementedError(f"{type(self).__name__} must define check()")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Dependent(Constraint):
    """A set that depends on other parameters; checked by the distribution itself."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, **settings: Any) -> _Dependent:
        return _Dependent(**settings)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property whose value is a constraint."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class _Interval(Constraint):
    """Numbers from `low` to `high`, both included unless `open_low`, `open_high`."""

    def __init__(self, low: Any, high: Any, open_low: bool = False, open_high: bool = False, integer: bool = False) -> None:
        self.lower_bound, self.upper_bound = low, high
        self.open_low, self.open_high, self.is_discrete = open_low, open_high, integer

    def check(self, value: Tensor) -> Tensor:
        above = value > self.lower_bound if self.open_low else value >= self.lower_bound
        below = value < self.upper_bound if self.open_high else value <= self.upper_bound
        inside = above & below
        return inside & (value % 1 == 0) if self.is_discrete else inside

    def __repr__(self) -> str:
        kind = "integer_interval" if self.is_discrete else "interval"
        return f"{kind}(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _PositiveDefinite(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        symmetric = ((value - value.mT).abs() < 1e-6).all(-2).all(-1)
        return symmetric & (linalg.eigvalsh(value) > 0).all(-1)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        triangular = (value.tril() == value).all(-2).all(-1)
        return triangular & (value.diagonal(0, -2, -1) > 0).all(-1)


class _Independent(Constraint):
    """A constraint whose last dimensions count as one event."""

    def __init__(self, base: Constraint, dims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base, dims
        self.is_discrete, self.event_dim = base.is_discrete, base.event_dim + dims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            result = result.all(-1)
        return result


inf = float("inf")
dependent = _Dependent()
dependent_property = _DependentProperty
independent = _Independent
boolean = _Boolean()
one_hot = _OneHot()
real = _Real()
real_vector = _Independent(real, 1)
positive = _Interval(0.0, inf, open_low=True)
nonnegative = _Interval(0.0, inf)
unit_interval = _Interval(0.0, 1.0)
nonnegative_integer = _Interval(0, inf, integer=True)
positive_integer = _Interval(1, inf, integer=True)
simplex = _Simplex()
positive_definite = _PositiveDefinite()
lower_cholesky = _LowerCholesky()


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from `lower_bound` to `upper_bound`."""
    return _Interval(lower_bound, upper_bound)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from `lower_bound` up to, without, `upper_bound`."""
    return _Interval(lower_bound, upper_bound, open_high=True)


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Integers from `lower_bound` to `upper_bound`."""
    return _Interval(lower_bound, upper_bound, integer=True)


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above `lower_bound`."""
    return _Interval(lower_bound, inf, open_low=True)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Numbers from `lower_bound` on."""
    return _Interval(lower_bound, inf)


def less_than(upper_bound: Any) -> Constraint:
    """Numbers below `upper_bound`."""
    return _Interval(-inf, upper_bound, open_high=True)
