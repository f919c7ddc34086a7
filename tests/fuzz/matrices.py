"""Operators of matrices, sums of products and transforms whose arguments depend on one another."""

from __future__ import annotations

import itertools
from typing import Any

from .draw import Draw, dtype_name
from .inputs import INTEGERS
from .parameters import boolean, matrix, one_of, small
from .program import Input, Ref
from .special import Fields, _each_of, _float, last, of_rank, right_side, sized

REAL = ("float32", "float64")


def positive_definite(d: Draw) -> Ref:
    """A symmetric matrix with a heavy diagonal."""
    n = d.int(1, 3)
    off = {(i, j): d.int(-2, 2) / 2 for i in range(n) for j in range(i)}
    values = [float(n + 1 + d.int(0, 2)) if i == j else off[max(i, j), min(i, j)] for i in range(n) for j in range(n)]
    batch = (2,) if d.chance(0.25) else ()
    return d.keep(Input(f"x{d.made}", d.choice(REAL), (*batch, n, n), tuple(values)))


def factor(d: Draw) -> Ref:
    """A triangular factor: what lies beyond the triangle is not read."""
    return d.keep(Input(f"x{d.made}", dtype_name(d.it), (d.it.shape[-2],) * 2, tuple(
        d.int(1, 3) + 0.5 if i == j else d.int(-2, 2) / 2 for i in range(d.it.shape[-2]) for j in range(d.it.shape[-2]))))


def columns(d: Draw) -> Ref:
    return d.fresh((d.int(1, 3), d.int(1, 3)), d.choice(REAL))


def pivots(d: Draw) -> Ref:
    """The rows that were swapped: of each, no earlier one."""
    n = d.it.shape[-2]
    return d.keep(Input(f"x{d.made}", "int32", (n,), tuple(d.int(i + 1, n) for i in range(n))))


def reflections(d: Draw) -> Ref:
    n = d.int(1, 3)
    return d.fresh((n + d.int(0, 2), n), d.choice(REAL))


# -- sums of products in index notation
EQUATIONS = {
    "ij,jk->ik": ("ij", "jk"), "ij,jk": ("ij", "jk"), "bij,bjk->bik": ("bij", "bjk"), "ii->i": ("ii",), "ii": ("ii",), "ij->ji": ("ij",),
    "ij->": ("ij",), "i,j->ij": ("i", "j"), "...ij,...jk->...ik": ("bij", "jk"), "i,i": ("i", "i"), "bn,anm,bm->ba": ("bn", "anm", "bm"),
    "ij,kj->ik": ("ij", "kj"), "ijk->kij": ("ijk",), "...i->...": ("bji",), "ij,ij->j": ("ij", "ij"), "bhid,bhjd->bhij": ("bhid", "bhjd"),
    "ii,i->i": ("ii", "i"), "ijj->ij": ("ijj",), "i...,j->...j": ("ik", "j"), "ij,j->ij": ("ij", "j"),
}


def equation(d: Draw) -> str:
    return d.choice(EQUATIONS)


def operands(d: Draw) -> list[Ref]:
    size: dict[str, int] = {}
    dtype = d.dtype if d.chance(0.6) else "float32"
    return [d.fresh([size.setdefault(letter, d.size()) for letter in letters], dtype) for letters in EQUATIONS[d.args["equation"]]]


def chain(d: Draw) -> list[Ref]:
    sizes = [d.int(1, 4) for _ in range(d.int(2, 5))]
    dtype = _float(d)
    return [d.fresh((n, m), dtype) for n, m in itertools.pairwise(sizes)]


def signal(d: Draw) -> Ref:
    return d.fresh((*((2,) if d.chance(0.5) else ()), d.int(8, 16)), d.choice(["float32", "float32", "float64", "complex64"]))


def window(d: Draw) -> Ref:
    return d.fresh((d.args.get("win_length") or d.args["n_fft"],), "float64" if d.it.dtype.itemsize > 8 or dtype_name(d.it) == "float64"
                   else "float32", "unit")


def transformed_sizes(d: Draw) -> Any:
    return [d.int(1, 5) for _ in range(min(2, d.it.ndim))]


def spectrum(d: Draw) -> Ref:
    return d.fresh((*((2,) if d.chance(0.5) else ()), 5, d.int(3, 6)), d.choice(["complex64", "complex128"]))


def single(d: Draw) -> Ref:
    """A tensor of one element."""
    return d.fresh((1,) * d.int(0, 2), d.dtype)


def gradient_spacing(d: Draw) -> Any:
    return d.choice([1, 0.5, 2])


MATRICES: dict[str, Fields] = {
    "cholesky": dict(input=positive_definite, A=positive_definite),
    "cholesky_ex": dict(input=positive_definite, A=positive_definite, check_errors=boolean),
    "cholesky_solve": dict(input=columns, L=factor),
    "cholesky_inverse": dict(input=positive_definite),
    "triangular_solve": dict(b=columns, A=factor),
    "lu_solve": dict(b=columns, LU_data=factor, LU_pivots=pivots, LU=positive_definite, pivots=pivots, B=right_side,
                     adjoint=boolean),
    "householder_product": dict(input=reflections, tau=sized(last)),
    "ormqr": dict(input=reflections, tau=sized(last), other=lambda d: d.fresh((d.it.shape[0], d.int(1, 3))), left=one_of(True)),
    **_each_of(["inv_ex", "solve_ex"], dict(A=matrix, B=right_side, left=one_of(True), check_errors=boolean)),
    "tensorinv": dict(input=lambda d: d.fresh((2, 3, 6), d.choice(REAL)), A=lambda d: d.fresh((2, 3, 6), d.choice(REAL)), ind=one_of(2)),
    "tensorsolve": dict(A=lambda d: d.fresh((2, 3, 6), d.choice(REAL)), B=lambda d: d.fresh((2, 3)), dims=one_of(None)),
    "einsum": dict(equation=equation, operands=operands),
    "chain_matmul": dict(matrices=chain),
    "nuclear_norm": dict(input=of_rank(2)),
    "stft": dict(input=signal, n_fft=one_of(4, 8), hop_length=one_of(None, 1, 3), win_length=one_of(None, 4, 3), window=window,
                 center=boolean, pad_mode=one_of("reflect", "constant"), onesided=one_of(None, False), return_complex=one_of(True),
                 align_to_window=one_of(None, False, True)),
    "istft": dict(input=spectrum, n_fft=one_of(8), hop_length=one_of(None, 2), win_length=one_of(None), window=window,
                  center=one_of(True), onesided=one_of(None, True), length=one_of(None, 6), return_complex=one_of(False)),
    "gradient": dict(input=of_rank(1, 3, 3), spacing=gradient_spacing),
    "unravel_index": dict(indices=lambda d: d.indices(d.shape(0, 2), 12), shape=one_of((3, 4), (2, 2, 3), [12], 12)),
    "histogram": dict(input=lambda d: d.fresh(d.shape(), d.choice(REAL), "unit"), bins=small(1, 5), range=one_of((-1.03, 1.07), (0.0, 3.1)),
                      weight=lambda d: d.like(kind="unit")),
    "searchsorted": dict(sorted_sequence=lambda d: d.keep_sorted(4), input=lambda d: d.fresh((d.int(0, 4),)),
                         side=one_of(None, "left", "right"), sorter=one_of(None)),
    "cov": dict(input=of_rank(1, 2), correction=one_of(0, 1), fweights=lambda d: d.indices((last(d),), 3),
                aweights=lambda d: d.fresh((last(d),), "float32", "unit")),
    "cdist": dict(x1=of_rank(2, 3), x2=lambda d: d.fresh((*d.it.shape[:-2], d.size(), last(d))),
                  compute_mode=one_of("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")),
    **_each_of([kind + n for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for n in ("2", "n")],
                    dict(s=transformed_sizes, dim=lambda d: tuple(d.rng.sample(range(d.it.ndim), min(2, d.it.ndim))))),
    "nonzero_static": dict(size=small(0, 4), fill_value=small(-2, 3)),
    "as_strided_scatter": dict(src=lambda d: d.fresh([d.int(1, 2) for _ in range(d.int(0, 3))]),
                               size=lambda d: tuple(d.value(d.args["src"]).shape),
                               stride=lambda d: tuple(d.int(1, 2) for _ in d.args["size"]),
                               storage_offset=small(0, 1)),
    "float_power_": dict(self=lambda d: d.fresh(d.shape(), "float64"), input=lambda d: d.fresh(d.shape(), "float64")),
    # of floats: torch lets sums of two integers overflow
    **_each_of(["trapz", "trapezoid", "cumulative_trapezoid"], dict(
        y=lambda d: d.fresh([d.int(1, 4) for _ in range(d.int(1, 3))], _float(d)),
        x=lambda d: d.fresh((last(d),)) if d.args.get("dim", -1) == -1 and d.chance(0.5) else d.like())),
    "slice_scatter": dict(input=of_rank(1, 4, 1), src=lambda d: d.like(), step=one_of(1), start=one_of(None, 0), end=one_of(None)),
    **_each_of(["view_as_complex", "view_as_complex_copy"],
                    dict(input=lambda d: d.fresh((*d.shape(0, 2), 2), d.choice(REAL)))),
    **_each_of(["view_as_real", "view_as_real_copy", "imag"],
                    dict(input=lambda d: d.fresh(d.shape(), d.choice(["complex64", "complex128"])))),
    "polygamma": dict(n=small(0, 2), input=lambda d: d.tensor()),
    "scalar_tensor": dict(value=lambda d: d.number()),
    **_each_of(["__bool__", "__float__", "__int__", "__complex__"], dict(self=single)),
    "__index__": dict(self=lambda d: d.fresh((1,) * d.int(0, 2), d.choice(INTEGERS))),
    "dsplit": dict(input=lambda d: d.fresh((d.size(), d.size(), d.choice([2, 4])), d.dtype), indices_or_sections=one_of(1, 2, [1], (1, 2))),
    "item": dict(self=single),
    "is_nonzero": dict(input=single, self=single),
}
