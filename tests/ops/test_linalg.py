"""Matrix products, einsum and decompositions against torch, with gradients."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.linalg import decompositions

RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape)


MATMUL = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((5, 2, 3), (3, 4)),
          ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (1, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)),
          ((2, 1, 3, 4), (1, 5, 4, 2)), ((2, 0), (0, 3)), ((0, 2, 3), (3, 4)), ((2, 3, 4, 5), (5,)), ((1, 1, 2, 3), (3, 4))]


@pytest.mark.parametrize(("a", "b"), MATMUL, ids=str)
def test_matmul_of_every_rank(agrees, a, b):
    agrees(lambda t, x, y: x @ y, normal(*a), normal(*b))


def test_matmul_of_strided_operands(agrees):
    agrees(lambda t, x, y: x.transpose(1, 2) @ y.transpose(0, 1), normal(5, 3, 2), normal(4, 3))
    agrees(lambda t, x, y: x.transpose(0, 1) @ y.permute(2, 0, 1), normal(2, 5, 3), normal(3, 4, 5))
    agrees(lambda t, x, y: x[:, ::2] @ y[1:], normal(2, 6), normal(4, 2))


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.complex64, np.int64], ids=str)
def test_matmul_dtypes(agrees, kind):
    agrees(lambda t, x, y: x @ y, (normal(3, 4) * 3).astype(kind), (normal(4, 2) * 3).astype(kind), tolerance=5e-3)


A, B, V, W = normal(3, 4), normal(4, 2), normal(4), normal(3)
PRODUCTS = {
    "pdist": (lambda t, x: t.pdist(x), A),
    "pdist 1.5": (lambda t, x: t.nn.functional.pdist(x, 1.5), A),
    "pdist inf": (lambda t, x: t.pdist(x, float("inf")), A),
    "pdist of no columns": (lambda t, x: [t.pdist(x[:, :0], p) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))], A),
    "cdist of no columns": (lambda t, x: [t.cdist(x[:, :0], x[:1, :0], p) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))], A),
    "pdist of one row": (lambda t, x: t.pdist(x[:1]), A),
    "nuclear_norm": (lambda t, x: t.nuclear_norm(x, keepdim=True), A),
    "frobenius_norm": (lambda t, x: t.frobenius_norm(x, (0, 1)), A),
    "frobenius_norm of columns": (lambda t, x: t.frobenius_norm(x, 0, True), A),
    "norm_except_dim": (lambda t, x: t.norm_except_dim(x, 2, 1), A),
    "norm_except_dim of all": (lambda t, x: t.norm_except_dim(x, 3, -1), A),
    "mm": (lambda t, x, y: t.mm(x, y), A, B),
    "bmm": (lambda t, x, y: x.bmm(y), normal(2, 3, 4), normal(2, 4, 5)),
    "mv": (lambda t, x, y: x.mv(y), A, V),
    "dot": (lambda t, x, y: x.dot(y), V, normal(4)),
    "vdot": (lambda t, x, y: t.vdot(x, y), V + 1j, V * 2j),
    "outer": (lambda t, x, y: t.outer(x, y), V, W),
    "inner": (lambda t, x, y: t.inner(x, y), A, normal(5, 4)),
    "addmm": (lambda t, c, x, y: t.addmm(c, x, y, beta=0.5, alpha=2), normal(2), A, B),
    "addmm beta 0": (lambda t, c, x, y: t.addmm(c, x, y, beta=0), np.full((3, 2), math.nan), A, B),
    "baddbmm": (lambda t, c, x, y: t.baddbmm(c, x, y), normal(1, 3, 5), normal(2, 3, 4), normal(2, 4, 5)),
    "addbmm": (lambda t, c, x, y: t.addbmm(c, x, y, alpha=2), normal(3, 5), normal(2, 3, 4), normal(2, 4, 5)),
    "addmv": (lambda t, c, x, y: c.addmv(x, y), W, A, V),
    "addr": (lambda t, c, x, y: c.addr(x, y), A, W, V),
    "kron": (lambda t, x, y: t.kron(x, y), normal(2, 3), normal(3, 2)),
    "cross": (lambda t, x, y: t.cross(x, y, dim=1), normal(2, 3), normal(2, 3)),
    "linalg.cross": (lambda t, x, y: t.linalg.cross(x, y), normal(2, 3), normal(1, 3)),
    "multi_dot": (lambda t, x, y, z: t.linalg.multi_dot([x, y, z]), normal(10, 2), normal(2, 20), normal(20, 3)),
    "multi_dot vectors": (lambda t, x, y, z: t.linalg.multi_dot([x, y, z]), normal(4), normal(4, 3), normal(3)),
    "chain_matmul": (lambda t, x, y: t.chain_matmul(x, y), A, B),
    "trace": (lambda t, x: x.trace(), A),
    "vander": (lambda t, x: t.vander(x.detach(), 3), V),
    "cdist": (lambda t, x, y: t.cdist(x, y), normal(2, 3, 4), normal(2, 5, 4)),
    "cdist of many": (lambda t, x, y: t.cdist(x, y), normal(2, 1, 30, 4), normal(3, 26, 4)),
    "cdist without products": (lambda t, x, y: t.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"), normal(30, 4),
                               normal(5, 4)),
    "cdist by products": (lambda t, x, y: t.cdist(x, y, compute_mode="use_mm_for_euclid_dist"), normal(3, 4), normal(5, 4)),
    "cdist 0": (lambda t, x, y: t.cdist(x, y, 0.0), normal(3, 4), normal(5, 4)),
    "cdist 1": (lambda t, x, y: t.cdist(x, y, 1.0), normal(30, 4), normal(2, 5, 4)),
    "cdist 3": (lambda t, x, y: t.cdist(x, y, 3.0), normal(3, 4), normal(5, 4)),
    "cdist inf": (lambda t, x, y: t.cdist(x, y, float("inf")), normal(3, 4), normal(5, 4)),
    "cdist at zero": (lambda t, x: t.cdist(x, x), normal(4, 3)),
    "pdist of nn.functional": (lambda t, x: t.nn.functional.pdist(x), normal(6, 4)),
    "pdist 1": (lambda t, x: t.nn.functional.pdist(x, 1.0), normal(6, 4)),
    "cov": (lambda t, x: t.cov(x), A),
    "corrcoef": (lambda t, x: t.corrcoef(x), A),
    "tensordot": (lambda t, x, y: t.tensordot(x, y, 2), normal(2, 3, 4), normal(3, 4, 5)),
    "tensordot pairs": (lambda t, x, y: t.tensordot(x, y, ([0, 2], [1, 0])), normal(2, 3, 4), normal(4, 2, 5)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(agrees, name):
    agrees(*PRODUCTS[name])


EINSUM = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("...ii->...i", (2, 3, 3)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("i,j->ij", (2,), (3,)), ("ij,ij->", (2, 3), (2, 3)), ("ij,ij->ij", (2, 3), (2, 3)),
    ("ijk,jl,kl->i", (2, 3, 4), (3, 2), (4, 2)),
    ("i...,...j->ij...", (2, 3), (3, 4)), ("...i,...i->...", (5, 2, 3), (2, 3)), ("bn,anm,bm->ba", (2, 5), (3, 5, 4), (2, 4)),
    ("ij,kj->ik", (2, 1), (4, 3)), ("abc,cd->abd", (2, 3, 4), (4, 5)), (" i j , j k -> i k ", (2, 3), (3, 4)), ("ba", (2, 3)),
    ("ii,ij->j", (3, 3), (3, 4)), ("ijij->ij", (2, 3, 2, 3)),
]


@pytest.mark.parametrize(("equation", *["shapes"]), [(e, s) for e, *s in EINSUM], ids=[e for e, *_ in EINSUM])
def test_einsum(agrees, equation, shapes):
    agrees(lambda t, *xs: t.einsum(equation, *xs), *(normal(*s) for s in shapes))


def test_einsum_by_sublists(agrees):
    agrees(lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2], [0, 2]), normal(2, 3), normal(3, 4))
    agrees(lambda t, x, y: t.einsum("ij,jk->ik", [x, y]), normal(2, 3), normal(3, 4))


REFUSED = {
    "vectors": (lambda t: t.ones(3) @ t.ones(4), "inconsistent tensor size"),
    "matrix and vector": (lambda t: t.ones(2, 3) @ t.ones(4), "size mismatch"),
    "matrices": (lambda t: t.ones(2, 3) @ t.ones(4, 5), "cannot be multiplied (2x3 and 4x5)"),
    "0-dim": (lambda t: t.tensor(1.0) @ t.ones(3), "at least 1D"),
    "folded": (lambda t: t.ones(2, 3, 4) @ t.ones(5, 4), "cannot be multiplied (6x4 and 5x4)"),
    "batches": (lambda t: t.ones(2, 3, 4) @ t.ones(3, 4, 5), "must match"),
    "batch sizes": (lambda t: t.ones(2, 3, 4) @ t.ones(2, 5, 4), "Expected size"),
    "dtypes": (lambda t: t.ones(2, 2) @ t.ones(2, 2).double(), "same dtype"),
    "a number": (lambda t: t.matmul(t.ones(2, 2), 2), "must be Tensor"),
    "mm of vectors": (lambda t: t.mm(t.ones(2), t.ones(2, 2)), "must be a matrix"),
    "bmm of matrices": (lambda t: t.bmm(t.ones(2, 2), t.ones(2, 2, 2)), "must be a 3D tensor"),
    "dot of matrices": (lambda t: t.dot(t.ones(2, 2), t.ones(2)), "1D tensors expected"),
    "addmm": (lambda t: t.addmm(t.ones(3), t.ones(2, 3), t.ones(3, 4)), "must match the existing size"),
    "einsum sizes": (lambda t: t.einsum("ij,jk->ik", t.ones(2, 3), t.ones(4, 5)), "does not broadcast"),
    "einsum operands": (lambda t: t.einsum("ij", t.ones(2, 3), t.ones(2, 3)), "more operands"),
    "einsum output": (lambda t: t.einsum("ij->k", t.ones(2, 3)), "does not appear"),
    "einsum rank": (lambda t: t.einsum("ijk->i", t.ones(2, 3)), "number of subscripts"),
    "tensordot": (lambda t: t.tensordot(t.ones(2, 3), t.ones(4, 5), 1), "contracted dimensions"),
    "cross": (lambda t: t.cross(t.ones(2, 2), t.ones(2, 2)), "no dimension of size 3"),
    "multi_dot of one": (lambda t: t.linalg.multi_dot([t.ones(2, 3)]), "at least 2"),
    "inv of a singular matrix": (lambda t: t.linalg.inv(t.zeros(2, 2)), "singular"),
    "inv of a rectangle": (lambda t: t.linalg.inv(t.ones(2, 3)), "square"),
    "inv of integers": (lambda t: t.linalg.inv(t.ones(2, 2, dtype=t.int64)), "floating point"),
    "cholesky": (lambda t: t.linalg.cholesky(-t.eye(2)), "positive-definite"),
    "solve": (lambda t: t.linalg.solve(t.zeros(2, 2), t.ones(2)), "singular"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(both_refuse, name):
    fn, text = REFUSED[name]
    both_refuse(fn, text=text)


# -- decompositions -------------------------------------------------------------------------------------------------
S = normal(2, 4, 4) + 4 * np.eye(4)
SPD = S @ S.transpose(0, 2, 1) + np.eye(4)
TALL, WIDE = normal(2, 5, 3), normal(2, 3, 5)
T = np.tril(normal(3, 3)) + 3 * np.eye(3)


def hermitian(x):
    return (x + x.mT) / 2


DECOMPOSITIONS = {
    "inv": (lambda t, x: t.linalg.inv(x), S),
    "inverse": (lambda t, x: x.inverse(), S),
    "solve": (lambda t, a, b: t.linalg.solve(a, b), S, normal(2, 4, 3)),
    "solve vectors": (lambda t, a, b: t.linalg.solve(a, b), S, normal(2, 4)),
    "solve broadcast": (lambda t, a, b: t.linalg.solve(a, b), S, normal(4, 1)),
    "solve right": (lambda t, a, b: t.linalg.solve(a, b, left=False), S, normal(2, 3, 4)),
    "solve_triangular": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False), T, normal(3, 2)),
    "solve_triangular unit": (lambda t, a, b: t.linalg.solve_triangular(a.mT, b, upper=True, unitriangular=True), T, normal(3, 2)),
    "det": (lambda t, x: t.linalg.det(x), S),
    "slogdet": (lambda t, x: t.linalg.slogdet(x), S),
    "logdet": (lambda t, x: t.logdet(x), SPD),
    "cholesky": (lambda t, x: t.linalg.cholesky(hermitian(x)), SPD),
    "cholesky upper": (lambda t, x: t.linalg.cholesky(hermitian(x), upper=True), SPD),
    "cholesky_solve": (lambda t, b, l: t.cholesky_solve(b, l.tril()), normal(3, 2), T),
    "cholesky_inverse": (lambda t, l: t.cholesky_inverse(l.tril()), T),
    "pinv": (lambda t, x: t.linalg.pinv(x), TALL),
    "pinv wide": (lambda t, x: t.linalg.pinv(x), WIDE),
    "matrix_power": (lambda t, x: t.linalg.matrix_power(x, 5), S),
    "matrix_power negative": (lambda t, x: x.matrix_power(-2), S),
    "matrix_power zero": (lambda t, x: t.matrix_power(x, 0), S),
    "matrix_exp": (lambda t, x: t.linalg.matrix_exp(x * 0.3), S),
    "svdvals": (lambda t, x: t.linalg.svdvals(x), TALL),
    "eigvalsh": (lambda t, x: t.linalg.eigvalsh(hermitian(x)), SPD),
    "matrix_rank": (lambda t, x: t.linalg.matrix_rank(x), TALL),
    "lstsq": (lambda t, a, b: t.linalg.lstsq(a, b).solution, TALL, normal(2, 5, 2)),
    "cond": (lambda t, x: t.linalg.cond(x), S),
    "cond 1": (lambda t, x: t.linalg.cond(x.detach(), 1), S),
    "vecdot": (lambda t, x, y: t.linalg.vecdot(x, y), TALL, normal(2, 5, 3)),
    "lu": (lambda t, x: t.linalg.lu(x), S),
    "lu tall": (lambda t, x: t.linalg.lu(x), TALL),
    "lu wide": (lambda t, x: t.linalg.lu(x.mT), TALL),
    "lu_factor": (lambda t, x: t.linalg.lu_factor(x), TALL),
    "lu method": (lambda t, x: x.lu(get_infos=True), S),
    "lu function": (lambda t, x: t.lu(x), TALL),
    "lu_factor_ex": (lambda t, x: t.linalg.lu_factor_ex(x), S),
    "lu_factor_ex of a singular matrix": (lambda t, x: t.linalg.lu_factor_ex(x.detach() * 0)[1:], S),
    "lu_factor of nothing": (lambda t, x: t.linalg.lu_factor(x.detach()[:0]), S),
    "lu_unpack": (lambda t, x: t.lu_unpack(*t.linalg.lu_factor(x)), TALL),
    "lu_unpack pivots": (lambda t, x: t.lu_unpack(*t.linalg.lu_factor(x.detach()), unpack_data=False), S),
    "lu_solve": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b), S, normal(4, 2)),
    "lu_solve adjoint": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, adjoint=True), S, normal(2, 4, 2)),
    "lu_solve right": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, left=False), S, normal(3, 4)),
    "lu_solve complex": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b, left=False, adjoint=True).abs(), S + 1j,
                         normal(3, 4) * 1j),
    "lu_solve method": (lambda t, a, b: b.lu_solve(*t.linalg.lu_factor(a)), S, normal(4, 2)),
    "solve_ex": (lambda t, a, b: t.linalg.solve_ex(a, b, left=False), S, normal(3, 4)),
    "solve_ex vectors": (lambda t, a, b: t.linalg.solve_ex(a, b), S, normal(2, 4)),
    "inv_ex": (lambda t, x: t.linalg.inv_ex(x), S),
    "ldl_factor": (lambda t, x: t.linalg.ldl_factor(x.detach()), SPD),
    "ldl_factor indefinite": (lambda t, x: t.linalg.ldl_factor_ex((x + x.mT).detach()), normal(2, 4, 4)),
    "ldl_factor hermitian": (lambda t, x: t.linalg.ldl_factor((x + x.mH).detach(), hermitian=True), normal(3, 3) + 1j * normal(3, 3)),
    "ldl_solve": (lambda t, a, b: t.linalg.ldl_solve(*t.linalg.ldl_factor(hermitian(a).detach()), b.detach()),
                  normal(2, 4, 4), normal(4, 3)),
    "ldl_solve hermitian": (lambda t, a, b: t.linalg.ldl_solve(*t.linalg.ldl_factor((a + a.mH).detach(), hermitian=True),
                                                               b.detach() + 0j, hermitian=True),
                            normal(3, 3) + 1j * normal(3, 3), normal(3, 2)),
    "geqrf": (lambda t, x: t.geqrf(x.detach()), TALL),
    "geqrf wide": (lambda t, x: x.detach().mT.geqrf(), TALL),
    "householder_product": (lambda t, a, tau: t.linalg.householder_product(a, tau), TALL, normal(2, 3)),
    "householder_product of fewer": (lambda t, a, tau: t.orgqr(a, tau), S, normal(2, 2)),
    "householder_product of none": (lambda t, a: a.detach().orgqr(a.detach()[..., 0, :0]), TALL),
    "ormqr": (lambda t, a, tau, c: t.ormqr(a, tau, c), TALL, normal(2, 3), normal(2, 5, 2)),
    "ormqr transposed right": (lambda t, a, tau, c: a.ormqr(tau, c, False, True), TALL, normal(2, 3), normal(2, 2, 5)),
    "triangular_solve": (lambda t, b, a: t.triangular_solve(b, a, transpose=True)[0], normal(3, 2), T),
    "triangular_solve lower": (lambda t, b, a: b.triangular_solve(a, upper=False, unitriangular=True), normal(3, 2), T),
    "qr R": (lambda t, x: t.linalg.qr(x).R.abs(), TALL),
    "qr wide Q": (lambda t, x: t.linalg.qr(x).Q.abs(), WIDE),
    "qr wide R": (lambda t, x: t.linalg.qr(x, "complete").R.abs(), WIDE),
    "qr of a square": (lambda t, x: t.linalg.qr(x).Q.abs(), S),
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions(agrees, name):
    agrees(*DECOMPOSITIONS[name], tolerance=1e-8)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
def test_matrix_norms(agrees, ord):
    agrees(lambda t, x: t.linalg.matrix_norm(x, ord, keepdim=True), TALL, tolerance=1e-8)
    agrees(lambda t, x: t.linalg.norm(x[0], ord), TALL, tolerance=1e-8)


@pytest.mark.parametrize("fn", [lambda t, x: t.linalg.norm(x), lambda t, x: t.linalg.norm(x, dim=1),
                                lambda t, x: t.linalg.norm(x, 3, dim=0), lambda t, x: t.linalg.vector_norm(x, 1.5),
                                lambda t, x: t.linalg.norm(x, 1, dim=(0, 2))])
def test_norms(agrees, fn):
    agrees(fn, TALL)


@pytest.mark.parametrize("array", [S, TALL, WIDE, S + 1j * normal(2, 4, 4)], ids=["square", "tall", "wide", "complex"])
def test_svd_rebuilds_and_differentiates(array):
    x = fl.tensor(array, requires_grad=True)
    u, s, vh = fl.linalg.svd(x, full_matrices=False)
    assert fl.allclose((u * s.unsqueeze(-2).to(u.dtype)) @ vh, x)
    # gauge-invariant functions of the factors: the signs (phases) of singular vectors are free
    assert fl.autograd.gradcheck(lambda v: (lambda u, s, vh: ((u * (s**2).unsqueeze(-2)) @ vh, s))(*fl.linalg.svd(v, False)),
                                 (fl.tensor(array[0].real, requires_grad=True),))


def test_eigh_rebuilds_and_differentiates(agrees):
    def fn(t, x):
        values, vectors = t.linalg.eigh(hermitian(x))
        return values, (vectors * values.exp().unsqueeze(-2) * 0.01) @ vectors.mT, vectors.abs()
    agrees(fn, SPD / 10, tolerance=1e-8)


def test_eig(agrees):
    x = fl.tensor(S)
    values, vectors = fl.linalg.eig(x)
    assert fl.allclose(x.to(fl.complex128) @ vectors, vectors * values.unsqueeze(-2))
    agrees(lambda t, x: t.linalg.eigvals(x).abs().sort().values, S, tolerance=1e-8)


def test_qr_rebuilds():
    for array in (S, TALL, WIDE):
        for mode in ("reduced", "complete"):
            q, r = fl.linalg.qr(fl.tensor(array), mode)
            assert fl.allclose(q @ r, fl.tensor(array))
            assert fl.allclose(q.mT @ q, fl.eye(q.shape[-1], dtype=fl.float64).expand(2, -1, -1))


@pytest.mark.parametrize("name", ["inv", "det", "solve", "cholesky", "pinv", "matrix_exp", "lu", "lu wide"])
def test_gradients_by_finite_differences(name):
    fn, *arrays = DECOMPOSITIONS[name]
    inputs = tuple(fl.tensor(a[0] if a.ndim == 3 else a, requires_grad=True) for a in arrays)
    assert fl.autograd.gradcheck(lambda *xs: fn(fl, *xs), inputs)


def test_products_of_fakes_have_shapes():
    x, y = fl.empty(2, 3, 4, device="meta"), fl.empty(4, 5, device="meta")
    assert (x @ y).shape == (2, 3, 5)
    assert fl.einsum("bij,jk->bk", x, y).shape == (2, 5)
    assert fl.linalg.svd(x).Vh.shape == (2, 4, 4)


def test_one_singular_matrix_of_a_batch(agrees):
    some = S * np.array([1.0, 0.0]).reshape(2, 1, 1)
    b = normal(4, 2)
    agrees(lambda t, a, b: [t.linalg.solve_ex(a, b)[0][0], t.linalg.solve_ex(a, b).info], some, b, grad=False)
    agrees(lambda t, a: [t.linalg.inv_ex(a)[0][0], t.linalg.inv_ex(a).info], some, grad=False)
    assert not fl.linalg.solve_ex(fl.tensor(some), fl.tensor(b))[0][1].isfinite().any()
    assert fl.linalg.solve_ex(fl.tensor(some[1]), fl.tensor(b[:, 0]))[1] == 1


@pytest.mark.parametrize("fn", [
    lambda t, x: t.linalg.lu_factor(x * 0), lambda t, x: t.linalg.lu_factor_ex(x * 0, check_errors=True),
    lambda t, x: t.linalg.solve_ex(x * 0, x, check_errors=True), lambda t, x: t.linalg.inv_ex(x * 0, check_errors=True),
    lambda t, x: t.linalg.ldl_factor(x * 0), lambda t, x: t.linalg.ldl_factor(x[:, :2]),
    lambda t, x: t.lu_unpack(x, t.ones(2, 4, dtype=t.int64)), lambda t, x: t.lu_unpack(x, t.full((2, 4), 9, dtype=t.int32)),
    lambda t, x: t.linalg.lu_solve(*t.linalg.lu_factor(x), x[0, 0]), lambda t, x: t.geqrf(x[0, 0]),
    lambda t, x: t.linalg.ldl_solve(x, t.ones(2, 4, dtype=t.int32), x[0, 0]),
    lambda t, x: t.orgqr(x, x[0]), lambda t, x: t.orgqr(x, x[:, 0].float()), lambda t, x: t.orgqr(x[:, :2], x[:, 0, :1]),
    lambda t, x: t.orgqr(x[..., :2], x[:, 0]), lambda t, x: t.ormqr(x, x[:, 0], x[:, :2]), lambda t, x: t.triangular_solve(x[0, 0], x)])
def test_factors_refuse(both_refuse, fn):
    both_refuse(fn, S)


def test_gradients_of_packed_factors_by_finite_differences():
    a, tau, b = (fl.tensor(x, requires_grad=True) for x in (TALL[0], TALL[0, 0], normal(4, 2)))
    assert fl.autograd.gradcheck(fl.linalg.householder_product, (a, tau))
    assert fl.autograd.gradcheck(lambda a, tau: fl.ormqr(a, tau, a, transpose=True), (a, tau))
    factors = fl.linalg.ldl_factor(fl.tensor(SPD[0]))
    assert fl.autograd.gradcheck(lambda b: fl.linalg.ldl_solve(*factors, b), (b,))
    symmetric = fl.tensor(SPD[0] + 1j * SPD[1])
    factors = fl.linalg.ldl_factor(symmetric)
    assert fl.autograd.gradcheck(lambda b: fl.linalg.ldl_solve(*factors, b + 0j), (b,))


def test_packed_factors_without_a_gradient_say_so():
    x = fl.tensor(SPD, requires_grad=True)
    for fn in (lambda: fl.geqrf(x)[0], lambda: fl.linalg.ldl_factor(x)[0], lambda: fl.linalg.ldl_solve(*fl.linalg.ldl_factor(x), x)):
        with pytest.raises(NotImplementedError, match=r"derivative of .* use linalg\."):
            fn().sum().backward()


def test_out_of_one_tensor_and_of_several():
    a, b = fl.tensor(S), fl.tensor(normal(4, 2))
    lu, pivots, info = fl.empty(0, dtype=fl.float64), fl.empty(0, dtype=fl.int32), fl.empty(0, dtype=fl.int32)
    made = fl.linalg.lu_factor_ex(a, out=(lu, pivots, info))
    assert made.LU is lu and made.info is info and fl.equal(lu, fl.linalg.lu_factor(a).LU)
    x = fl.empty(0, dtype=fl.float64)
    assert fl.linalg.lu_solve(lu, pivots, b, out=x) is x and fl.allclose(a @ x, b.expand(2, 4, 2))


@pytest.mark.parametrize("where", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["float32", "float64", "complex64"])
def test_the_determinant_of_nans_is_nan(where, kind):
    a = fl.ones(2, 2, dtype=getattr(fl, kind))
    a[where] = float("nan")
    sign, log = fl.linalg.slogdet(fl.stack([a, fl.eye(2, dtype=a.dtype)]))
    assert fl.linalg.det(a).isnan() and log[0].isnan() and sign[0] == 0 and (sign[1], log[1]) == (1, 0)
    with pytest.raises(fl.linalg.LinAlgError):
        fl.linalg.cholesky(a)


@pytest.mark.parametrize("size", [2, 5, 40])
@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "cond"])
def test_singular_values_of_infinite_matrices_are_nan(name, size):
    """LAPACK may never come back from one. The other matrices of the batch are as they are alone; NaNs are refused, as torch does."""
    call = getattr(fl.linalg, name)
    x = fl.randn(3, size, size, dtype=fl.float64)
    alone = fl.utils._pytree.tree_leaves(call(x[::2]))
    for at in range(0, size * size, max(1, size * size // 7)):
        y = x.clone()
        y[1].view(-1)[at] = -math.inf
        for got, kept in zip(fl.utils._pytree.tree_leaves(call(y)), alone):
            fl.testing.assert_close(got[::2], kept)
            assert got[1].isnan().all()
    y[1, 0, 0] = math.nan
    with pytest.raises(fl.linalg.LinAlgError, match="NaN"):
        call(y)


# -- matrices that have no inverse ---------------------------------------------------------------------------------------
SINGULAR = {"a zero": [[0.0]], "rank one": [[1.0, 2.0], [2.0, 4.0]], "all alike": [[1.0] * 3] * 3, "a zero pivot": np.diag([1.0, 2.0, 0.0]),
            "zeros": np.zeros((3, 3)), "of another order": np.diag([0.0, 1.0, 2.0])}


def cofactors(x):
    """By their definition: the determinants of what is left without a row and a column."""
    n = len(x)
    return np.array([[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.complex128], ids=str)
@pytest.mark.parametrize("name", SINGULAR)
def test_the_gradient_of_a_determinant_is_the_cofactors(name, kind):
    """Of singular matrices too, of which torch gives zeros where the cofactors are not."""
    singular = np.array(SINGULAR[name], kind) * (1 + 0.5j if kind is np.complex128 else 1)
    other = np.eye(len(singular), dtype=kind) * 2
    x = fl.tensor(np.stack([singular, other]), requires_grad=True)
    determinants = x.det()
    determinants.backward(fl.ones_like(determinants))
    want = np.stack([cofactors(singular), cofactors(other)]).conj()
    np.testing.assert_allclose(x.grad.numpy(), want, atol=1e-5 if kind is np.float32 else 1e-12)


@pytest.mark.parametrize("fn", ["logdet", "slogdet"])
@pytest.mark.parametrize("name", SINGULAR)
def test_the_gradient_of_the_logarithm_of_zero_is_not_finite(name, fn):
    x = fl.tensor(np.array(SINGULAR[name]), requires_grad=True)
    out = getattr(x, fn)()
    (out if fn == "logdet" else out[1]).backward()
    assert not x.grad.isfinite().all()


def test_second_derivatives_of_determinants():
    for x in (normal(3, 3), normal(2, 2, 2) + 1j * normal(2, 2, 2)):
        given = fl.tensor(x, requires_grad=True)
        assert fl.autograd.gradgradcheck(fl.linalg.det, (given,))


@pytest.mark.parametrize("kind", [np.float32, np.complex64], ids=str)
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems_divide_by_zero(agrees, upper, kind):
    a = np.array([[[2.0, 1, 3], [4, 0, 5], [6, 7, 8]], [[2.0, 1, 3], [4, 3, 5], [6, 7, 8]]]).astype(kind)
    b = np.arange(1, 13).reshape(2, 3, 2).astype(kind)
    got = fl.linalg.solve_triangular(fl.tensor(a), fl.tensor(b), upper=upper)
    assert not got[0].isfinite().all() and got[1].isfinite().all()
    agrees(lambda t, x, y: t.linalg.solve_triangular(x, y, upper=upper)[1], a, b, tolerance=1e-5, grad=False)
    agrees(lambda t, x, y: t.linalg.solve_triangular(x, y, upper=upper, unitriangular=True), a, b, tolerance=1e-4)
    agrees(lambda t, x, y: t.cholesky_solve(y, x, upper)[1], a, b, tolerance=1e-5, grad=False)
    assert not fl.cholesky_solve(fl.tensor(b), fl.tensor(a), upper)[0].isfinite().all()


def test_the_inverse_of_a_singular_factor_is_refused(both_refuse):
    both_refuse(lambda t: t.cholesky_inverse(t.tensor([[1.0, 0.0], [3.0, 0.0]])))


@pytest.mark.parametrize("size", [1e-3, 1.0, 5.0, 6.0, 40.0, 300.0])
def test_exponentials_of_matrices_of_any_norm(size):
    """Of A = S diag(d) S^-1 it is S diag(e^d) S^-1; of equal elements 1 + (e^n - 1) / n."""
    n = 5
    q = np.linalg.qr(normal(3, n, n))[0]
    d = RNG.uniform(-size, size, (3, n))
    got = fl.linalg.matrix_exp(fl.tensor((q * d[:, None]) @ q.swapaxes(-1, -2))).numpy()
    want = (q * np.exp(d)[:, None]) @ q.swapaxes(-1, -2)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-15 * max(size, 5) * np.abs(want).max())
    alike = fl.linalg.matrix_exp(fl.ones(n, n, dtype=fl.float64) * size / n).numpy()
    np.testing.assert_allclose(alike, np.eye(n) + np.expm1(size) / n, rtol=2e-15 * max(size, 5))


def test_exponentials_of_one_matrix_do_not_hang_on_the_others():
    x = np.stack([np.full((2, 2), np.inf), np.full((2, 2), 100.0), np.eye(2), np.full((2, 2), np.nan)])
    whole = fl.linalg.matrix_exp(fl.tensor(x)).numpy()
    assert np.isnan(whole[[0, 3]]).all()
    for i in (1, 2):
        assert np.array_equal(whole[i], fl.linalg.matrix_exp(fl.tensor(x[i])).numpy())


def test_products_of_infinities_warn_of_nothing():
    for kind in (np.float32, np.float64, np.float16, np.complex64):
        x = np.full((2, 2), np.inf, kind)
        for fn in (fl.matmul, fl.mm, lambda a, b: fl.bmm(a[None], b[None]), lambda a, b: fl.einsum("ij,jk", a, b)):
            fn(fl.tensor(x), fl.tensor(np.array([[0, 1], [2, 60000]], kind)))


def test_products_of_no_bools(agrees):
    empty, some = np.zeros((0, 2), bool), np.ones((2, 3), bool)
    agrees(lambda t, x, y: x @ y, empty, some)
    agrees(lambda t, x, y: t.bmm(x[None], y[None]), empty, some)
    agrees(lambda t, x, y: t.addmv(x[:, 0], x, y[:, 0]), empty, some)
    for alpha, beta in ((-1, 1), (2, 0), (0, 1), (0, -1)):
        agrees(lambda t, x: t.addr(x, ~x[:, 0], x[0], alpha=alpha, beta=beta), some)


def test_the_covariance_of_nothing_is_nan(agrees):
    agrees(lambda t, x: t.cov(x), np.zeros(0, np.float32))


@pytest.mark.parametrize("fn", [lambda x: fl.linalg.inv_ex(x), lambda x: fl.linalg.solve_ex(x, x[..., :1]), fl.linalg.cholesky_ex,
                                lambda x: fl.linalg.lu_factor_ex(x)[2:]], ids=["inv_ex", "solve_ex", "cholesky_ex", "lu_factor_ex"])
def test_compiled_answers_that_say_which_matrices_are_singular(fn):
    """What is compiled with a regular matrix answers for a singular one too."""
    compiled = fl.compile(lambda x: tuple(fn(x)))
    for x in (fl.eye(2) * 2, fl.ones(2, 2), fl.zeros(2, 2)):
        for got, want in zip(compiled(x), fn(x)):
            assert fl.allclose(got, want, equal_nan=True)


@pytest.mark.parametrize("given", [{"atol": 17.0}, {"atol": 0.5}, {"rtol": 0.4}, {"atol": 0.5, "rtol": 0.1}, {"atol": 0.0}, {}], ids=str)
def test_pinv_counts_small_singular_values_as_zero(agrees, given):
    x = np.stack([np.diag([1.423, 0.3, 0.2]), np.diag([10.0, 2.0, 0.4]), np.zeros((3, 3))])
    agrees(lambda t, x: t.linalg.pinv(x, **given), x, grad=False)


@pytest.mark.parametrize("p", [2, 3, 0.5, 1, 0, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "bfloat16"])
def test_the_norm_of_one_element_is_its_size(p, kind):
    """No power of it, which would overflow or vanish: of whole tensors and along dimensions, in norms and what is made of them."""
    x = fl.tensor([[1e30], [-1e-30], [0.0], [2.5], [-math.inf], [math.nan]]).to(getattr(fl, kind))
    size = (x != 0).to(x.abs().dtype) if p == 0 else x.abs()
    for got in (x.norm(p, 1, keepdim=True), fl.linalg.vector_norm(x, p, 1, True), fl.stack([e.norm(p).reshape(1) for e in x])):
        np.testing.assert_array_equal(got.float().numpy(), size.float().numpy())


def test_distances_and_cosines_of_large_numbers(agrees):
    agrees(lambda t, x, y: (t.dist(x, y), t.nn.functional.pairwise_distance(x, y), t.cosine_similarity(x[None], y[None], 0)),
           np.float32([1e30]), np.float32([1.5]), grad=False)


@pytest.mark.parametrize("name", ["mH", "H", "mT", "T"])
def test_transposes_of_a_number(agrees, name):
    agrees(lambda t, x: getattr(x, name).resolve_conj(), np.array(1 - 2j), grad=False)
    agrees(lambda t, x: getattr(x, name), np.array(1.5))


def test_tensordot_stays_in_the_dtype_where_one_repeats():
    for kind in (fl.int32, fl.int64, fl.float32):
        assert fl.tensordot(fl.ones(2, 1, dtype=kind), fl.ones(1, 2, dtype=kind)).dtype is kind


@pytest.mark.parametrize("number", [1e5, 1e12, 2**40])
@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addmv", "addr", "addbmm"])
def test_factors_beyond_a_narrow_dtype(name, number):
    """A number is what it is: narrow floats are computed in float32."""
    zero, half = fl.zeros(2, 2, dtype=fl.float16), fl.full((2, 2), 0.5, dtype=fl.float16)
    given = {"addmm": (half, zero, zero), "baddbmm": (half[None], zero[None], zero[None]), "addmv": (half[0], zero, zero[0]),
             "addr": (half, zero[0], zero[0]), "addbmm": (half, zero[None], zero[None])}[name]
    assert (getattr(fl, name)(*given, alpha=number) == 0.5).all()
    assert (getattr(fl, name)(zero[0] if name == "addmv" else zero, *given[1:], beta=number) == 0).all()


ONE_TRIANGLE = {
    "cholesky": lambda t, a, upper: t.linalg.cholesky(a, upper=upper), "old cholesky": lambda t, a, upper: a.cholesky(upper),
    "cholesky_ex": lambda t, a, upper: t.linalg.cholesky_ex(a, upper=upper).L,
    "eigvalsh": lambda t, a, upper: t.linalg.eigvalsh(a, UPLO="U" if upper else "L"),
    "eigh": lambda t, a, upper: t.linalg.eigh(a, UPLO="U" if upper else "L").eigenvalues,
    "solve_triangular": lambda t, a, upper: t.linalg.solve_triangular(a, a, upper=upper),
    "cholesky_solve": lambda t, a, upper: t.cholesky_solve(a, a, upper),
    "cholesky_inverse": lambda t, a, upper: t.cholesky_inverse(a, upper),
    "triangular_solve": lambda t, a, upper: t.triangular_solve(a, a, upper).solution,
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated", "ignore:torch.triangular_solve")
@pytest.mark.parametrize("kind", ["float32", "complex128"])
@pytest.mark.parametrize("name", ONE_TRIANGLE)
def test_one_triangle_is_read(agrees, name, kind):
    """The other one may hold anything."""
    draw = np.random.default_rng(0)
    a = draw.standard_normal((2, 3, 3)) + (1j * draw.standard_normal((2, 3, 3)) if kind == "complex128" else 0)
    a = (a @ a.conj().swapaxes(-1, -2) + 3 * np.eye(3)).astype(kind)
    junk = draw.standard_normal((2, 3, 3)).astype(kind)
    for upper in (False, True):
        mixed = np.triu(a) + np.tril(junk, -1) if upper else np.tril(a) + np.triu(junk, 1)
        agrees(lambda t, x, upper=upper: ONE_TRIANGLE[name](t, x, upper), mixed, tolerance=2e-5, grad=False)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_by_drivers(agrees, driver):
    draw = np.random.default_rng(1)
    tall, wide = draw.standard_normal((2, 4, 3)), draw.standard_normal((3, 4))
    poor = np.stack([tall[0], tall[0] * [1, 1, 0]])
    for a, b in ((tall, tall[..., :1]), (tall, tall[..., 0]), (tall[0], tall[1, :, 0]), (tall[0], tall[1]), (wide, wide[:, :2]),
                 (wide, wide[:, 0]), (poor, tall), (tall[:, :3], tall[:, :3, :2])):
        if driver != "gels" or a is not poor:       # which takes full rank for granted
            agrees(lambda t, x, y: tuple(t.linalg.lstsq(x, y, driver=driver)), a, b, grad=False, tolerance=1e-9)


LEAST_SQUARES = {
    "a driver of another name": lambda t: t.linalg.lstsq(t.ones(2, 2), t.ones(2, 1), driver="x"),
    "two dtypes": lambda t: t.linalg.lstsq(t.ones(2, 2), t.ones(2, 1).double()),
    "other rows": lambda t: t.linalg.lstsq(t.ones(3, 2), t.ones(2, 1)),
    "a number": lambda t: t.linalg.lstsq(t.ones(3, 2), t.ones(())),
    "more batches on the right": lambda t: t.linalg.lstsq(t.ones(3, 2), t.ones(1, 3, 1)),
    "other batches": lambda t: t.linalg.lstsq(t.ones(2, 3, 2), t.ones(4, 3, 1)),
    "a vector": lambda t: t.linalg.lstsq(t.ones(3), t.ones(3, 1)),
}


@pytest.mark.parametrize("name", LEAST_SQUARES)
def test_least_squares_refuse(both_refuse, name):
    both_refuse(LEAST_SQUARES[name])


@pytest.mark.parametrize("name", ["pinv", "matrix_rank"])
@pytest.mark.parametrize("which", ["atol", "rtol"])
@pytest.mark.parametrize("matrices, tolerances", [((2, 2), ()), ((2, 2), (3,)), ((2, 2), (1, 1, 1)), ((2, 3, 2), (2,)), ((2, 3, 3), (4, 2)),
                                                  ((2, 3, 2), (1, 2)), ((0, 3, 2), (1,)), ((2, 0, 2), (2,))])
def test_a_tolerance_for_each_matrix(agrees, name, which, matrices, tolerances):
    draw = np.random.default_rng(0)
    agrees(lambda t, x, e: getattr(t.linalg, name)(x, **{which: e}), draw.standard_normal(matrices), draw.random(tolerances), grad=False)


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "complex64"])
@pytest.mark.parametrize("shape", [(0,), (1, 0), (0, 1), (0, 0), (2, 0, 1), (0, 2, 2)])
def test_of_nothing(agrees, kind, shape):
    """The deprecated cholesky lets it pass; nothing has no rank; what is not square stays so in narrow floats."""
    x = np.zeros(shape, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agrees(lambda t, x: t.cholesky(x), x, grad=False)
    if len(shape) > 1 and kind in ("float32", "complex64"):
        agrees(lambda t, x: t.linalg.matrix_rank(x), x, grad=False)
    if len(shape) > 1 and shape[-1] != shape[-2]:
        for name in ("cholesky", "inv", "det", "slogdet", "eigvals"):
            with pytest.raises(RuntimeError, match=r"square|Expected a floating point"):
                getattr(fl.linalg, name)(fl.tensor(x))


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64"])
def test_no_correlation_is_beyond_one(kind):
    draw = np.random.default_rng(0)
    for _ in range(100):
        rows = draw.standard_normal((4, 5)) * 10.0 ** draw.integers(-3, 4, (4, 1))
        rows = rows + 1j * draw.standard_normal((4, 5)) if "complex" in kind else rows
        found = fl.corrcoef(fl.tensor(rows).to(getattr(fl, kind)).requires_grad_())
        parts = [found.real, found.imag] if found.dtype.is_complex else [found]
        assert all(float(part.detach().abs().max()) <= 1 for part in parts)


@pytest.mark.parametrize("a, b", [((0, 0), (0,)), ((0, 2, 0), (0, 2)), ((2, 0, 0), (2, 0)), ((6, 2, 3), (6,)), ((2, 3, 3, 2), (2, 3))])
def test_tensorsolve_of_all_sizes(a, b):
    rng = np.random.default_rng(0)
    made = []
    for lib in (fl, pytest.importorskip("torch", reason="torch is the oracle")):
        A, B = (lib.tensor(rng.standard_normal(shape), requires_grad=True) for shape in (a, b))
        rng = np.random.default_rng(0)
        x = lib.linalg.tensorsolve(A, B)
        x.sum().backward()
        made.append((x, A.grad, B.grad))
    for mine, theirs in zip(*made, strict=True):
        assert mine.shape == theirs.shape


@pytest.mark.parametrize("equation, shapes", [
    ("ii", [(2, 2)]), ("ij->j", [(2, 3)]), ("ij->ji", [(2, 3)]), ("ij,jk", [(2, 2), (2, 2)]), ("ij,ij->ij", [(2, 2), (2, 2)]),
    ("ij,k->k", [(2, 2), (3,)]), ("ij,ik->ik", [(2, 2), (2, 3)])])
@pytest.mark.parametrize("kind", ["uint8", "int8", "int64", "bool", "float16"])
def test_einsum_adds_integers_up_as_sum_does(equation, shapes, kind):
    if kind == "bool" and equation == "ij,jk":
        pytest.skip("torch has no product of truth values")
    torch = pytest.importorskip("torch")
    mine, theirs = (lib.einsum(equation, *(lib.ones(s, dtype=getattr(lib, kind)) for s in shapes)) for lib in (fl, torch))
    assert str(mine.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2] and mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (1, 3)])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("power", [1, 2])
def test_norm_except_dim(shape, dim, power):
    torch, found = pytest.importorskip("torch"), []
    for lib in (fl, torch):
        try:
            out = lib.norm_except_dim(lib.arange(24.0)[:math.prod(shape)].reshape(shape), power, dim)
            found.append((tuple(out.shape), out.flatten().tolist()))
        except IndexError:
            found.append("refused")
    assert found[0][0] == found[1][0] and (found[0] == "refused" or np.allclose(found[0][1], found[1][1]))


@pytest.mark.parametrize(("pivots", "rows"), [([1, 3], 2), ([0, 2], 2), ([1, -9], 2), ([1], 2), ([1, 2], 3)])
def test_pivots_that_no_factorisation_gives_are_refused(pivots, rows):
    with pytest.raises(RuntimeError, match=r"linalg\.ldl_solve: .*([Pp]ivots|Incompatible shapes)"):
        fl.linalg.ldl_solve(fl.eye(2), fl.tensor(pivots), fl.ones(rows, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems_without_scipy(upper: bool, unit: bool, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    a = (np.eye(5) * 3 + rng.standard_normal((2, 5, 5))).astype(dtype)
    a[0, 2, 2] = 0 if upper else a[0, 2, 2]
    b = rng.standard_normal((2, 5, 3)).astype(dtype)
    answers = []
    for installed in (True, False):
        monkeypatch.setitem(vars(decompositions.scipy_linalg), "is_installed", installed)
        answers.append(fl.linalg.solve_triangular(fl.from_numpy(a), fl.from_numpy(b), upper=upper, unitriangular=unit).numpy())
    with np.errstate(all="ignore"):
        finite = np.isfinite(answers[0])
        np.testing.assert_array_equal(finite, np.isfinite(answers[1]))
        np.testing.assert_allclose(answers[1][finite], answers[0][finite], rtol=1e-3 if dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("name", ["cholesky", "inv", "solve", "svd", "eig", "pinv"])
def test_the_first_of_several_matrices_that_fails_is_named(name):
    def call(a):
        return fl.linalg.solve(a, a) if name == "solve" else getattr(fl.linalg, name)(a)

    good, bad = fl.eye(2), fl.full((2, 2), 0.0 if name in ("cholesky", "inv", "solve") else math.nan)
    with pytest.raises(fl.linalg.LinAlgError) as alone:
        call(bad)
    with pytest.raises(fl.linalg.LinAlgError, match=r": \(Batch element 2\): ") as caught:
        call(fl.stack([good, good, bad, bad, good, good]).reshape(2, 3, 2, 2))
    assert str(caught.value).replace("(Batch element 2): ", "") == str(alone.value)


@pytest.mark.parametrize("name", ["lu_solve", "ldl_solve"])
@pytest.mark.parametrize("factors", [(2, 2), (1, 2, 2), (3, 2, 2), (0, 2, 2)])
@pytest.mark.parametrize("pivots", [(2,), (1, 2), (3, 2), (1,), (3,), (0, 2), (0,), (2, 2, 2), (2, 1)])
def test_factors_have_pivots_of_their_own(name, factors, pivots):
    """Every shape of pivots beside every batch of factors: of any other than the factors' own LAPACK reads beyond."""
    ascending = fl.ones(pivots, dtype=fl.int32) + fl.arange(pivots[-1], dtype=fl.int32)
    solve = functools.partial(getattr(fl.linalg, name), fl.ones(factors) + 2 * fl.eye(2), ascending)
    for b in ((2, 1), (1, 2, 1), (*factors[:-2], 3, 1), (*factors[:-2], 0, 1)):
        if pivots == factors[:-1] and b[-2] == 2:
            assert solve(fl.ones(b)).shape == fl.broadcast_shapes((*factors[:-1], 1), b)
        else:
            with pytest.raises(RuntimeError, match=f"{name}: .*[Pp]ivots|Incompatible shapes"):
                solve(fl.ones(b))
