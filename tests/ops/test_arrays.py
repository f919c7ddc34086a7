"""NumPy's arrays and scalars, and Python's containers, beside tensors in expressions, on either side."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import flambeau as torch

ARRAYS = [np.array([1.0, 2.0]), np.array([1.0, 2.0], np.float32), np.array([1, 2]), np.array([True, False]), np.array(2.0)]
TENSORS = [[1.0, 3.0], [1, 3], [True, False], 2.5]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("data", TENSORS, ids=str)
@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_arrays_are_compared_as_tensors(compare: Any, data: Any, array: np.ndarray) -> None:
    x = torch.tensor(data)
    for got, want in ((compare(x, array), compare(x.numpy(), array)), (compare(array, x), compare(array, x.numpy()))):
        assert isinstance(got, torch.Tensor) and got.dtype is torch.bool
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("data", TENSORS, ids=str)
@pytest.mark.parametrize("compute", ARITHMETIC, ids=lambda f: f.__name__)
def test_arrays_compute_as_arrays(compute: Any, data: Any, array: np.ndarray) -> None:
    x = torch.tensor(data)
    if x.dtype is torch.bool and compute is operator.sub:
        pytest.skip("bools are not subtracted")
    for give, numpy_give in ((lambda: compute(x, array), lambda: compute(x.numpy(), array)),
                             (lambda: compute(array, x), lambda: compute(array, x.numpy()))):
        with np.errstate(all="ignore"):
            try:
                want = np.asarray(numpy_give())
            except TypeError:
                continue
            if want.dtype == np.float16:
                continue
            got = give()
        assert isinstance(got, torch.Tensor)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
        assert got.numpy().dtype == want.dtype


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    for compare in COMPARISONS:
        with pytest.raises(RuntimeError, match="size"):
            compare(torch.ones(2), np.ones(3))


@pytest.mark.parametrize("other", [[1, 2], (1, 2), "a", None, {1}, object()], ids=lambda other: type(other).__name__)
def test_what_is_no_number_is_not_equal(other: Any) -> None:
    assert (torch.ones(2) == other) is False and (torch.ones(2) != other) is True
    with pytest.raises(TypeError):
        torch.ones(2) + other
    with pytest.raises(TypeError):
        torch.ones(2) < other  # noqa: B015


@pytest.mark.parametrize("scalar", [np.float64(2), np.float32(2), np.int64(2), np.int32(2), np.bool_(True), np.complex64(1j)], ids=repr)
def test_scalars_are_numbers(scalar: Any) -> None:
    for x in (torch.tensor([1.0, 3.0]), torch.tensor([1, 3])):
        for compute in (operator.add, operator.mul, operator.eq, operator.truediv):
            for got, want in ((compute(x, scalar), compute(x, scalar.item())), (compute(scalar, x), compute(scalar.item(), x))):
                assert isinstance(got, torch.Tensor) and got.dtype is want.dtype and got.tolist() == want.tolist()
