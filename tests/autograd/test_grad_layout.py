"""How first gradients of leaves lie in memory, against torch; and switches of what does not happen here."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
LEAVES = {
    "permuted": lambda t: t.empty(2, 3, 4).permute(2, 0, 1), "channels last": lambda t: t.empty(2, 3, 4, 5).to(
        memory_format=t.channels_last),
    "with gaps": lambda t: t.empty(6, 3)[::2], "rows": lambda t: t.empty(3, 2), "columns": lambda t: t.empty(3, 2).t(),
    "a number": lambda t: t.empty(())}


@pytest.mark.parametrize("kind", LEAVES)
def test_gradients_lie_as_their_leaf(kind: str) -> None:
    found = []
    for t in (torch, fl):
        x = LEAVES[kind](t).detach().requires_grad_()
        strides = []
        for loss in (lambda x: (x * 2).sum(), lambda x, t=t: (x * t.ones(tuple(x.shape))).sum(), lambda x: (x.contiguous() ** 2).sum()):
            x.grad = None
            loss(x).backward()
            strides.append(x.grad.stride())
            loss(x).backward()
            strides.append(x.grad.stride())
        found.append(strides)
    assert found[0] == found[1]


@LIBRARIES
def test_the_policy_can_be_left(t: Any) -> None:
    x = t.empty(2, 3, 4).permute(2, 0, 1).requires_grad_()
    with t.autograd.enforce_grad_layout_policy(False):
        (x * t.ones(4, 2, 3)).sum().backward()
    x.grad = None
    (x * t.ones(4, 2, 3)).sum().backward()
    assert x.grad.stride() == (1, 12, 4)
    before = t.autograd.enforce_grad_layout_policy(False)
    with before:
        pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch scripts a part of its vmap
@LIBRARIES
def test_checks_of_batched_tangents(t: Any) -> None:
    x, y = (t.rand(*shape, dtype=t.float64, requires_grad=True) for shape in ((3,), (2, 3)))
    assert t.autograd.gradcheck(lambda a, b: (a * b).sum(0).sin(), (x, y), check_forward_ad=True, check_batched_forward_grad=True)
    with pytest.raises(AssertionError):
        t.autograd.gradcheck(lambda a, b: a * b, (x, y), check_batched_forward_grad=True)


@LIBRARIES
def test_switches(t: Any) -> None:
    assert t.autograd.graph.set_override_stale_capture_stream(False) is None
    assert t.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True) is None
    with pytest.raises(RuntimeError, match="compile"), t.autograd.graph.region_activation_memory_budget(0.5):
        pass
