"""Custom operators: eager, autograd, fake tensors, in place, schemas, and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import library
from flambeau.core import dispatch

_names = (f"test{i}::op" for i in itertools.count())


def sine(name: str) -> Any:
    @library.custom_op(name, mutates_args=())
    def op(x: fl.Tensor, k: float = 2.0) -> fl.Tensor:
        return fl.from_numpy(np.sin(k * x.numpy()))

    return op


def test_call_and_namespace() -> None:
    op = sine("trig::sine")
    x = fl.tensor([1.0, 2.0])
    expected = np.sin(3 * x.numpy())
    np.testing.assert_allclose(op(x, k=3.0).numpy(), expected)
    np.testing.assert_allclose(fl.ops.trig.sine(x, 3.0).numpy(), expected)
    np.testing.assert_allclose(fl.ops.trig.sine.default(x, 3.0).numpy(), expected)
    assert not hasattr(fl.ops.trig, "cosine")
    assert not hasattr(fl.ops, "no_such_namespace")


def test_gradient() -> None:
    op = sine(next(_names))

    def setup(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    op.register_autograd(lambda ctx, g: (g * (ctx.saved_tensors[0] * ctx.k).cos() * ctx.k, None), setup_context=setup)
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    op(x, k=3.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.cos(3 * x.detach().numpy()), rtol=1e-6)


def test_without_gradient_the_result_needs_none() -> None:
    op = sine(next(_names))
    assert not op(fl.tensor([1.0], requires_grad=True).detach()).requires_grad


def test_several_outputs() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def both(x: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
        return x * 2, x * 3

    both.register_autograd(lambda ctx, g, h: 2 * g + 3 * h)
    x = fl.tensor([1.0], requires_grad=True)
    a, b = both(x)
    (a + b).sum().backward()
    assert x.grad.tolist() == [5.0]
    x.grad = None
    both(x)[1].sum().backward()
    assert x.grad.tolist() == [3.0]


def test_fake_tensors() -> None:
    op = sine(next(_names))
    with dispatch.fake_mode(), pytest.raises(NotImplementedError, match="register_fake"):
        op(fl.zeros(3))
    op.register_fake(lambda x, k=2.0: x.new_empty((x.shape[0], 7)))
    with dispatch.fake_mode():
        out = op(fl.zeros(3))
    assert out.is_fake and tuple(out.shape) == (3, 7)


def test_in_place() -> None:
    @library.custom_op(next(_names), mutates_args=("x",))
    def fill(x: fl.Tensor, value: float) -> None:
        x.numpy()[...] = value

    x = fl.zeros(2)
    before = x._version
    assert fill(x, 5.0) is None
    assert x.tolist() == [5.0, 5.0]
    assert x._version > before
    with pytest.raises(NotImplementedError, match="requires grad"):
        fill(fl.zeros(2, requires_grad=True), 1.0)


def test_registration_may_come_first() -> None:
    name = next(_names)
    library.register_fake(name, lambda x: x.new_empty((2,)))
    library.custom_op(name, lambda x: x, mutates_args=())
    with dispatch.fake_mode():
        namespace, _, short = name.partition("::")
        assert tuple(getattr(getattr(fl.ops, namespace), short)(fl.zeros(5)).shape) == (2,)


def test_libraries_with_schemas() -> None:
    mine = library.Library("schemas", "DEF")
    assert mine.define("scale(Tensor x, float factor=2.0, *, int[] dims=[1, 2], str? mode=None) -> Tensor") == "scale"
    mine.impl("scale", lambda x, factor, *, dims, mode: x * factor + sum(dims), "CPU")
    assert fl.ops.schemas.scale(fl.tensor([1.0])).tolist() == [5.0]
    assert fl.ops.schemas.scale(fl.tensor([1.0]), 3.0, dims=[1]).tolist() == [4.0]
    name, signature = library.parse_schema("a::write(Tensor(a!) x, Tensor[] ys, SymInt n=-1) -> Tensor(a!)")
    assert name == "write"
    assert list(signature.parameters) == ["x", "ys", "n"]
    assert signature.parameters["n"].default == -1


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: library.custom_op("plain", lambda x: x, mutates_args=()), ValueError, "namespace::name"),
    (lambda: library.custom_op("a::b", lambda x: x, mutates_args=("y",)), ValueError, "mutates_args"),
    (lambda: library.custom_op("a::c", lambda *x: x, mutates_args=()), ValueError, "fixed number"),
    (lambda: library.Library("x", "NO"), ValueError, "Unsupported kind"),
    (lambda: library.parse_schema("f(Tensor x"), ValueError, "not an operator schema"),
    (lambda: library.Library("x", "IMPL").impl("f", len, "AutogradCPU"), NotImplementedError, "dispatch key"),
    (lambda: fl.ops.load_library("x.so"), OSError, "custom_op"),
])
def test_bad_use(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_node_of_a_compiled_graph(backend: str) -> None:
    op = sine(next(_names))
    op.register_fake(lambda x, k=2.0: fl.empty_like(x))
    op.register_autograd(lambda ctx, g: (g * (ctx.x * ctx.k).cos() * ctx.k, None),
                         setup_context=lambda ctx, inputs, output: ctx.__dict__.update(x=inputs[0], k=inputs[1]))  # fmt: skip
    compiled = fl.compile(lambda x: op(x, k=3.0) + 1, backend=backend, fullgraph=True)
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    out = compiled(x)
    np.testing.assert_allclose(out.detach().numpy(), np.sin(3 * x.detach().numpy()) + 1, rtol=1e-6)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.cos(3 * x.detach().numpy()), rtol=1e-5)


def test_only_what_the_context_keeps_must_stay_as_it_is() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def scaled(x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return x * y

    scaled.register_autograd(
        lambda ctx, g: (g * ctx.saved_tensors[0], None), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1])
    )
    x, y = fl.ones(3, requires_grad=True), fl.full((3,), 2.0)
    inner = x * 1
    out = scaled(inner, y)
    out.add_(1)  # neither the result nor the first argument is kept
    inner.mul_(7)
    out.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    out = scaled(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_result_that_the_context_keeps() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def grow(x: fl.Tensor) -> fl.Tensor:
        return x.exp()

    grow.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0], setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output)
    )
    x = fl.tensor([0.0, 1.0], requires_grad=True)
    (g,) = fl.autograd.grad(grow(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), np.exp([0.0, 1.0]), rtol=1e-6)
    g.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.0, 1.0]), rtol=1e-6)
