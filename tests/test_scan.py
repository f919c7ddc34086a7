"""torch._higher_order_ops.scan and map: eager, with gradients, compiled, in vmap, from the disk cache, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau._higher_order_ops import map as over_slices
from flambeau._higher_order_ops import scan
from flambeau.aot.cache import stats
from flambeau.dynamo.backends import lookup_backend
from flambeau.dynamo.exceptions import UncapturedHigherOrderOpError
from flambeau.inductor.cpu.compile import have_compiler

BACKENDS = ["eager", "aot_eager", "inductor"]


def recurrent(start: torch.Tensor, x: torch.Tensor, w: torch.Tensor, dim: int = 0, reverse: bool = False) -> Any:
    """A step with a tree of what is carried, and results of several ranks, one of which needs a number of steps."""
    def step(carry: tuple, x: dict) -> tuple:
        h, count = carry
        h = torch.tanh(x["a"] @ w + h)
        return (h, count + 1), (h * 2, {"sum": count * h.sum()})

    return scan(step, (start, torch.zeros(())), {"a": x}, dim=dim, reverse=reverse)


def loss(made: Any) -> torch.Tensor:
    (h, _), (y, more) = made
    return (h * 1.3).sum() + y.sin().sum() + more["sum"].cos().sum()


def operands(length: int = 5, dim: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shape = [2, 3]
    shape.insert(dim, length)
    return [torch.randn(2, 3, requires_grad=True), torch.randn(*shape, requires_grad=True), torch.randn(3, 3, requires_grad=True)]


def test_a_cumulative_sum() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    last, sums = scan(lambda c, x: (c + x, c + x), torch.zeros(2), x)
    assert sums.tolist() == x.cumsum(0).tolist() and last.tolist() == [6, 9]
    last, sums = scan(lambda c, x: (c + x, c + x), torch.zeros(3), x, dim=1, reverse=True)
    assert sums.tolist() == x.flip(1).cumsum(1).flip(1).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_compiled_with_gradients(backend: str, dim: int, reverse: bool) -> None:
    given = operands(5, dim % 3)
    if dim == -1:
        given = [torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, 4, requires_grad=True), torch.randn(2, 2, requires_grad=True)]
    expected = recurrent(*given, dim, reverse)
    made = torch.compile(recurrent, backend=backend, fullgraph=True)(*given, dim, reverse)
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
    for got, wanted in zip(torch.autograd.grad(loss(made), given), torch.autograd.grad(loss(expected), given)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_operands_without_gradients_and_some_results_unused(backend: str) -> None:
    start, x, w = operands()

    def partial(start: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return recurrent(start, x, w.detach())[1][0].sum()

    for wanted in ([start], [x], [start, x]):
        given = [t if any(t is one for one in wanted) else t.detach() for t in (start, x)]
        got = torch.autograd.grad(torch.compile(partial, backend=backend, fullgraph=True)(*given), wanted)
        for one, other in zip(got, torch.autograd.grad(partial(*given), wanted)):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_integers_and_carried_inputs() -> None:
    def last_two(c: tuple, x: torch.Tensor) -> tuple:
        return (x, c[0]), c[1]

    x = torch.arange(8).reshape(4, 2)
    given = ((torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)), x)
    expected = scan(last_two, *given)
    torch.testing.assert_close(torch.compile(lambda c, x: scan(last_two, c, x), fullgraph=True)(*given), expected)
    assert expected[1].tolist() == [[1, 1], [0, 0], [0, 1], [2, 3]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_of_all_lengths_share_one_graph(backend: str) -> None:
    graphs = []

    def counted(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(gm)
        return lookup_backend(backend)(gm, inputs)

    compiled = torch.compile(recurrent, backend=counted, dynamic=True, fullgraph=True)
    for length in (5, 4, 7, 20):
        given = operands(length)
        made, expected = compiled(*given), recurrent(*given)
        torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
        for got, wanted in zip(torch.autograd.grad(loss(made), given), torch.autograd.grad(loss(expected), given)):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    assert len(graphs) == 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dims", [(0, 0, 0), (None, 0, None), (0, None, None), (None, None, 0), (None, 1, None)])
def test_within_vmap(compiled: bool, dims: tuple) -> None:
    torch.manual_seed(1)
    shapes = [(2, 3), (5, 2, 3), (3, 3)]
    given = []
    for shape, d in zip(shapes, dims):
        shape = list(shape)
        given.append(torch.randn(*(shape if d is None else [*shape[:d], 4, *shape[d:]])))
    batched = torch.vmap(recurrent, in_dims=dims)
    made = torch.compile(batched, fullgraph=True)(*given) if compiled else batched(*given)
    for k in range(4):
        alone = recurrent(*[t if d is None else t.select(d, k) for t, d in zip(given, dims)])
        torch.testing.assert_close(made[1][0][k], alone[1][0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(made[0][0][k], alone[0][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_map(compiled: bool) -> None:
    def run(x: torch.Tensor, pairs: dict, factor: torch.Tensor) -> Any:
        return over_slices(lambda one, f: (one["p"] * f, one["q"].sum() + x.mean()), pairs, factor)

    x, factor = torch.randn(3, requires_grad=True), torch.randn(2, requires_grad=True)
    pairs = {"p": torch.randn(4, 2, requires_grad=True), "q": torch.randn(4, 5)}
    first, second = (torch.compile(run, fullgraph=True) if compiled else run)(x, pairs, factor)
    torch.testing.assert_close(first, pairs["p"] * factor)
    torch.testing.assert_close(second, pairs["q"].sum(1) + x.mean())
    got = torch.autograd.grad(first.sin().sum() + second.sum(), [x, factor, pairs["p"]])
    wanted = torch.autograd.grad((pairs["p"] * factor).sin().sum() + (pairs["q"].sum(1) + x.mean()).sum(), [x, factor, pairs["p"]])
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not have_compiler(), reason="programs are kept with their libraries")
def test_from_the_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    for hits in (0, 1):
        torch._dynamo.reset()
        before, given = stats["hit"], operands()
        made = torch.compile(recurrent, fullgraph=True)(*given)
        torch.testing.assert_close(made, recurrent(*given), rtol=1e-5, atol=1e-5)
        for got, wanted in zip(torch.autograd.grad(loss(made), given), torch.autograd.grad(loss(recurrent(*given)), given)):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        assert stats["hit"] - before == hits


REFUSED: list[tuple[Callable, str]] = [
    (lambda x: scan(3, x[0], x), "must be a callable, but got 3"),
    (lambda x: scan(lambda c, x: (c, x), 3, x), "init leaves must be a Tensor but got 3"),
    (lambda x: scan(lambda c, x: (c, x), [], x), "requires init leaves"),
    (lambda x: scan(lambda c, x: (c, x), x[0], [x, x[:1]]), r"one length .* \[\[3, 2\], \[1, 2\]\]"),
    (lambda x: scan(lambda c, x: (c, x), x[0], x[:0]), "one slice at least"),
    (lambda x: scan(lambda c, x: c + x, x[0], x), "must return a pair"),
    (lambda x: scan(lambda c, x: ((c, c), x), x[0], x), "a tree of 1 tensors, but gave one of 2"),
    (lambda x: scan(lambda c, x: (c[:1], x), x[0], x), r"number 0 is \[2\] of torch.float32 before and \[1\]"),
    (lambda x: scan(lambda c, x: (c.double(), x), x[0], x), "torch.float64 after"),
    (lambda x: scan(lambda c, x: (c, 3), x[0], x), "results of combine_fn must be tensors, got int"),
    (lambda x: over_slices(lambda x: x, x[:0]), "one slice at least"),
    (lambda x: over_slices(lambda x: x, 3), "map: xs must hold tensors"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused(call: Callable, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(torch.randn(3, 2))


def test_what_a_step_may_not_do_is_a_graph_break() -> None:
    seen = []

    def step(c: torch.Tensor, x: torch.Tensor) -> tuple:
        seen.append(1)
        return c + x, c * x

    def run(c: torch.Tensor, x: torch.Tensor) -> Any:
        return scan(step, c, x)

    given = torch.randn(2), torch.randn(3, 2)
    torch.testing.assert_close(torch.compile(run)(*given), run(*given))
    with pytest.raises(UncapturedHigherOrderOpError, match="scan"):
        torch.compile(run, fullgraph=True)(*given)
