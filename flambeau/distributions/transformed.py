"""Distributions of functions of a variable with a known distribution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.tensor import Tensor
from . import constraints
from .continuous import Independent
from .distribution import Distribution, sum_rightmost
from .transforms import ComposeTransform, Transform

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of f(X) for X of `base_distribution` and f one transform after the other."""

    arg_constraints = {}

    def __init__(self, base_distribution: Distribution, transforms: Transform | Sequence[Transform],
                 validate_args: bool | None = None) -> None:
        parts = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(parts, (list, tuple)) or not all(isinstance(t, Transform) for t in parts):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        self.transforms = list(parts)
        whole, base = ComposeTransform(self.transforms), base_distribution
        shape, events = tuple(base.batch_shape + base.event_shape), len(base.event_shape)
        taken = whole.domain.event_dim
        if len(shape) < taken:
            raise ValueError(f"base_distribution needs to have shape with size at least {taken}, but got {shape}.")
        made = tuple(whole.forward_shape(shape))
        wide = tuple(whole.inverse_shape(made))
        if wide != shape:
            base = base.expand(wide[:len(wide) - events])
        if taken > events:
            base = Independent(base, taken - events)
        self.base_dist = base
        split = len(made) - whole.codomain.event_dim - max(events - taken, 0)
        super().__init__(made[:split], made[split:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        """Where the last transform leads to."""
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        more = len(self.event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        """The same distributions, broadcast to `batch_shape`."""
        made: Any = super().expand(batch_shape)
        wide = tuple(ComposeTransform(self.transforms).inverse_shape((*made.batch_shape, *self.event_shape)))
        made.base_dist = self.base_dist.expand(wide[:len(wide) - len(self.base_dist.event_shape)])
        return made

    def _through(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The base's density where the value comes from, over the Jacobian."""
        self._validate_sample(value)
        dims, jacobian = len(self.event_shape), None
        for transform in reversed(self.transforms):
            x = transform.inv(value)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            term = sum_rightmost(transform.log_abs_det_jacobian(x, value), dims - transform.domain.event_dim)
            jacobian, value = term if jacobian is None else jacobian + term, x
        base = sum_rightmost(self.base_dist.log_prob(value), dims - len(self.base_dist.event_shape))
        return base if jacobian is None else base - jacobian

    def _sign(self) -> Any:
        return ComposeTransform(self.transforms).sign

    def cdf(self, value: Tensor) -> Tensor:
        """P(f(X) <= value) of a monotonic f: the base's cdf, or 1 less it where f decreases."""
        sign = self._sign()
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return sign * (self.base_dist.cdf(value) - 0.5) + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """Where the cdf is `value`."""
        return self._through(self.base_dist.icdf(self._sign() * (value - 0.5) + 0.5))
