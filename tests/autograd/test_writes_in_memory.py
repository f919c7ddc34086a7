"""Writes through as_strided, which names places in memory: gradients of bases of every layout, against finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau as torch

BASES: dict[str, Callable] = {
    "in rows": lambda x: x * 2,
    "permuted": lambda x: x.permute(2, 0, 1) * 2,
    "swapped": lambda x: x.transpose(0, 1) * 2,
    "a view": lambda x: (x * 2)[:, 1:],
    "a view of a permuted one": lambda x: (x.permute(2, 0, 1) * 2)[1:],
    "a transposed view": lambda x: (x * 2)[:, :, 1:].permute(2, 1, 0),
    "real parts": lambda x: torch.view_as_real(torch.complex(x, x * 3)),
}
LAYOUTS = [((2, 2), (1, 2), 0), ((3,), (5,), 2), ((2, 3), (4, 1), 1), ((1, 2), (0, 1), 0), ((4,), (1,), 3), ((2, 2), (1, 3), 4)]


def _program(base: str, layout: tuple) -> Callable:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = BASES[base](x)
        n = torch.as_strided(b, *layout)
        n.mul_(3)
        return b * b, n.sin()

    return f


def _leaf() -> torch.Tensor:
    return (torch.arange(18.0, dtype=torch.float64) / 10).reshape(2, 3, 3).requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("base", BASES)
def test_gradients(base: str, layout: tuple) -> None:
    f = _program(base, layout)
    assert torch.autograd.gradcheck(f, (_leaf(),))
    assert torch.autograd.gradgradcheck(f, (_leaf(),))


@pytest.mark.parametrize("base", BASES)
def test_compiled(base: str) -> None:
    f, x, y = _program(base, LAYOUTS[2]), _leaf(), _leaf()
    expected = f(x)
    got = torch.compile(f, backend="aot_eager")(y)
    for a, b in zip(expected, got):
        assert torch.equal(a, b)
    (expected[0].sum() + expected[1].sum()).backward()
    (got[0].sum() + got[1].sum()).backward()
    torch.testing.assert_close(x.grad, y.grad)
