"""`torch.autograd.grad` inside of captured functions: one graph where all history is in it, else a break; eager's gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo


def leaf(*shape):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * 0.3 - 0.5).requires_grad_()


class Physics(torch.nn.Module):
    """An equation with second derivatives by the inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, x, t):
        u = self.net(torch.cat([x, t], 1))
        u_t, u_x = torch.autograd.grad(u, [t, x], torch.ones_like(u), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)
        return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()


class PhysicsOfAnyInputs(Physics):
    """The same, which makes leaves of its inputs itself."""

    def forward(self, x, t):
        x.requires_grad_()
        t.requires_grad_()
        return super().forward(x, t)


class Learner(torch.nn.Module):
    """Learns by gradient steps of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(3, 1)

    def forward(self, x, y):
        w, b = self.net.weight, self.net.bias
        for _ in range(2):
            loss = ((x @ w.t() + b - y) ** 2).mean()
            gw, gb = torch.autograd.grad(loss, (w, b), create_graph=True)
            w, b = w - 0.1 * gw, b - 0.1 * gb
        return ((x @ w.t() + b - y) ** 2).mean()


@pytest.mark.parametrize("backend", ["counted", "inductor"])
@pytest.mark.parametrize("make, given", [
    (Physics, lambda n: (leaf(n, 1), leaf(n, 1))), (PhysicsOfAnyInputs, lambda n: (leaf(n, 1).detach(), leaf(n, 1).detach())),
    (Learner, lambda n: (leaf(n, 3).detach(), leaf(n, 1).detach()))], ids=["physics", "physics of any inputs", "learner"])
def test_trained_through(make, given, backend):
    counter, model = Counter(), make()
    other = copy.deepcopy(model)
    g = dynamo.compile(other, backend=counter if backend == "counted" else backend, fullgraph=True)
    for n in (4, 5, 6):
        for run in (model, g):
            run.zero_grad()
            run(*given(n)).backward()
        pairs = zip(model.parameters(), other.parameters(), strict=True)
        assert all(torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-6) for a, b in pairs)
    assert len(counter.graphs) <= 2


def unused(x, y):
    return (torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=True),
            torch.autograd.grad((x * x).sum(), [x, y], allow_unused=True, materialize_grads=True))


def between(x, y):
    h = x.sin()
    return torch.autograd.grad((h * h * y).sum(), [h, x]), h.detach()


def seeded(x, y):
    return torch.autograd.grad([x * 2, (x * y).sum()], [x, y], [torch.arange(3.0), None])


@pytest.mark.parametrize("f", [unused, between, seeded], ids=lambda f: f.__name__)
def test_one_graph(f):
    counter = Counter()
    assert same(dynamo.compile(f, backend=counter, fullgraph=True)(leaf(3), leaf(3)), f(leaf(3), leaf(3)))
    assert len(counter.graphs) == 1


def test_what_was_not_used_is_an_error():
    def f(x, y):
        try:
            return torch.autograd.grad((x * 2).sum(), [x, y])
        except RuntimeError as error:
            return str(error)

    assert dynamo.compile(f, backend="eager")(leaf(3), leaf(3)) == f(leaf(3), leaf(3))


def test_history_from_outside_and_hooks():
    """A way through what was computed before counts, and so does a hook on a leaf."""
    def f(p, x):
        return torch.autograd.grad((x * 2).sum() + (p * 3).sum(), p, retain_graph=True)

    g = dynamo.compile(f, backend="aot_eager")
    p, hooked = leaf(3), leaf(3)
    hooked.register_hook(lambda gradient: gradient * 10)
    for x in (p * 5, leaf(3), p * 5):
        assert same(g(p, x), f(p, x))
    for given in (p, hooked, p):
        assert same(g(given, leaf(3)), f(given, leaf(3)))


WRITES: dict[str, Callable] = {
    "item": lambda t, x: t.__setitem__(slice(1, 3), x[1:3]), "add_": lambda t, x: t.add_(x), "copy_": lambda t, x: t[0].copy_(x[0]),
    "view": lambda t, x: t.view(-1)[::2].mul_(x.view(-1)[::2]), "fill": lambda t, x: t[1].fill_(3.0),
    "turned": lambda t, x: t.t().sub_(x.t()),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", WRITES)
def test_inputs_that_are_no_leaves_are_written_to_in_the_graph(name: str, backend: str) -> None:
    """As a buffer is that holds what the last call computed. A leaf is refused, by the operator."""
    def f(t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        WRITES[name](t, x)
        return (t * x).sum()

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    found = []
    for function in (f, compiled):
        torch.manual_seed(0)
        w, x = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
        t = w * 2
        function(t, x).backward()
        found.append([t.detach(), w.grad, x.grad])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    with pytest.raises(RuntimeError, match="in-place operation"):
        compiled(torch.randn(3, 4, requires_grad=True), x)


def _descended(leaf_of, x, steps=3):
    for _ in range(steps):
        y = leaf_of(x)
        (g,) = torch.autograd.grad((y**4 - y**2).sum(), y)
        x = (y - 0.1 * g).detach()
    return x


def _assigned(x):
    y = x.clone()
    y.requires_grad = True
    return y


def _on_and_off(x, w):
    y = (x * 2).requires_grad_()
    z = y * 3
    (g,) = torch.autograd.grad(z.sum(), y)
    y.requires_grad_(False)
    return g + y, (y * 4).requires_grad, y.is_leaf


def _updated_in_place(x, w):
    y = x.clone().requires_grad_()
    for _ in range(3):
        (g,) = torch.autograd.grad(((y - 1) ** 2).sum(), y)
        with torch.no_grad():
            y.sub_(g, alpha=0.1)
    return y.detach(), y.grad


def _hooked(x, w):
    y = x.clone().requires_grad_()
    y.register_hook(lambda gradient: gradient * 10)
    return torch.autograd.grad((y**2).sum(), y)


def _penalty(x, w):
    y = (x * 2).requires_grad_()
    (g,) = torch.autograd.grad((y * w).sin().sum(), y, create_graph=True)
    return (g.norm() - 1) ** 2


@torch.no_grad()
def _despite_no_grad(x, w):
    y = (x * 2).requires_grad_()
    with torch.enable_grad():
        (g,) = torch.autograd.grad((y**3).sum(), y)
    return y.detach() - g, (y * 2).requires_grad


LEAVES: dict[str, Callable] = {
    "requires_grad_": lambda x, w: _descended(lambda a: a.detach().clone().requires_grad_(), x),
    "assigned": lambda x, w: _descended(_assigned, x),
    "zeros_like": lambda x, w: _descended(lambda a: torch.zeros_like(a, requires_grad=True), x),
    "tensor": lambda x, w: _descended(lambda a: torch.tensor([1.0, -2.0, 3.0], requires_grad=True), x),
    "several": lambda x, w: torch.autograd.grad((w * x).sum(), [(x * i).requires_grad_() for i in range(2)], allow_unused=True),
    "complex": lambda x, w: torch.view_as_real(torch.autograd.grad((c := torch.complex(x, x).requires_grad_()).abs().sum(), c)[0]),
    "on and off": _on_and_off, "updated in place": _updated_in_place, "hooked": _hooked, "penalty": _penalty, "no_grad": _despite_no_grad,
}


@pytest.mark.parametrize("backend", ["counted", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", LEAVES)
def test_leaves_made_inside(name: str, backend: str) -> None:
    """What is differentiated by may be a tensor of the graph; what comes of other leaves has its gradient outside."""
    f, counter = LEAVES[name], Counter()
    compiled = torch.compile(f, backend=counter if backend == "counted" else backend, fullgraph=True)
    found = []
    for function in (f, compiled):
        w = leaf(3)
        made = function(torch.tensor([0.5, -1.5, 2.0]), w)
        if isinstance(made, torch.Tensor) and made.requires_grad:
            made.backward()
        found.append((made, w.grad))
    torch.testing.assert_close(*found)


ESCAPING: dict[str, Callable] = {
    "leaf": lambda x, w: (x * 2).requires_grad_(), "view": lambda x, w: (x * 2).requires_grad_().view(1, -1),
    "view beside others": lambda x, w: ((y := (x * 2).requires_grad_()).view(1, -1), (y * w).sum()),
    "its result": lambda x, w: (x * 2).requires_grad_() * 3, "in a list": lambda x, w: [torch.ones(2, requires_grad=True), w * 2],
}


@pytest.mark.parametrize("name", ESCAPING)
def test_leaves_that_leave_are_real_ones(name: str) -> None:
    """The program may differentiate by them later: the graph breaks where they are made."""
    f, x = ESCAPING[name], torch.tensor([0.5, -1.5, 2.0])
    compiled = torch.compile(f, backend="aot_eager")
    plain, made = (torch.utils._pytree.tree_leaves(function(x, leaf(3))) for function in (f, compiled))
    assert same(made, plain)
    assert [t.is_leaf for t in made] == [t.is_leaf for t in plain]
    for t in made:
        t.sum().backward()
    assert all(t.grad is not None for t in made if t.is_leaf)
    with pytest.raises(dynamo.exceptions.Unsupported, match="requires_grad"):
        torch.compile(f, backend="aot_eager", fullgraph=True)(x, leaf(3))
