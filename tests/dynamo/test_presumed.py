"""Branches on tensors one way of which only raises: one graph, and the program's own error where it raises.

PYTEST_DONT_REWRITE: the assertions here are the programs that are tested.
"""

from __future__ import annotations

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo


def asserts(x):
    assert (x > -50).all(), f"too small: {x.min()}"
    return x * 2


def asserts_with_a_fact(x):
    assert x.isfinite().all() and x.shape[0] > 1
    return x * 2


def raises_if(x):
    if torch.isnan(x).any():
        raise ValueError(f"nan in {tuple(x.shape)} " + ("vector" if x.dim() == 1 else "matrix"))
    return x * 2


def raises_unless(x):
    if not x.max() < 50:
        raise ArithmeticError("too large")
    return x * 2


def calls(x):
    torch._assert(x.abs().max() < 1e6, "big")
    return asserts(raises_if(x) + 1)


def in_a_block(x):
    with torch.no_grad():
        assert x.min() > -50
        y = x.sin()
    return y


def caught(x):
    try:
        return raises_unless(x) + raises_if(x)
    except ValueError:
        return x - 1


def after_a_draw(x):
    y = torch.randn_like(x)
    assert x.max() < 50
    return x + y * 0


def of_a_distribution(x):
    d = torch.distributions.Normal(x, x.abs() + 50 - x.clamp(min=40) * 2)
    return d.log_prob(x), d.rsample().shape, torch.distributions.Independent(d, 1).mean


def after_an_own_write(x):
    y = torch.zeros_like(x)
    y[0] = 1
    assert x.max() < 50
    return x + y


PROGRAMS = [asserts, asserts_with_a_fact, raises_if, raises_unless, calls, in_a_block, caught, after_a_draw, of_a_distribution,
            after_an_own_write]  # fmt: skip
GIVEN = [torch.ones(4), torch.tensor([1.0, -2.0, 3.0]), torch.full((3,), 1e7), torch.full((3,), -60.0), torch.full((4,), float("nan")),
         torch.tensor([1.0, 2.0])]  # fmt: skip


def outcome(fn, x):
    try:
        return fn(x.clone())
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("backend", ["counted", "inductor"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph_and_the_own_error(f, backend):
    counter = Counter()
    g = dynamo.compile(f, backend=counter if backend == "counted" else backend, fullgraph=True)
    for x in GIVEN:
        assert same(outcome(f, x), outcome(g, x))
    assert len(counter.graphs) <= 2     # the second for other sizes


def test_what_came_before_is_done_once():
    def f(x, log, buffer):
        log.append("start")
        buffer.add_(1)
        assert x.sum() > 0
        log.append("end")
        return x + buffer

    def run(fn):
        log, buffer = [], torch.zeros(2)
        answers = [outcome(lambda x: fn(x, log, buffer), x) for x in (torch.ones(2), -torch.ones(2), torch.ones(2))]
        return log, buffer, answers

    assert same(run(f), run(dynamo.compile(f, backend="eager")))


@pytest.mark.parametrize("recording", [True, False])
def test_the_grad_mode_is_as_it_was(recording):
    def f(x):
        with torch.set_grad_enabled(not recording):
            y = x * 2
            assert y.sum() > 0
        return y

    with torch.set_grad_enabled(recording):
        with pytest.raises(AssertionError):
            dynamo.compile(f, backend="eager")(-torch.ones(2))
        assert torch.is_grad_enabled() is recording


def draws(x):
    y = torch.rand(3)
    assert x.sum() > 0, y.tolist()
    return y


def drops_out(x):
    y = torch.nn.functional.dropout(x.abs(), 0.5)
    assert x.sum() > 0, y.tolist()
    return y


def draws_in_what_it_asserts(x):
    assert x.sum() > torch.rand(()) and torch.rand(()) < 2
    return torch.randn_like(x).normal_()


def draws_and_catches(x):
    y = torch.rand(3)
    try:
        return draws(x) + y
    except AssertionError:
        return torch.rand(3) + y


def draws_in_a_checkpoint(x):
    y = torch.utils.checkpoint.checkpoint(drops_out, x, use_reentrant=False)
    return y + torch.rand(3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("f", [draws, drops_out, draws_in_what_it_asserts, draws_and_catches, draws_in_a_checkpoint],
                         ids=lambda f: f.__name__)
def test_what_the_graph_drew_before_it_failed_is_drawn_once(f, backend):
    g = dynamo.compile(f, backend=backend)

    def run(fn, x):
        torch.manual_seed(7)
        return outcome(fn, x), torch.get_rng_state().tolist()

    for x in (torch.ones(3), -torch.ones(3), torch.ones(3), -torch.ones(3)):
        got = run(g, x)
        if x[0] < 0 or backend == "eager":      # compiled code draws numbers of its own
            assert same(got, run(f, x))
