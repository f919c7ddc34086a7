"""Tracing of plain functions, and the user's lines."""

import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx
from flambeau._functorch.make_fx import make_fx as make_fx_as_torch
from flambeau.aot import make_fx
from flambeau.aot.joint import LEAF, trace


def data(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def test_make_fx():
    def f(x, pair):
        y = x * 2
        y += pair[0]
        return {"y": y, "z": [pair[1].sum()]}

    gm = make_fx(f)(data(3), (data(3, seed=1), data(2)))
    got = gm(data(3), data(3, seed=1), data(2))
    assert (got["y"] == data(3) * 2 + data(3, seed=1)).all()
    assert [n.target.name for n in gm.graph.nodes if n.op == "call_function"] == ["mul", "add", "sum"]
    assert "arg0: " in gm.code and '"f32[3]"' in gm.code


def test_make_fx_sees_gradients_and_constants():
    w = data(3, seed=1)

    def f(x):
        (g,) = torch.autograd.grad((torch.sin(x) * w).sum(), x)
        return g

    x = data(3).requires_grad_()
    gm = make_fx(f)(x)
    np.testing.assert_allclose(gm(x).detach().numpy(), (torch.cos(x) * w).detach().numpy(), rtol=1e-6)
    assert gm._tensor_constant0 is w


def test_make_fx_names_the_line():
    def f(x):
        return x.exp()  # this line

    (node,) = make_fx(f)(data(3)).graph.find_nodes(op="call_function")
    assert node.meta["stack"][-1][2:] == ("f", "return x.exp()  # this line")


def test_backward_belongs_to_the_line_of_the_forward_step():
    gm = fx.symbolic_trace(lambda x: torch.sin(x).exp().sum())
    for i, node in enumerate(gm.graph.find_nodes(op="call_function") + gm.graph.find_nodes(op="call_method")):
        node.meta["stack"] = ((f"line{i}", i, "f", str(node.target)),)
    program = trace(gm, [data(3).requires_grad_()], (), [LEAF])
    lines = {n.target.name: n.meta["stack"][-1][0] for n in program.graph.find_nodes(op="call_function")}
    assert lines["sin"] == lines["cos"] == "line0"
    backward = [n for n in program.graph.find_nodes(op="call_function") if n.target.name == "mul"]
    assert [n.meta["stack"][-1][0] for n in backward] == ["line1", "line0"]


def test_code_prints_and_runs_on_its_own():
    program = trace(fx.symbolic_trace(lambda x: x.t().reshape(-1).softmax(0)), [data(2, 3)], (), None)
    gm = program.module(name="inference")
    assert "prims.permute(primals_1, (1, 0))" in gm.code
    assert np.allclose(gm(data(2, 3))[0].sum().item(), 1)


@pytest.mark.parametrize("f, first, then", [
    (lambda x, n: x.view(-1, x.shape[1] * 2).sum(0) * x.shape[0] + n, ((4, 3), 5), ((6, 7), 9)),
    (lambda x, n: torch.arange(x.shape[0]) + x.t().relu().contiguous().view(-1, n).shape[0], ((4, 6), 2), ((8, 3), 4)),
    (lambda x, n: torch.autograd.grad((x * x.sin()).sum() * n, x)[0], ((2, 3), 3), ((5, 4), 7)),
    (lambda x, n: torch.cat([x, x[:, :1].expand(-1, n)], 1).softmax(-1), ((2, 3), 4), ((3, 5), 2)),
], ids=["view", "factory", "gradient", "cat"])  # fmt: skip
def test_make_fx_for_any_sizes(f, first, then):
    """With tracing_mode="symbolic" sizes and ints are symbols, and what was asked of them is kept."""
    def given(shape, n):
        return torch.arange(math.prod(shape)).reshape(shape).mul(0.1).requires_grad_(), n

    gm = make_fx_as_torch(f, tracing_mode="symbolic")(*given(*first))
    for arguments in (first, then):
        assert torch.allclose(gm(*given(*arguments)), f(*given(*arguments)))
    assert gm.shape_env.guard_expressions()


def _swap(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x, y, x + y


def _shift(x, y):
    y.copy_(x)
    x.add_(1)
    return y, x


def _part(x, y):
    part = x[1:]
    part.mul_(y[0] + 3)
    return part


def _unread(x, y):
    x[0] = 5.0
    y.zero_()


@pytest.mark.parametrize("run", [lambda gm: gm, lambda gm: torch.compile(gm, backend="aot_eager"), torch.compile],
                         ids=["graph", "aot_eager", "inductor"])
@pytest.mark.parametrize("trace_with", [make_fx, make_fx_as_torch], ids=["primitives", "aten"])
@pytest.mark.parametrize("f", [_swap, _shift, _part, _unread])
def test_make_fx_writes_to_the_arguments(f, trace_with, run):
    """Also where nobody reads that, and where one argument's new value is what another was."""
    def given():
        return [torch.arange(3.0), torch.arange(3.0) + 10]

    eager, traced = given(), given()
    want, got = f(*eager), run(trace_with(f)(*given()))(*traced)
    assert all(a.tolist() == b.tolist() for a, b in zip(eager, traced))
    assert str(got) == str(want)
