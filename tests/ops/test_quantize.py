"""Fake quantisation against torch: values and gradients, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch", reason="torch is the oracle")
X = (np.random.default_rng(0).standard_normal((4, 6)) * 3).astype(np.float32)


def _run(t: Any, name: str, compiled: bool, dtype: str) -> list[np.ndarray]:
    x = t.from_numpy(X.copy()).to(getattr(t, dtype)).requires_grad_()
    scales, zeros = t.tensor([0.1, 0.2, 0.3, 0.25]), t.tensor([0, 1, 2, -3], dtype=t.int32)
    made = {
        "numbers": lambda x: t.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
        "tensors": lambda x: t.fake_quantize_per_tensor_affine(x, scales[1], zeros[1], 0, 15),
        "channels": lambda x: t.fake_quantize_per_channel_affine(x, scales, zeros, 0, -8, 7),
    }[name]
    y = (t.compile(made) if compiled else made)(x)
    (y.float() ** 2).sum().backward()
    assert y.dtype is x.dtype
    return [y.detach().float().numpy(), x.grad.float().numpy()]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["numbers", "tensors", "channels"])
def test_as_torch(name: str, compiled: bool) -> None:
    for ours, theirs in zip(_run(flambeau, name, compiled, "float32"), _run(torch, name, False, "float32"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
def test_an_observer_may_write_the_next_scale_before_backward(t: Any) -> None:
    x = t.from_numpy(X.copy()).requires_grad_()
    scales, zeros = t.tensor([0.1, 0.2, 0.3, 0.25]), t.tensor([0, 1, 2, -3], dtype=t.int32)
    scale, zero = scales[1].clone(), zeros[1].clone()

    def both() -> list:
        return [t.fake_quantize_per_tensor_affine(x, scale, zero, 0, 15), t.fake_quantize_per_channel_affine(x, scales, zeros, 0, -8, 7)]

    wanted = [t.autograd.grad(y.sum(), x)[0] for y in both()]
    made = both()
    for written in (scale, zero, scales, zeros):
        written.zero_()
    for y, want in zip(made, wanted):
        assert t.equal(t.autograd.grad(y.sum(), x)[0], want)


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
def test_refusals(t: Any) -> None:
    x = t.ones(2, 3)
    with pytest.raises(RuntimeError, match="quant_min"):
        t.fake_quantize_per_tensor_affine(x, 0.1, 0, 7, -8)
    with pytest.raises(RuntimeError, match="zero_point"):
        t.fake_quantize_per_tensor_affine(x, 0.1, 9, -8, 7)
    with pytest.raises(RuntimeError, match="consistent"):
        t.fake_quantize_per_channel_affine(x, t.ones(3), t.zeros(3, dtype=t.int32), 0, -8, 7)
