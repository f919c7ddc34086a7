"""Linear algebra in ONNX Runtime beside eager: single matrices and batches, with fixed sizes and with sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.export import Dim
from flambeau.onnx.errors import UnsupportedOperatorError

onnx = pytest.importorskip("onnx", reason="flambeau[onnx] is not installed")
pytest.importorskip("onnxruntime", reason="flambeau[onnx] is not installed")

la = fl.linalg
CALLS: dict[str, Callable[..., Any]] = {
    "inv": lambda a, b: la.inv(a), "inverse": lambda a, b: a.inverse(), "solve": la.solve,
    "solve a vector": lambda a, b: la.solve(a, b[..., 0]),
    "solve from the right": lambda a, b: la.solve(a, b.mT, left=False), "solve one for all": lambda a, b: la.solve(a, b[..., :1, :, :]),
    "slogdet": lambda a, b: la.slogdet(a), "logdet": lambda a, b: fl.logdet(a @ a.mT + fl.eye(5, dtype=a.dtype)), "det": lambda a, b: la.det(a),
    "slogdet of a singular one": lambda a, b: la.slogdet(a * (fl.arange(5) > 0)),
    "cholesky": lambda a, b: la.cholesky(a @ a.mT + fl.eye(5, dtype=a.dtype)),
    "cholesky above": lambda a, b: la.cholesky(a @ a.mT + fl.eye(5, dtype=a.dtype), upper=True),
    "cholesky_solve": lambda a, b: fl.cholesky_solve(b, la.cholesky(a @ a.mT + fl.eye(5, dtype=a.dtype))),
    "cholesky_inverse": lambda a, b: fl.cholesky_inverse(la.cholesky(a @ a.mT + fl.eye(5, dtype=a.dtype))),
    "solve_triangular": lambda a, b: la.solve_triangular(a.triu() + 4 * fl.eye(5, dtype=a.dtype), b, upper=True),
    "solve_triangular below": lambda a, b: la.solve_triangular(a + 4 * fl.eye(5, dtype=a.dtype), b, upper=False),
    "solve_triangular of a unit": lambda a, b: la.solve_triangular(a / 4, b, upper=False, unitriangular=True),
    "solve_triangular right": lambda a, b: la.solve_triangular(a + 4 * fl.eye(5, dtype=a.dtype), b.mT, upper=True, left=False),
    "matrix_exp": lambda a, b: la.matrix_exp(a / 2), "matrix_exp of zeros": lambda a, b: la.matrix_exp(a * 0),
    "matrix_power": lambda a, b: la.matrix_power(a, -2), "tensorinv": lambda a, b: la.tensorinv(a.reshape(-1)[:16].reshape(4, 2, 2), ind=1),
    "multi_dot": lambda a, b: la.multi_dot([a.reshape(-1, 5), b.reshape(-1, 5, 3)[0], b.reshape(-1, 5, 3)[0].mT]),
}
FIXED: dict[str, Callable[..., Any]] = {
    "qr": lambda a, b: la.qr(a), "qr of columns": lambda a, b: la.qr(b), "qr of rows": lambda a, b: la.qr(b.mT),
    "qr r": lambda a, b: la.qr(b, "r")[1],
    "qr complete": lambda a, b: la.qr(b, "complete"), "qr of a triangle": lambda a, b: la.qr(a.triu()),
    "lu_factor": lambda a, b: la.lu_factor(a), "lu": lambda a, b: la.lu(a), "lu of columns": lambda a, b: la.lu(b),
    "lu of rows": lambda a, b: la.lu(b.mT),
    "lu_solve": lambda a, b: la.lu_solve(*la.lu_factor(a), b),
}


class Call(fl.nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, a: Any, b: Any) -> Any:
        return self.f(a, b)


def _check(f: Callable[..., Any], shape: tuple[int, ...], kind: Any, dynamic: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = (fl.from_numpy(rng.standard_normal((*shape, 5, n))).to(kind) for n in (5, 3))
    net = Call(f).eval()
    program = fl.onnx.export(net, (a, b), dynamic_shapes={"a": {0: Dim.AUTO}, "b": {0: Dim.AUTO}} if dynamic else None)
    onnx.checker.check_model(program.model_proto, full_check=True)
    tolerance = 1e-4 if kind is fl.float32 else 1e-9
    for x, y in [(a, b)] + [(fl.cat([a, a.mT]), fl.cat([b, -b]))] * dynamic:
        got, want = program(x, y), fl.utils._pytree.tree_leaves(net(x, y))
        for mine, theirs in zip(got, want, strict=True):
            assert list(mine.shape) == list(theirs.shape) and mine.dtype is theirs.dtype
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [*CALLS, *FIXED])
def test_single_matrices_and_batches(name: str) -> None:
    f = {**CALLS, **FIXED}[name]
    if name not in ("solve one for all", "tensorinv"):
        _check(f, (), fl.float64, False)
    _check(f, (2, 3), fl.float32, False)
    if name not in ("tensorinv", "multi_dot"):
        _check(f, (2, 3), fl.float64, True)


def test_sizes_of_matrices_that_vary() -> None:
    n = Dim("n", min=2)
    for f in (la.inv, lambda a: la.cholesky(a @ a.mT + 1e-1), la.slogdet, la.matrix_exp):
        net = Call(lambda a, b, f=f: f(a)).eval()
        program = fl.onnx.export(net, (fl.eye(4) * 2, fl.ones(1)), dynamic_shapes={"a": {0: n, 1: n}, "b": None})
        x = fl.eye(7) * 2 + fl.arange(7.0) * 0.1
        try:
            want = fl.utils._pytree.tree_leaves(f(x))
        except la.LinAlgError:
            continue
        for mine, theirs in zip(program(x, fl.ones(1)), want, strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)


def test_of_matrices_that_eager_refuses_there_is_no_number() -> None:
    program = fl.onnx.export(Call(lambda a, b: la.inv(a)).eval(), (fl.eye(3), fl.ones(1)))
    assert not fl.isfinite(program(fl.ones(3, 3), fl.ones(1))[0]).any()


@pytest.mark.parametrize("name", ["eigh", "svd", "eigvalsh", "pinv"])
def test_what_stays_out_is_told_with_its_line(name: str) -> None:
    def f(a: Any, b: Any) -> Any:
        return getattr(la, name)(a)

    with pytest.raises(UnsupportedOperatorError, match=r"getattr\(la, name\)\(a\)"):
        fl.onnx.export(Call(f).eval(), (fl.eye(3), fl.ones(1)))
