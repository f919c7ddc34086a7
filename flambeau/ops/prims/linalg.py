"""Matrix products. Bilinear: each transpose is again a product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.cpu import blas
from ...core.tensor import Tensor
from ..batching import each, spread
from ..primitives import InAten
from ..registry import Linear, Spec, primitive
from .pointwise import conjugated


def _same(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype} ({name})")


def _h(x: Tensor) -> Tensor:
    """Conjugate transpose of the last two dimensions."""
    return conjugated(x.transpose(-2, -1))


def _mm_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    """One large product where a matrix is the same for all."""
    a, b = args
    if not has[1]:
        return mm(a.flatten(0, 1), b).unflatten(0, (size, a.shape[1]))
    if not has[0]:
        return mm(b.transpose(1, 2).flatten(0, 1), a.t()).unflatten(0, (size, b.shape[2])).transpose(1, 2)
    return bmm(spread(a, has[0], size), spread(b, has[1], size))


def _product_flops(out: Sequence[int], a: Sequence[int], b: Sequence[int]) -> int:
    return 2 * math.prod(a) * b[-1]


@primitive("mm", sharding="nk,km->nm", batch=_mm_batch,
           kernel=lambda a, b: blas.mm(a, b), small="mm", library="product", tensors=2, tags=("linear",),
           flops=_product_flops, derivative=Linear(a=lambda g, b: mm(g, _h(b)), b=lambda g, a: mm(_h(a), g)),
           samples=lambda r: [(r.standard_normal((2, 3)), r.standard_normal((3, 4)))])
def mm(a: Tensor, b: Tensor) -> Spec:
    """(n, k) x (k, m) -> (n, m)."""
    (s, t) = a._layout.shape, b._layout.shape
    if len(s) != 2 or len(t) != 2 or (s[1] is not t[0] and s[1] != t[0]):
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_by(s)} and {_by(t)})")
    _same("mm", a, b)
    return Spec((s[0], t[1]), a.dtype)


def _by(shape: tuple) -> str:
    return "x".join(map(str, shape))


@primitive("bmm", sharding="...nk,...km->...nm", kernel=lambda a, b: blas.bmm(a, b), small="bmm", library="product", tensors=2,
           tags=("linear",), flops=_product_flops, aten=InAten(call=lambda a, b: ("bmm", (a, b), {}) if a.ndim == 3 else None),
           derivative=Linear(a=lambda g, b: bmm(g, _h(b)), b=lambda g, a: bmm(_h(a), g)),
           samples=lambda r: [(r.standard_normal((2, 3, 4)), r.standard_normal((2, 4, 2))),
                              (r.standard_normal((2, 1, 3, 4)), r.standard_normal((2, 1, 4, 2)))])
def bmm(a: Tensor, b: Tensor) -> Spec:
    """(*batch, n, k) x (*batch, k, m) -> (*batch, n, m) for one or more batch dimensions, the same in both."""
    (s, t) = a._layout.shape, b._layout.shape
    if len(s) < 3 or len(s) != len(t) or ((*s[:-2], s[-1]) != (*t[:-2], t[-2])):
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: {[*s[:-2], s[-1]]} but got: "
                           f"{list(t[:-1])}. (bmm of {list(s)} and {list(t)})")
    _same("bmm", a, b)
    return Spec((*s[:-1], t[-1]), a.dtype)


def _grouped_flops(out: Sequence[int], a: Sequence[int], b: Sequence[int], ends: Sequence[int]) -> int:
    return 2 * (math.prod(b[-2:]) * a[-2] if len(a) == 2 else math.prod(a[-2:]) * b[-1])


@primitive("grouped_mm", kernel=lambda a, b, ends: blas.grouped_mm(a, b, ends), library="grouped product", tensors=3,
           tags=("linear", "refuses_values"), flops=_grouped_flops, batch=each, aten=InAten("_grouped_mm"),
           derivative=Linear(a=lambda g, b, ends: grouped_mm(g, _h(b), ends), b=lambda g, a, ends: grouped_mm(_h(a), g, ends)),
           samples=lambda r: [(r.standard_normal((5, 3)), r.standard_normal((2, 3, 4)), np.array([2, 5], np.int32)),
                              (r.standard_normal((2, 3, 4)), r.standard_normal((4, 5)), np.array([0, 4], np.int32)),
                              (r.standard_normal((3, 5)), r.standard_normal((5, 4)), np.array([2, 3, 5], np.int32))])
def grouped_mm(a: Tensor, b: Tensor, ends: Tensor) -> Spec:
    """Products of groups that end at `ends`: rows of a 2-d `a` times the matrices of a 3-d `b`, matrices of a 3-d `a` times columns of
    a 2-d `b`, or columns times rows of two 2-d ones, a matrix for each group."""
    (s, t), groups = (a._layout.shape, b._layout.shape), ends._layout.shape[0]
    _same("grouped_mm", a, b)
    if s[-1] != t[-2]:
        raise RuntimeError(f"contraction dimension of mat_a and mat_b must match, got {list(s)} and {list(t)}")
    if len(s) == 3 or len(t) == 3:
        whole = s if len(s) == 3 else t
        if whole[0] != groups:
            raise RuntimeError(f"matrix batch sizes have to match: {list(whole)} and {groups} offsets")
        return Spec((s[-2], t[-1]), a.dtype)
    return Spec((groups, s[0], t[1]), a.dtype)


__all__ = ["bmm", "grouped_mm", "mm"]
