"""Sizes that guards make equal are one size to the compiler: what it takes to lie one behind another lies so for eager too."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.core.symbolic import ShapeEnv
from flambeau.core.tensor import fake
from flambeau.fx import GraphModule
from flambeau.inductor.graph import compile_graph
from flambeau.inductor.operators import trace_call

WORKS = {
    "an inverse map, written": (lambda x: fl.linalg.tensorinv(x).frac_(), (2, 3, 6)),
    "an inverse map of pairs, written": (lambda x: fl.linalg.tensorinv(x)[1:].frac_(), (2, 3, 2, 3)),
    "an inverse seen as another shape, written": (lambda x, y: fl.linalg.inv(x.flatten(0, 1)).view(y.shape).frac_(), (2, 3, 6), (6, 2, 3)),
    "columns of pairs": (lambda x, y: (x.reshape(-1, y.shape[0]).t() + y).mul_(2), (2, 3, 12), (12, 6)),
    "a permuted sum": (lambda x, y: (x.permute(2, 0, 1).reshape(y.shape) + y).mul_(2), (2, 3, 4), (4, 6)),
    "a solution": (lambda x, y: fl.linalg.tensorsolve(x, y).neg_(), (2, 3, 6), (2, 3)),
    "a number computed of a size, later a constant": (lambda x, y: (x * (k := 1.0 / x.shape[0]) + y.reshape(5, 3)) * k, (5, 3), (3, 5)),
    "of a size that is a product, later": (lambda x, y: (y * (k := 0.5 * y.shape[0]) + x.reshape(y.shape)) ** 2 * k, (2, 3, 4), (6, 4)),
    "rows written to": (lambda x, y: x.flatten(0, 1).copy_(y.t()), (2, 3, 4), (4, 6)),
}


@pytest.mark.parametrize("work", WORKS)
def test_as_eager_does(work):
    function, *shapes = WORKS[work]
    given = [fl.randn(shape, generator=fl.Generator().manual_seed(1)) for shape in shapes]
    want, ours = function(*[x.clone() for x in given]), fl.compile(function, dynamic=True)(*given)
    assert ours.stride() == want.stride() and fl.allclose(ours, want, atol=1e-4)


def test_a_number_of_a_size_that_is_a_constant_later():
    """Channels as many as examples: what eager kernels on GPUs are made of, whose sizes become known while they are traced."""
    env = ShapeEnv()
    n = env.create_symint(6, "args[0].shape[0]")
    x, w = fake((n, 6), fl.float32), fake((n,), fl.float32)

    def body(x, w):
        scaled = x.sum(0) * (1.0 / x.shape[0])
        return scaled * w       # 6 and n are one size
    mode, _ = trace_call(body, [x, w], [("size", n)])
    graph = compile_graph(GraphModule({}, mode.graph), arrays=True)
    given = [fl.randn(6, 6), fl.randn(6)]
    assert env.replacements and "s0" not in graph.program.symbols
    [got] = graph.call([6, *[t.numpy() for t in given]])
    assert fl.allclose(fl.from_numpy(got), given[0].mean(0) * given[1], atol=1e-6)


def test_what_only_a_run_knows_stays_apart():
    """A size read from data is equal to another once that has been checked, which kernels before the check do not know."""
    env = ShapeEnv()
    n, m, found = env.create_symint(6, "x.shape[0]"), env.create_symint(3, "x.shape[1]"), env.create_unbacked()
    assert n == 2 * m and n.guarded == (2 * m).expr and n.expr != n.guarded
    env.learn(type(env.guards[0].relation)("==", found.expr, m.expr))
    assert found.guarded == found.expr and env.simplify(found.expr) == m.expr
