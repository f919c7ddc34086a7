"""Orthogonal polynomials by their recurrences in the degree, from p_0 = 1 and p_1.

The recurrences are those of M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions" (1964), table 22.7, and of the NIST
Digital Library of Mathematical Functions, section 18.9 (V and W: J. C. Mason and D. C. Handscomb, "Chebyshev Polynomials", 2003).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core import dispatch
from ..core.dtypes import float32, float64, int64, scalar_type
from ..core.tensor import Tensor, from_array, is_example
from . import prims
from .math import pair
from .order import elementwise
from .primitives import Spec, primitive
from .promotion import apart, cast
from .registry import operator
from .writing import with_out


class Family(NamedTuple):
    """p_1(x), and p_{k+1} as `step(x, k, p_k, p_{k-1})`; `sign`: that of p_1 at infinity."""

    doc: str
    first: Callable[[Tensor], Tensor]
    step: Callable[[Tensor, int, Tensor, Tensor], Tensor]
    sign: int = 1


def _chebyshev(kind: str, first: Callable) -> Family:
    return Family(f"Chebyshev's polynomial {kind}_n", first, lambda x, k, p, q: 2 * x * p - q)


_CHEBYSHEV = {
    "t": _chebyshev("T", lambda x: x), "u": _chebyshev("U", lambda x: 2 * x),
    "v": _chebyshev("V", lambda x: 2 * x - 1), "w": _chebyshev("W", lambda x: 2 * x + 1),
}
FAMILIES = {f"chebyshev_polynomial_{kind}": family for kind, family in _CHEBYSHEV.items()} | {
    "hermite_polynomial_h": Family("The physicists' Hermite polynomial H_n", lambda x: 2 * x,
                                   lambda x, k, p, q: 2 * x * p - 2 * k * q),
    "hermite_polynomial_he": Family("The probabilists' Hermite polynomial He_n", lambda x: x, lambda x, k, p, q: x * p - k * q),
    "laguerre_polynomial_l": Family("Laguerre's polynomial L_n", lambda x: 1 - x,
                                    lambda x, k, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1), -1),
    "legendre_polynomial_p": Family("Legendre's polynomial P_n", lambda x: x,
                                    lambda x, k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}


def _all_examples(degrees: Any) -> Any:
    """Within vmap the degrees of all examples."""
    while isinstance(degrees, Tensor) and is_example(degrees):
        store: Any = degrees._store
        degrees = store.values
    return degrees


def _evaluate(family: Family, x: Tensor, n: Any) -> Tensor:
    """p_n(x) for a number n, or for an int64 tensor like x: an element stays as it is once its degree is reached."""
    each = isinstance(n, Tensor)
    degrees = _all_examples(n)
    top = n if not each else int(degrees.max()) if degrees.numel() else 0
    ones = x.new_full(tuple(x.shape), 1.0)
    if top < 1:
        return ones * cast(n >= 0, x.dtype)

    def reached(k: int, now: Tensor, before: Tensor) -> Tensor:
        return prims.where(n > k, now, before) if each else now

    def stepped(k: int, p: Tensor, q: Tensor) -> Tensor:
        """The recurrence; what overflowed beyond all zeros (H_k's lie within 2 sqrt k, L_k's 4 k) has the sign of the highest power."""
        lost = prims.logical_and(p.isinf(), x.abs() > 4 * (k + 1))
        return prims.where(lost, p * x.sign() * family.sign, family.step(x, k, p, q))

    q, p = ones, reached(0, family.first(x), ones)
    for k in range(1, top):
        q, p = reached(k, p, q), reached(k, stepped(k, p, q), p)
    return p.masked_fill(n < 0, 0) if each else p


def _kernel(x: np.ndarray, n: np.ndarray, family: str) -> Any:
    with dispatch.grad_enabled(False):
        return _evaluate(FAMILIES[family], from_array(x), from_array(n))._data


@primitive("polynomial", kernel=_kernel, tensors=2, samples=lambda r: [
    (r.standard_normal((2, 3)), r.integers(0, 6, (2, 3)), family) for family in FAMILIES], why_absent={
        "derivative": "its steps are as many as the highest degree; where that is known, the operators are their steps",
        "loop": "its steps are as many as the highest degree"})
def _of_unknown_degree(x: Tensor, n: Tensor, family: str) -> Spec:
    """The polynomials of a family, of degrees that are known only when the program runs."""
    return Spec(x._layout.shape, x.dtype)


def _polynomial(name: str, family: Family, doc: str, argument: Callable[[Tensor], Tensor] = lambda x: x) -> Callable:
    def fn(input: Any, n: Any) -> Tensor:
        x, degree = pair(input, n)
        if x.dtype not in (float32, float64):
            raise NotImplementedError(f'"{name}_cpu" not implemented for \'{scalar_type(x.dtype)}\'; it takes float32 and float64')
        degrees = cast(degree, int64) if isinstance(n, Tensor) else int(n)
        if isinstance(n, Tensor) and _all_examples(degrees)._data is None:
            return _of_unknown_degree(argument(x), degrees, name.removeprefix("shifted_"))
        return apart(_evaluate(family, argument(x), degrees), x)

    fn.__name__, fn.__doc__ = name, f"{doc}(input) for each degree in `n` (a tensor or a number; 0 for negative ones)."
    return operator(with_out(elementwise(fn)), name=f"special_{name}")


polynomials = {name: _polynomial(name, family, family.doc) for name, family in FAMILIES.items()} | {
    f"shifted_{name}": _polynomial(f"shifted_{name}", family, f"{family.doc}*, which is {family.doc.split()[-1]} of 2 x - 1,",
                                   lambda x: 2 * x - 1) for name, family in FAMILIES.items() if name.startswith("chebyshev")}
