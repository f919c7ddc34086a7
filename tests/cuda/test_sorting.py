"""Rows in order: short ones by a kernel, long ones by CuPy, all as on the CPU, places of equal elements too."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

KINDS = ["float32", "float16", "bfloat16", "float64", "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32"]
SIZES = [1, 2, 3, 31, 33, 1000, 4096, 4097]


def elements(kind: str, *shape: int) -> fl.Tensor:
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(-50, 50, shape) * 1.5
    if "float" in kind and x.size > 8:
        x.flat[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-7, -1e-7
    if kind.startswith("u"):
        x = np.abs(x)
    return fl.tensor(x).to(getattr(fl, kind))


def same(got, want):
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape and fl.equal(a.cpu().nan_to_num(77) if a.is_floating_point() else a.cpu(),
                                                                      b.nan_to_num(77) if b.is_floating_point() else b)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_as_on_the_cpu(kind, n):
    x = elements(kind, 3, n)
    there = x.cuda()
    for descending in (False, True):
        for _ in range(2):      # written down, then found again
            same(there.sort(dim=1, descending=descending, stable=True), x.sort(dim=1, descending=descending, stable=True))
        same(there.t().sort(0, descending), x.t().sort(0, descending))
        if kind != "bool":
            k = (n + 1) // 2
            values, places = there.topk(k, largest=descending)
            same([values], [x.topk(k, largest=descending).values])
            same([x.cuda().gather(1, places)], [values.cpu()])
            same(there.kthvalue(k, 1), x.kthvalue(k, 1))
    same([there.argsort(1, stable=True)], [x.argsort(1, stable=True)])


def test_what_is_wrong_is_refused():
    x = fl.ones(2, 3, device="cuda")
    x.topk(2)
    with pytest.raises(RuntimeError, match="out of range"):
        x.topk(4)
    assert x.topk(0).values.shape == (2, 0) and fl.ones(0, 3, device="cuda").sort().values.shape == (0, 3)
    assert fl.tensor(2.0, device="cuda").sort().indices.item() == 0


def test_gradients():
    x = fl.randn(5, 70, device="cuda", requires_grad=True)
    x.sort(1).values[:, :10].sum().backward()
    assert x.grad.sum().item() == 50 and x.grad.amax().item() == 1
