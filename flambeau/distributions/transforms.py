"""Functions between spaces with the logarithms of their Jacobians: what TransformedDistribution samples through.

Stick breaking and the Cholesky factor of a correlation matrix are as in the Stan Reference Manual ("Constraint transforms"); the latter
comes from D. Lewandowski, D. Kurowicka and H. Joe, "Generating random correlation matrices based on vines and extended onion method"
(2009).
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .. import linalg
from ..core.dtypes import finfo
from ..core.size import Size, broadcast_shapes
from ..core.tensor import Tensor
from ..nn import functional as F
from ..ops.registry import OPERATORS
from . import constraints
from .constraints import Constraint
from .distribution import sum_rightmost

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
    "Transform", "identity_transform",
]


class Transform:
    """A function from `domain` to `codomain`; a class of one's own defines `_call`, `_inverse` and `log_abs_det_jacobian`.

    `bijective`: whether `inv(t(x)) == x`; otherwise `inv` gives some x with t(x) = y. `sign`: 1 for an increasing function of
    numbers, -1 for a decreasing one. With `cache_size=1` the last pair (x, y) is kept, so that the inverse of y is x itself.
    """

    bijective = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size}")
        self._cache_size, self._cached = cache_size, (None, None)
        self._inv: Any = None     # a class with an `inv` of its own keeps a weak reference to it here

    @property
    def sign(self) -> Any:
        """1 if the function increases, -1 if it decreases."""
        raise NotImplementedError(f"{type(self).__name__} is not monotonic")

    @property
    def event_dim(self) -> int:
        """How many dimensions make one value, if they are as many before and after."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The function back."""
        return _InverseTransform(self)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same with another cache size, as what it is made of."""
        made = copy.copy(self)
        vars(made).update({name: _cached(value, cache_size) for name, value in vars(self).items()})
        Transform.__init__(made, cache_size)
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _alike(self._settings(), other._settings())

    def _settings(self) -> list:
        return [value for name, value in sorted(vars(self).items()) if not name.startswith(("_cache", "_inv"))]

    def __call__(self, x: Tensor) -> Tensor:
        """y = f(x)."""
        if self._cached[0] is x:
            return self._cached[1]
        return self._keep(x, self._call(x))[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cached[1] is y:
            return self._cached[0]
        return self._keep(self._inverse(y), y)[0]

    def _keep(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self._cache_size:
            self._cached = x, y  # type: ignore[assignment]
        return x, y

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _call()")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy/dx| for y = f(x)."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its Jacobian")

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of f(x) for an x of this shape."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The shape of x for an f(x) of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _cached(value: Any, cache_size: int) -> Any:
    """A transform, or each of a list, with this cache size."""
    if isinstance(value, list):
        return [_cached(item, cache_size) for item in value]
    return value.with_cache(cache_size) if isinstance(value, Transform) else value


def _alike(a: Any, b: Any) -> bool:
    """Whether settings, of which some may be tensors, are the same."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b or bool((a == b).all() if isinstance(a, Tensor) else (b == a).all())
    return bool(a == b)


class _InverseTransform(Transform):
    """x of f(x)."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    bijective = property(lambda self: self._inv.bijective)
    domain = property(lambda self: self._inv.codomain)
    codomain = property(lambda self: self._inv.domain)
    sign = property(lambda self: self._inv.sign)
    inv = property(lambda self: self._inv)

    def _settings(self) -> list:
        return [self._inv]

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


# -- made of others ----------------------------------------------------------------------------------------------------------
def _widened(constraint: Constraint, event_dim: int) -> Constraint:
    """A constraint of values of at least `event_dim` dimensions."""
    return constraints.independent(constraint, event_dim - constraint.event_dim) if event_dim > constraint.event_dim else constraint


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = _cached(list(parts), cache_size) if cache_size else list(parts)

    def _spanned(self, ends: list[tuple[Any, Any]]) -> Any:
        """The last of these, of all the dimensions that some part takes together; each with what lies before it."""
        if not ends:
            return constraints.real
        dims = ends[0][0].event_dim
        for before, after in ends:
            dims = max(dims + after.event_dim - before.event_dim, after.event_dim)
        return _widened(ends[-1][1], dims)

    domain = property(lambda self: self._spanned([(part.codomain, part.domain) for part in reversed(self.parts)]))
    codomain = property(lambda self: self._spanned([(part.domain, part.codomain) for part in self.parts]))
    bijective = property(lambda self: all(part.bijective for part in self.parts))
    sign = property(lambda self: math.prod(part.sign for part in self.parts))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_inv"}

    @property
    def inv(self) -> Transform:
        """The parts' inverses in the opposite order; its own inverse is this."""
        known = vars(self).get("_inv")
        inverse: Any = None if known is None else known()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        return self.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x * 0
        points = [x]
        for part in self.parts[:-1]:
            points.append(part(points[-1]))
        total, dims = None, self.domain.event_dim
        for part, a, b in zip(self.parts, points, (*points[1:], y)):
            term = sum_rightmost(part.log_abs_det_jacobian(a, b), dims - part.domain.event_dim)
            total = term if total is None else total + term
            dims += part.codomain.event_dim - part.domain.event_dim
        assert total is not None
        return total

    def forward_shape(self, shape: Sequence[int]) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose Jacobian is summed over the last `reinterpreted_batch_ndims` dimensions too."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    domain = property(lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims))
    codomain = property(lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims))
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def _call(self, x: Tensor) -> Tensor:
        _check_dims(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        _check_dims(y.shape, self.codomain.event_dim)
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def _check_dims(shape: Sequence[int], dims: int) -> None:
    if len(shape) < dims:
        raise ValueError(f"Too few dimensions on input: {len(shape)}, it takes {dims}")


class ReshapeTransform(Transform):
    """The last dimensions, of `in_shape`, as `out_shape`."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"in_shape, out_shape have different numbers of elements: {self.in_shape}, {self.out_shape}")

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(tuple(x.shape)[:x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape: Sequence[int], old: tuple, new: tuple) -> Size:
    """`shape` with `new` in the place of `old` at its end."""
    _check_dims(shape, len(old))
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != old:
        raise ValueError(f"Shape mismatch: expected {old} at the end of the shape but got {tuple(shape)}")
    return Size((*shape[:cut], *new))


class _Parts(Transform):
    """Several transforms side by side along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        self.transforms: list[Transform] = _cached(list(tseq), cache_size) if cache_size else list(tseq)
        self.dim = dim

    def _pieces(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _joined(self, pieces: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(piece) for t, piece in zip(self.transforms, self._pieces(x))])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t._inv_call(piece) for t, piece in zip(self.transforms, self._pieces(y))])

    bijective = property(lambda self: all(t.bijective for t in self.transforms))


class CatTransform(_Parts):
    """One transform for each piece of `lengths` along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.transforms)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"CatTransform: {len(self.transforms)} transforms, but {len(self.lengths)} lengths")

    length = property(lambda self: sum(self.lengths))
    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))

    def _pieces(self, x: Tensor) -> Sequence[Tensor]:
        if x.shape[self.dim] != self.length:
            raise AssertionError(f"x.size({self.dim}) = {x.shape[self.dim]} must equal length {self.length}")
        return x.split(self.lengths, self.dim)

    def _joined(self, pieces: list[Tensor]) -> Tensor:
        return OPERATORS["cat"](pieces, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        dims = max(t.domain.event_dim for t in self.transforms)
        dim = self.dim if self.dim >= 0 else self.dim + x.ndim
        terms = [sum_rightmost(t.log_abs_det_jacobian(a, b), dims - t.domain.event_dim)
                 for t, a, b in zip(self.transforms, self._pieces(x), self._pieces(y))]
        return self._joined(terms) if dim < x.ndim - dims else sum(terms)  # type: ignore[return-value]


class StackTransform(_Parts):
    """One transform for each slice along `dim`."""

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))

    def _pieces(self, x: Tensor) -> Sequence[Tensor]:
        if x.shape[self.dim] != len(self.transforms):
            raise AssertionError(f"x.size({self.dim}) = {x.shape[self.dim]} must equal len(transforms) {len(self.transforms)}")
        return x.unbind(self.dim)

    def _joined(self, pieces: list[Tensor]) -> Tensor:
        return OPERATORS["stack"](pieces, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._joined([t.log_abs_det_jacobian(a, b) for t, a, b in zip(self.transforms, self._pieces(x), self._pieces(y))])


# -- of numbers ----------------------------------------------------------------------------------------------------------------
def _size(x: Any) -> tuple:
    return tuple(getattr(x, "shape", ()))


def _increasing(name: str, doc: str, codomain: Constraint, call: Callable[[Tensor], Tensor], inverse: Callable[[Tensor], Tensor],
                log_slope: Callable[[Tensor], Tensor]) -> type[Transform]:
    """The transform of an increasing function of numbers, whose slope's logarithm is known."""
    return type(name, (Transform,), {
        "__doc__": doc, "__module__": __name__, "bijective": True, "sign": 1, "domain": constraints.real, "codomain": codomain,
        "_call": lambda self, x: call(x), "_inverse": lambda self, y: inverse(y), "log_abs_det_jacobian": lambda self, x, y: log_slope(x)})


def _within(p: Tensor) -> Tensor:
    limits = finfo(p.dtype)
    return p.clamp(limits.tiny, 1 - limits.eps)


def _log_slope_of_tanh(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), also where tanh(x) is 1."""
    return 2 * (math.log(2) - x - F.softplus(-2 * x))


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, a rounding away from 0 and 1 at least."""
    return _within(x.sigmoid())


def _odds(y: Tensor) -> Tensor:
    """The logarithm of the odds."""
    y = _within(y)
    return y.log() - (-y).log1p()


ExpTransform = _increasing("ExpTransform", "exp(x).", constraints.positive, Tensor.exp, Tensor.log, lambda x: x)
SigmoidTransform = _increasing("SigmoidTransform", "1 / (1 + exp(-x)), kept within the open interval.", constraints.unit_interval,
                               _clipped_sigmoid, _odds, lambda x: -F.softplus(-x) - F.softplus(x))
SoftplusTransform = _increasing("SoftplusTransform", "log(1 + exp(x)).", constraints.positive, F.softplus,
                                lambda y: (-y).expm1().neg().log() + y, lambda x: -F.softplus(-x))
TanhTransform = _increasing("TanhTransform", "tanh(x).", constraints.interval(-1.0, 1.0), Tensor.tanh, Tensor.atanh, _log_slope_of_tanh)


class PowerTransform(Transform):
    """x ** exponent of positive numbers."""

    bijective = True
    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    sign = property(lambda self: self.exponent.sign() if isinstance(self.exponent, Tensor) else math.copysign(1, self.exponent))

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return broadcast_shapes(tuple(shape), _size(self.exponent))

    inverse_shape = forward_shape


class AbsTransform(Transform):
    """|x|; the inverse answers with the positive number."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """loc + scale * x; `event_dim` dimensions make one value."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    domain = codomain = property(lambda self: _widened(constraints.real, self._event_dim))
    sign = property(lambda self: self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0))

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope = self.scale.abs().log() if isinstance(self.scale, Tensor) else x.new_full((), math.log(abs(self.scale)))
        return sum_rightmost(slope.expand(*broadcast_shapes(tuple(slope.shape), tuple(x.shape))), self._event_dim)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return broadcast_shapes(tuple(shape), _size(self.loc), _size(self.scale))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """The cdf of a distribution of numbers."""

    bijective, sign = True, 1
    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


# -- of vectors and matrices ---------------------------------------------------------------------------------------------------
class _SameShape(Transform):
    """Of values of several dimensions, to values of as many."""

    def forward_shape(self, shape: Sequence[int]) -> Any:
        _check_dims(shape, self.domain.event_dim)
        return shape

    inverse_shape = forward_shape


class SoftmaxTransform(_SameShape):
    """softmax of the last dimension; not a bijection, as it forgets a shift."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return OPERATORS["softmax"](x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """K numbers to K + 1 that sum to 1: each takes its share, a sigmoid, of what those before it left of a stick."""

    bijective = True
    domain, codomain = constraints.real_vector, constraints.simplex

    def _offset(self, x: Tensor) -> Tensor:
        """log of the number of pieces that follow each one: x = 0 gives equal shares."""
        n = x.shape[-1]
        return (n - x.new_arange(n)).to(x.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        share = _within((x - self._offset(x)).sigmoid())
        left = (1 - share).cumprod(-1)
        return F.pad(share, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        pieces = y[..., :-1]
        left = (1 - pieces.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return pieces.log() - left.log() + self._offset(pieces)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (F.logsigmoid(self._offset(x) - x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        _check_dims(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        _check_dims(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


class _OfMatrices(_SameShape):
    """Of matrices whose upper triangle is not looked at: no bijection."""

    domain = constraints.independent(constraints.real, 2)


def _on_diagonal(x: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """The lower triangle of matrices, with `fn` of the diagonal."""
    return x.tril(-1) + fn(x.diagonal(0, -2, -1)).diag_embed()


class LowerCholeskyTransform(_OfMatrices):
    """Matrices to lower triangles with a positive diagonal: its exponential."""

    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return _on_diagonal(x, Tensor.exp)

    def _inverse(self, y: Tensor) -> Tensor:
        return _on_diagonal(y, Tensor.log)


class PositiveDefiniteTransform(_OfMatrices):
    """Matrices to positive definite ones: L L^T for the triangle L of LowerCholeskyTransform."""

    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


def _strictly_lower(n: int, diagonal: int, x: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = OPERATORS["tril_indices"](n, n, diagonal, device=x.device).unbind()
    return rows, columns


class CorrCholeskyTransform(Transform):
    """D (D - 1) / 2 numbers to the Cholesky factor of a D x D correlation matrix: their tanh are partial correlations."""

    bijective = True
    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        n = self.forward_shape(x.shape)[-1]
        eps = finfo(x.dtype).eps
        rows, columns = _strictly_lower(n, -1, x)
        r = x.new_zeros((*x.shape[:-1], n, n))
        r[..., rows, columns] = x.tanh().clamp(-1 + eps, 1 - eps)
        left = (1 - r * r).sqrt().cumprod(-1)
        return (r + OPERATORS["eye"](n, dtype=x.dtype, device=x.device)) * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        rows, columns = _strictly_lower(y.shape[-1], -1, y)
        return (y[..., rows, columns] / left[..., rows, columns].sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rows, columns = _strictly_lower(y.shape[-1], -2, y)
        left = (1 - (y * y).cumsum(-1))[..., rows, columns]
        return 0.5 * left.log().sum(-1) + _log_slope_of_tanh(x).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        _check_dims(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError(f"Input is not a flattened lower-diagonal number: {shape[-1]} is not D (D - 1) / 2")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        _check_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square: {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
