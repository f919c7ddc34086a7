"""The base class of probability distributions (torch.distributions)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from .constraints import Constraint, _Dependent


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the first tensor, else the default dtype."""
    if not all(isinstance(v, (Tensor, int, float)) for v in values):
        raise ValueError(f"Input arguments must all be instances of Number or torch.Tensor, got {[type(v).__name__ for v in values]}")
    first = next((v for v in values if isinstance(v, Tensor)), None)
    options: dict[str, Any] = {} if first is None else {"dtype": first.dtype, "device": first.device}
    tensors = [v if isinstance(v, Tensor) else OPERATORS["tensor"](float(v), **options) for v in values]
    return tuple(OPERATORS["broadcast_tensors"](*tensors))


def sum_rightmost(x: Tensor, dims: int) -> Tensor:
    """The sums over the last `dims` dimensions."""
    return x.sum(tuple(range(-dims, 0))) if dims else x


def _untold(fact: str, doc: str) -> property:
    """A fact that each distribution tells of itself."""
    def get(self: Distribution) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not tell its {fact}")
    return property(get, doc=doc)


class Distribution:
    """Batches of independent distributions over events.

    `batch_shape` counts the distributions, `event_shape` is the shape of one value. `validate_args` (default True) checks
    parameters and the values given to `log_prob`: ValueError names what lies outside its constraint.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args = True
    _shows_parameters = True    # in its repr; what is made of another distribution has none of its own

    def __init__(self, batch_shape: Iterable[int] = (), event_shape: Iterable[int] = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args
        if self._validate_args:
            self._check_parameters()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments when it is not said."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args() takes True or False, got {value!r}")
        Distribution._validate_args = value

    def _check_parameters(self) -> None:
        for name, constraint in self.arg_constraints.items():
            if isinstance(constraint, _Dependent) or name not in self.__dict__:
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                                 f"distribution {type(self).__name__} to satisfy the constraint {constraint!r}, but "
                                 f"found invalid values:\n{value}")

    @property
    def batch_shape(self) -> Size:
        """How many distributions there are, as a shape."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape

    support: Any = _untold("support", "Where the values lie.")
    mean: Any = _untold("mean", "The expected value.")
    mode: Any = _untold("mode", "The likeliest value.")
    variance: Any = _untold("variance", "The variance.")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Values with gradients to the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no reparametrised sampling here; use sample()")

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Values of shape sample_shape + batch_shape + event_shape."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or probability) at `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its density")

    def prob(self, value: Tensor) -> Tensor:
        """The density (or probability) at `value`."""
        return self.log_prob(value).exp()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Where the cdf is `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its inverse cdf")

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError(f"{type(self).__name__} does not list its support")

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        """The same distributions, broadcast to `batch_shape`."""
        shape = tuple(batch_shape)
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        dims = len(self._batch_shape)
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor) and tuple(value.shape[:dims]) == tuple(self._batch_shape):
                made.__dict__[name] = value.expand((*shape, *value.shape[dims:]))
        made._batch_shape = Size(shape)
        return made

    def _extended_shape(self, sample_shape: Iterable[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """ValueError for a value of another shape or outside the support."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = len(self._event_shape)
        if events and tuple(value.shape[value.ndim - events :]) != tuple(self._event_shape):
            raise ValueError(f"The right-most size of value must match event_shape: {tuple(value.shape)} vs {tuple(self._event_shape)}.")
        for size, own in zip(reversed(value.shape), reversed((*self._batch_shape, *self._event_shape))):
            if size != 1 and own != 1 and size != own:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {tuple(value.shape)} vs "
                                 f"{(*self._batch_shape, *self._event_shape)}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        if support is not None and not isinstance(support, _Dependent) and not support.check(value).all():
            raise ValueError(f"Expected value argument (Tensor of shape {tuple(value.shape)}) to be within the support "
                             f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{n}: {v if v.numel() == 1 else v.shape}"
            for n, v in ((n, self.__dict__.get(n)) for n in (self.arg_constraints if self._shows_parameters else ()))
            if isinstance(v, Tensor)
        )
        return f"{type(self).__name__}({shown})"


class ExponentialFamily(Distribution):
    """Distributions with density exp(<natural parameters, statistics of x> - log normalizer + log carrier(x))."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """The natural parameters, of which the log normalizer is a function."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its natural parameters")

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        """The logarithm of what the density is divided by. Its gradient are the means of the statistics."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its log normalizer")

    @property
    def _mean_carrier_measure(self) -> float:
        """The mean of log carrier(x)."""
        raise NotImplementedError(f"{type(self).__name__} does not tell the mean of its carrier measure")
