"""Optimizer steps in one launch give what the formulas give."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.nn import steps as nn_steps

RNG = np.random.default_rng(0)
SHAPES = [(7,), (3, 5), (70, 90), (), (4096, 3), (0, 4)]

OPTIMIZERS = {
    "sgd": lambda p: fl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: fl.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: fl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: fl.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda p: fl.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: fl.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def _run(make, kind, fused, monkeypatch):
    if not fused:
        monkeypatch.setitem(nn_steps.FUSED, "cuda", {})
    rng = np.random.default_rng(1)
    params = [fl.tensor(rng.standard_normal(s), dtype=kind).cuda().requires_grad_() for s in SHAPES]
    params.append(fl.tensor(rng.standard_normal((6, 4)), dtype=kind).t().cuda().requires_grad_())
    optimizer = make(params)
    for _ in range(3):
        for p in params:
            p.grad = fl.tensor(rng.standard_normal(tuple(p.shape)), dtype=kind).cuda()
        norm = fl.nn.utils.clip_grad_norm_(params, 2.0)
        versions = [p._version for p in params]
        optimizer.step()
        assert all(p._version > v for p, v in zip(params, versions) if p.numel())
    return [norm.cpu().double().numpy(), *[p.detach().cpu().double().numpy() for p in params]]


@pytest.mark.parametrize("kind", [fl.float32, fl.float64, fl.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fused_steps_match_the_formulas(name, kind, monkeypatch):
    fused = _run(OPTIMIZERS[name], kind, True, monkeypatch)
    plain = _run(OPTIMIZERS[name], kind, False, monkeypatch)
    tolerance = {fl.float32: 1e-5, fl.float64: 1e-10, fl.bfloat16: 4e-2}[kind]
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_fused_step_is_taken(monkeypatch):
    p = fl.ones(5, device="cuda", requires_grad=True)
    p.grad = fl.ones(5, device="cuda")
    monkeypatch.setattr(nn_steps, "adam_formula", None)
    fl.optim.AdamW([p], lr=0.1).step()
    assert (p < 1).all()
