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


class _Test(Constraint):
    """The values that meet a test; `event_dim` dimensions make one value."""

    def __init__(self, name: str, test: Callable[[Tensor], Tensor], *, event_dim: int = 0, is_discrete: bool = False) -> None:
        self._name, self.check = name, test     # type: ignore[method-assign, assignment]
        self.event_dim, self.is_discrete = event_dim, is_discrete

    def __repr__(self) -> str:
        return f"{self._name}()"


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


cat, stack = _Cat, _Stack
inf = float("inf")
dependent = _Dependent()
dependent_property = _DependentProperty
independent = _Independent
boolean = _Test("Boolean", lambda x: (x == 0) | (x == 1), is_discrete=True)
one_hot = _Test("OneHot", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), event_dim=1, is_discrete=True)
real = _Test("Real", lambda x: x == x)
real_vector = _Independent(real, 1)
positive = _Interval(0.0, inf, open_low=True)
nonnegative = _Interval(0.0, inf)
unit_interval = _Interval(0.0, 1.0)
nonnegative_integer = _Interval(0, inf, integer=True)
positive_integer = _Interval(1, inf, integer=True)
simplex = _Test("Simplex", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), event_dim=1)
square = _Test("Square", lambda x: x.new_full(x.shape[:-2], x.shape[-2] == x.shape[-1], dtype=bool_), event_dim=2)
symmetric = _Test("Symmetric", lambda x: ((x - x.mT).abs() < 1e-6).all(-2).all(-1), event_dim=2)
positive_semidefinite = _Test("PositiveSemidefinite", lambda x: symmetric.check(x) & (linalg.eigvalsh(x) >= 0).all(-1), event_dim=2)
lower_triangular = _Test("LowerTriangular", lambda x: (x.tril() == x).all(-2).all(-1), event_dim=2)
positive_definite = _Test("PositiveDefinite", lambda x: ((x - x.mT).abs() < 1e-6).all(-2).all(-1) & (linalg.eigvalsh(x) > 0).all(-1),
                          event_dim=2)
lower_cholesky = _Test("LowerCholesky", lambda x: (x.tril() == x).all(-2).all(-1) & (x.diagonal(0, -2, -1) > 0).all(-1), event_dim=2)
corr_cholesky = _Test("CorrCholesky", lambda x: lower_cholesky.check(x) & (((x * x).sum(-1) - 1).abs() < 1e-4).all(-1), event_dim=2)


def is_dependent(constraint: Constraint) -> bool:
    """Whether a constraint depends on other parameters."""
    return isinstance(constraint, _Dependent)


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


def multinomial(upper_bound: int) -> Constraint:
    """Vectors of counts whose sum is `upper_bound`."""
    def check(x: Tensor) -> Tensor:
        return ((x >= 0) & (x % 1 == 0)).all(-1) & (x.sum(-1) == upper_bound)

    return _Test("Multinomial", check, event_dim=1, is_discrete=True)
