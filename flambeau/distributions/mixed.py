"""Mixtures, and the relaxations of discrete choices (C. Maddison, A. Mnih and Y. W. Teh, "The Concrete Distribution", 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.dtypes import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .continuous import _op, _uniform
from .discrete import Categorical, _Binary
from .distribution import Distribution
from .transformed import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform

__all__ = ["MixtureSameFamily", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class MixtureSameFamily(Distribution):
    """One of the components, the last batch dimension of a distribution, chosen by a Categorical. Sampled without gradients."""

    arg_constraints = {}

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        shape, choices = component_distribution.batch_shape, mixture_distribution.param_shape
        if not len(shape) or choices[-1] != shape[-1]:
            raise ValueError(f"`mixture_distribution component` ({choices[-1]}) does not equal `component_distribution.batch_shape[-1]` "
                             f"({shape[-1] if len(shape) else None})")
        for own, other in zip(reversed(choices[:-1]), reversed(shape[:-1])):
            if own != 1 and other != 1 and own != other:
                raise ValueError(f"`mixture_distribution.batch_shape` ({tuple(choices[:-1])}) is not compatible with "
                                 f"`component_distribution.batch_shape` ({tuple(shape)})")
        super().__init__(shape[:-1], component_distribution.event_shape, validate_args)

    support = constraints.dependent_property(
        lambda self: constraints.MixtureSameFamilyConstraint(self.component_distribution.support))

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        shape = tuple(batch_shape)
        count = self.component_distribution.batch_shape[-1]
        mixture: Any = self.mixture_distribution.expand(shape)
        return MixtureSameFamily(mixture, self.component_distribution.expand((*shape, count)), self._validate_args)

    def _over_components(self, x: Tensor) -> Tensor:
        """The mean over the components, which come before the event's dimensions."""
        events = len(self.event_shape)
        weights = self.mixture_distribution.probs
        return (x * weights.reshape(*weights.shape, *(1,) * events)).sum(-1 - events)

    mean = property(lambda self: self._over_components(self.component_distribution.mean))

    @property
    def variance(self) -> Tensor:
        """The mean of the variances and the variance of the means."""
        means = self.component_distribution.mean
        centred = means - self.mean.unsqueeze(-1 - len(self.event_shape))
        return self._over_components(self.component_distribution.variance + centred**2)

    def cdf(self, x: Tensor) -> Tensor:
        self._validate_sample(x)
        return (self.component_distribution.cdf(x.unsqueeze(-1)) * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        self._validate_sample(x)
        logits = self.mixture_distribution.logits
        return (self.component_distribution.log_prob(x.unsqueeze(-1 - len(self.event_shape))) + logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            shape, events = tuple(sample_shape), len(self.event_shape)
            choice = self.mixture_distribution.expand(self.batch_shape).sample(shape)
            drawn = self.component_distribution.sample(shape)
            at = choice.reshape(*choice.shape, *(1,) * (events + 1)).expand(*choice.shape, 1, *self.event_shape)
            return drawn.gather(drawn.ndim - events - 1, at).squeeze(drawn.ndim - events - 1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution!r},\n  {self.component_distribution!r})"


class LogitRelaxedBernoulli(_Binary):
    """The logit of a relaxed Bernoulli variable: a logistic one with location logits / temperature."""

    support, has_rsample = constraints.real, True

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = _uniform(self._extended_shape(sample_shape), self.logits.detach()).clamp(max=1 - finfo(self.logits.dtype).eps)
        return (u.log() - (-u).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        gap = self.logits - value * self.temperature
        return self.temperature.log() + gap - 2 * _op("softplus", gap)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1, which a lower `temperature` draws towards the values of a Bernoulli."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform(), validate_args)

    temperature, probs, logits = (property(attrgetter(f"base_dist.{name}")) for name in ("temperature", "probs", "logits"))


class ExpRelaxedCategorical(Categorical):
    """The logarithms of a relaxed one-hot vector."""

    support, has_rsample = constraints.real_vector, True
    has_enumerate_support = False

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)
        self._event_shape = Size(self.param_shape[-1:])

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        """The same distributions, broadcast to `batch_shape`, with one temperature."""
        made = super().expand(batch_shape, _instance)
        made.temperature = self.temperature     # type: ignore[attr-defined]
        return made

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = _uniform(self._extended_shape(sample_shape), self.logits.detach()).clamp(max=1 - finfo(self.logits.dtype).eps)
        return ((self.logits - (-u.log()).log()) / self.temperature).log_softmax(-1)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return Distribution.sample(self, sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        scores = (self.logits - value * self.temperature).log_softmax(-1)
        n = self.param_shape[-1]
        return scores.sum(-1) + _op("lgamma", self.temperature * 0 + float(n)) + (n - 1) * self.temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of a simplex, which a lower `temperature` draws towards its corners."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args), ExpTransform(), validate_args)

    temperature, probs, logits = (property(attrgetter(f"base_dist.{name}")) for name in ("temperature", "probs", "logits"))
