"""svd_lowrank and pca_lowrank: what they find, against all singular values."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl


def matrix(*shape, rank=4, seed=0):
    r = np.random.default_rng(seed)
    *batch, m, n = shape
    return fl.tensor(r.standard_normal((*batch, m, rank)) @ r.standard_normal((*batch, rank, n)))


@pytest.mark.parametrize("shape", [(30, 9), (9, 30), (2, 12, 12), (3, 3)])
def test_matrices_of_low_rank_are_found(shape):
    a = matrix(*shape, rank=3)
    u, s, v = fl.svd_lowrank(a, q=4)
    assert fl.allclose((u * s.unsqueeze(-2)) @ v.mH, a)
    assert fl.allclose(s[..., :3], fl.linalg.svdvals(a)[..., :3])
    eye = fl.eye(s.shape[-1], dtype=a.dtype)
    assert fl.allclose(u.mH @ u, eye)
    assert fl.allclose(v.mH @ v, eye)
    m = matrix(*shape, rank=2, seed=1)
    assert fl.allclose(fl.svd_lowrank(a + m, q=4, M=m)[1][..., :3], s[..., :3])


@pytest.mark.parametrize("center", [True, False])
def test_components(center):
    a = matrix(20, 6, rank=2) + 3
    u, s, v = fl.pca_lowrank(a, center=center)
    b = a - a.mean(0) if center else a
    assert fl.allclose((u * s) @ v.mH, b)
    assert tuple(v.shape) == (6, 6)


def test_shapes_are_torchs():
    torch = pytest.importorskip("torch")
    for shape, q in (((8, 5), 6), ((8, 5), 2), ((5, 8), 3), ((2, 5, 8), 4)):
        for name in ("svd_lowrank", "pca_lowrank"):
            count = min(q, *shape[-2:])
            mine, theirs = (getattr(m, name)(m.ones(shape), count) for m in (fl, torch))
            assert [tuple(x.shape) for x in mine] == [tuple(x.shape) for x in theirs]


def test_gradients_of_singular_values():
    a = matrix(6, 5, rank=5).requires_grad_()
    fl.svd_lowrank(a, q=5)[1].sum().backward()
    b = a.detach().requires_grad_()
    fl.linalg.svdvals(b).sum().backward()
    assert fl.allclose(a.grad, b.grad, atol=1e-6)


def test_what_is_refused():
    a = fl.ones(4, 3)
    with pytest.raises(ValueError, match=r"q\(=9\) must be non-negative integer and not greater than min\(m, n\)=3"):
        fl.pca_lowrank(a, q=9)
    with pytest.raises(ValueError, match="matrix or a batch"):
        fl.svd_lowrank(a[0])
    with pytest.raises(RuntimeError, match="floating or complex"):
        fl.svd_lowrank(a.int())
    with pytest.raises(ValueError, match="niter"):
        fl.pca_lowrank(a, niter=-1)
    with pytest.raises(TypeError, match="must be Tensor"):
        fl.svd_lowrank(3)
