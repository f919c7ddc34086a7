"""Which versions count that running statistics move, beside torch: whether what was saved of them may still be used hangs on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

ROWS: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "F.batch_norm": (lambda lib, x, m, v: lib.nn.functional.batch_norm(x, m, v, training=True), (4, 3)),
    "F.batch_norm of images": (lambda lib, x, m, v: lib.nn.functional.batch_norm(x, m, v, lib.ones(3), None, True), (2, 3, 4, 4)),
    "native_batch_norm": (lambda lib, x, m, v: lib.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5)[0], (4, 3)),
    "legit": (lambda lib, x, m, v: lib.ops.aten._native_batch_norm_legit(x, None, None, m, v, True, 0.1, 1e-5)[0], (4, 3)),
    "F.instance_norm": (lambda lib, x, m, v: lib.nn.functional.instance_norm(x, m, v), (2, 3, 4)),
}
MODULES: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(3), (4, 3)),
    "the plain mean": (lambda nn: nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 2)),
    "float64": (lambda nn: nn.BatchNorm1d(3).double(), (4, 3)),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 4)),
    "a block": (lambda nn: nn.Sequential(nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3), nn.ReLU(), nn.BatchNorm1d(3)), (2, 3, 4)),
}


def _both(program: Callable) -> tuple[Any, Any]:
    return program(torch), program(flambeau)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("row", ROWS)
def test_functions(row: str, grad: bool) -> None:
    call, shape = ROWS[row]

    def program(lib: Any) -> list[int]:
        mean, var = lib.zeros(6)[::2], lib.ones(3)
        for _ in range(5):      # the steps of a body are followed natively from some call on
            call(lib, lib.ones(shape, requires_grad=grad), mean, var)
        return [mean._version, var._version]

    expected, found = _both(program)
    assert found == expected


@pytest.mark.parametrize("row", MODULES)
def test_what_was_saved_in_evaluation_outlives_a_step_of_training(row: str) -> None:
    make, shape = MODULES[row]

    def program(lib: Any) -> list:
        layer = make(lib.nn)
        for i, weight in enumerate(layer.parameters()):
            lib.nn.init.constant_(weight, 0.5 + i)
        size = len(lib.zeros(shape).reshape(-1))
        x = lib.arange(float(size)).sin().reshape(shape).to(next(layer.parameters()).dtype).requires_grad_()
        before = [b._version for b in layer.buffers()]
        y = layer.eval()(x)
        layer.train()(x)
        layer(x * 2)
        (y * x.detach()).sum().backward()
        return [*(b._version - n for b, n in zip(layer.buffers(), before)), *(b.tolist() for b in layer.buffers()), x.grad.tolist()]

    expected, found = _both(program)
    for a, b in zip(expected, found):
        torch.testing.assert_close(torch.tensor(b), torch.tensor(a), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend: str) -> None:
    layer, x = flambeau.nn.BatchNorm1d(3), flambeau.arange(12.0).sin().reshape(4, 3).requires_grad_()
    compiled = flambeau.compile(layer, backend=backend)
    before = layer.running_mean._version
    y = compiled.eval()(x)
    compiled.train()(x)
    y.sum().backward()
    assert layer.running_mean._version == before and layer.running_mean.abs().sum() > 0


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_statistics_have_no_gradient(name: str, training: bool) -> None:
    def program(lib: Any) -> str:
        norm, x = getattr(lib.nn.functional, name), lib.arange(24.0).reshape(2, 3, 4)
        with lib.no_grad():
            norm(x, lib.zeros(3), lib.ones(3, requires_grad=True), None, None, training)
        try:
            norm(x, lib.zeros(3), lib.ones(3, requires_grad=True), None, None, training)
        except RuntimeError as error:
            return str(error)
        return ""

    expected, found = _both(program)
    assert expected and found
