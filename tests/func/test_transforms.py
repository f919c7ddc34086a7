"""torch.func against PyTorch's: gradients, Jacobians, vmap, functional_call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import func

torch = pytest.importorskip("torch")

X, Y = np.linspace(-1, 2, 6, dtype=np.float64).reshape(2, 3), np.linspace(0.5, 3, 6).reshape(2, 3)


def same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        mine, theirs = list(mine.values()), list(theirs.values())
    if isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs)
        for m, t in zip(mine, theirs):
            same(m, t)
        return
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda f, x, y: f.grad(lambda a, b: (a.sin() * b).sum())(x, y),
    "grad of the second": lambda f, x, y: f.grad(lambda a, b: (a.sin() * b).sum(), argnums=1)(x, y),
    "grad of both": lambda f, x, y: f.grad(lambda a, b: (a.sin() * b).sum(), argnums=(0, 1))(x, y),
    "grad of a dict": lambda f, x, y: f.grad(lambda d: (d["a"] * d["b"]).sum())({"a": x, "b": y}),
    "grad and value": lambda f, x, y: f.grad_and_value(lambda a: (a**3).sum())(x),
    "aux": lambda f, x, y: f.grad(lambda a: ((a**3).sum(), a * 2), has_aux=True)(x),
    "third derivative": lambda f, x, y: f.grad(f.grad(f.grad(lambda a: a**4)))(x[1, 1]),
    "vjp": lambda f, x, y: f.vjp(lambda a, b: (a * b, a.exp()), x, y)[1]((x, y)),
    "jvp": lambda f, x, y: f.jvp(lambda a, b: (a * b, a.exp()), (x, y), (y, x)),
    "jacrev": lambda f, x, y: f.jacrev(lambda a: a.sin() @ y.T)(x),
    "jacfwd": lambda f, x, y: f.jacfwd(lambda a: a.sin() @ y.T)(x),
    "jacobians of both": lambda f, x, y: f.jacrev(lambda a, b: a * b, argnums=(0, 1))(x, y),
    "hessian": lambda f, x, y: f.hessian(lambda a: (a**3).sum() * a[0, 0])(x),
    "vmap": lambda f, x, y: f.vmap(lambda a, b: (a * b).sum())(x, y),
    "vmap over columns": lambda f, x, y: f.vmap(lambda a, b: a @ b.T, in_dims=(1, None), out_dims=1)(x, y.T),
    "vmap of two outputs": lambda f, x, y: f.vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x),
    "nested vmap": lambda f, x, y: f.vmap(f.vmap(lambda a, b: a * b))(x, y),
    "per-sample gradients": lambda f, x, y: f.vmap(f.grad(lambda a, b: (a * b).sin().sum()), in_dims=(0, 0))(x, y),
    "gradient of a vmap": lambda f, x, y: f.grad(lambda a: f.vmap(lambda r: (r**2).sum())(a).prod())(x),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # PyTorch's own forward mode
@pytest.mark.parametrize("name", CALLS)
def test_transforms_are_torch_s(name: str) -> None:
    call = CALLS[name]
    same(
        call(func, fl.from_numpy(X.copy()), fl.from_numpy(Y.copy())),
        call(torch.func, torch.from_numpy(X.copy()), torch.from_numpy(Y.copy())),
    )


def test_results_are_detached_unless_the_inputs_were_not() -> None:
    x = fl.tensor([1.0, 2.0])
    square = func.grad(lambda a: (a**3).sum())
    assert not square(x).requires_grad
    assert not x.requires_grad
    y = fl.tensor([1.0, 2.0], requires_grad=True)
    square(y).sum().backward()
    assert y.grad.tolist() == [6.0, 12.0]


def test_same_and_different_randomness() -> None:
    x = fl.zeros(3, 2)
    drawn = func.vmap(lambda a: a + fl.rand(2), randomness="same")(x)
    assert (drawn == drawn[0]).all()
    drawn = func.vmap(lambda a: a + fl.rand(2), randomness="different")(x)
    assert not (drawn == drawn[0]).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: func.grad(lambda a: a)(fl.ones(2)), RuntimeError, "scalar tensor"),
        (lambda: func.grad(lambda a: 1.0)(fl.ones(2)), RuntimeError, "return a tensor"),
        (lambda: func.grad(lambda a: a.sum(), argnums=2)(fl.ones(2)), RuntimeError, "argnum=2"),
        (lambda: func.grad(lambda a: a.sum())(fl.ones(2, dtype=fl.int64)), RuntimeError, "floating point"),
        (lambda: func.vmap(lambda a, b: a)(fl.ones(2), fl.ones(3)), ValueError, "same size"),
        (lambda: func.vmap(lambda a: a, in_dims=2)(fl.ones(2)), ValueError, "in_dim=2"),
        (lambda: func.vmap(lambda a: a, in_dims=None)(fl.ones(2)), ValueError, "at least one"),
        (lambda: func.vmap(lambda a: 1)(fl.ones(2)), ValueError, "return Tensors"),
        (lambda: func.jvp(lambda a: a, fl.ones(2), fl.ones(2)), RuntimeError, "tuples"),
    ],
)
def test_bad_use(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_batch_norm_without_running_statistics():
    model = fl.nn.Sequential(fl.nn.Conv1d(2, 3, 1), fl.nn.BatchNorm1d(3))
    assert fl.func.replace_all_batch_norm_modules_(model) is model
    assert model[1].running_mean is None and list(model[1].state_dict()) == ["weight", "bias"]
    x = fl.randn(4, 5, 2, 6)
    out = fl.vmap(model)(x)
    assert fl.allclose(out[1], model(x[1])) and fl.allclose(model.eval()(x[1]), out[1])
