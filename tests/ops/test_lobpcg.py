"""Extreme eigenpairs by products alone, against torch and against all eigenpairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
BOTH = (torch, fl)


def _matrix(seed: int = 0) -> np.ndarray:
    square = np.random.default_rng(seed).standard_normal((12, 12))
    return square @ square.T + np.diag(np.arange(12.0) * 3)


@pytest.mark.parametrize("largest", [True, False])
def test_pairs_and_their_gradient(largest: bool) -> None:
    found = []
    weights = np.random.default_rng(1).standard_normal((12, 2))
    for t in BOTH:
        t.manual_seed(0)
        a = t.tensor(_matrix(), requires_grad=True)
        values, vectors = t.lobpcg(a, 2, largest=largest, tol=1e-12, niter=500)
        loss = (values * t.tensor([1.0, 2.0], dtype=t.float64)).sum() + ((vectors * t.tensor(weights)).sum(0) ** 2).sum()
        found.append((values.detach().numpy(), t.autograd.grad(loss, a)[0].numpy()))
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["basic", "ortho"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "generalized", "preconditioned", "started"])
def test_forms(kind: str, method: str) -> None:
    fl.manual_seed(0)
    a, b = fl.tensor(_matrix()), fl.eye(12, dtype=fl.float64) * 2
    b[0, 1] = b[1, 0] = 0.5
    factor = fl.linalg.inv(fl.linalg.cholesky(b))
    expected = fl.linalg.eigh(factor @ a @ factor.T if kind == "generalized" else a)
    given: dict[str, Any] = {"generalized": {"B": b}, "preconditioned": {"iK": fl.linalg.inv(a), "largest": False},
                             "started": {"X": fl.randn(12, 4, dtype=fl.float64), "k": 2}}.get(kind, {})
    values, vectors = fl.lobpcg(a.to_sparse() if kind == "sparse" else a, method=method, tol=1e-9, niter=300, **{"k": 3, **given})
    k = values.shape[0]
    want = expected[0][:k] if kind == "preconditioned" else expected[0].flip(0)[:k]
    np.testing.assert_allclose(values.numpy(), want.numpy(), rtol=1e-8)
    there = b if kind == "generalized" else fl.eye(12, dtype=fl.float64)
    np.testing.assert_allclose((a @ vectors).numpy(), (there @ vectors * values).numpy(), atol=1e-5)


def test_batches_and_trackers() -> None:
    fl.manual_seed(0)
    a = fl.tensor(np.stack([_matrix(), _matrix(1)]))
    np.testing.assert_allclose(fl.lobpcg(a, 2)[0].numpy(), fl.linalg.eigvalsh(a).flip(1)[:, :2].numpy(), rtol=1e-6)
    seen = []

    def stop(state: Any) -> None:
        seen.append((state.ivars["istep"], tuple(state.X.shape)))
        state.bvars["force_stop"] = len(seen) == 2

    fl.lobpcg(a[0], 2, tracker=stop)
    assert seen == [(1, (12, 2)), (2, (12, 2))]


@pytest.mark.parametrize(("call", "error"), [
    (lambda t: t.lobpcg(t.eye(4), 2), ValueError), (lambda t: t.lobpcg(t.ones(9, 8), 2), AssertionError),
    (lambda t: t.lobpcg(t.eye(9).long(), 1), RuntimeError)])
def test_refused(call: Any, error: type[Exception]) -> None:
    for t in BOTH:
        with pytest.raises(error):
            call(t)


def test_gradients_that_are_not_there_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="detach"):
        fl.lobpcg(fl.eye(9).requires_grad_(), 1, B=fl.eye(9))
