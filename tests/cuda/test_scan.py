"""Loops over sequences on a GPU: scan, map and recurrent networks, compiled, with gradients."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._higher_order_ops import map as over_slices
from flambeau._higher_order_ops import scan


def recurrent(start: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    def step(h: torch.Tensor, x: torch.Tensor) -> tuple:
        h = torch.tanh(x @ w + h)
        return h, (h * 2, h.sum())

    return scan(step, start, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_scan(compiled: bool) -> None:
    torch.manual_seed(0)
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        given = [torch.randn(*shape).to(device).requires_grad_() for shape in ((2, 3), (5, 2, 3), (3, 3))]
        last, (rows, sums) = (torch.compile(recurrent, fullgraph=True) if compiled else recurrent)(*given)
        loss = last.sum() + rows.sin().sum() + sums.cos().sum()
        found.append([t.cpu() for t in (last, rows, sums, *torch.autograd.grad(loss, given))])
    for ours, wanted in zip(found[1], found[0]):
        torch.testing.assert_close(ours, wanted, rtol=1e-3, atol=1e-4)


def test_map() -> None:
    x, y = torch.randn(4, 3, device="cuda"), torch.randn(3, device="cuda")
    run = torch.compile(lambda x, y: over_slices(lambda row, y: (row * y, row.sum()), x, y), fullgraph=True)
    products, sums = run(x, y)
    torch.testing.assert_close(products, x * y)
    torch.testing.assert_close(sums, x.sum(1))


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks(mode: str) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, mode)(4, 5, num_layers=2).to("cuda")
    x = torch.randn(6, 3, 4, device="cuda", requires_grad=True)
    inputs = [x, *module.parameters()]
    compiled = torch.compile(module, fullgraph=True)
    for got, wanted in zip(*(torch.autograd.grad(run(x)[0].sin().sum(), inputs) for run in (compiled, module))):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
