"""`torch._inductor.pattern_matcher` and `lowering`: what users register is found in compiled graphs, or refused with what to use."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau._inductor import config, lowering, pattern_matcher
from flambeau._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

calls: list[tuple[int, ...]] = []


@torch.library.custom_op("matched::linear_relu", mutates_args=())
def linear_relu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One call for three."""
    calls.append(tuple(x.shape))
    return torch.relu(x @ w + b)


@linear_relu.register_fake
def _(x, w, b):
    return x.new_empty(x.shape[0], w.shape[1])


def search(x, w, b):
    return torch.relu(x @ w + b)


def replacement(x, w, b):
    return linear_relu(x, w, b)


EXAMPLES = [torch.empty(3, 4), torch.empty(4, 5), torch.empty(5)]


@pytest.fixture
def patterns(monkeypatch):
    made = PatternMatcherPass()
    calls.clear()
    torch._dynamo.reset()
    monkeypatch.setattr(config, "post_grad_custom_post_pass", made.apply)
    return made


def test_it_is_found_with_other_sizes_and_twice(patterns) -> None:
    assert register_replacement(search, replacement, EXAMPLES, fwd_only, patterns)
    assert not register_replacement(search, replacement, EXAMPLES, fwd_only, patterns, skip_duplicates=True)

    def f(x, w, b, v):
        y = search(x, w, b)
        return search(y * 2, v, b).sum() + (x @ w).sum() * 0

    def g(x, w, b, v):
        return search(search(x, w, b) * 2, v, b).sum()

    given = torch.randn(6, 8), torch.randn(8, 10), torch.randn(10), torch.randn(10, 10)
    torch.testing.assert_close(torch.compile(g)(*given), g(*given))
    assert calls == [(6, 8), (6, 10)]
    calls.clear()
    torch.testing.assert_close(torch.compile(f)(*given), f(*given))
    assert calls == [(6, 10)]      # the first product is used outside of the pattern, too


def test_extra_check_sees_what_was_found(patterns) -> None:
    seen = []

    def wide(match):
        seen.append({name: tuple(node.meta["val"].shape) for name, node in match.kwargs.items()})
        return match.kwargs["w"].meta["val"].shape[1] > 10

    register_replacement(search, replacement, EXAMPLES, fwd_only, patterns, extra_check=wide)
    for n in (4, 20):
        given = torch.randn(6, 8), torch.randn(8, n), torch.randn(n)
        torch.testing.assert_close(torch.compile(search, dynamic=False)(*given), search(*given))
    assert calls == [(6, 8)] and seen[0] == {"x": (6, 8), "w": (8, 4), "b": (4,)}


@pytest.mark.parametrize("other", [
    lambda x, w, b: torch.relu(x @ w - b), lambda x, w, b: torch.sigmoid(x @ w + b),
])  # fmt: skip
def test_what_is_another_thing_stays(patterns, other) -> None:
    register_replacement(search, replacement, EXAMPLES, fwd_only, patterns)
    given = torch.randn(6, 8), torch.randn(8, 10), torch.randn(10)
    torch.testing.assert_close(torch.compile(other)(*given), other(*given))
    assert calls == []


def test_constants_are_part_of_a_pattern(patterns) -> None:
    register_replacement(lambda x: (x * 3).sin(), lambda x: x * 0, [torch.empty(2)], fwd_only, patterns)
    x = torch.randn(5)
    assert torch.equal(torch.compile(lambda x: (x * 3).sin())(x), x * 0)
    assert torch.equal(torch.compile(lambda x: (x * 2).sin())(x), (x * 2).sin())


def test_a_graph_with_gradients_and_sizes_that_vary(patterns) -> None:
    register_replacement(lambda x: (x * 3).sin(), lambda x: (x + x + x).sin(), [torch.empty(2)], fwd_only, patterns)
    compiled = torch.compile(lambda x: (x * 3).sin().sum())
    for n in (5, 7, 9):
        x = torch.randn(n, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, 3 * (x.detach() * 3).cos())


def test_what_is_missing_says_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match="custom_op"):
        lowering.register_lowering(torch.ops.aten.add)
    with pytest.raises(NotImplementedError, match="register_replacement"):
        pattern_matcher.register_graph_pattern(None)
    with pytest.raises(NotImplementedError, match="scalar_workaround"):
        register_replacement(search, replacement, EXAMPLES, fwd_only, PatternMatcherPass(), scalar_workaround={"p": 0.5})
    with pytest.raises(NotImplementedError, match="custom_op"):
        lowering.make_fallback(torch.ops.aten.add)


def test_a_custom_operator_is_its_own_fallback() -> None:
    lowering.make_fallback(torch.ops.matched.linear_relu)
    assert lowering.fallback_handler(torch.ops.matched.linear_relu) is torch.ops.matched.linear_relu
