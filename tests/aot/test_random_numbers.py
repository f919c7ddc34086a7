"""Random draws: a seed fixes what compiled programs draw, each call draws anew, and forward and backward agree."""

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx
from flambeau.aot import aot_eager
from flambeau.core.symbolic import ShapeEnv
from flambeau.core.tensor import fake
from flambeau.ops.nn.dropout import dropout


def f(x):
    y = dropout(x * 2, 0.5)
    return dropout(y.sin(), 0.3) + torch.rand_like(x), torch.randn(3)


def opaque(f):
    """A graph with one step that calls `f`."""
    graph = fx.Graph()
    graph.output(graph.call_function(f, (graph.placeholder("x"),)))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("grad", [False, True])
def test_a_seed_fixes_the_numbers(grad):
    x = torch.ones(40, 50)
    x = x.requires_grad_() if grad else x
    compiled = aot_eager(opaque(f), [x])
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append([compiled(x) for _ in range(2)])
    for first, second in zip(*runs, strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    assert not torch.equal(runs[0][0][0], runs[0][1][0]) and not torch.equal(runs[0][0][1], runs[0][1][1])


SEEDS = {
    # name: (a function of 8 numbers, the draws in it)
    "none": (lambda x: x * 2, 0),
    "rand": (lambda x: torch.rand_like(x), 1),
    "two of a kind": (lambda x: torch.rand(5) + torch.rand(5), 2),
    "several": (lambda x: (dropout(x, 0.5) + torch.randn(8), torch.randint(0, 3, (2,)), torch.bernoulli(torch.full((3,), 0.5))), 4),
    "a chain": (lambda x: dropout(dropout(x, 0.5), 0.3), 2),
    "fills": (lambda x: (torch.ones(8).exponential_(), torch.ones(8).cauchy_(), torch.ones(8).log_normal_(), torch.ones(8).geometric_(0.3)), 4),
    "in attention": (lambda x: torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 2, 4)] * 3, dropout_p=0.5), 1),
    "a sample": (lambda x: torch.distributions.Uniform(x, x + 1).sample(), 1),
    "dropout of all": (lambda x: dropout(x, 1.0), 0),
    "no dropout": (lambda x: dropout(x, 0.5, training=False), 0),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", SEEDS)
def test_a_compiled_call_takes_a_seed_for_each_draw_from_the_eager_stream(name, grad):
    """As PyTorch's does, so that what is drawn eagerly afterwards is the same."""
    function, draws = SEEDS[name]
    torch._dynamo.reset()
    compiled = torch.compile(function)
    x = torch.arange(8.0).requires_grad_(grad)
    compiled(x)
    torch.manual_seed(3)
    compiled(x)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    torch.rand(draws, dtype=torch.float64)     # 64 bits as well
    assert torch.equal(after, torch.get_rng_state())


def test_backward_drops_what_forward_dropped():
    x = torch.ones(40, 50, requires_grad=True)
    compiled = aot_eager(opaque(lambda x: (dropout(x, 0.5),)), [x])
    (out,) = compiled(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, out.detach()) and 0 < (out == 0).sum().item() < 2000


def test_symbolic_sizes():
    env = ShapeEnv()
    example = fake((env.create_symint(6, "n"), 5), torch.float32)
    compiled = aot_eager(fx.symbolic_trace(lambda x: (dropout(x, 0.5), dropout(x, 0.2))), [example])
    for n in (6, 300):
        x = torch.ones(n, 5)
        torch.manual_seed(1)
        got = compiled(x)
        torch.manual_seed(1)
        again = compiled(x)
        assert (got[0] == again[0]).all() and (got[1] == again[1]).all()
        assert not torch.equal(got[0] != 0, got[1] != 0)
    assert not env.guards


DRAWS: dict[str, Any] = {
    "rand": lambda x: torch.rand(3) + x.sum(), "randn": lambda x: torch.randn(3, 4) * x,
    "randint": lambda x: torch.randint(0, 9, (4,)) + x,
    "randperm": lambda x: x[:, torch.randperm(4)], "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) + x,
    "dropout": lambda x: torch.nn.functional.dropout(x * 2, 0.5).sin(), "normal_": lambda x: torch.empty(4).normal_() + x,
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 2) * 2,
    "exponential_": lambda x: x + torch.empty_like(x).exponential_(),
    "twice": lambda x: (torch.rand_like(x) * x) @ torch.rand(4, 2),
    "distribution": lambda x: torch.distributions.Normal(x, 1.0).rsample() * x,
    "branch": lambda x: x * 2 if torch.rand(()) < 0.5 else x * 3,
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_numbers_are_those_of_eager_code_on_request(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inductor by the setting; `aot_eager` has no others."""
    monkeypatch.setattr(torch._inductor.config, "fallback_random", backend == "inductor")
    torch._dynamo.reset()
    f, found = DRAWS[name], []
    for function in (f, torch.compile(f, backend=backend)):
        torch.manual_seed(3)
        x = torch.arange(12.0).view(3, 4).requires_grad_()
        out = function(x)
        if out.requires_grad:
            out.sum().backward()
        found.append([out.detach(), x.grad, torch.rand(1)])
    torch._dynamo.reset()
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_after_numbers_that_nobody_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._inductor.config, "fallback_random", True)
    torch._dynamo.reset()

    def unread(x: torch.Tensor) -> torch.Tensor:
        DRAWS[name](x)
        return x * 2

    found = []
    for function in (unread, torch.compile(unread, backend="eager"), torch.compile(unread)):
        torch.manual_seed(3)
        function(torch.arange(12.0).view(3, 4))
        found.append(float(torch.rand(1)))
    torch._dynamo.reset()
    assert found[0] == found[1] == found[2]
