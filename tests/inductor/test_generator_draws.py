"""Draws in compiled programs: which come from the generator of the CPU, as eager code's do, and which the graph makes itself."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

FROM_GENERATOR = {
    "normal_": lambda t: t.empty(8).normal_(), "uniform_": lambda t: t.ones(8).uniform_(2, 3), "random_": lambda t: t.ones(8).random_(5),
    "bernoulli_": lambda t: t.ones(8).bernoulli_(0.5), "normal": lambda t: t.normal(t.zeros(4), 2.0), "normal of a size": lambda t: t.normal(
        0.0, 1.0, (4,)), "multinomial": lambda t: t.multinomial(t.ones(8), 3), "randperm": lambda t: t.randperm(8),
    "poisson": lambda t: t.poisson(t.ones(8)), "binomial": lambda t: t.binomial(t.ones(8) * 9, t.ones(8) * 0.5),
    "gamma": lambda t: t.distributions.Gamma(t.ones(3), 1.0).sample(), "dirichlet": lambda t: t.distributions.Dirichlet(t.ones(3)).sample(),
    "alpha_dropout": lambda t: t.nn.functional.alpha_dropout(t.ones(8), 0.5, True),
    "dropout2d": lambda t: t.nn.functional.dropout2d(t.ones(1, 8, 2, 2)), "Normal": lambda t: t.distributions.Normal(t.zeros(4), 1.0).sample(),
    "rsample": lambda t: t.distributions.Normal(t.zeros(4), 1.0).rsample(), "init": lambda t: t.nn.init.kaiming_uniform_(t.empty(4, 4)),
    "Categorical": lambda t: t.distributions.Categorical(t.ones(4)).sample((3,)), "Laplace": lambda t: t.distributions.Laplace(
        t.zeros(3), 1.0).sample(),
}
DRAWN_BY_THE_GRAPH = {
    "rand": lambda t: t.rand(8), "randn": lambda t: t.randn(8), "randint": lambda t: t.randint(99, (8,)), "rand_like": lambda t: t.rand_like(
        t.ones(8)), "bernoulli": lambda t: t.bernoulli(t.ones(64) * 0.5), "dropout": lambda t: t.nn.functional.dropout(t.ones(64)),
    "exponential_": lambda t: t.ones(8).exponential_(), "cauchy_": lambda t: t.ones(8).cauchy_(), "geometric_": lambda t: t.ones(
        16).geometric_(0.1), "log_normal_": lambda t: t.ones(8).log_normal_(), "Uniform": lambda t: t.distributions.Uniform(
            t.zeros(3), 1.0).sample(),
}


def answer(draw, compiled):
    def twice():
        return draw(fl) * 2

    fl.manual_seed(3)
    return (fl.compile(twice, fullgraph=True) if compiled else twice)()


@pytest.mark.parametrize("name", FROM_GENERATOR)
def test_draws_of_the_generator_are_those_of_eager_code(name):
    assert fl.equal(answer(FROM_GENERATOR[name], True), answer(FROM_GENERATOR[name], False))


@pytest.mark.parametrize("name", DRAWN_BY_THE_GRAPH)
def test_a_graph_makes_the_others_itself(name):
    draw = DRAWN_BY_THE_GRAPH[name]
    made = answer(draw, True)
    assert not fl.equal(made, answer(draw, False)) and fl.equal(made, answer(draw, True))


@pytest.mark.parametrize("name", [*FROM_GENERATOR, *DRAWN_BY_THE_GRAPH])
def test_eager_draws_are_torchs(name):
    torch = pytest.importorskip("torch")
    draw = (FROM_GENERATOR | DRAWN_BY_THE_GRAPH)[name]
    torch.manual_seed(3)
    theirs = (draw(torch) * 2).tolist()
    if name not in ("bernoulli_", "dropout", "alpha_dropout", "dropout2d", "exponential_"):   # MKL's, on some processors
        np.testing.assert_allclose(answer(draw, False).tolist(), theirs, rtol=1e-6)


def test_what_surrounds_a_draw_is_compiled_and_differentiated():
    def loss(x):
        noise = fl.normal(fl.zeros_like(x), 1.0)
        return ((x.sin() + noise) * x).sum()

    def run(f):
        fl.manual_seed(1)
        x = fl.arange(4.0).requires_grad_()
        y = f(x)
        y.backward()
        return [round(v, 5) for v in (y.item(), *x.grad.tolist())]

    assert run(fl.compile(loss, fullgraph=True)) == run(loss)


def test_a_draw_that_the_graph_cannot_be_cut_around_is_made_by_it():
    def f(x):
        y = x.exp()
        z = y.sin()
        y.normal_()     # to memory that was made, and kept for a gradient, before
        return y + z

    fl.manual_seed(0)
    assert fl.compile(f, fullgraph=True)(fl.ones(4)).shape == (4,)
