"""clamp with every kind of bound, beside torch: numbers, 0-dim tensors, tensors of several dimensions, of all dtypes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 1))
NUMBERS = (None, True, 1, 1.5, -1, math.nan, 300, 1e300)
BOUNDS: list[Any] = [*NUMBERS, *itertools.product(DTYPES, SHAPES)]


def _made(lib: Any, bound: Any, value: int) -> Any:
    return lib.full(bound[1], value).to(getattr(lib, bound[0])) if isinstance(bound, tuple) else bound


def _outcome(lib: Any, name: str, x: tuple, bounds: tuple) -> tuple:
    try:
        result = getattr(_made(lib, x, 2), name)(*(_made(lib, b, v) for b, v in zip(bounds, (1, 3))))
    except (RuntimeError, TypeError) as error:     # NotImplementedError is a RuntimeError
        return (TypeError if isinstance(error, TypeError) else RuntimeError,)
    return str(result.dtype), tuple(result.shape), [str(x) for x in result.double().flatten().tolist()]


@pytest.mark.parametrize("name", ["clamp", "clamp_", "clip"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_bounds(name, dtype):
    pairs = list(itertools.product(BOUNDS, BOUNDS))
    for i, bounds in enumerate(pairs[DTYPES.index(dtype) % 3::3]):
        if {repr(b) for b in bounds} == {"nan", "1e+300"}:
            continue    # torch looks whether a number fits unless the other is NaN
        x = (dtype, SHAPES[i % 3])
        assert _outcome(fl, name, x, bounds) == _outcome(torch, name, x, bounds), (name, x, bounds)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max", "clamp_min_", "clamp_max_"])
def test_one_bound(name):
    for x in itertools.product(DTYPES, SHAPES):
        for bound in BOUNDS:
            assert _outcome(fl, name, x, (bound,)) == _outcome(torch, name, x, (bound,)), (name, x, bound)


def test_a_bound_that_needs_a_gradient_is_no_number():
    for lib in (fl, torch):
        bound = lib.ones((), requires_grad=True)
        with pytest.raises(TypeError):
            lib.zeros(3).clamp(bound, 2)
        lib.zeros(3).clamp(bound, lib.full((), 2.0)).sum().backward()
        assert bound.grad == 3


def test_mixed_bounds_compiled():
    x, low = fl.arange(5, dtype=fl.int32), fl.tensor(1.5, dtype=fl.float64)

    def function(x: fl.Tensor, low: fl.Tensor) -> fl.Tensor:
        return x.clamp(low, 3)

    ours = fl.compile(function, fullgraph=True)(x, low)
    assert ours.dtype is fl.float32
    np.testing.assert_array_equal(ours, function(x, low))
