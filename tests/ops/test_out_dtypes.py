"""Which dtypes an `out=` may have: for some operators those that the result's can be cast to, for others its own alone; beside torch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau

from .calls import CALLS, arrays, evaluate

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128")
WIDER = {"t.cumsum(", "t.cumprod(", "t.std(", "t.var(", "t.nansum(", "t.nanmean(", "t.sum(", "t.prod(", "t.argsort(",
          "t.mean(x, 0, dtype", "t.ldexp(x, k", "t.lerp(x, y, U", "t.diff(x, n=0", "t.fft.ifft(", "t.fft.hfft(", "t.fft.irfft("}
"""Those that take more here: sums that torch has in some dtypes only, or without `out=`; forms that it implements apart; transforms back."""
NARROWER = {"t.matrix_power(A, 0)", "t.matrix_power(A, 1)", "t.bernoulli(U)"}
"""Copies that torch casts, where other powers are not; and a draw into bools."""
CALLS_WITH_OUT = [c for c in CALLS if c.startswith("t.") and c.endswith(")") and c not in NARROWER and not any(map(c.startswith, WIDER))]


def _tensors(lib: Any) -> dict:
    made = {name: lib.tensor(a) for name, a in arrays().items()}
    return {name: x.float() if x.is_floating_point() else x for name, x in made.items()}


def _answer(lib: Any, call: str, make: Any) -> tuple:
    """The dtypes of what comes out with the `out=` that is made of the plain results, or the kind of error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = _tensors(lib)
        result = evaluate(lib, call, given)
        several = isinstance(result, (tuple, list))
        out = [make(lib, r) for r in (result if several else (result,))]
        try:
            evaluate(lib, call[:-1] + ", out=out)", given | {"out": tuple(out) if several else out[0]})
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return (type(error),)
        return tuple(str(o.dtype).rpartition(".")[2] for o in out)


@pytest.mark.parametrize("call", CALLS_WITH_OUT)
def test_dtypes(call: str) -> None:
    try:
        same = _answer(torch, call, lambda lib, r: lib.empty_like(r))
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        pytest.skip("torch has no such call, or no results with dtypes")
    if isinstance(same[0], type):
        pytest.skip("torch takes no out= there")
    for name in DTYPES:
        def make(lib: Any, r: Any, name: str = name) -> Any:
            return lib.empty(tuple(r.shape), dtype=getattr(lib, name))

        expected, found = (_answer(lib, call, make) for lib in (torch, flambeau))
        assert isinstance(found[0], type) == isinstance(expected[0], type), (name, expected, found)
