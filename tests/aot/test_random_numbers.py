"""Random draws: compiled programs draw what eager draws, and forward and backward agree."""

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx
from flambeau.aot import aot_eager
from flambeau.core.symbolic import ShapeEnv
from flambeau.core.tensor import fake
from flambeau.ops.nn_dropout import dropout
from flambeau.ops.random import default_generator


def f(x):
    y = dropout(x * 2, 0.5)
    return dropout(y.sin(), 0.3) + torch.rand_like(x), torch.randn(3)


def opaque(f):
    """A graph with one step that calls `f`."""
    graph = fx.Graph()
    graph.output(graph.call_function(f, (graph.placeholder("x"),)))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("grad", [False, True])
def test_same_numbers_as_eager(grad):
    x = torch.ones(40, 50)
    x = x.requires_grad_() if grad else x
    compiled = aot_eager(opaque(f), [x])
    torch.manual_seed(3)
    got = [compiled(x) for _ in range(2)]
    after = default_generator.get_offset()
    torch.manual_seed(3)
    want = [f(x) for _ in range(2)]
    assert after == default_generator.get_offset() > 0
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a[0].detach().numpy(), b[0].detach().numpy())
        np.testing.assert_array_equal(a[1].detach().numpy(), b[1].detach().numpy())
    if grad:
        mine, theirs = (torch.autograd.grad(outs[1][0].sum(), x)[0] for outs in (got, want))
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_symbolic_sizes():
    env = ShapeEnv()
    example = fake((env.create_symint(6, "n"), 5), torch.float32)
    compiled = aot_eager(fx.symbolic_trace(lambda x: (dropout(x, 0.5), dropout(x, 0.2))), [example])
    for n in (6, 300):
        x = torch.ones(n, 5)
        torch.manual_seed(1)
        got = compiled(x)
        after = default_generator.get_offset()
        torch.manual_seed(1)
        want = dropout(x, 0.5), dropout(x, 0.2)
        assert after == default_generator.get_offset()
        assert (got[0] == want[0]).all() and (got[1] == want[1]).all()
    assert not env.guards
