"""All steps of a recurrent layer as one operator: against the steps one by one, and its derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.nn.recurrent import recurrent_step, recurrent_steps

MODES = {"LSTM": (4, 2), "GRU": (3, 1), "RNN_TANH": (1, 1), "RNN_RELU": (1, 1)}


def arguments(mode, bias):
    rng = np.random.default_rng(0)
    gates, states = MODES[mode]
    made = [rng.standard_normal((3, 2, 4 * gates)), rng.standard_normal((4 * gates, 4)), rng.standard_normal(4 * gates),
            *rng.standard_normal((states, 2, 4))]
    projected, w, b, *state = (fl.tensor(a, requires_grad=True) for a in made)
    return projected, w, b if bias else None, tuple(state)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_all_steps_are_the_steps_one_by_one(mode, bias, reverse):
    projected, w, b, state = arguments(mode, bias)
    got = recurrent_steps(projected, w, b, state, mode, reverse)
    made = []
    for t in (2, 1, 0) if reverse else (0, 1, 2):
        made.append(recurrent_step(mode, projected[t], made[-1] if made else state, w, b))
    for mine, parts in zip(got, zip(*made)):
        np.testing.assert_allclose(mine.detach().numpy(), fl.stack(parts[::-1] if reverse else parts).detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_derivatives(mode, reverse):
    projected, w, b, state = arguments(mode, True)

    def call(projected, w, b, *state):
        return recurrent_steps(projected, w, b, state, mode, reverse)

    assert fl.autograd.gradcheck(call, (projected, w, b, *state))
    assert fl.autograd.gradgradcheck(call, (projected, w, b, *state))
    assert fl.autograd.gradcheck(lambda *args: call(*args)[-1][0 if reverse else -1], (projected, w, b, *state))


MASK = [[1, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_is_masked_leaves_the_state_as_it_was(mode, reverse):
    projected, w, b, state = arguments(mode, True)
    mask = fl.tensor(MASK, dtype=fl.float64).unsqueeze(2)

    def call(projected, w, b, *state):
        return recurrent_steps(projected, w, b, state, mode, reverse, mask)

    made = []
    for t in (2, 1, 0) if reverse else (0, 1, 2):
        before = made[-1] if made else state
        made.append(tuple(new.where(mask[t] != 0, old) for new, old in zip(recurrent_step(mode, projected[t], before, w, b), before)))
    for mine, parts in zip(call(projected, w, b, *state), zip(*made)):
        np.testing.assert_allclose(mine.detach().numpy(), fl.stack(parts[::-1] if reverse else parts).detach().numpy(), rtol=1e-12)
    assert fl.autograd.gradcheck(call, (projected, w, b, *state))


def test_products_are_recorded_once():
    projected, w, b, state = arguments("LSTM", True)
    out = recurrent_steps(projected, w, b, state, "LSTM", False)[0]
    assert [node for node, _ in out.grad_fn.next_functions if node is not None and "Accumulate" not in node.name()] == []


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2}, {"batch_first": True}, {"bidirectional": True}])
@pytest.mark.parametrize("mode", ["RNN", "GRU"])
def test_outputs_may_be_written_to(mode, settings):
    """What the backward pass reads is kept apart from them."""
    module = getattr(fl.nn, mode)(3, 2, **settings)
    found = []
    for write in (False, True):
        x = fl.arange(12.0).reshape(4, 1, 3).div(10).requires_grad_()
        out, last = module(x)
        out, last = (out.mul_(2), last.mul_(3)) if write else (out * 2, last * 3)
        (out.sum() + last.sum()).backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]
