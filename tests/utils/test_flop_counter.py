"""Counts of operations, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fl
from flambeau.utils.flop_counter import FlopCounterMode, register_flop_formula

torch = pytest.importorskip("torch")
TorchCounter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode


def counted(t: Any, case: Callable, **options: Any) -> tuple[dict, int]:
    mode = FlopCounterMode if t is fl else TorchCounter
    with mode(display=False, **options) as counter:
        case(t)
    return {m: {str(op): n for op, n in counts.items()} for m, counts in counter.get_flop_counts().items()}, counter.get_total_flops()


def mlp(t: Any) -> None:
    model = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Sequential(t.nn.Linear(8, 3, bias=False), t.nn.Tanh()))
    for _ in range(2):
        model(t.randn(2, 5, 4)).sum().backward()


def convolutions(t: Any) -> None:
    x = t.randn(2, 3, 8, 8, requires_grad=True)
    t.nn.Conv2d(3, 8, 3, padding=1, stride=2)(x).sum().backward()
    t.nn.Conv1d(4, 6, 3, groups=2, bias=False)(t.randn(2, 4, 9))


def products(t: Any) -> None:
    t.bmm(t.randn(2, 3, 4), t.randn(2, 4, 5))
    t.mm(t.randn(3, 4), t.randn(4, 5, requires_grad=True)).sum().backward()
    t.einsum("bij,jk->bik", t.randn(2, 3, 4), t.randn(4, 5))


def masked_attention(t: Any) -> None:
    q = t.randn(2, 4, 6, 8, requires_grad=True)
    mask = t.zeros(6, 6, requires_grad=True)
    t.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()


@pytest.mark.parametrize("case", [mlp, convolutions, products, masked_attention])
def test_counts(case: Callable) -> None:
    ours, total = counted(fl, case)
    theirs, expected = counted(torch, case)
    assert total == expected and total > 0
    if case is not products:  # where one library has a batch of one
        assert ours == theirs


def test_what_has_no_formula_is_counted_by_its_steps() -> None:
    _, total = counted(fl, lambda t: t.nn.LSTM(4, 5)(t.randn(3, 2, 4)))
    assert total == 3 * 2 * 2 * 20 * (4 + 5)
    q = fl.randn(1, 2, 16, 32)
    _, total = counted(fl, lambda t: t.nn.functional.scaled_dot_product_attention(q, q, q))
    assert total == 2 * 2 * 2 * 16 * 16 * 32


def test_transposed_convolutions() -> None:
    def case(t: Any) -> None:
        t.nn.ConvTranspose2d(3, 8, 3, stride=2)(t.randn(2, 3, 8, 8, requires_grad=True)).sum().backward()

    assert counted(fl, case)[1] == counted(torch, case)[1]


def test_results_are_the_same() -> None:
    model = fl.nn.Sequential(fl.nn.Linear(4, 8), fl.nn.LayerNorm(8), fl.nn.GELU(), fl.nn.Linear(8, 3))
    x = fl.randn(5, 4)
    with FlopCounterMode(display=False):
        inside = model(x)
    assert fl.allclose(inside, model(x), atol=1e-6) and not fl.nn.modules.hooks.GlobalHooks.forward


def test_table(capsys: pytest.CaptureFixture) -> None:
    with FlopCounterMode() as counter:
        mlp(fl)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"]
    assert lines[2].split() == ["Global", "5.440K", "100.00%"]
    assert any(line.split()[0] == "Sequential.2" for line in lines) and "Sequential.2.0" not in "\n".join(lines)
    assert "Sequential.2.0" in counter.get_table(depth=3)
    assert counter.get_table(depth=1).count("Sequential") == 1
    with FlopCounterMode() as empty:
        fl.ones(2) + 1
    assert empty.get_total_flops() == 0 and "Global" in capsys.readouterr().out


def test_formulas_of_ones_own() -> None:
    mapping = {fl.ops.aten.sin: lambda shape, out_shape: 10 * shape[0]}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        fl.randn(3).sin()
    assert counter.get_flop_counts() == {"Global": {fl.ops.aten.sin: 30}}

    @register_flop_formula(fl.ops.aten.cos)
    def _(shape: Any, out_shape: Any) -> int:
        return 7

    with FlopCounterMode(display=False) as counter:
        fl.randn(3).cos()
    assert counter.get_total_flops() == 7
    with pytest.raises(NotImplementedError, match="cannot be changed"):
        FlopCounterMode(custom_mapping={fl.ops.aten.addmm: lambda *a: 1})
    with pytest.warns(UserWarning, match="not needed"):
        FlopCounterMode(fl.nn.Linear(1, 1))
