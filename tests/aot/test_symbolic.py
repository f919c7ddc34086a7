"""Programs traced once for all sizes."""

import numpy as np

import flambeau as torch
from flambeau import fx
from flambeau.aot import aot_compile, aot_eager, interpret
from flambeau.core.symbolic import ShapeEnv, SymInt
from flambeau.core.tensor import fake


def data(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def symbolic(env, *sizes, grad=True, **names):
    shape = tuple(env.create_symint(n, f"x.size({i})") if n > 1 else n for i, n in enumerate(sizes))
    made = fake(shape, torch.float32)
    return made.requires_grad_() if grad else made


def check(f, env, examples, *calls):
    """`f`, compiled once for the symbolic `examples`, agrees with eager on all `calls`."""
    count = []

    def compiler(gm, inputs):
        count.append(gm)
        return interpret(gm, inputs)

    compiled = aot_compile(fx.symbolic_trace(f), examples, forward_compiler=compiler)
    before = len(count)
    for inputs in calls:
        mine = [t.clone().requires_grad_() if isinstance(t, torch.Tensor) else t for t in inputs]
        theirs = [t.clone().requires_grad_() if isinstance(t, torch.Tensor) else t for t in inputs]
        got, want = compiled(*mine), f(*theirs)
        for a, b in zip(got, want, strict=True):
            if not isinstance(a, torch.Tensor):
                assert a == b
                continue
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5)
            assert a.stride() == b.stride()
        sum((a * a).sum() for a in got if isinstance(a, torch.Tensor) and a.requires_grad).backward()
        sum((b * b).sum() for b in want if isinstance(b, torch.Tensor) and b.requires_grad).backward()
        for a, b in zip(mine, theirs, strict=True):
            if isinstance(a, torch.Tensor):
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4)
    assert len(count) == before
    return count


def test_elementwise_and_mean():
    env = ShapeEnv()
    graphs = check(
        lambda x: (torch.sin(x) * 2, x.mean(0), x.sum()), env, [symbolic(env, 6, 4)], [data(6, 4)], [data(3, 9)], [data(7, 7)]
    )
    assert not env.guards
    assert "truediv" in graphs[0].code


def test_views_and_size_arithmetic():
    env = ShapeEnv()

    def f(x):
        y = x.view(-1)
        return y * 2, x.t() + 1, x[1:].sum(0), x.reshape(x.shape[1], -1) * 3, x.unsqueeze(1).expand(-1, 5, -1) * 1

    check(f, env, [symbolic(env, 6, 4)], [data(6, 4)], [data(3, 9)], [data(5, 2)])


def test_sizes_as_arguments_and_results():
    env = ShapeEnv()
    x = symbolic(env, 6, 4)
    n = x.shape[0]
    assert isinstance(n, SymInt)

    def f(n, x):
        return x.sum(1) * n, n + 1, x.shape[0] * x.shape[1]

    check(f, env, [n, x], [6, data(6, 4)], [3, data(3, 9)])


def test_aliases_with_symbolic_sizes():
    env = ShapeEnv()

    def f(x):
        y = x * 2
        return y, y[2:], y.view(-1), x.view(x.shape[1], x.shape[0])

    check(f, env, [symbolic(env, 6, 4)], [data(6, 4)], [data(5, 3)])


def test_writes_with_symbolic_sizes():
    env = ShapeEnv()

    def f(x):
        y = x * 2
        y[1:, :2].mul_(3)
        y.t()[0] = 7
        return (y * y,)

    check(f, env, [symbolic(env, 6, 4)], [data(6, 4)], [data(5, 3)])


def test_graph_of_static_sizes_takes_no_sizes():
    x = data(3, 4)
    seen = []
    aot_compile(
        fx.symbolic_trace(lambda x: x.sum(1)),
        [x],
        forward_compiler=lambda gm, inputs: seen.append(inputs) or interpret(gm, inputs),
    )
    assert len(seen[0]) == 1


def test_floats_of_sizes():
    env = ShapeEnv()
    check(lambda x: (x * x.shape[0] ** -0.5, x / x.shape[1]), env, [symbolic(env, 6, 4)], [data(6, 4)], [data(5, 3)])


def test_aot_eager_of_fake_examples_runs_on_real_ones():
    x = fake((3,), torch.float32).requires_grad_()
    f = aot_eager(fx.symbolic_trace(lambda x: (x * 3,)), [x])
    real = data(3).requires_grad_()
    f(real)[0].sum().backward()
    assert real.grad.tolist() == [3, 3, 3]
