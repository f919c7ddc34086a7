"""Activation checkpointing: what is recomputed, and what a policy keeps, against torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.core import dispatch
from flambeau.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

torch = pytest.importorskip("torch")
rng = np.random.default_rng(3)
X, W = rng.standard_normal((4, 4)).astype(np.float32), rng.standard_normal((4, 4)).astype(np.float32)


def block(t: Any) -> Callable:
    return lambda x, w: t.sigmoid(t.mm(t.mm(x, w).tanh(), w)) * w.sin()


class Seen(list):
    def handle(self, prim: Any, args: tuple) -> Any:
        self.append(prim.name)
        return dispatch.run(prim, args)


def recomputed(out: Any) -> Seen:
    """The names of what a backward pass computes."""
    with dispatch.push_mode(seen := Seen()):
        out.sum().backward()
    return seen


def selective(policy: Any, **options: Any) -> Callable:
    return functools.partial(create_selective_checkpoint_contexts, policy, **options)


def run(context_fn: Callable, fn: Callable | None = None) -> tuple[Seen, Any, Any]:
    x, w = (fl.tensor(a, requires_grad=True) for a in (X, W))
    out = checkpoint(fn or block(fl), x, w, use_reentrant=False, context_fn=context_fn)
    return recomputed(out), x.grad, w.grad


def policies(t: Any) -> list:
    from torch.utils.checkpoint import CheckpointPolicy as TorchPolicy

    kinds = CheckpointPolicy if t is fl else TorchPolicy
    aten = t.ops.aten
    return [
        [aten.mm.default],
        [aten.tanh.default, aten.sigmoid.default],
        lambda ctx, op, *args, **kwargs: kinds.MUST_SAVE if op == aten.mm.default else kinds.PREFER_RECOMPUTE,
        lambda ctx, op, *args, **kwargs: kinds.PREFER_SAVE,
        lambda ctx, op, *args, **kwargs: op != aten.mm.default,
        lambda ctx, op, *args, **kwargs: kinds.MUST_CPU_OFFLOAD,
    ]


@pytest.mark.parametrize("number", range(6))
def test_gradients_are_those_of_torch(number: int) -> None:
    _, *ours = run(selective(policies(fl)[number]))
    from torch.utils.checkpoint import checkpoint as torch_checkpoint
    from torch.utils.checkpoint import create_selective_checkpoint_contexts as torch_contexts

    x, w = (torch.tensor(a, requires_grad=True) for a in (X, W))
    context = None if number == 5 else functools.partial(torch_contexts, policies(torch)[number])
    out = torch_checkpoint(block(torch), x, w, use_reentrant=False, **({"context_fn": context} if context else {}))
    out.sum().backward()
    for a, b in zip(ours, (x.grad, w.grad), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_kept_is_not_computed_again() -> None:
    plain, *_ = run(selective([]))
    kept, *_ = run(selective([fl.ops.aten.mm.default]))
    assert plain.count("mm") == 4 + 2 and kept.count("mm") == 4
    assert plain.count("tanh") == kept.count("tanh") == 1


def test_linear_layers_and_random_numbers() -> None:
    layer = fl.nn.Linear(4, 4)

    def fn(x: Any, w: Any) -> Any:
        return fl.dropout(layer(x), 0.5, True) + fl.dropout(w, 0.5, True)

    fl.manual_seed(1)
    seen, *kept = run(selective([fl.ops.aten.addmm.default, fl.ops.aten.mul.default]), fn)
    assert "_linear" not in seen
    fl.manual_seed(1)
    x, w = (fl.tensor(a, requires_grad=True) for a in (X, W))
    fn(x, w).sum().backward()
    for a, b in zip(kept, (x.grad, w.grad), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_results_that_were_written_to_are_refused() -> None:
    def fn(x: Any, w: Any) -> Any:
        y = x.sin()
        z = y.exp()
        y.detach().mul_(2)
        return z.cos() * w

    with pytest.raises(RuntimeError, match="mutated"):
        run(selective([fl.ops.aten.sin.default]), fn)


def test_early_stop() -> None:
    calls: list = []

    def fn(x: Any) -> Any:
        y = x.sin()
        calls.append(0)
        y = y.clone()
        calls.append(1)
        return y

    for stop, expected in ((True, [0, 1]), (False, [0, 1, 0, 1])):
        calls.clear()
        x = fl.tensor(X, requires_grad=True)
        with set_checkpoint_early_stop(stop):
            out = checkpoint(fn, x, use_reentrant=False)
        out.sum().backward()
        assert calls == expected
        np.testing.assert_allclose(x.grad.numpy(), np.cos(X), rtol=1e-6)


def second_time(first: Callable, second: Callable) -> Callable:
    runs = iter((first, second))
    return lambda x: next(runs)(x)


def test_a_second_run_that_differs() -> None:
    x = fl.tensor(X, requires_grad=True)
    with pytest.raises(CheckpointError, match="saved during forward: 2\nNumber of tensors saved during recomputation: 1"):
        checkpoint(second_time(lambda x: x.sin().sin(), lambda x: x.sin()), x, use_reentrant=False).sum().backward()
    other = second_time(lambda x: x.sin(), lambda x: x[:2].sin())
    with pytest.raises(CheckpointError, match="tensor at position 0:"):
        checkpoint(other, x, use_reentrant=False).sum().backward()
    with set_checkpoint_debug_enabled(True), pytest.raises(CheckpointError, match=r"(?s)first run.*cos\(\[4, 4\]\).*second run.*exp"):
        checkpoint(second_time(lambda x: x.cos().cos(), lambda x: x.exp()), x, use_reentrant=False).sum().backward()


def test_errors() -> None:
    x = fl.tensor(X, requires_grad=True)
    with pytest.raises(ValueError, match="context_fn"):
        checkpoint(fl.sin, x, use_reentrant=True, context_fn=selective([]))
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(fl.sin, x, use_reentrant=False, determinism_check="x")
    with pytest.raises(ValueError, match="OpOverload"):
        create_selective_checkpoint_contexts([fl.mm])
    with pytest.raises(AttributeError, match="no operator"):
        _ = fl.ops.aten.no_such_operator


def test_running_again_within_the_pass_is_for_all_leaves() -> None:
    """What goes back by itself would accumulate in parameters that were not asked for."""
    seen = []

    class Asks(fl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(fl.autograd._is_checkpoint_valid())
            return g * 2

    x = fl.ones(3, requires_grad=True)
    assert fl.autograd._is_checkpoint_valid()
    Asks.apply(x).sum().backward()
    Asks.apply(x).sum().backward(inputs=[x])
    fl.autograd.grad(Asks.apply(x).sum(), x)
    assert seen == [True, False, False] and fl.autograd._is_checkpoint_valid()
    for backward in (lambda y: fl.autograd.grad(y, x), lambda y: y.backward(inputs=[x])):
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            backward(checkpoint(fl.sin, x, use_reentrant=True).sum())
        backward(checkpoint(fl.sin, x, use_reentrant=False).sum())
