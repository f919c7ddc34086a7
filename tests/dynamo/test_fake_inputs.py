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


@pytest.mark.parametrize("backend", ["counted", "aot_eager", "inductor"])
def test_tensors_on_meta_are_captured(backend) -> None:
    """There every tensor is but a shape, so that nobody needs it to be traced operator by operator. A gradient is one too."""
    counter = Counter()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).to("meta")
    compiled = dynamo.compile(lambda parameters, x: torch.func.functional_call(model, parameters, (x,)) * 2,
                              backend=counter if backend == "counted" else backend, fullgraph=True)
    for n in (2, 3, 4):
        parameters = {name: torch.empty_like(p).requires_grad_() for name, p in model.named_parameters()}
        y = compiled(parameters, torch.empty(n, 3, device="meta"))
        assert (y.shape, y.device.type, y.requires_grad) == ((n, 4), "meta", True)
        y.sum().backward()
        assert all(p.grad.shape == p.shape and p.grad.device.type == "meta" for p in parameters.values())
    assert len(counter.graphs) <= 2


def test_a_version_for_meta_serves_no_others() -> None:
    counter = Counter()
    compiled = dynamo.compile(f, backend=counter, dynamic=False)
    for make in (lambda: torch.empty(3, device="meta"), lambda: torch.ones(3), lambda: fake((3,), torch.float32)):
        assert compiled(make()).device == make().device
    assert (len(counter.graphs), counter.calls) == (2, 2)
    assert compiled(torch.empty(3, device="meta")).is_meta
    assert compiled(torch.empty(4, device="meta")).shape == (4,)
    assert (len(counter.graphs), counter.calls) == (3, 4)
