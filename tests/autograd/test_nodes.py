"""What a node of the tape tells of itself, and what backward, grad and the functional Jacobians refuse or cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau.autograd import Function, functional


class _Twice(Function):
    @staticmethod
    def forward(ctx, x):    # type: ignore[no-untyped-def]
        return x * 2

    @staticmethod
    def backward(ctx, g):    # type: ignore[no-untyped-def]
        return g * 2


def _leaf() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


def test_a_node_has_a_class_of_its_name() -> None:
    x = _leaf()
    y, z = x * 2, _Twice.apply(x)
    assert type(y.grad_fn).__name__ == y.grad_fn.name() == "MulBackward0" and type(y.grad_fn) is type((x * 3).grad_fn)
    assert type(z.grad_fn).__name__ == z.grad_fn.name() == "_TwiceBackward" and type(z.grad_fn) is type(_Twice.apply(x).grad_fn)
    assert y.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"
    y[0] = 1
    assert y.grad_fn.name() == "torch::autograd::CopySlices" and "grad_fn=<CopySlices>" in repr(y)
    assert y.grad_fn._sequence_nr() > z.grad_fn._sequence_nr()


def test_a_class_of_a_function_is_not_inherited() -> None:
    class _Other(_Twice):
        pass

    _Twice.apply(_leaf())
    assert _Other.apply(_leaf()).grad_fn.name() == "_OtherBackward"


@pytest.mark.parametrize(("function", "saved"), [
    (lambda x: x * x, {"self", "other"}), (lambda x: x.exp(), {"result"}), (lambda x: x.sin(), {"self"}), (lambda x: x + 1, set())])
def test_what_is_saved_has_torchs_names(function: Callable, saved: set[str]) -> None:
    node = function(_leaf()).grad_fn
    names = {name.removeprefix("_saved_") for name in dir(node) if name.startswith("_saved_")}
    assert names == saved == {name.removeprefix("_raw_saved_") for name in dir(node) if name.startswith("_raw_saved_")}
    for name in saved:
        expected = function(_leaf()) if name == "result" else _leaf()
        assert torch.equal(getattr(node, f"_saved_{name}"), expected)
    with pytest.raises(AttributeError):
        _ = node._saved_nothing


def test_what_is_saved_takes_hooks() -> None:
    x = _leaf()
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t * 10, lambda t: t / 5)
    with pytest.raises(RuntimeError, match="have already been set"):
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())


def test_refusals() -> None:
    x = _leaf()
    with pytest.raises(ValueError, match="allow_unused"):
        torch.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.grad([x.sum(), x.prod()], [x], [torch.tensor(1.0)])
    with pytest.raises(RuntimeError, match="real scalar outputs"):
        (x * 1j).sum().backward()
    with pytest.raises(RuntimeError, match="its own grad"):
        x.grad = x
    with pytest.raises(RuntimeError, match="floating point or complex"):
        x.data = torch.tensor([1, 2])


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_results_have_a_history_where_it_is_asked_for(name: str, create_graph: bool) -> None:
    scalar = name not in ("vjp", "jvp", "jacobian")
    extra = () if name in ("jacobian", "hessian") else (torch.ones(2),)
    found = getattr(functional, name)(lambda x: (x ** 3).sum() if scalar else x ** 3, _leaf(), *extra, create_graph=create_graph)
    for value in found if isinstance(found, tuple) else (found,):
        assert value.requires_grad is create_graph


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp"])
def test_a_vector_has_the_shape_of_what_it_is_multiplied_with(name: str) -> None:
    function = (lambda x: (x ** 3).sum()) if name[1] == "h" or name == "hvp" else (lambda x: x ** 3)
    with pytest.raises(RuntimeError, match="v can only be None"):
        getattr(functional, name)(function, _leaf())
    with pytest.raises(RuntimeError, match="v has invalid size"):
        getattr(functional, name)(function, _leaf(), torch.ones(3))


def test_second_derivatives_are_of_one_element() -> None:
    with pytest.raises(RuntimeError, match="a single element"):
        functional.hessian(lambda x: x ** 2, _leaf())


def test_backward_works_with_plain_tensors() -> None:
    """A class is asked for `backward` and `grad` as such, not for what they compute."""
    calls: list[str] = []

    class _Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):    # type: ignore[no-untyped-def]
            calls.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.ones(3).as_subclass(_Logged).requires_grad_()
    y, seen = (x * x).exp().sum(), []
    y.register_hook(lambda g: seen.append(type(g)))
    calls.clear()
    y.backward()
    assert calls == ["backward"] and type(x.grad) is torch.Tensor and seen == [torch.Tensor]
    (found,) = torch.autograd.grad((x * x).sum(), x)
    assert type(found) is _Logged and torch.equal(found, 2 * torch.ones(3))
