"""Numbers of a compiled program that Python takes for equal, 0.0 and -0.0, 1 and True and 1.0, are told apart by its constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional

X = torch.tensor([[1.0, -0.0, 0.0], [-2.0, 3.0, float("nan")]])
MASK = torch.tensor([[True, False, True], [False, True, True]])


def written(c: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0] = c
    y[MASK] = c
    return y


CALLS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "pad": lambda c, x: functional.pad(x, (1, 1), value=c), "pad twice": lambda c, x: functional.pad(x[None], (1, 0, 2, 1), value=c),
    "full": lambda c, x: torch.full((3,), c), "full_like": lambda c, x: torch.full_like(x, c), "new_full": lambda c, x: x.new_full((2,), c),
    "fill_": lambda c, x: x.clone().fill_(c), "masked_fill": lambda c, x: x.masked_fill(MASK, c), "written": written,
    "where": lambda c, x: (torch.where(MASK, x, c), torch.where(MASK, c, x), torch.where(MASK, c, 1.0)),
    "index_fill": lambda c, x: x.index_fill(1, torch.tensor([0, 2]), c), "scatter": lambda c, x: x.scatter(1, torch.tensor([[0], [1]]), c),
    "tensor": lambda c, x: (torch.tensor(c), torch.tensor([c, 1])),
    "arithmetic": lambda c, x: (x * c, x + c, -x * 0 + c, torch.zeros(3) * -1 + c), "differences": lambda c, x: (+c - x, x - +c),
    "quotients": lambda c, x: (torch.ones(3) / c, x / c), "angles": lambda c, x: torch.atan2(torch.tensor(float(c)), x),
    "copysign": lambda c, x: torch.copysign(x, c), "threshold": lambda c, x: functional.threshold(x, 0.5, c),
    "bounds": lambda c, x: (x.clamp(min=c), x.clamp(max=c)), "complex": lambda c, x: torch.view_as_real(torch.full((2,), complex(0.0, c))),
    "rows": lambda c, x: (torch.linspace(c, 1, 3), torch.linspace(-1, c, 3)), "sums": lambda c, x: torch.full((3,), float(c)).sum(),
    "joined": lambda c, x: torch.cat([torch.full((2,), float(c)), torch.full((2,), -float(c))]),
    "narrow": lambda c, x: (torch.full((2,), c, dtype=torch.bfloat16), torch.full((2,), c, dtype=torch.float64)),
    "0-dim": lambda c, x: (x * torch.tensor(float(c)), torch.where(MASK, torch.tensor(float(c)), x)),
}
NUMBERS = [0.0, -0.0, 0, False, True, 1, 1.0]


def assert_same(made: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(made, expected, equal_nan=True)
    real = made.is_floating_point()
    assert not real or torch.equal(torch.signbit(made.nan_to_num()), torch.signbit(expected.nan_to_num())), (made, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_in_one_program(backend: str) -> None:
    """Side by side, so that whatever shares equal constants could mistake one for another."""
    def f(x: torch.Tensor) -> list[Any]:
        return [call(c, x) for call in CALLS.values() for c in NUMBERS]

    tree_leaves = torch.utils._pytree.tree_leaves
    for made, expected in zip(tree_leaves(torch.compile(f, backend=backend)(X)), tree_leaves(f(X)), strict=True):
        assert_same(made, expected)


@pytest.mark.parametrize("name", CALLS)
def test_as_arguments(name: str) -> None:
    """One version of a function after the other; none serves a number that is equal to its own but another."""
    compiled = torch.compile(CALLS[name], backend="eager")
    for _ in range(2):
        for c in NUMBERS:
            for made, expected in zip(*(torch.utils._pytree.tree_leaves(f(c, X)) for f in (compiled, CALLS[name])), strict=True):
                assert_same(made, expected)
