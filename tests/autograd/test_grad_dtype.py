"""The dtype that gradients of a leaf have, against torch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])


@LIBRARIES
def test_gradients_are_cast(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    assert x.grad_dtype is t.float32
    x.grad_dtype = t.float16
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.dtype is t.float16 and x.grad.tolist() == [4, 4]
    assert t.autograd.grad((x * 2).sum(), x)[0].dtype is t.float16
    x.grad = None
    x.grad_dtype = None
    assert x.grad_dtype is None
    x.double().sum().backward()
    assert x.grad.dtype is t.float32
    x.grad = t.ones(2, dtype=t.float64)


@LIBRARIES
def test_a_gradient_that_was_recorded_before_is_cast_too(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    y = x * 3
    del y
    x.grad_dtype = t.float64
    (x * 3).sum().backward()
    assert x.grad.dtype is t.float64


@LIBRARIES
def test_refused(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="dtype"):
        x.grad_dtype = 3
    with pytest.raises(RuntimeError, match="leaf"):
        _ = (x * 2).grad_dtype
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).grad_dtype = t.float16
    x.grad_dtype = t.float16
    with pytest.raises(RuntimeError, match="dtype"):
        x.grad = t.ones(2)
    x.grad = t.ones(2, dtype=t.float16)
    with pytest.raises(RuntimeError, match="clear"):
        x.grad_dtype = t.float32
