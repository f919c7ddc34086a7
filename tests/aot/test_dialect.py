"""Compilers of the user's own, and make_fx, are given graphs of ATen's overloads, which compute the same and can be compiled further."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._dynamo.backends.common import aot_autograd
from flambeau._functorch.aot_autograd import aot_function, make_boxed_func
from flambeau._functorch.make_fx import make_fx
from flambeau._inductor.compile_fx import compile_fx_inner
from flambeau.nn import functional as F
from flambeau.ops.aten import Overload

aten = torch.ops.aten


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


PROGRAMS: dict[str, tuple[Callable, tuple]] = {
    "pointwise": (lambda x, y: (x * y + 2).relu().sin() - y / 3, ((3, 4), (3, 4))),
    "broadcast": (lambda x, b: torch.sigmoid(x + b) * b, ((3, 4), (4,))),
    "compare": (lambda x, y: torch.where(x > y, x, 0.0) + (x <= 1), ((3, 4), (3, 4))),
    "reductions": (lambda x: x.sum(0) + x.mean(0) + x.amax(0) + x.var(0) + x.sum(), ((3, 4),)),
    "views": (lambda x: torch.cat([
        x.t().reshape(2, 6), x[1:].flatten()[None, :6], x.permute(1, 0).unsqueeze(0)[0, :2, :2].repeat(1, 3)]), ((3, 4),)),
    "products": (lambda x, y, z: (x @ y).unsqueeze(0) @ z, ((3, 4), (4, 5), (2, 5, 2))),
    "linear": (lambda x, w, b: F.linear(x, w, b).tanh(), ((3, 4), (5, 4), (5,))),
    "linear of three": (lambda x, w, b: F.linear(x, w, b), ((2, 3, 4), (5, 4), (5,))),
    "linear without bias": (lambda x, w: F.linear(x.transpose(0, 1), w), ((2, 3, 4), (5, 4))),
    "softmax": (lambda x: x.softmax(-1) + x.log_softmax(0), ((3, 4),)),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x), ((3, 4),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), ((3, 4), (4,), (4,))),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1) + F.conv2d(x, w, padding=1), ((1, 2, 5, 5), (3, 2, 3, 3), (3,))),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 0, 1]), w), ((3, 4),)),
    "indexing": (lambda x: x[torch.tensor([1, 0])] * x.gather(1, torch.tensor([[0, 1, 2, 3]] * 2)), ((3, 4),)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4))),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 2, 1])), ((3, 4),)),
    "several results": (lambda x: torch.topk(x, 2)[0] + torch.sort(x)[0][:, :2], ((3, 4),)),
    "in place": (lambda x: x.clone().mul_(2).add_(1).index_fill_(0, torch.tensor([0]), 3.0), ((3, 4),)),
}
TOLD_APART = {"cross_entropy", "attention", "reductions"}   # steps of these are no calls of ATen's


@pytest.mark.parametrize("inner", ["nop", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_of_overloads_compute_the_same(name: str, inner: str) -> None:
    f, shapes = PROGRAMS[name]
    graphs: list[Any] = []

    def compiler(gm: Any, examples: Any) -> Any:
        graphs.append(gm)
        return compile_fx_inner(gm, examples) if inner == "inductor" else make_boxed_func(gm.forward)

    mine, theirs = ([data(*shape).requires_grad_() for shape in shapes] for _ in range(2))
    expected, got = f(*mine), aot_function(f, fw_compiler=compiler)(*theirs)
    torch.testing.assert_close(got, expected)
    for out in (expected, got):
        (out * torch.linspace(0, 1, out.numel()).view(out.shape)).sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(b.grad, a.grad)
    assert len(graphs) == 2
    targets = [node.target for node in graphs[0].graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    assert targets and (name in TOLD_APART or all(isinstance(target, Overload) for target in targets)), graphs[0].code


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_make_fx_gives_overloads(name: str, mode: str) -> None:
    f, shapes = PROGRAMS[name]
    args = [data(*shape) for shape in shapes]
    made = make_fx(f, tracing_mode=mode)(*args)
    torch.testing.assert_close(made(*args), f(*args))
    assert any(isinstance(node.target, Overload) for node in made.graph.nodes)


def test_a_backend_that_looks_for_overloads() -> None:
    """As tutorials write them: it counts operators by their overloads and puts others in their places."""
    counts: dict[Any, int] = {}

    def compiler(gm: Any, examples: Any) -> Any:
        for node in list(gm.graph.nodes):
            if node.op == "call_function":
                counts[node.target] = counts.get(node.target, 0) + 1
            if node.target == aten.relu.default:
                with gm.graph.inserting_after(node):
                    other = gm.graph.call_function(aten.sigmoid.default, node.args)
                node.replace_all_uses_with(other)
                gm.graph.erase_node(node)
        gm.recompile()
        return make_boxed_func(gm.forward)

    layer = torch.nn.Linear(4, 2)
    compiled = torch.compile(lambda x: layer(x).relu().sum(), backend=aot_autograd(fw_compiler=compiler))
    with torch.no_grad():
        torch.testing.assert_close(compiled(data(3, 4)), layer(data(3, 4)).sigmoid().sum())
    assert counts == {aten.t.default: 1, aten.addmm.default: 1, aten.relu.default: 1, aten.sum.default: 1}


def test_sizes_that_vary_are_nodes() -> None:
    seen: list[Any] = []

    def compiler(gm: Any, examples: Any) -> Any:
        seen.append(gm)
        return compile_fx_inner(gm, examples)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.view(-1).softmax(0) * x.shape[0]).view(x.shape[0], -1).mean(1)

    compiled = torch.compile(f, backend=aot_autograd(fw_compiler=compiler), dynamic=True)
    for rows in (3, 5):
        torch.testing.assert_close(compiled(data(rows, 4)), f(data(rows, 4)))
    assert len(seen) == 1 and any(node.target == aten._softmax.default for node in seen[0].graph.nodes)
