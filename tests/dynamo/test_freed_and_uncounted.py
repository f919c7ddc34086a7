"""What a captured function does to history: `autograd.grad` frees it, and writes through `.data` are none of its business."""

from __future__ import annotations

from typing import Any

import pytest
from dynamo_harness import Counter

import flambeau as torch
from flambeau import dynamo

grad = torch.autograd.grad


def written_after_it_was_saved(x):
    y = x * 2
    z = y.sin()
    y.data.mul_(3)
    return z.sum()


def detached_and_written_after_it_was_saved(x):
    y = x * 2
    z = y.sin()
    y.detach().mul_(3)
    return z.sum()


def result_zeroed(x):
    y = x.exp()
    y.data.zero_()
    return y.sum()


def argument_written(x):
    x.data.mul_(2)
    return x * 3


def argument_written_in_part(x):
    x.data[0] = 5.0
    return (x * x).sum()


def view_of_data(x):
    x.data.view(-1)[1:].add_(1)
    return x.sin()


def data_of_data(x):
    x.data.data.add_(1)
    return x.sin(), x.data * 2


def data_and_detached(x):
    x.data.add_(1)
    x.detach().add_(1)
    return x.sin()


def twice(x):
    y = (x * x).sum()
    return grad(y, x)[0] + grad(y, x)[0]


def twice_retained(x):
    y = (x * x).sum()
    return grad(y, x, retain_graph=True)[0] + grad(y, x)[0]


def through_one_part(x):
    y = x * x
    return grad(y.sum(), x)[0] + grad((y * 3).sum(), x)[0]


def nothing_saved(x):
    y = (x + 1).sum()
    return grad(y, x)[0] + grad(y, x)[0]


def of_gradients(x):
    g, = grad((x * x).sum(), x, create_graph=True)
    return g.detach() + grad(g.sum(), x)[0]


def caught(x):
    y = (x * x).sum()
    try:
        grad(y, x)
        grad(y, x)
    except RuntimeError:
        return x * 7
    return x * 8


def given_back(x):
    y = (x * x).sum()
    return grad(y, x)[0], y


def given_back_unused(x):
    y = (x * x).sum()
    grad(y, x)
    return y


def used_and_given_back(x):
    y = (x * x).sum()
    return grad(y, x)[0], y * 2


def beside_another(x):
    y, z = (x * x).sum(), (x * 3).sum()
    grad(y, x)
    return y, z


def history_behind(x):
    h = x * x
    return grad(h.sum(), h)[0] + h


WHOLE = (written_after_it_was_saved, detached_and_written_after_it_was_saved, result_zeroed, argument_written, argument_written_in_part,
         view_of_data, data_of_data, data_and_detached, twice_retained, nothing_saved, of_gradients, given_back, given_back_unused,
         used_and_given_back, history_behind)  # fmt: skip


def outcome(function: Any, start: float) -> list[Any]:
    """Results, gradients, errors and counts of writes."""
    x = (torch.arange(3.0) + start).requires_grad_()
    found: list[Any] = []
    try:
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        found += [(r.tolist(), r.requires_grad) for r in results]
        for result in results[::-1]:
            if result.requires_grad:
                result.sum().backward()
                found.append(x.grad.tolist())
    except RuntimeError as error:
        found.append(str(error)[:30])
    return [*found, x._version]


def near(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(near, a, b))
    return a == pytest.approx(b, rel=1e-5, abs=1e-6) if isinstance(a, float) else a == b


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", [*WHOLE, twice, through_one_part, caught, beside_another], ids=lambda f: f.__name__)
def test_history_is_as_in_eager_code(program, backend) -> None:
    compiled = dynamo.compile(program, backend=backend)
    for start in (1.0, 2.0):
        assert near(outcome(compiled, start), outcome(program, start))


@pytest.mark.parametrize("program", WHOLE, ids=lambda f: f.__name__)
def test_it_is_one_graph(program) -> None:
    counter = Counter()
    outcome(dynamo.compile(program, backend=counter, fullgraph=True), 1.0)
    assert len(counter.graphs) == 1
