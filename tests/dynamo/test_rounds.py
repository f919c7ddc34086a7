"""Loops of which each round is compiled by itself: what a loop counts, sums up or hands on is no reason to compile a round again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo


def by_range(x, tol):
    for i in range(50):
        x = x * 0.5 + 0.01 * i
        if x.abs().max() < tol:
            break
    return x, i


def by_enumerate(x, tol):
    for i, scale in enumerate([0.5, 0.25, 0.75, 0.5, 0.1, 0.9] * 3):
        x = x * scale + i * 0.001
        if x.abs().max() < tol:
            break
    return x, i, scale


def counted(x, tol):
    n = 0
    while x.abs().max() > tol:
        x = x * 0.5
        n += 1
    return x, n


def counted_down(x, tol):
    left = 3
    while x.abs().max() > tol:
        x = x * 0.5 + left * 1e-6
        left -= 1
    return x, left


def shrinking_step(x, tol):
    step = 1.0
    while (x - step).abs().max() > tol:
        x, step = x * 0.7, step * 0.5
        if step < 1e-9:
            break
    return x, step


def indexed(x, tol):
    total = torch.zeros(())
    for i in range(x.shape[0]):
        total = total + x[i]
        if total > 100 + tol:
            break
    return total, i


def stored(x, tol):
    out = torch.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = x[i] * 2
        if out.sum() > 1000 + tol:
            break
    return out


def two_deep(x, tol):
    rounds = 0
    for i in range(3):
        for j in range(4):
            x = x * 0.9 + 0.01 * j
            rounds += i
            if x.sum() < -tol:
                return x, rounds
    return x, rounds


def clamped_by_items(x, tol):
    for i in range(x.shape[0] - 1):
        x = x.clamp(min=x[i].item())
        if x.max() < tol:
            break
    return x


ROUNDS: dict[str, tuple[Callable[..., Any], int]] = {f.__name__: (f, most) for f, most in (
    (by_range, 1), (by_enumerate, 1), (counted, 2), (counted_down, 3), (shrinking_step, 2), (indexed, 2), (stored, 2), (two_deep, 1),
    (clamped_by_items, 1))}


@pytest.mark.parametrize("name", ROUNDS)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_round_is_one_graph(name: str, backend: str) -> None:
    """Whatever the number of rounds, in this call and in the next one."""
    function, most = ROUNDS[name]
    counter = Counter()
    compiled, fast = dynamo.compile(function, backend=counter), dynamo.compile(function, backend=backend)
    for start in (5.0, 70.0, 0.9):
        x = torch.arange(6.0) + start
        want = function(x, 0.5)
        assert same(compiled(x, 0.5), want)
        assert same(fast(x, 0.5), want)
        assert len(counter.graphs) <= most, [str(graph.graph) for graph in counter.graphs]


@pytest.mark.parametrize("start", [0, 1, 2, -1, -3])
def test_an_int_that_varies_may_be_any(start: int) -> None:
    """0 and 1 are special for sizes alone."""
    counter = Counter()
    compiled = dynamo.compile(lambda x, n: x * n + n // 3 + (x.shape[0] - n), backend=counter)
    for n in (17, start, start + 4 * (start >= 0) - 5 * (start < 0), 6, 0, 1, 100):
        assert same(compiled(torch.arange(4.0), n), torch.arange(4.0) * n + n // 3 + (4 - n))
    assert len(counter.graphs) == 2  # the first, and one for all others


@pytest.mark.parametrize("use", [
    lambda x, n: torch.zeros(n) + n, lambda x, n: x[:n] * 2, lambda x, n: x.expand(n, 6) + n, lambda x, n: torch.arange(n) * n,
    lambda x, n: x.view(-1, 6).repeat(n, 1), lambda x, n: x[n] * 2, lambda x, n: x.narrow(0, n, 1) + n, lambda x, n: x.roll(n),
])  # fmt: skip
def test_an_int_that_is_a_size_is_right_for_all(use) -> None:
    compiled, fast = dynamo.compile(use, backend="eager"), dynamo.compile(use)
    for n in (5, 3, 1, 0, 4, 2):
        x = torch.arange(6.0)
        assert same(compiled(x, n), use(x, n)) and same(fast(x, n), use(x, n)), n


@pytest.mark.parametrize("use", [
    lambda x, n: x.movedim(n, 0), lambda x, n: x.sum(n), lambda x, n: torch.cat([x, x], n), lambda x, n: x.unbind(n),
    lambda x, n: x.softmax(n),
    lambda x, n: x.transpose(n, 0), lambda x, n: x.permute(n, n - 1, n - 2), lambda x, n: x.max(dim=n).values, lambda x, n: x.cumsum(n),
    lambda x, n: x.flatten(0, n), lambda x, n: x.unsqueeze(n), lambda x, n: x.split(1, n), lambda x, n: x.norm(p=n + 3),
    lambda x, n: x.diff(n=abs(n)),
    lambda x, n: x.select(n, 1), lambda x, n: torch.stack([x, x], n), lambda x, n: x.roll(n, n), lambda x, n: x.flip(n),
    lambda x, n: x.tril(n),
    lambda x, n: x.diagonal(n, 0, 1), lambda x, n: x.pow(n), lambda x, n: torch.nn.functional.pad(x, (abs(n), 0)),
    lambda x, n: x.size(n) * x,
    lambda x, n: torch.nn.functional.one_hot(torch.arange(3) + n - n, 3 + abs(n)), lambda x, n: x.sort(n).values,
    lambda x, n: torch.quantile(x, 0.5, n),
])  # fmt: skip
def test_an_int_may_be_what_an_operator_must_know(use) -> None:
    compiled = dynamo.compile(use, backend="eager")
    for n in (2, 1, 0, -1, 2):
        x = torch.arange(27.0).reshape(3, 3, 3)
        assert same(compiled(x, n), use(x, n)), n


def test_a_size_of_a_round_is_not_a_variable_before_it_changes() -> None:
    """What a loop computes anew may be the same each time: kernels of fixed sizes are the better ones."""
    def f(xs):
        total = 0.0
        for x in xs:
            n = x.shape[0]
            total += x.sum().item()
            print("", end="")
            y = torch.zeros(n, 3) + total
        return y

    counter = Counter()
    xs = [torch.ones(4) * k for k in range(4)]
    assert same(dynamo.compile(f, backend=counter)(xs), f(xs))
    assert all(type(size) is int for graph in counter.graphs for node in graph.graph.nodes
               if isinstance(val := node.meta.get("val"), torch.Tensor) for size in val.shape)  # fmt: skip


def test_sizes_that_were_different_share_no_symbol() -> None:
    """Two sizes that are equal today but were not yesterday: what is compiled today holds tomorrow, when they differ again."""
    counter = Counter()
    compiled = dynamo.compile(lambda x, y: (x * 2, y + 1), backend=counter)
    for n, m in ((6, 6), (6, 4), (9, 9), (7, 5), (3, 8)):
        x, y = torch.ones(n), torch.ones(m)
        assert same(compiled(x, y), (x * 2, y + 1))
    assert len(counter.graphs) == 3


def test_a_bound_read_from_a_tensor_is_no_break() -> None:
    """NaN and infinite bounds come out as eager code's do, and zeros keep their signs."""
    def f(x, low):
        return x.clamp(min=low.item()), x.clamp(max=low.item()), x.clamp(low.item(), 4.0)

    compiled = dynamo.compile(f, backend="inductor", fullgraph=True)
    x = torch.tensor([1.0, -0.0, float("nan"), 5.0, 0.0])
    for low in (0.5, -2.0, 0.0, -0.0, float("nan"), float("inf"), -float("inf")):
        for got, want in zip(compiled(x, torch.tensor(low)), f(x, torch.tensor(low)), strict=True):
            assert same(got, want) and torch.equal(got.signbit(), want.signbit())


def reached_from(adjacent, start):
    """Breadth-first: each round's frontier has a size that only the values tell, and is looked at for being empty."""
    seen = torch.zeros(adjacent.shape[0], dtype=torch.bool)
    seen[start] = True
    frontier, depth = torch.tensor([start]), 0
    while frontier.numel():
        new = adjacent[frontier].any(0) & ~seen
        seen = seen | new
        frontier = new.nonzero().flatten()
        depth += 1
    return depth, seen


def kept_boxes(boxes, scores, most):
    """Suppression of boxes that overlap with better ones, written as a loop."""
    order, keep = scores.argsort(descending=True), []
    while order.numel() > 0:
        i = order[0]
        keep.append(i)
        if order.numel() == 1:
            break
        rest = boxes[order[1:]]
        low, high = torch.maximum(boxes[i][:2], rest[:, :2]), torch.minimum(boxes[i][2:], rest[:, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        area = (rest[:, 2:] - rest[:, :2]).prod(1) + (boxes[i][2:] - boxes[i][:2]).prod()
        order = order[1:][shared / (area - shared) <= most]
    return keep


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_rounds_over_sizes_that_values_tell(backend: str) -> None:
    generator = torch.Generator().manual_seed(0)
    counter = Counter()
    compiled, fast = dynamo.compile(reached_from, backend=counter), dynamo.compile(reached_from, backend=backend)
    for start in (0, 3, 7, 5):
        adjacent = torch.rand(15, 15, generator=generator) < 0.15
        assert same(compiled(adjacent, start), reached_from(adjacent, start))
        assert same(fast(adjacent, start), reached_from(adjacent, start))
    assert len(counter.graphs) <= 5

    counter = Counter()
    compiled, fast = dynamo.compile(kept_boxes, backend=counter), dynamo.compile(kept_boxes, backend=backend)
    for n in (12, 20, 17):
        corners = torch.rand(n, 2, generator=generator) * 10
        given = torch.cat([corners, corners + 2 + torch.rand(n, 2, generator=generator) * 3], 1), torch.rand(n, generator=generator), 0.3
        assert same(compiled(*given), kept_boxes(*given))
        assert same(fast(*given), kept_boxes(*given))
    assert len(counter.graphs) <= 8     # of 30 rounds: sizes 1 and 2 are apart


def peeled(x):
    """Each round keeps some of what the one before has left."""
    sums = []
    while x.numel() > 0:
        sums.append(x.sum())
        x = x[x < x.max()]
    return torch.stack(sums)


def peeled_beside(x):
    total = torch.zeros(())

    def add():
        return total + x.sum()

    for limit in (8.0, 6.0, 4.0):
        x = x[x < limit]
        print(limit)
        total = add()
    return total, x


def kept_after_a_break(x):
    y = x[x > 2]
    print("between")
    return y.sum() + y.shape[0]


@pytest.mark.parametrize(("function", "graphs"), [(peeled, 4), (peeled_beside, 3), (kept_after_a_break, 2)])
def test_sizes_that_values_tell_vary_from_the_start(function: Callable[..., Any], graphs: int) -> None:
    counter = Counter()
    compiled = dynamo.compile(function, backend=counter)
    for shift in (0.0, 1.0):
        x = torch.arange(10) + shift
        assert same(function(x), compiled(x))
    assert len(counter.graphs) <= graphs


@pytest.mark.parametrize("values", [(8.0, 6.0, 4.0), [8.0, 6.0, 4.0], range(4, 7), {"a": 8.0, "b": 6.0}, "abc"])
def test_the_place_in_what_a_loop_goes_through_is_no_reason_to_compile_a_round_again(values: Any) -> None:
    def function(x):
        for value in values:
            x = x * 2
            print(value)
            x = x + 1
        return x

    counter = Counter()
    compiled = dynamo.compile(function, backend=counter)
    x = torch.arange(3.0)
    assert same(function(x), compiled(x))
    assert len(counter.graphs) == 2
