"""Backward passes in two halves leave what one leaves, and compute each gradient once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fl
from flambeau.autograd.halves import input_gradients
from flambeau.utils._python_dispatch import TorchDispatchMode


class Scaled(fl.autograd.Function):
    """A node that can only do all its gradients at once."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum(0)


class Net(fl.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = fl.nn.Linear(4, 4), fl.nn.Linear(4, 4), fl.nn.LayerNorm(4)
        self.w, self.v = fl.nn.Parameter(fl.randn(4)), fl.nn.Parameter(fl.randn(4))

    def forward(self, x: Any, program: Callable) -> Any:
        return program(self, x)


def hooked(net: Net, x: Any) -> Any:
    y = net.a(x)
    y.register_hook(lambda g: g * 3)
    z = y.tanh()
    z.grad_fn.register_hook(lambda grads, _: [2 * g for g in grads])
    product = z @ net.b.weight
    product.grad_fn.register_hook(lambda grads, _: [None if g is None else 5 * g for g in grads])
    return product


PROGRAMS: dict[str, Callable] = {
    "plain": lambda net, x: net.norm(net.b(net.a(x).tanh())), "tied": lambda net, x: net.a(net.a(x).sin()),
    "Function": lambda net, x: net.b(Scaled.apply(Scaled.apply(x, net.w), net.w)),
    "list": lambda net, x: fl.cat([net.a(x), x * net.w, net.v[None]]),
    "several": lambda net, x: (net.a(x), (net.v * net.w).sum(), net.b(x) * net.w), "through": lambda net, x: x * 2,
    "apart": lambda net, x: net.a(net.v[None]), "derived": lambda net, x: x @ (net.a.weight @ net.b.weight).relu(), "hooked": hooked,
    "twice": lambda net, x: (y := net.a(x)) * net.w + y.exp() * net.v,
}


def made() -> tuple[Net, Any]:
    fl.manual_seed(0)
    net = Net()
    net.w.register_hook(lambda g: g * 2)
    return net, fl.randn(3, 4, requires_grad=True)


def whole(program: Callable) -> list:
    net, x = made()
    out = program(net, x)
    fl.autograd.backward(out, [fl.ones_like(o).cumsum(-1) if o.ndim else fl.tensor(2.0) for o in (out if isinstance(out, tuple) else (out,))])
    return [x.grad, *(p.grad for p in net.parameters())]


@pytest.mark.parametrize(("name", "compiled"), [(name, compiled) for name in PROGRAMS for compiled in (False, True)
                                                if not compiled or name not in ("hooked", "Function")])
def test_two_halves_are_one_pass(name: str, compiled: bool) -> None:
    net, x = made()
    program = fl.compile(PROGRAMS[name], backend="aot_eager") if compiled else PROGRAMS[name]
    out = program(net, x)
    outs = out if isinstance(out, tuple) else (out,)
    (found,), others = input_gradients(outs, [fl.ones_like(o).cumsum(-1) if o.ndim else fl.tensor(2.0) for o in outs], [x])
    assert x.grad is None and all(p.grad is None for p in net.parameters())
    others()
    others()    # does nothing
    for ours, theirs in zip([found, *(p.grad for p in net.parameters())], whole(PROGRAMS[name])):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            fl.testing.assert_close(ours, theirs)


class Products(TorchDispatchMode):
    """Counts products of matrices."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.count += "mm" in str(func)
        return func(*args, **(kwargs or {}))


def counted(run: Callable[[], Any]) -> tuple[int, Any]:
    with Products() as seen:
        result = run()
    return seen.count, result


def test_each_gradient_is_computed_once() -> None:
    """Three layers: three products for what goes towards the input, three for weights; a pass that asks for one kind does no other."""
    fl.manual_seed(0)
    net, x = fl.nn.Sequential(*(fl.nn.Linear(4, 4) for _ in range(3))), fl.randn(3, 4, requires_grad=True)
    first, (_, others) = counted(lambda: input_gradients([net(x)], [fl.ones(3, 4)], [x]))
    assert first - counted(lambda: net(x))[0] == 3
    assert counted(others)[0] == 3
    y = net(x)
    assert counted(lambda: fl.autograd.grad(y.sum(), x, retain_graph=True))[0] == 3
    assert counted(lambda: fl.autograd.grad(y.sum(), net[2].weight, retain_graph=True))[0] == 1
    assert counted(lambda: y.sum().backward())[0] == 6
