"""Compiled functions that are called while somebody else traces: with fake tensors or under a mode."""

from __future__ import annotations

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo
from flambeau.core import dispatch
from flambeau.core.tensor import fake


def f(x):
    return x * 2 + 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_cached_version_is_not_used_for_fake_tensors(fullgraph) -> None:
    counter = Counter()
    compiled = dynamo.compile(f, backend=counter, fullgraph=fullgraph)
    compiled(torch.ones(3))
    for _ in range(5):
        result = compiled(fake((3,), torch.float32))
        assert result.is_fake and result.shape == (3,)
    assert (len(counter.graphs), counter.calls) == (1, 1)
    assert same(compiled(torch.ones(3)), f(torch.ones(3)))
    assert same(compiled(torch.ones(4)), f(torch.ones(4)))
    assert (len(counter.graphs), counter.calls) == (2, 3)


def test_a_cached_version_is_not_used_in_fake_mode() -> None:
    counter = Counter()
    compiled = dynamo.compile(f, backend=counter)
    compiled(torch.ones(3))
    with dispatch.fake_mode():
        assert compiled(torch.ones(3)).shape == (3,)
    assert counter.calls == 1


def test_a_cached_version_is_not_used_while_a_mode_watches() -> None:
    class Watch:
        seen = 0

        def handle(self, prim, args):
            self.seen += 1
            return dispatch.run(prim, args)

    compiled = dynamo.compile(f, backend="eager")
    compiled(torch.ones(3))
    with dispatch.push_mode(Watch()) as watch:
        assert same(compiled(torch.ones(3)), f(torch.ones(3)))
    assert watch.seen >= 2
