"""Distributions over integers, classes and one-hot vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..core.dtypes import finfo
from ..core.lazy import LazyFunctions
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import constraints
from .continuous import _op, _uniform
from .distribution import Distribution, ExponentialFamily, broadcast_all
from .utils import lazy_property

__all__ = ["Bernoulli", "Binomial", "Categorical", "Geometric", "Multinomial", "NegativeBinomial", "OneHotCategorical",
           "OneHotCategoricalStraightThrough", "Poisson"]

_special = LazyFunctions("scipy.special")


def _one_of(probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def _clamped(probs: Tensor) -> Tensor:
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


class _Binary(Distribution):
    """Parameters of yes-or-no draws: `probs`, or `logits` = log(p / (1 - p))."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of(probs, logits)
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
        else:
            (self.logits,) = broadcast_all(logits)
        self._param = self.probs if probs is not None else self.logits
        super().__init__(self._param.shape, (), validate_args)

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of a yes."""
        return self.logits.sigmoid()

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithm of the odds."""
        p = _clamped(self.probs)
        return p.log() - _op("log1p", -p)

    @property
    def param_shape(self) -> Size:
        """The shape of probs or logits."""
        return self._param.shape


class Bernoulli(_Binary, ExponentialFamily):
    """1 with probability p, else 0."""

    _natural_params = property(lambda self: (self.logits,))
    _mean_carrier_measure = 0.0

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return _op("softplus", x)

    support = constraints.boolean
    has_enumerate_support = True

    mean = property(lambda self: self.probs)
    mode = property(lambda self: _op("where", self.probs == 0.5, float("nan"), (self.probs >= 0.5).to(self.probs.dtype)))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return _op("bernoulli", self.probs.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return value * logits - _op("softplus", logits)

    def entropy(self) -> Tensor:
        return _op("softplus", self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = _op("arange", 2, dtype=self._param.dtype, device=self._param.device).reshape((2,) + (1,) * len(self._batch_shape))
        return values.expand((2, *self._batch_shape)) if expand else values


class Binomial(_Binary):
    """How many of `total_count` draws succeed."""

    has_enumerate_support = True
    arg_constraints = {"total_count": constraints.nonnegative_integer, **_Binary.arg_constraints}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of(probs, logits)
        self.total_count, given = broadcast_all(total_count, probs if probs is not None else logits)
        self.total_count = self.total_count.to(given.dtype)
        super().__init__(None if probs is None else given, None if logits is None else given, validate_args)

    support = constraints.dependent_property(lambda self: constraints.integer_interval(0, self.total_count))
    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().minimum(self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return _op("binomial", self.total_count.expand(shape), self.probs.detach().expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, lgamma = self.total_count, OPERATORS["lgamma"]
        return (lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1) + value * self.logits - n * _op("softplus", self.logits))

    def _one_count(self, fact: str) -> int:
        count = int(self.total_count.max())
        if (self.total_count != count).any():
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{fact}`.")
        return count

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = 1 + self._one_count("enumerate_support")
        values = _op("arange", count, dtype=self._param.dtype, device=self._param.device).reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((count, *self._batch_shape)) if expand else values


class Geometric(_Binary):
    """How many failures come before the first success."""

    support = constraints.nonnegative_integer

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (self.probs > 0).all():
            raise ValueError(f"Expected parameter probs of distribution Geometric to be positive, but found invalid values:\n{self.probs}")

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: _op("zeros_like", self.probs))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = _uniform(self._extended_shape(sample_shape), self.probs.detach())
        return (u.log() / _op("log1p", -self.probs.detach())).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return _op("xlogy", value, 1 - self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        p = self.probs
        return -(_op("xlogy", p, p) + _op("xlogy", 1 - p, 1 - p)) / p


class Categorical(Distribution):
    """A class among `probs.shape[-1]`, by probabilities (any positive sum) or `logits`."""

    has_enumerate_support = True
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        _one_of(probs, logits)
        given = probs if probs is not None else logits
        assert given is not None
        if given.ndim < 1:
            raise ValueError(f"`{'probs' if probs is not None else 'logits'}` parameter must be at least one-dimensional.")
        if probs is not None:
            if (probs < 0).any():
                raise ValueError(f"Categorical: probs must not be negative, got\n{probs}")
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], (), validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities of the classes."""
        return self.logits.softmax(-1)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return _clamped(self.probs).log()

    support = constraints.dependent_property(lambda self: constraints.integer_interval(0, self._num_events - 1))

    @property
    def param_shape(self) -> Size:
        """The shape of probs or logits."""
        return Size((*self._batch_shape, self._num_events))

    mean = property(lambda self: _op("full", tuple(self._batch_shape), float("nan"), dtype=self.probs.dtype))
    mode = property(lambda self: self.probs.argmax(-1))
    variance = property(lambda self: self.mean)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        count = math.prod(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = _op("multinomial", rows, count, True) if count else _op("zeros", (rows.shape[0], 0)).long()
        return drawn.t().reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        index, logits = _op("broadcast_tensors", index, self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = _op("arange", self._num_events).reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((self._num_events, *self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """A Categorical whose values are one-hot vectors."""

    support = constraints.one_hot
    has_enumerate_support = True
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        made: Any = super().expand(batch_shape)
        made._categorical = self._categorical.expand(made.batch_shape)
        return made

    @property
    def probs(self) -> Tensor:
        """The probabilities of the classes."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.probs)
    mode = property(lambda self: self._one_hot(self.probs.argmax(-1)))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, classes: Tensor) -> Tensor:
        return _op("one_hot", classes, self._event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._one_hot(self._categorical.enumerate_support(expand))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A OneHotCategorical whose samples pass their gradient on to the probabilities (Y. Bengio, N. Leonard and A. Courville, 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OneHotCategorical):
    """How often each class comes in `total_count` draws."""

    has_enumerate_support = False
    mode, enumerate_support = Distribution.mode, Distribution.enumerate_support

    def __init__(self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
                 validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported; give Multinomial an int")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    support = constraints.dependent_property(lambda self: constraints.multinomial(self.total_count))
    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return super().sample((self.total_count, *sample_shape)).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        lgamma = OPERATORS["lgamma"]
        logits = logits.masked_fill((value == 0) & (logits == -float("inf")), 0)
        return lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1) + (value * logits).sum(-1)

    def entropy(self) -> Tensor:
        """n H - log n! and the expectation of log k! over the binomial count k of each class."""
        n = self.total_count
        counts = Binomial(n, probs=self.probs, validate_args=False)
        support = counts.enumerate_support(False)[1:]
        extra = (counts.log_prob(support).exp() * OPERATORS["lgamma"](support + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + extra


class Poisson(ExponentialFamily):
    """Counts of events that come at a steady `rate`."""

    support = constraints.nonnegative_integer
    arg_constraints = {"rate": constraints.nonnegative}
    _natural_params = property(lambda self: (self.rate.log(),))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return _op("poisson", self.rate.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return _op("xlogy", value, rate) - rate - _op("lgamma", value + 1)


class NegativeBinomial(_Binary):
    """How many successes come before `total_count` failures."""

    support = constraints.nonnegative_integer
    arg_constraints = {"total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0, 1), "logits": constraints.real}

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of(probs, logits)
        self.total_count, given = broadcast_all(total_count, probs if probs is not None else logits)
        self.total_count = self.total_count.type_as(given)
        super().__init__(None if probs is None else given, None if logits is None else given, validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rate = _op("_standard_gamma", self.total_count.detach().expand(shape)) * self.logits.detach().exp()
        return _op("poisson", rate)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, lgamma, log_sigmoid = self.total_count, OPERATORS["lgamma"], OPERATORS["logsigmoid"]
        return (
            n * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits) + lgamma(n + value) - lgamma(1.0 + value) - lgamma(n)
        )
