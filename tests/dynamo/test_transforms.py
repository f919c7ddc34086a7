"""Compiled functions that take functions, by torch.func, cond and while_loop: through aot, with gradients, for other sizes."""

from __future__ import annotations

from typing import Any

import programs_func
import pytest
from dynamo_harness import Counter
from programs import BREAKS, PROGRAMS

import flambeau as torch
from flambeau._dynamo.exc import UncapturedHigherOrderOpError
from flambeau.utils._pytree import tree_leaves

NAMES = [name for name, made in PROGRAMS.items() if made.__module__ == programs_func.__name__]


def tensors(tree: Any) -> list[torch.Tensor]:
    leaves = [list(leaf.parameters()) if isinstance(leaf, torch.nn.Module) else [leaf] for leaf in tree_leaves(tree)]
    return [leaf for some in leaves for leaf in some if isinstance(leaf, torch.Tensor)]


def close(mine: list[torch.Tensor | None], theirs: list[torch.Tensor | None]) -> None:
    for m, t in zip(mine, theirs, strict=True):
        assert (m is None) == (t is None)
        if m is not None:
            assert m.shape == t.shape and m.requires_grad == t.requires_grad
            assert torch.allclose(m, t, rtol=1e-4, atol=1e-5)


def outcome(name: str, wrap: Any, wanted: bool) -> tuple[list, list]:
    """Results, and the gradients of the arguments when all of them are asked for theirs."""
    f, args = PROGRAMS[name](torch)
    inputs = tensors(args)
    for leaf in inputs:
        leaf.requires_grad_(wanted or leaf.requires_grad)
    results = tensors(wrap(f)(*args))
    total = [(r * r).sum() for r in results if r.requires_grad]
    if total:
        torch.stack(total).sum().backward()
    return results, [leaf.grad for leaf in inputs]


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_through_aot(name: str, wanted: bool) -> None:
    want = outcome(name, lambda f: f, wanted)
    got = outcome(name, lambda f: torch.compile(f, backend="aot_eager", fullgraph=name not in BREAKS), wanted)
    close(got[0], want[0])
    close(got[1], want[1])


@pytest.mark.parametrize(
    "name", ["grad_of_a_module", "hessians", "gradients_of_each_sample", "cond_closes_over", "cond_in_grad", "while_loop_of_tensors"]
)
def test_through_inductor(name: str) -> None:
    want, got = (outcome(name, wrap, True) for wrap in (lambda f: f, lambda f: torch.compile(f, fullgraph=True)))
    close(got[0], want[0])
    close(got[1], want[1])


@pytest.mark.parametrize(("f", "graphs"), [
    (lambda x, w: torch.func.grad(lambda a: (a * w).sin().sum())(x), 1),
    (lambda x, w: torch.func.jvp(lambda a: a.sin() * w, (x,), (x,)), 1),
    (lambda x, w: torch.vmap(lambda a: a.sin().sum(), in_dims=1)(x), 1),
    (lambda x, w: torch.vmap(lambda a: a * w)(x), 1),
    (lambda x, w: torch.func.jacrev(lambda a: (a * w).sum(1))(x), 1),
    (lambda x, w: torch.cond(x.sum() > w.sum(), lambda a: a.sin() * w, lambda a: a.cos() / a.shape[0] * w, (x,)), 1),
    (lambda x, w: torch.while_loop(lambda a: a.sum() < x.shape[0], lambda a: (a * 1.5 + w.abs(),), (x.abs(),)), 1)])
def test_sizes_that_vary(f: Any, graphs: int) -> None:
    counter = Counter()
    compiled = torch.compile(f, backend=counter, dynamic=True, fullgraph=True)
    w = torch.randn(4, requires_grad=True)
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        close(tensors(compiled(x, w)), tensors(f(x, w)))
    assert len(counter.graphs) == graphs


def test_a_break_inside_of_a_transform() -> None:
    """The transform runs between two graphs, and what it is given is differentiated twice."""
    def f(x: torch.Tensor) -> torch.Tensor:
        def energy(a: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return (a**3).sum()

        return torch.func.hessian(energy)(x + 1) * 2

    x = torch.randn(3)
    assert torch.allclose(torch.compile(f, backend="aot_eager")(x), f(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_graph_serves_both_branches(backend: str) -> None:
    graphs = []

    def count(gm: Any, examples: Any) -> Any:
        graphs.append(gm)
        return torch._dynamo.lookup_backend(backend)(gm, examples)

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a * w, lambda a: a - w, (x,)) + 1

    compiled = torch.compile(f, backend=count, fullgraph=True)
    for sign in (1, -1, 1):
        x, w = torch.full((3,), 2.0) * sign, torch.full((3,), 3.0, requires_grad=True)
        y = compiled(x, w)
        y.sum().backward()
        assert torch.equal(y, f(x, w)) and torch.equal(w.grad, x if sign > 0 else -torch.ones(3))
    assert len(graphs) == 1
    assert [node.name for node in graphs[0].graph.nodes if "choose" in node.name] == ["choose"]


def test_what_a_branch_may_not_do_is_named() -> None:
    error = UncapturedHigherOrderOpError
    with pytest.raises(error, match=r"torch.cond: .* branches give results of different shape: number 0 has .*3.* and .*2"):
        torch.compile(lambda x: torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a[:2] * 1, (x,)), fullgraph=True)(torch.ones(3))
    with pytest.raises(error, match=r"torch.while_loop: .*body_fn takes and gives tensors of different dtype"):
        torch.compile(lambda x: torch.while_loop(lambda a: a.sum() < 9, lambda a: (a.double(),), (x,)), fullgraph=True)(torch.ones(3))
    with pytest.raises(error, match="a condition that is no tensor of one element"):
        torch.compile(lambda x: torch.while_loop(lambda a: a < 9, lambda a: (a * 2,), (x,)), fullgraph=True)(torch.ones(3))


def test_the_graphs_of_functions_are_printed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))

    text = str(torch._dynamo.explain(f)(torch.ones(3)))
    assert "def function_0(self, x" in text and "x.sin()" in text and "def function_1(self, x" in text
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))
    torch.compile(f, backend="aot_eager")(torch.ones(3))
    exec(next(tmp_path.glob("*/*/repro.py")).read_text().replace("'inductor'", "'eager'"), made := {})
    assert torch.equal(made["expected"], made["got"])


def test_a_transform_is_compiled_by_itself() -> None:
    """torch.compile(vmap(grad(f))): the frame is Flambeau's own."""
    counter = Counter()
    w, x = torch.randn(3, 4), torch.randn(5, 3)
    f = torch.vmap(torch.func.grad(lambda w, a: (a @ w).tanh().sum()), in_dims=(None, 0))
    close(torch.compile(f, backend=counter, fullgraph=True)(w, x), f(w, x))
    assert len(counter.graphs) == 1
