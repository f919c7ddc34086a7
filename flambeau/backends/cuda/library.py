"""Kernels of CuPy's libraries for the primitives without a loop body: cuFFT, cuSOLVER, special functions, scans and searches.

What no library computes on a GPU is computed on the host, on a copy (`on_host`): right, and as slow as the two copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import cupyx
import numpy as np
from cupyx.scipy import linalg, special

Array = Any


def on_host(kernel: Callable) -> Callable:
    """A kernel of the processor for arrays of a GPU."""
    def call(*args: Any) -> Any:
        out = kernel(*[cupy.asnumpy(a) if isinstance(a, cupy.ndarray) else a for a in args])
        return tuple([cupy.asarray(o) for o in out]) if isinstance(out, tuple) else cupy.asarray(out)
    return call


# -- Fourier transforms ----------------------------------------------------------------------------------------------
def _fft_c2c(x: Array, dims: Sequence[int], forward: bool, norm: str) -> Array:
    return (cupy.fft.fftn if forward else cupy.fft.ifftn)(x, axes=dims, norm=norm).astype(x.dtype, copy=False)


def _fft_r2c(x: Array, dim: int, norm: str) -> Array:
    return cupy.fft.rfft(x, axis=dim, norm=norm)


def _fft_c2r(x: Array, dim: int, n: int, norm: str) -> Array:
    return cupy.fft.irfft(x, n, axis=dim, norm=norm)


# -- linear algebra ----------------------------------------------------------------------------------------------------
def _checked(fn: Callable) -> Callable:
    """CuPy asks cuSOLVER whether it succeeded only when it is told to; then it raises as NumPy does."""
    def call(*args: Any) -> Any:
        with cupyx.errstate(linalg="raise"):
            return fn(*args)
    return call


def _solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    if not b.size:
        return cupy.zeros_like(b, order="C")
    triangle = cupy.triu(a) if upper else cupy.tril(a)
    if unit:
        at = cupy.arange(a.shape[-1])
        triangle[..., at, at] = 1
    if a.ndim == 2:
        return linalg.solve_triangular(triangle, b, lower=not upper, unit_diagonal=unit)
    out = cupy.zeros_like(b, order="C")     # row by row for the whole batch; a zero on the diagonal divides, as in BLAS
    for i in range(a.shape[-1])[::-1 if upper else 1]:
        out[..., i, :] = (b[..., i, :] - cupy.matmul(triangle[..., i:i + 1, :], out)[..., 0, :]) / triangle[..., i, i, None]
    return out


def _qr(x: Array, mode: str) -> tuple:
    if mode == "r":
        return cupy.empty(0, x.dtype), cupy.linalg.qr(x, "r")
    return tuple(cupy.linalg.qr(x, mode))


def _svd(x: Array, full: bool) -> tuple:
    return tuple(cupy.linalg.svd(x, full_matrices=full))


def _pinv(x: Array, rtol: Any, atol: float, hermitian: bool) -> Array:
    """By the singular values: those below `rtol` of the largest, or below `atol`, count as zero."""
    u, s, vh = cupy.linalg.svd(x, full_matrices=False)
    cutoff = cupy.maximum(cupy.asarray(rtol)[..., None] * s.max(-1, keepdims=True), atol) if s.size else s
    inverse = cupy.where(s > cutoff, 1 / cupy.where(s > cutoff, s, 1), 0)
    return cupy.matmul(vh.conj().swapaxes(-1, -2) * inverse[..., None, :], u.conj().swapaxes(-1, -2)).astype(x.dtype, copy=False)


def _slogdet(x: Array) -> tuple:
    sign, log = cupy.linalg.slogdet(x)
    return cupy.asarray(sign, x.dtype), cupy.asarray(log)


# -- scans, searches, counting -------------------------------------------------------------------------------------------
def _accumulated(better: Callable, x: Array) -> Array:
    """Running extremum along the last dimension, by doubling: log2(n) passes."""
    out, step = x.copy(), 1
    while step < out.shape[-1]:
        out[..., step:] = better(out[..., step:], out[..., :-step].copy())
        step *= 2
    return out


def _running(better: Callable) -> Callable:
    """(running extremum, index of the last of equals) along `dim`."""
    def kernel(x: Array, dim: int) -> tuple:
        if not x.ndim:
            return x.copy(), cupy.zeros((), np.int64)
        rows = cupy.moveaxis(x, dim, -1)
        wide = rows if rows.dtype.itemsize >= 4 or rows.dtype.kind in "biu" else rows.astype(np.float32)
        values = _accumulated(better, wide)
        hit = wide == values
        if wide.dtype.kind in "fc":
            hit |= cupy.isnan(wide)
        places = _accumulated(cupy.maximum, cupy.where(hit, cupy.arange(rows.shape[-1]), 0))
        return (cupy.ascontiguousarray(cupy.moveaxis(values.astype(x.dtype, copy=False), -1, dim)),
                cupy.ascontiguousarray(cupy.moveaxis(places, -1, dim)))
    return kernel


def _searchsorted(edges: Array, values: Array, right: bool) -> Array:
    side = "right" if right else "left"
    if edges.ndim == 1:
        return cupy.asarray(cupy.searchsorted(edges, values, side), np.int64)
    out = cupy.empty(values.shape, np.int64)
    for at in np.ndindex(edges.shape[:-1]):
        out[at] = cupy.searchsorted(cupy.ascontiguousarray(edges[at]), values[at], side)
    return out


def _repeat_positions(repeats: Array) -> Array:
    ends = cupy.cumsum(repeats)
    total = int(ends[-1]) if ends.size else 0
    return cupy.searchsorted(ends, cupy.arange(total), "right").astype(np.int64)


def _frexp(x: Array) -> tuple:
    mantissa, exponent = cupy.frexp(x if x.dtype.itemsize >= 4 else x.astype(np.float32))
    return mantissa.astype(x.dtype, copy=False), exponent.astype(np.int32, copy=False)


def _in_float(fn: Callable) -> Callable:
    """A function of f32 and f64, through f32 for narrower floats."""
    def kernel(*args: Any) -> Array:
        kind = args[0].dtype
        wide = [a.astype(np.float32) if isinstance(a, cupy.ndarray) and a.dtype.itemsize < 4 else a for a in args]
        return cupy.asarray(fn(*wide)).astype(kind, copy=False)
    return kernel


def _of_numbers(fn: Callable) -> Callable:
    """A function of two that is NaN if either is; CuPy's look at one first."""
    return lambda x, y: cupy.where(cupy.isnan(x) | cupy.isnan(y), cupy.nan, fn(x, y))


def _of_finite(fn: Callable) -> Callable:
    """A function that is NaN at infinity, where torch's quotient of infinities is."""
    return lambda x: cupy.where(cupy.isinf(x), cupy.nan, fn(x))


def _scaled(bessel: Callable, order: int, sign: int) -> Callable:
    """A modified Bessel function of the first kind times exp(-|x|), or (`sign` -1) of the second kind times exp(x): from 500 on, where
    the two factors overflow, by the asymptotic series (Abramowitz and Stegun, 9.7.1 and 9.7.2), whose next term is below the last
    place of a double."""
    def fn(x: Array) -> Array:
        size = cupy.abs(x.astype(np.float64))
        near, far = cupy.minimum(size, 500.0), cupy.maximum(size, 500.0)
        term, series = 1.0, 1.0
        for k in range(1, 6):
            term = term * sign * ((2 * k - 1) ** 2 - 4 * order ** 2) / (8 * k * far)
            series = series + term
        far_out = series / cupy.sqrt(2 * np.pi * far) * (1 if sign > 0 else np.pi)
        value = cupy.where(size < 500.0, bessel(near) * cupy.exp(-sign * near), far_out)
        value = cupy.where(cupy.isnan(size) | ((x < 0) & (sign < 0)), cupy.nan, value)
        return (value if order == 0 or sign < 0 else cupy.copysign(value, x)).astype(x.dtype)
    return fn


TABLE: dict[str, Callable] = {
    "fft_c2c": _fft_c2c, "fft_r2c": _fft_r2c, "fft_c2r": _fft_c2r,
    "inv": _checked(cupy.linalg.inv), "solve": _checked(cupy.linalg.solve), "cholesky": _checked(cupy.linalg.cholesky),
    "eigh": _checked(lambda x, uplo: tuple(cupy.linalg.eigh(x, uplo))), "svd": _checked(_svd), "qr": _qr, "pinv": _pinv,
    "solve_triangular": _checked(_solve_triangular), "det": lambda x: cupy.asarray(cupy.linalg.det(x)), "slogdet": _slogdet,
    "cummax": _running(cupy.maximum), "cummin": _running(cupy.minimum), "searchsorted": _searchsorted,
    "repeat_positions": _repeat_positions, "gcd": cupy.gcd, "lcm": cupy.lcm, "frexp": _frexp,
    "polygamma": _in_float(lambda x, n: special.polygamma(cupy.asarray(n), x)), "zeta": _in_float(special.zeta),
    "igamma": _in_float(_of_numbers(special.gammainc)), "igammac": _in_float(_of_numbers(special.gammaincc)),
    **{name: _in_float(getattr(special, name)) for name in ("ndtri", "erfcx", "log_ndtr")},
    "i0": _in_float(_of_finite(special.i0)), "i1": _in_float(_of_finite(special.i1)),
    "i0e": _in_float(_scaled(special.i0, 0, 1)), "i1e": _in_float(_scaled(special.i1, 1, 1)),
    "bessel_k0e": _in_float(_scaled(special.k0, 0, -1)), "bessel_k1e": _in_float(_scaled(special.k1, 1, -1)),
    **{f"bessel_{name}": _in_float(_of_finite(getattr(special, name))) for name in ("j0", "j1", "y0", "y1")},
    "bessel_k0": _in_float(special.k0), "bessel_k1": _in_float(special.k1),
}
