"""The attention kernels against the formula, forward and backward, eager and compiled."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.nn.attention import flash_attention
from flambeau.ops.registry import COMPOSITES

SHAPES = {  # batch, heads of queries, heads of keys, rows, columns, head dimension
    "square": (2, 3, 3, 256, 256, 64), "ragged": (2, 2, 2, 77, 130, 64),
    "groups": (1, 8, 2, 200, 200, 128), "odd_head": (1, 2, 2, 65, 65, 80),
    "small": (3, 1, 1, 5, 9, 16), "one_row": (2, 4, 4, 1, 300, 32), "tall": (1, 2, 1, 300, 70, 96),
}


def _inputs(shape, kind):
    batch, heads, key_heads, rows, columns, e = shape
    rng = np.random.default_rng(0)
    def make(n, h):
        return fl.tensor(rng.standard_normal((batch, n, h, e)), dtype=kind).cuda().transpose(1, 2).detach().requires_grad_()
    return [make(rows, heads), make(columns, key_heads), make(columns, key_heads)]


def _gradients(fn, inputs):
    out = fn(*inputs)
    weight = fl.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)), dtype=out.dtype).cuda()
    grads = fl.autograd.grad((out * weight).sum(), inputs)
    return [t.detach().float().cpu().numpy() for t in (out, *grads)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [fl.bfloat16, fl.float16, fl.float32], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_kernels_match_the_formula(name, kind, causal, monkeypatch):
    monkeypatch.setattr(fl.backends.cuda.matmul, "allow_tf32", kind is fl.float32)
    shape = SHAPES[name]
    scale = 1 / math.sqrt(shape[-1])
    inputs = _inputs(shape, kind)
    assert COMPOSITES["flash_attention"].kernels["cuda"](*[t._data for t in inputs], causal, scale) is not NotImplemented
    got = _gradients(lambda q, k, v: flash_attention(q, k, v, causal, scale)[0], inputs)
    wide = [t.detach().cpu().double().requires_grad_() for t in inputs]
    def formula(q, k, v):
        return flash_attention(q, k, v, causal, scale)[0]
    out = formula(*wide)
    weight = fl.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)), dtype=kind).double()
    grads = fl.autograd.grad((out * weight).sum(), wide)
    tolerance = 3e-2 if kind is fl.bfloat16 else 6e-3
    for a, b in zip(got, (out, *grads), strict=True):
        b = b.detach().numpy()
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max() / 4))


def test_sdpa_takes_the_kernel_compiled_and_eager():
    def fn(x):
        q, k, v = (z.view(2, 128, 2, 64).transpose(1, 2) for z in x.split(128, 2))
        return fl.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 128, 128)
    x = fl.randn(2, 128, 3 * 128, device="cuda").bfloat16().requires_grad_()
    eager = fn(x)
    eager.sum().backward()
    grad, x.grad = x.grad, None
    compiled = fl.compile(fn)(x)
    compiled.sum().backward()
    np.testing.assert_allclose(compiled.detach().float().cpu().numpy(), eager.detach().float().cpu().numpy(), rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(x.grad.float().cpu().numpy(), grad.float().cpu().numpy(), rtol=2e-2, atol=2e-2)
