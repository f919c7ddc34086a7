"""Accuracy of the kernel header's functions: at most 4 ulp from the exact result, edge cases as C99 has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from flambeau.inductor.cpu import compile as build

F32 = {
    "exp": (np.exp, -104, 88.7), "expm1": (np.expm1, -30, 88), "exp2": (np.exp2, -149, 128), "log": (np.log, 1e-38, 1e38),
    "log2": (np.log2, 1e-38, 1e38), "log10": (np.log10, 1e-38, 1e38), "log1p": (np.log1p, -0.999, 100),
    "tanh": (np.tanh, -12, 12), "erf": (special.erf, -5, 5), "sigmoid": (special.expit, -80, 90), "sin": (np.sin, -50, 50),
    "cos": (np.cos, -50, 50), "tan": (np.tan, -1.5, 1.5), "atan": (np.arctan, -20, 20), "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1), "sinh": (np.sinh, -20, 20), "cosh": (np.cosh, -20, 20), "asinh": (np.arcsinh, -20, 20),
    "acosh": (np.arccosh, 1, 50), "atanh": (np.arctanh, -0.999, 0.999), "erfc": (special.erfc, -4, 9),
    "erfinv": (special.erfinv, -0.99999, 0.99999), "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30), "sqrt": (np.sqrt, 0, 1e30),
    "digamma": (special.psi, 0.2, 60), "lgamma": (special.gammaln, -40, 60),
}
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-42, -1e-42, 3.4e38, -3.4e38], np.float32)
EDGES = np.append(EDGES, np.array([0x7FC00123, 0xFFC00055], np.uint32).view(np.float32))


@pytest.fixture(scope="module")
def library() -> Any:
    if not build.have_compiler():
        pytest.skip("no C++ compiler")
    text = '#include "runtime.h"\n#include "kernel.h"\n#define FL_USES_SIN\n#define FL_USES_COS\n'
    text += '#define FL_USES_TAN\n#include "vectors.h"\n'
    for name in F32:
        for kind in ("float", "double"):
            text += f"""extern "C" int {name}_{kind}(void** args, const int64_t* scalars, void*) {{
    const {kind}* __restrict__ x = (const {kind}*)args[0];
    {kind}* __restrict__ y = ({kind}*)args[1];
    #pragma omp simd
    for (int64_t i = 0; i < scalars[0]; i++) y[i] = fl::{name}(x[i]);
    return 0;
}}
"""
    symbols = [f"{name}_{kind}" for name in F32 for kind in ("float", "double")]
    return dict(zip(symbols, build.load(text, dict.fromkeys(symbols, 2)), strict=True))


def apply(library: Any, name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    library[f"{name}_{'float' if x.dtype == np.float32 else 'double'}"]((x, out), (x.size,))
    return out


@pytest.mark.parametrize("name", F32)
def test_within_4_ulp(library: Any, name: str) -> None:
    exact, lo, hi = F32[name]
    rng = np.random.default_rng(1)
    x = rng.uniform(lo, hi, 200_000)
    if lo > 0 and hi > 1e6:
        x = np.exp(rng.uniform(np.log(lo), np.log(hi), 200_000))
    elif lo < 0 < hi:
        x[::2] = np.sign(x[::2]) * np.exp(rng.uniform(-30, np.log(min(-lo, hi)), 100_000))
    x = np.clip(x, lo, hi).astype(np.float32)
    want = exact(x.astype(np.float64))
    got = apply(library, name, x).astype(np.float64)
    ulp = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    error = np.abs(got - want) / ulp
    normal = np.abs(want) > 1.2e-38
    if name in ("lgamma", "digamma"):  # near their zeros the error is one of the argument
        normal &= np.abs(want) > 0.1
    worst = np.argmax(np.where(normal, error, 0))
    assert error[worst] <= 4, f"{name}({x[worst]!r}) = {got[worst]!r}, exact {want[worst]!r}: {error[worst]:.1f} ulp"


@pytest.mark.parametrize("name", [n for n in F32 if n not in ("digamma", "lgamma", "erfinv")])
def test_edges(library: Any, name: str) -> None:
    with np.errstate(all="ignore"):
        want = F32[name][0](EDGES.astype(np.float64)).astype(np.float32)
    got = apply(library, name, EDGES)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=2e-38, err_msg=name)
    zeros = want == 0
    if name not in ("exp", "exp2", "sigmoid", "log", "acos"):
        assert np.array_equal(np.signbit(got[zeros & (EDGES == 0)]), np.signbit(want[zeros & (EDGES == 0)])), name


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "expm1", "log1p", "sigmoid", "erfinv", "digamma"])
def test_double(library: Any, name: str) -> None:
    exact, lo, hi = F32[name]
    x = np.random.default_rng(2).uniform(max(lo, -20), min(hi, 20), 10_000)
    np.testing.assert_allclose(apply(library, name, x), exact(x), rtol=5e-14, atol=5e-14)


_FAR = np.array([0.0, -0.0, 1.0, -1.0, 3.0, -7.5, 2.0**23, 2.0**23 + 1, 2.0**24, 2.0**52, 2.0**53, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", ["fmod", "remainder", "floordiv", "nextafter"])
def test_vectors_are_exact(name: str, kind: str) -> None:
    if not build.have_compiler():
        pytest.skip("no C++ compiler")
    text = f"""#include "runtime.h"
#include "kernel.h"
#define FL_USES_FMOD
#include "vectors.h"
extern "C" int call(void** args, const int64_t* scalars, void*) {{
    const {kind} *__restrict__ x = (const {kind}*)args[0], *__restrict__ y = (const {kind}*)args[1];
    {kind}* __restrict__ z = ({kind}*)args[2];
    #pragma omp simd
    for (int64_t i = 0; i < scalars[0]; i++) z[i] = fl::{name}(x[i], y[i]);
    return 0;
}}
"""
    [call] = build.load(text, {"call": 3})
    rng, real = np.random.default_rng(0), np.float32 if kind == "float" else np.float64
    limits = np.finfo(real)
    far = np.append(_FAR.astype(real), np.array([limits.max, limits.tiny, limits.smallest_subnormal], real))
    whole = rng.integers(-10**6, 10**6, 40_000)
    pairs = [np.meshgrid(far, far), (whole, rng.integers(1, 50, whole.size)), (whole * 0.1, np.full(whole.size, 0.1)),
             rng.integers(0, 256, (2, 40_000 * limits.dtype.itemsize), dtype=np.uint8).view(real),
             *((rng.standard_normal(40_000) * scale, rng.standard_normal(40_000)) for scale in (1, 1e4, 1e7, 1e15))]
    for a, b in pairs:
        x, y = np.ascontiguousarray(a, real).ravel(), np.ascontiguousarray(b, real).ravel()
        z = np.empty_like(x)
        call((x, y, z), (x.size,))
        with np.errstate(all="ignore"):
            wanted = {"fmod": np.fmod, "remainder": np.remainder, "floordiv": np.floor_divide, "nextafter": np.nextafter}[name](x, y)
        np.testing.assert_array_equal(z, wanted)
        if name in ("fmod", "nextafter"):
            np.testing.assert_array_equal(np.signbit(z)[z == 0], np.signbit(wanted)[z == 0])
