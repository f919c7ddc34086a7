"""transform_to(constraint) and biject_to(constraint): transforms from all numbers into a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from . import constraints, transforms
from .constraints import Constraint, _Bounded, _Cat, _Independent, _Stack

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


def _key(constraint: Any) -> Any:
    """What a constraint is registered by: its class."""
    return constraint if isinstance(constraint, type) else type(constraint)


class ConstraintRegistry:
    """Constraints with functions that make a transform for one: `registry(constraint)`."""

    def __init__(self) -> None:
        self._factories: dict[Any, Callable[[Any], transforms.Transform]] = {}

    def register(self, constraint: Any, factory: Callable | None = None) -> Callable:
        """Enter `factory(constraint) -> Transform` for a constraint, or a class of them; a decorator without a factory."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        if not issubclass(_key(constraint), Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._factories[_key(constraint)] = factory
        return factory

    def __call__(self, constraint: Any) -> transforms.Transform:
        """A transform whose codomain is `constraint`."""
        factory = self._factories.get(_key(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {constraint!r} constraints: no transform is registered for it")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _from_numbers(constraint: _Bounded) -> transforms.Transform:
    """exp or sigmoid, shifted and scaled."""
    low, high = constraint.lower_bound, constraint.upper_bound
    below, above = (isinstance(bound, Tensor) or abs(bound) != constraints.inf for bound in (low, high))
    if below and above:
        if not isinstance(low, Tensor) and not isinstance(high, Tensor) and (low, high) == (0, 1):
            return transforms.SigmoidTransform()
        return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])
    shift = transforms.AffineTransform(low, 1) if below else transforms.AffineTransform(high, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda constraint: transforms.identity_transform)
    for _bounded in (constraints.interval, constraints.half_open_interval, constraints.greater_than, constraints.greater_than_eq,
                     constraints.less_than):
        _registry.register(_bounded, _from_numbers)
    _registry.register(_Independent, lambda constraint, registry=_registry: transforms.IndependentTransform(
        registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims))
    _registry.register(_Cat, lambda constraint, registry=_registry: transforms.CatTransform(
        [registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths))
    _registry.register(_Stack, lambda constraint, registry=_registry: transforms.StackTransform(
        [registry(c) for c in constraint.cseq], constraint.dim))
    _registry.register(constraints.corr_cholesky, lambda constraint: transforms.CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
for _kind in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_kind, lambda constraint: transforms.PositiveDefiniteTransform())
