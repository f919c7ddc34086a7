"""Modules as functions of parameters and buffers, in functorch's older form, beside PyTorch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau._functorch import face

torch = pytest.importorskip("torch", reason="torch is the oracle")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")     # torch's own functions are deprecated there
BOTH = ((torch, importlib.import_module("functorch")), (fl, face))


def net(t: Any, norm: bool = False) -> Any:
    t.manual_seed(1)
    return t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4) if norm else t.nn.ReLU(), t.nn.Linear(4, 2))


def same(run: Callable[[Any, Any], list]) -> None:
    theirs, ours = (run(t, functorch) for t, functorch in BOTH)
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=1e-5, atol=1e-6)


def test_parameters() -> None:
    def run(t: Any, functorch: Any) -> list:
        function, params = functorch.make_functional(net(t))
        x = t.ones(2, 3)
        grads = t.func.grad(lambda p: function(p, x).sum())(params)
        _, fixed = functorch.make_functional(net(t), disable_autograd_tracking=True)
        flags = [p.requires_grad for p in (*params, *fixed)]
        return [function(params, x).detach().numpy(), *(g.detach().numpy() for g in grads), flags, len(list(function.parameters()))]

    same(run)


def test_parameters_are_copies_and_tied_ones_are_one() -> None:
    def run(t: Any, functorch: Any) -> list:
        module = t.nn.Sequential(t.nn.Linear(2, 2, bias=False), t.nn.Linear(2, 2, bias=False))
        module[1].weight = module[0].weight
        function, params = functorch.make_functional(module)
        return [len(params), params[0] is module[0].weight, function((2 * t.eye(2),), t.ones(1, 2)).numpy()]

    same(run)


def test_buffers() -> None:
    def run(t: Any, functorch: Any) -> list:
        with pytest.raises(RuntimeError, match="buffers"):
            functorch.make_functional(net(t, norm=True))
        function, params, buffers = functorch.make_functional_with_buffers(net(t, norm=True))
        out = function(params, buffers, t.arange(6.0).view(2, 3))
        return [out.detach().numpy(), *(b.numpy() for b in buffers)]

    same(run)


def test_ensembles() -> None:
    def run(t: Any, functorch: Any) -> list:
        with pytest.raises(RuntimeError, match="at least one"):
            functorch.combine_state_for_ensemble([])
        function, params, buffers = functorch.combine_state_for_ensemble([net(t, norm=True).eval() for _ in range(3)])
        out = t.func.vmap(function, in_dims=(0, 0, None))(params, buffers, t.ones(2, 3))
        return [out.numpy(), [p.requires_grad for p in params], *(p.shape for p in (*params, *buffers))]

    same(run)
