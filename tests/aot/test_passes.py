"""The clean-up passes, each on graphs of primitives."""

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx
from flambeau.aot import passes
from flambeau.aot.trace import TraceMode, stripped, tracing


def graph_of(f, *inputs):
    """The functional graph of `f`, unclean."""
    mode = TraceMode()
    with tracing(mode), torch.no_grad():
        fakes = [stripped(t) for t in inputs]
        for i, t in enumerate(fakes):
            mode.input(f"x{i}", t)
        answer = f(*fakes)
        answers = answer if isinstance(answer, tuple) else (answer,)
        mode.graph.output(tuple(mode.node_of(t) for t in answers))
    return fx.GraphModule(mode.constants, mode.graph)


def data(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def names(gm):
    return [n.target.name for n in gm.graph.nodes if n.op == "call_function"]


def run(gm, *inputs):
    with torch.no_grad():
        return [t.numpy() for t in gm(*inputs)]


def after(f, *inputs, using):
    """The graph after the passes `using`; its meaning must not have changed."""
    gm = graph_of(f, *inputs)
    before = run(gm, *inputs)
    fx.PassManager(using, check=True)(gm)
    for a, b in zip(run(gm, *inputs), before, strict=True):
        np.testing.assert_array_equal(a, b)
    return gm


def test_equal_calls_are_merged():
    gm = after(lambda x: (torch.sin(x) + torch.sin(x)) * torch.sin(x), data(3), using=[passes.merge_common_subexpressions])
    assert names(gm) == ["sin", "add", "mul"]


@pytest.mark.parametrize("a, b", [(0.0, -0.0), (1, 1.0), (1, True)])
def test_constants_that_only_compare_equal_are_not_merged(a, b):
    assert passes._key((a,)) != passes._key((b,))
    assert passes._key((a, [slice(0, a)])) == passes._key((a, [slice(0, a)]))


def test_dead_code_goes():
    def f(x):
        x.sum().exp()
        return x + 1

    assert names(after(f, data(3), using=[passes.eliminate_dead_code])) == ["add"]


def test_views_that_change_nothing_go():
    def f(x):
        return x.view(4, 3).view(12).view(2, 6).permute(0, 1).detach() + 0.5

    gm = after(f, data(3, 4), using=[passes.remove_noop_views, passes.eliminate_dead_code])
    assert names(gm) == ["view", "add"]
    gm = after(lambda x: x.t().t() + 1, data(3, 4), using=[passes.remove_noop_views])
    assert names(gm) == ["permute", "permute", "add"]


def test_equal_broadcasts_become_one():
    def f(x):
        return x.unsqueeze(0).unsqueeze(2).unsqueeze(3) + x.unsqueeze(1).unsqueeze(2).unsqueeze(0)

    using = [passes.order_unsqueezes, passes.merge_common_subexpressions, passes.eliminate_dead_code]
    assert names(after(f, data(3), using=using)) == ["unsqueeze", "unsqueeze", "unsqueeze", "add"]
    gm = after(lambda x: x.unsqueeze(1).unsqueeze(1).unsqueeze(0) * 2, data(3, 4), using=using)
    assert [n.args[1] for n in gm.graph.nodes if n.op == "call_function"][:3] == [0, 2, 3]


def test_known_values_become_numbers():
    def f(x):
        return x * torch.full((3,), 2.0) + torch.zeros(3).exp() * 3

    gm = after(f, data(3), using=[passes.fold_constants, passes.eliminate_dead_code])
    assert names(gm) == ["mul", "add"]
    assert [n.args[1] for n in gm.graph.nodes if n.op == "call_function"] == [2.0, 3.0]


def test_views_of_known_values():
    gm = after(
        lambda x: x + torch.ones(1, 3).expand(2, 3).t().reshape(6),
        data(6),
        using=[passes.fold_constants, passes.eliminate_dead_code],
    )
    assert names(gm) == ["add"]


def test_known_values_of_other_dtypes_stay():
    def f(x):
        return torch.where(torch.ones(3, dtype=torch.bool), x, torch.zeros(3))

    gm = after(f, data(3), using=[passes.fold_constants])
    assert "where" in names(gm)


def test_results_are_separated():
    gm = graph_of(lambda x: (x, x.t(), x + 1, x.view(-1)), data(2, 2))
    passes.separate_results(gm.graph, 0, 4)
    gm.graph.lint()
    assert names(gm).count("clone") == 3
