"""Inputs of compiled functions that look at the same memory in different ways, one of which is written to."""

from __future__ import annotations

import pytest
from dynamo_harness import same

import flambeau as torch
from flambeau import dynamo


def first(a, b):
    a.add_(1)
    return b * 2


def second(a, b):
    b.add_(1)
    y = a * 2
    b.mul_(3)
    return y, (a + 1).sum(), (b + 1).sum()


def both(a, b):
    a.mul_(2)
    b.add_(1)
    return a.sum() + b.sum()


def held(a, b):
    with torch.no_grad():
        b.mul_(2)
    return (HELD * a.sum()).sum()


HELD = torch.ones(4, requires_grad=True)
WAYS = {
    "data": lambda x: (x, x.data), "data of data": lambda x: (x.data, x.data.data), "two of data": lambda x: (x.data, x.data),
    "a view of data": lambda x: (x[:3], x.data[:3]), "data of a view": lambda x: (x[1:], x[1:].data),
    "overlapping": lambda x: (x[:3], x.data[1:]), "detached": lambda x: (x, x.detach()),
    "transposed": lambda x: (x.view(2, 2), x.data.view(2, 2).t()),
    "a held tensor": lambda x: (x, HELD.data), "a held tensor and its view": lambda x: (HELD.data[:2], HELD.data[2:]),
    "apart": lambda x: (x, x.clone()),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("f", [first, second, both, held], ids=lambda f: f.__name__)
def test_writes_are_seen_through_the_others(f, backend, way):
    def run(fn):
        found = []
        HELD.data.fill_(1)
        for kind in ("apart", way, way, "apart"):     # compiled for memories apart
            x = torch.arange(4.0)
            a, b = WAYS[kind](x)
            found += [fn(a, b), x, a, b, HELD.detach().clone()]
        return found

    assert same(run(f), run(dynamo.compile(f, backend=backend)))
