"""Wrappers that compute activations again: the gradients, names and shapes of PyTorch's."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the oracle")


def net(t: Any) -> Any:
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Linear(2, 4), t.nn.Sequential(t.nn.Linear(4, 3), t.nn.Tanh(), t.nn.Linear(3, 3)), t.nn.Dropout(0.5))


def trained(t: Any, module: Any) -> list:
    t.manual_seed(1)
    x = t.arange(8.0).view(4, 2).requires_grad_()
    module(x).square().sum().backward()
    return [repr(module), [name for name, _ in module.named_parameters()], list(module.state_dict()),
            [name for name, _ in module.named_modules()], x.grad.numpy(), *(p.grad.numpy() for p in module.parameters())]


def same(run: Callable[[Any, Any], list]) -> None:
    theirs, ours = ([*run(importlib.import_module(library), importlib.import_module(
        f"{library}.distributed.algorithms._checkpoint.checkpoint_wrapper"))] for library in ("torch", "flambeau"))
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
        else:
            assert b == a


@pytest.mark.parametrize("how", ["linear", "all", "policy", "older"])
def test_modules_inside_of_a_model(how: str) -> None:
    def run(t: Any, library: Any) -> list:
        linear: dict[str, Any] = {"check_fn": lambda m: isinstance(m, t.nn.Linear)}
        wrap = importlib.import_module(f"{t.__name__}.distributed.fsdp.wrap")
        older = functools.partial(library.checkpoint_wrapper, checkpoint_impl=library.CheckpointImpl.REENTRANT)
        options = {"linear": linear, "all": {}, "policy": {"auto_wrap_policy": wrap.ModuleWrapPolicy({t.nn.Linear})},
                   "older": {**linear, "checkpoint_wrapper_fn": older}}
        model = net(t)
        library.apply_activation_checkpointing(model, **options[how])
        return trained(t, model)

    same(run)


@pytest.mark.parametrize("wrapper", ["checkpoint_wrapper", "offload_wrapper"])
def test_a_model_in_a_wrapper(wrapper: str) -> None:
    def run(t: Any, library: Any) -> list:
        model = getattr(library, wrapper)(net(t))
        model.load_state_dict({name: value + 0.5 for name, value in model.state_dict().items()})
        with pytest.raises(AttributeError, match="no attribute 'nope'"):
            _ = model.nope
        with pytest.raises(AttributeError, match="__getitem__"):
            _ = getattr(library, wrapper)(t.nn.ReLU())[0]
        return [*trained(t, model), model[0].in_features, model[0].weight.detach().numpy()]

    same(run)


def test_functions_and_keywords() -> None:
    def run(t: Any, library: Any) -> list:
        class Scales(t.nn.Module):  # type: ignore[name-defined, misc]
            def forward(self, x: Any, *, by: float) -> Any:
                return x * by

        seen: list[str] = []

        def once(function: Any, *args: Any, **kwargs: Any) -> Any:
            seen.extend(kwargs)
            return function(*args)

        plain = library.checkpoint_wrapper(t.nn.Identity(), checkpoint_fn=once, flag=3)
        x = t.ones(2, requires_grad=True)
        kinds = [library.checkpoint_wrapper(Scales(), kind)(x, by=3.0).tolist() for kind in library.CheckpointImpl]
        return [plain(x).tolist(), seen, kinds, [kind.name for kind in library.CheckpointImpl]]

    same(run)
