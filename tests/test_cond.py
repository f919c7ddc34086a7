"""torch.cond and torch.while_loop: eager, with gradients, compiled, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch


def choose(pred: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(pred, lambda x: x.sin(), lambda x: x * 2, (x,))


@pytest.mark.parametrize("pred", [True, False, torch.tensor(True), torch.tensor([False]), torch.tensor([[1]]), 0])
def test_one_branch_is_taken(pred: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    y = choose(pred, x)
    y.sum().backward()
    assert torch.equal(y, x.sin() if pred else x * 2)
    assert x.grad is not None and torch.allclose(x.grad, x.cos() if pred else torch.full((3,), 2.0))


def test_operands_may_be_nested_or_absent() -> None:
    x = torch.ones(2)
    pair = torch.cond(torch.tensor(False), lambda d: (d["a"], d["b"][0]), lambda d: (d["b"][0], d["a"]), ({"a": x, "b": [x * 3]},))
    assert pair[0].tolist() == [3, 3] and pair[1] is x
    assert torch.cond(torch.tensor(True), lambda: 1, lambda: 2) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return choose(x.sum() > 0, x + 1) * 3

    compiled = torch.compile(f, backend=backend)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled(x), f(x))


def test_while_loop() -> None:
    x, w = torch.ones(2), torch.full((2,), 2.0, requires_grad=True)
    steps, y = torch.while_loop(lambda i, a: a.sum() < 10, lambda i, a: [i + 1, a * w], (0, x))
    assert (steps, y.tolist()) == (3, [8, 8])
    y.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [12, 12]
    assert torch.while_loop(lambda a: a.sum() > 10, lambda a: (a,), [x])[0] is x


@pytest.mark.parametrize(("args", "message"), [
    ((1, abs, (1,)), "callable"), ((abs, abs, torch.ones(1)), "carried_inputs to be a tuple"),
    ((lambda a: True, lambda a: a, (torch.ones(2),)), "tuple of 1 values"),
    ((lambda a: True, lambda a: (a[:1],), (torch.ones(2),)), "same metadata"),
    ((lambda a: True, lambda a: (a.double(),), (torch.ones(2),)), "same metadata")])
def test_refused_by_while_loop(args: tuple, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.while_loop(*args)


@pytest.mark.parametrize(("args", "message"), [
    (("a", abs, abs), "pred to be bool or tensor"), ((torch.ones(2), abs, abs), "single-element tensor"),
    ((True, 1, abs), "branches to be callable"), ((True, abs, abs, torch.ones(2)), "operands to be a tuple"),
    ((True, abs, abs, (3,)), "only consists of tensor leaves")])
def test_refused(args: tuple, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.cond(*args)


def test_within_vmap_the_examples_choose_for_themselves() -> None:
    x = torch.tensor([[1.0, 2.0], [-3.0, 1.0], [0.5, 0.5]], dtype=torch.float64)

    def f(row: torch.Tensor) -> torch.Tensor:
        return choose(row.sum() > 0, row)

    assert torch.equal(torch.vmap(f)(x), torch.stack([f(row) for row in x]))
    slope = torch.func.grad(lambda row: f(row).sum())
    assert torch.allclose(torch.vmap(slope)(x), torch.stack([slope(row) for row in x]))
    nested = torch.vmap(torch.vmap(lambda a: torch.cond(a > 0, lambda a: {"y": a * 2}, lambda a: {"y": -a}, (a,))["y"]))(x)
    assert torch.equal(nested, torch.where(x > 0, x * 2, -x))
    shared = torch.vmap(lambda row: choose(torch.tensor(True), row))(x)
    assert torch.equal(shared, x.sin())
    with pytest.raises(RuntimeError, match="both branches give tensors alike"):
        torch.vmap(lambda row: torch.cond(row.sum() > 0, lambda a: a, lambda a: a[:1], (row,)))(x)
    with pytest.raises(RuntimeError, match="same structure"):
        torch.vmap(lambda row: torch.cond(row.sum() > 0, lambda a: a, lambda a: (a,), (row,)))(x)


def test_loops_within_vmap_end_each_in_its_own_time() -> None:
    counts, x = torch.tensor([0, 3, 1, 5]), torch.ones(4, 2)

    def f(n: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 1.5), (torch.zeros((), dtype=torch.int64), x))

    done, y = torch.vmap(f)(counts, x)
    assert done.tolist() == counts.tolist()
    assert torch.allclose(y, (1.5 ** counts.double()).float()[:, None].expand(4, 2))
