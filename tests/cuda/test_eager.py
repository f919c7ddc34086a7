"""Eager on the GPU gives what eager on the CPU gives: forward and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 6)).astype("f4")
B = RNG.standard_normal((4, 6)).astype("f4") + 3

CASES = {
    "arithmetic": lambda x, y: (x * 2 - y) / (y + 1) + x**3,
    "functions": lambda x, y: x.sin() * y.log() + x.sigmoid().exp() - (x.tanh() + x.erf()) * y.rsqrt(),
    "rounding": lambda x, y: x.floor() + y.round() * x,
    "compare": lambda x, y: fl.where(x > 0, x, y) * (x < y),
    "views": lambda x, y: x.t().reshape(3, 8)[:, 1:5].permute(1, 0) * 2,
    "reductions": lambda x, y: x.sum(1) * y.mean(1) + x.amax(1) * y.std(1) + y.prod(1),
    "softmax": lambda x, y: x.softmax(-1) * y,
    "matmul": lambda x, y: (x @ y.t()) @ x,
    "batched": lambda x, y: fl.matmul(x.view(2, 2, 6), y.view(2, 6, 2)),
    "gather": lambda x, y: x.gather(1, fl.tensor([[0, 5], [1, 1], [2, 3], [4, 4]], device=x.device)),
    "index": lambda x, y: x[fl.tensor([0, 2, 2], device=x.device)] * y[1],
    "cat": lambda x, y: fl.cat([x, y, x], 1).pow(2),
    "cumsum": lambda x, y: x.cumsum(1) * y,
    "sort": lambda x, y: x.sort(1).values * y,
    "inplace": lambda x, y: (x * 1).mul_(y).add_(x),
    "setitem": lambda x, y: _set(x, y),
    "pad": lambda x, y: fl.nn.functional.pad(x, (1, 2)) * 2,
    "layer_norm": lambda x, y: fl.nn.functional.layer_norm(x, (6,), y[0], y[1]),
    "gelu": lambda x, y: fl.nn.functional.gelu(x) * y,
    "cross_entropy": lambda x, y: fl.nn.functional.cross_entropy(x, fl.tensor([0, 1, 2, 5], device=x.device)) * y,
}


def _set(x, y):
    z = x * 1
    z[1] = y[0]
    z[:, 2] = 0
    return z


def _run(fn, device):
    x, y = (fl.tensor(a, device=device, requires_grad=True) for a in (A, B))
    out = fn(x, y)
    out.sum().backward()
    return [t.detach().cpu().numpy() for t in (out, x.grad, y.grad) if t is not None]


@pytest.mark.parametrize("name", CASES)
def test_matches_cpu(name):
    for gpu, cpu in zip(_run(CASES[name], "cuda"), _run(CASES[name], "cpu"), strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int64", "bool"])
def test_round_trip_keeps_bits(dtype):
    x = fl.tensor(RNG.standard_normal((3, 5))).to(getattr(fl, dtype))
    assert fl.equal(x.cuda().cpu(), x)
    assert fl.equal(x.t().cuda().cpu(), x.t())


def test_random_numbers_follow_the_seed():
    fl.manual_seed(3)
    state, a, b = fl.cuda.get_rng_state(), fl.rand(1000, device="cuda"), fl.rand(1000, device="cuda")
    fl.cuda.manual_seed(3)
    assert fl.equal(fl.rand(1000, device="cuda"), a) and not fl.equal(a, b)
    assert fl.equal(fl.rand(1000, device="cuda"), b)
    fl.cuda.set_rng_state(state)
    assert fl.equal(fl.rand(1000, device="cuda"), a)


def test_bfloat16_products():
    x = fl.tensor(A).bfloat16()
    np.testing.assert_allclose((x.cuda() @ x.cuda().t()).float().cpu().numpy(), A @ A.T, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("order", ["nn", "nt", "tn", "heads"])
def test_batched_products_of_strided_operands(dtype, order):
    kind = getattr(fl, dtype)
    if order == "heads":
        qkv = fl.tensor(RNG.standard_normal((2, 5, 3 * 8))).to(kind)
        q, k, _ = (z.view(2, 5, 2, 4).transpose(1, 2) for z in qkv.split(8, 2))
        x, y = q, k.transpose(-1, -2)
    else:
        x = fl.tensor(RNG.standard_normal((3, 4, 6) if order[0] == "n" else (3, 6, 4))).to(kind)
        y = fl.tensor(RNG.standard_normal((3, 6, 5) if order[1] == "n" else (3, 5, 6))).to(kind)
        x, y = (x if order[0] == "n" else x.transpose(1, 2)), (y if order[1] == "n" else y.transpose(1, 2))
    got = (x.cuda() @ y.cuda()).cpu().double().numpy()
    tolerance = {"bfloat16": 3e-2, "float16": 5e-3}.get(dtype, 1e-5)
    np.testing.assert_allclose(got, (x.double() @ y.double()).numpy(), rtol=tolerance, atol=tolerance * 4)


def test_torch_is_not_in_the_process():
    import sys
    assert "torch" not in sys.modules or getattr(sys.modules["torch"], "__name__", "") == "flambeau"


@pytest.mark.parametrize("shape", [(40, 8200 + 3, 24), (24, 16, 8200 + 5), (16, 4096 + 7, 4096 + 1)], ids=str)
def test_products_of_odd_sizes(shape):
    rows, inner, columns = shape
    x, y = (fl.tensor(RNG.standard_normal(s)).bfloat16() for s in ((rows, inner), (columns, inner)))
    want = x.double().numpy() @ y.double().numpy().T
    got = (x.cuda() @ y.cuda().t()).double().cpu().numpy()
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=0.02 * inner**0.5)
    padded = fl.empty(rows, -(-columns // 8) * 8, device="cuda", dtype=fl.bfloat16)[:, :columns]
    from flambeau.backends.cuda import blas
    blas.matmul(x.cuda()._data, y.cuda().t()._data, padded._data)
    np.testing.assert_allclose(padded.double().cpu().numpy(), want, rtol=2e-2, atol=0.02 * inner**0.5)
