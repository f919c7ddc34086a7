"""Tensor classes with `__torch_dispatch__`: they answer below autograd what kernels answer for others."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest

import flambeau as fl

LIBRARIES = ("flambeau", "torch")


def library(name):
    return fl if name == "flambeau" else pytest.importorskip("torch", reason="torch is the oracle")


def wrapper_class(torch):
    """A class that keeps a tensor and does with it what is done to the wrapper, as libraries write it."""
    pytree = importlib.import_module(f"{torch.__name__}.utils._pytree")

    class Wrapper(torch.Tensor):
        steps: list = []

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(
                cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device=inner.device,
                requires_grad=inner.requires_grad)

        def __init__(self, inner):
            self.held = inner

        def __repr__(self):
            return f"Wrapper({self.held})"

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            cls.steps.append(func)
            inner = pytree.tree_map(lambda t: t.held if isinstance(t, Wrapper) else t, (args, kwargs or {}))
            out = func(*inner[0], **inner[1])
            if func.__name__.partition(".")[0].endswith("_"):
                return args[0]
            return pytree.tree_map(lambda t: Wrapper(t) if isinstance(t, torch.Tensor) else t, out)

    return Wrapper


def values(found):
    """Results with wrappers opened, as arrays and numbers."""
    if isinstance(found, (tuple, list)):
        return [values(f) for f in found]
    found = getattr(found, "held", found)
    return found.detach().numpy() if hasattr(found, "detach") else found


def trained(torch, Wrapper, optimizer):
    weight = torch.nn.Parameter(Wrapper(torch.ones(3)))
    steps = getattr(torch.optim, optimizer)([weight], lr=0.1)
    for _ in range(3):
        steps.zero_grad()
        (weight * weight).sum().backward()
        steps.step()
    assert type(weight) is Wrapper
    assert isinstance(weight, torch.nn.Parameter)
    return weight


def gradients(torch, Wrapper):
    x, w = Wrapper(torch.linspace(-1, 1, 12).reshape(4, 3)), Wrapper(torch.ones(3, 3)).requires_grad_()
    out = torch.nn.functional.layer_norm(torch.tanh(x @ w).exp() / 2, (3,)).sigmoid().logsumexp(1).sum()
    out.backward()
    assert type(w.grad) is Wrapper
    return out, w.grad


def layer(torch, Wrapper):
    linear = torch.nn.Linear(3, 2)
    linear.weight, linear.bias = torch.nn.Parameter(Wrapper(torch.ones(2, 3))), None
    out = linear(torch.arange(6.0).reshape(2, 3))
    out.sum().backward()
    return out, linear.weight.grad


def written(torch, Wrapper):
    x = Wrapper(torch.arange(6.0).reshape(2, 3))
    x.add_(1).mul_(x)
    x[0].zero_()
    x[:, 1] = 7
    x[1].copy_(torch.ones(3))
    plain = torch.ones(2, 3)
    plain += x
    return x, plain


CASES = {
    "sum": lambda t, W, x: x.sum(0), "product": lambda t, W, x: x @ x.t(), "beside a plain one": lambda t, W, x: t.ones(3) + x,
    "number": lambda t, W, x: 1 / (x + 2), "softmax": lambda t, W, x: x.softmax(-1), "views": lambda t, W, x: x.t()[1:].reshape(-1),
    "split": lambda t, W, x: x.split(1), "cat": lambda t, W, x: t.cat([x, t.ones(1, 3), x]), "where": lambda t, W, x: t.where(x > 2, x, -x),
    "dtype": lambda t, W, x: x.double().to(t.int64), "zeros_like": lambda t, W, x: t.zeros_like(x), "item": lambda t, W, x: x.sum().item(),
    "new_full": lambda t, W, x: x.new_full((2,), 3.0), "ones_like": lambda t, W, x: t.ones_like(x, dtype=t.int32),
    "truth": lambda t, W, x: bool((x >= 0).all()), "copy": lambda t, W, x: copy.deepcopy(x),
    "detach": lambda t, W, x: x.detach(),
    "convolution": lambda t, W, x: t.nn.functional.conv1d(x[None], t.ones(1, 2, 2)), "index": lambda t, W, x: x[t.tensor([1, 0])],
    "attention": lambda t, W, x: t.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "max": lambda t, W, x: x.max(1)[0],
    "embedding": lambda t, W, x: t.nn.functional.embedding(t.tensor([1, 0, 1]), x), "sort": lambda t, W, x: x.sort(descending=True)[1],
    "vmap": lambda t, W, x: t.vmap(lambda row: row * row.sum())(x),
    "eager in compile": lambda t, W, x: fl.compile(lambda a: a * 2 + 1)(x),
    "gradients": lambda t, W, x: gradients(t, W), "layer": lambda t, W, x: layer(t, W), "written": lambda t, W, x: written(t, W),
    "SGD": lambda t, W, x: trained(t, W, "SGD"), "AdamW": lambda t, W, x: trained(t, W, "AdamW"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrapper_computes_what_it_wraps_computes(case):
    class Plain:
        """What the wrapped tensor gives by itself."""

        def __new__(cls, inner):
            return inner

    Wrapper = wrapper_class(fl)
    given = fl.arange(6.0).reshape(2, 3)
    have = CASES[case](fl, Wrapper, Wrapper(given.clone()))
    assert Wrapper.steps or case == "copy"
    if case in ("gradients", "layer", "SGD", "AdamW"):
        torch = pytest.importorskip("torch", reason="torch is the oracle")
        want = CASES[case](torch, wrapper_class(torch), None)
    else:
        want = CASES[case](fl, Plain, given)
    for a, b in zip(*[found if isinstance(found, list) else [found] for found in (values(have), values(want))], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_random_factories_ask_the_class():
    Wrapper = wrapper_class(fl)
    x = Wrapper(fl.zeros(1000))
    for made in (fl.rand_like(x), fl.randn_like(x), fl.empty_like(x).uniform_(), fl.nn.functional.dropout(Wrapper(fl.ones(1000)))):
        assert type(made) is Wrapper
        assert made.held.unique().numel() > 1


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_class_sees_operators_of_aten(name):
    torch = library(name)
    Wrapper = wrapper_class(torch)
    Wrapper(torch.ones(2, 2)) @ Wrapper(torch.ones(2, 2))
    assert Wrapper.steps == [torch.ops.aten.mm.default]
    assert {torch.ops.aten.mm.default: 1}.get(Wrapper.steps[0]) == 1


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_class_that_answers_nothing_is_an_error(name):
    torch = library(name)

    class Silent(torch.Tensor):
        @staticmethod
        def __new__(cls, shape):
            return torch.Tensor._make_wrapper_subclass(cls, shape)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    x = Silent((2, 3))
    assert (x.shape, x.dtype, x.stride(), x.requires_grad) == ((2, 3), torch.float32, (3, 1), False)
    for call in (lambda: torch.add(x, 1), lambda: x.add_(1), lambda: x[0], lambda: torch.ones(2, 3).mul_(x), lambda: x.sum().item(),
                 lambda: torch.zeros_like(x)):
        with pytest.raises(TypeError, match="all __torch_dispatch__ handlers returned NotImplemented"):
            call()


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_subclass_is_asked_before_its_base(name):
    torch = library(name)
    asked = []

    def answer(cls, func, types, args=(), kwargs=None):
        asked.append(cls.__name__)
        return NotImplemented if cls.__name__ == "Derived" else torch.zeros(1)

    def new(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (1,))

    Base = type("Base", (torch.Tensor,), {"__new__": staticmethod(new), "__torch_dispatch__": classmethod(answer)})
    Derived = type("Derived", (Base,), {})
    assert type(Base() + Derived()) is torch.Tensor
    assert asked == ["Derived", "Base"]


@pytest.mark.parametrize("name", LIBRARIES)
def test_make_subclass(name):
    torch = library(name)

    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    asked = []
    data = torch.ones(3, requires_grad=True) * 2
    made = torch.Tensor._make_subclass(Named, data, True)
    torch.Tensor._make_subclass(Named, made)
    assert not asked
    assert (type(made), made.requires_grad, made.is_leaf, made.grad_fn) == (Named, True, True, None)
    with torch.no_grad():
        made[0] = 5
    assert data.tolist() == [5, 2, 2]       # the same memory
    with pytest.raises(TypeError):
        torch.Tensor._make_subclass(int, data)


def test_what_is_not_there_says_what_to_use():
    Wrapper = wrapper_class(fl)
    with pytest.raises(NotImplementedError, match="_make_wrapper_subclass"):
        fl.Tensor._make_subclass(Wrapper, fl.ones(2))
    with pytest.raises(RuntimeError, match="must define a classmethod __torch_dispatch__"):
        fl.Tensor._make_wrapper_subclass(fl.Tensor, (2,))
    with pytest.raises(RuntimeError, match="no values"):
        Wrapper(fl.ones(2)).numpy()
