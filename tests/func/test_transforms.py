"""torch.func against PyTorch's: gradients, Jacobians, vmap, functional_call."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
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


CLOSURES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda f, x, w: f.grad(lambda a: ((a * w) ** 2).sum())(x),
    "grad without what is closed over": lambda f, x, w: f.grad(lambda a: (a**2).sum())(x),
    "grad of what is closed over alone": lambda f, x, w: f.grad(lambda a: (w**2).sum())(x),
    "aux": lambda f, x, w: f.grad(lambda a: ((a * w).sum(), a * w), has_aux=True)(x)[1],
    "value": lambda f, x, w: f.grad_and_value(lambda a: (a * w).sum())(x)[1],
    "vjp": lambda f, x, w: f.vjp(lambda a: a * w, x)[1](x)[0],
    "jvp": lambda f, x, w: f.jvp(lambda a: a * w, (x,), (x,))[1],
    "jacrev": lambda f, x, w: f.jacrev(lambda a: a * w)(x),
    "hessian": lambda f, x, w: f.hessian(lambda a: (a * a * w).sum())(x),
    "nested": lambda f, x, w: f.grad(lambda a: f.grad(lambda b: (a * b * b * w).sum())(x).sum())(x),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # PyTorch's own forward mode
@pytest.mark.parametrize("name", CLOSURES)
def test_gradients_flow_to_what_a_function_closes_over(name: str) -> None:
    def results(lib: Any, transforms: Any) -> Any:
        x, w = lib.from_numpy(X[0].copy()), lib.from_numpy(Y[0].copy()).requires_grad_()
        out = CLOSURES[name](transforms, x, w)
        with lib.no_grad():
            assert not CLOSURES[name](transforms, x, w).requires_grad
        if out.requires_grad:
            out.sum().backward()
        return out, out.requires_grad, w.grad

    mine, theirs = results(fl, func), results(torch, torch.func)
    same(mine[0], theirs[0])
    assert mine[1] == theirs[1]
    assert (mine[2] is None) == (theirs[2] is None)
    if mine[2] is not None:
        same(mine[2], theirs[2])


def test_compiled_functions_in_transforms_have_all_derivatives() -> None:
    compiled = fl.compile(lambda a: (a.sin() * a).sum(), backend="aot_eager")
    x = fl.tensor([0.5, 1.0])
    wanted = (-x * x.sin() + 2 * x.cos()).diag()
    assert fl.allclose(func.hessian(compiled)(x), wanted)
    assert fl.allclose(func.jvp(func.grad(compiled), (x,), (fl.ones(2),))[1], wanted.diag())


def test_same_and_different_randomness() -> None:
    x = fl.zeros(3, 2)
    drawn = func.vmap(lambda a: a + fl.rand(2), randomness="same")(x)
    assert (drawn == drawn[0]).all()
    drawn = func.vmap(lambda a: a + fl.rand(2), randomness="different")(x)
    assert not (drawn == drawn[0]).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: func.grad(lambda a: a)(fl.ones(2)), RuntimeError, "scalar Tensor"),
        (lambda: func.grad(lambda a: 1.0)(fl.ones(2)), RuntimeError, "return a Tensor"),
        (lambda: func.grad(lambda a: a.sum(), argnums=2)(fl.ones(2)), RuntimeError, "argnum=2"),
        (lambda: func.grad(lambda a: a.sum())(fl.ones(2, dtype=fl.int64)), RuntimeError, "floating point"),
        (lambda: func.vmap(lambda a, b: a)(fl.ones(2), fl.ones(3)), ValueError, "same size"),
        (lambda: func.vmap(lambda a: a, in_dims=2)(fl.ones(2)), ValueError, "in_dim=2"),
        (lambda: func.vmap(lambda a: a, in_dims=None)(fl.ones(2)), ValueError, "expected `in_dims` to be int"),
        (lambda: func.vmap(lambda a: 1)(fl.ones(2)), ValueError, "must only return Tensors"),
        (lambda: func.jvp(lambda a: a, fl.ones(2), fl.ones(2)), RuntimeError, "to be a tuple"),
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


def test_functionalize_changes_what_the_function_changes():
    def f(x):
        y = x.view(-1)
        y.add_(1)
        return y * 2

    x = fl.zeros(2, 2)
    assert fl.func.functionalize(f)(x).tolist() == [2, 2, 2, 2]
    assert x.tolist() == [[1, 1], [1, 1]]
    assert fl.func.functionalize(f, remove="mutations_and_views")(fl.zeros(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="invalid argument for remove=all"):
        fl.func.functionalize(f, remove="all")


class Box:
    """A container that programs register."""

    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("make", [Box, lambda x: [x], lambda x: (x,), lambda x: {"x": x}, lambda x: OrderedDict(x=x),
                                  lambda x: defaultdict(list, x=x), lambda x: deque([x], 3), namedtuple("One", "x")])
def test_transforms_look_into_every_container_that_pytree_knows(make):
    fl.utils._pytree.register_pytree_node(Box, lambda box: ([box.value], None), lambda values, _: Box(*values))
    try:
        def of(box):
            return fl.utils._pytree.tree_leaves(box)[0]

        def double(box):
            return make(of(box) * 2)

        x, kind = fl.arange(3.0), type(make(0))
        for found, wanted in ((fl.vmap(double)(make(x)), 2 * x), (fl.func.grad(lambda box: (of(box) ** 2).sum())(make(x)), 2 * x),
                              (fl.func.jvp(double, (make(x),), (make(x),))[1], 2 * x),
                              (fl.func.vjp(double, make(x))[1](make(x))[0], 2 * x)):
            assert type(found) is kind and fl.equal(of(found), wanted)
    finally:
        fl.utils._pytree._deregister_pytree_node(Box)
