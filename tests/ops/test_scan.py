"""Loops over a sequence: eager, on examples of a batch, as the loops of recurrent networks, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.core import dispatch
from flambeau.core.tensor import fake
from flambeau.ops.higher_order import Scan, scan


def running_sum(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
    total = carried[0] + inputs[0] * captured[0]
    return (total,), (total, total * 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_carries_and_stacks(reverse: bool) -> None:
    x, factor = torch.arange(12.0).reshape(4, 3), torch.tensor([1.0, 2.0, 3.0])
    (last,), (sums, doubled) = scan(running_sum, [torch.zeros(3)], [x], [factor], reverse)
    terms = x.numpy() * factor.numpy()
    expected = np.cumsum(terms[::-1], 0)[::-1] if reverse else np.cumsum(terms, 0)
    np.testing.assert_array_equal(sums.numpy(), expected)
    np.testing.assert_array_equal(doubled.numpy(), 2 * expected)
    np.testing.assert_array_equal(last.numpy(), expected[0 if reverse else -1])


def test_on_fakes_it_is_one_primitive_with_compact_results() -> None:
    with dispatch.fake_mode():
        (last,), (sums, doubled) = scan(running_sum, [fake((3,), torch.float32)], [fake((4, 3), torch.float32, strides=(1, 4))],
                                        [fake((3,), torch.float32)])
    assert last.shape == (3,) and sums.shape == doubled.shape == (4, 3)
    assert sums.stride() == (3, 1)


def test_what_is_carried_keeps_its_metadata() -> None:
    def grows(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
        return (torch.cat([carried[0], inputs[0]]),), ()

    with pytest.raises(RuntimeError, match=r"number 0 has \[3\] of torch.float32 before a step and \[6\]"):
        Scan(grows, (1, 1), False)([fake((3,), torch.float32)], [fake((4, 3), torch.float32)], [])


def test_random_numbers_are_refused() -> None:
    def draws(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
        return (carried[0] + torch.rand(3),), ()

    with pytest.raises(NotImplementedError, match="random numbers"):
        Scan(draws, (1, 1), False)([fake((3,), torch.float32)], [fake((4, 3), torch.float32)], [])


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("over", ["input", "weight", "both"])
def test_recurrent_networks_of_a_batch_of_examples(mode: str, over: str) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, mode)(4, 5)
    named = {name: torch.stack([p.detach(), p.detach() * 0.5, -p.detach()]) if over != "input" else p.detach()
             for name, p in module.named_parameters()}
    x = torch.randn(3, 6, 2, 4) if over != "weight" else torch.randn(6, 2, 4)

    def run(parameters: dict, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, parameters, (x,))[0]

    dims = (None if over == "input" else 0, None if over == "weight" else 0)
    got = torch.vmap(run, in_dims=dims)(named, x)
    for k in range(3):
        mine = named if over == "input" else {name: p[k] for name, p in named.items()}
        torch.testing.assert_close(got[k], run(mine, x if over == "weight" else x[k]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_second_derivatives_of_recurrent_networks(mode: str) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, mode)(2, 3).double()
    x = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], (x,))
