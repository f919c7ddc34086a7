"""Sets in which parameters and values of distributions lie; `constraint.check(value)` is a tensor of bools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import linalg
from ..core.dtypes import bool_
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS


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


class _Bounded(Constraint):
    """Numbers from `lower_bound` to `upper_bound`, both included unless `open_low`, `open_high`; `bounds` are those that are given."""

    bounds: tuple[str, ...] = ("lower_bound", "upper_bound")
    open_low = open_high = False
    lower_bound: Any = -float("inf")
    upper_bound: Any = float("inf")

    def check(self, value: Tensor) -> Tensor:
        above = value > self.lower_bound if self.open_low else value >= self.lower_bound
        below = value < self.upper_bound if self.open_high else value <= self.upper_bound
        inside = above & below
        return inside & (value % 1 == 0) if self.is_discrete else inside

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({', '.join(f'{name}={getattr(self, name)}' for name in self.bounds)})"


class _Interval(_Bounded):
    """Numbers from `lower_bound` to `upper_bound`."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _HalfOpenInterval(_Interval):
    """Numbers from `lower_bound` up to, without, `upper_bound`."""

    open_high = True


class _IntegerInterval(_Interval):
    """Integers from `lower_bound` to `upper_bound`."""

    is_discrete = True


class _GreaterThanEq(_Bounded):
    """Numbers from `lower_bound` on."""

    bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _GreaterThan(_GreaterThanEq):
    """Numbers above `lower_bound`."""

    open_low = True


class _IntegerGreaterThan(_GreaterThanEq):
    """Integers from `lower_bound` on."""

    is_discrete = True


class _LessThan(_Bounded):
    """Numbers below `upper_bound`."""

    bounds, open_high = ("upper_bound",), True

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Multinomial(Constraint):
    """Vectors of counts whose sum is at most `upper_bound`."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


def _test(name: str, test: Callable[[Tensor], Tensor], *, event_dim: int = 0, is_discrete: bool = False) -> Constraint:
    """The one constraint of a class of its own: the values that meet a test; `event_dim` dimensions make one value."""
    members = {"check": lambda self, value: test(value), "event_dim": event_dim, "is_discrete": is_discrete, "__module__": __name__}
    made: Constraint = type(f"_{name}", (Constraint,), members)()
    globals()[f"_{name}"] = type(made)
    return made


class _Independent(Constraint):
    """A constraint whose last dimensions count as one event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete, self.event_dim = base_constraint.is_discrete, base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        for _ in range(self.reinterpreted_batch_ndims):
            result = result.all(-1)
        return result

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class _Parts(Constraint):
    """Constraints side by side along `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)


class _Cat(_Parts):
    """A constraint for each piece of `lengths` along `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.cseq)

    def check(self, value: Tensor) -> Tensor:
        return OPERATORS["cat"]([c.check(piece) for c, piece in zip(self.cseq, value.split(self.lengths, self.dim))], self.dim)


class _Stack(_Parts):
    """A constraint for each slice along `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)
        self.event_dim += dim + self.event_dim < 0

    def check(self, value: Tensor) -> Tensor:
        return OPERATORS["stack"]([c.check(piece) for c, piece in zip(self.cseq, value.unbind(self.dim))], self.dim)


class MixtureSameFamilyConstraint(Constraint):
    """`base_constraint`, of the components of a mixture, for values that lack the components' dimension."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise TypeError(f"base_constraint must be a Constraint, not {type(base_constraint).__name__}")
        self.base_constraint = base_constraint
        self.event_dim, self.is_discrete = base_constraint.event_dim, base_constraint.is_discrete

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return found.squeeze(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


def _told_by_eigenvalues(x: Tensor, test: Callable[[Tensor], Tensor]) -> Tensor:
    """Which matrices are symmetric and have eigenvalues that all meet a test."""
    even = symmetric.check(x)
    return even & test(linalg.eigvalsh(x)).all(-1) if x.shape[-2] == x.shape[-1] else even


cat, stack = _Cat, _Stack
inf = float("inf")
dependent = _Dependent()
dependent_property = _DependentProperty
independent = _Independent
boolean = _test("Boolean", lambda x: (x == 0) | (x == 1), is_discrete=True)
one_hot = _test("OneHot", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), event_dim=1, is_discrete=True)
real = _test("Real", lambda x: x == x)
real_vector = _Independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
unit_interval = _Interval(0.0, 1.0)
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
simplex = _test("Simplex", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), event_dim=1)
square = _test("Square", lambda x: x.new_full(x.shape[:-2], x.shape[-2] == x.shape[-1], dtype=bool_), event_dim=2)
symmetric = _test("Symmetric", lambda x: ((x - x.mT).abs() < 1e-6).all(-2).all(-1) if x.shape[-2] == x.shape[-1] else square.check(x),
                  event_dim=2)
positive_semidefinite = _test("PositiveSemidefinite", lambda x: _told_by_eigenvalues(x, lambda e: e >= 0), event_dim=2)
lower_triangular = _test("LowerTriangular", lambda x: (x.tril() == x).all(-2).all(-1), event_dim=2)
positive_definite = _test("PositiveDefinite", lambda x: _told_by_eigenvalues(x, lambda e: e > 0), event_dim=2)
lower_cholesky = _test("LowerCholesky", lambda x: (x.tril() == x).all(-2).all(-1) & (x.diagonal(0, -2, -1) > 0).all(-1), event_dim=2)
corr_cholesky = _test("CorrCholesky", lambda x: lower_cholesky.check(x) & (((x * x).sum(-1) - 1).abs() < 1e-4).all(-1), event_dim=2)


def is_dependent(constraint: Constraint) -> bool:
    """Whether a constraint depends on other parameters."""
    return isinstance(constraint, _Dependent)


interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
greater_than, greater_than_eq, less_than, multinomial = _GreaterThan, _GreaterThanEq, _LessThan, _Multinomial
_IndependentConstraint = _Independent

__all__ = ["Constraint", "MixtureSameFamilyConstraint",
           "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than", "greater_than_eq",
           "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
           "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
           "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric",
           "unit_interval"]
