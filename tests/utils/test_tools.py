"""Small tools of torch.utils and of autograd, against torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import flambeau
import flambeau.utils.checkpoint
import flambeau.utils.collect_env
import flambeau.utils.module_tracker

torch = pytest.importorskip("torch", reason="torch is the oracle")
import_module("torch.utils.module_tracker")

LIBRARIES = pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])


@LIBRARIES
def test_swapped_tensors(t: Any) -> None:
    a, b = t.nn.Parameter(t.arange(3.0)), t.ones(2, 2, dtype=t.float64)
    a.grad, a.note = t.full((3,), 5.0), "kept"
    held = [a]
    t.utils.swap_tensors(a, b)
    assert held[0].tolist() == [[1, 1], [1, 1]] and a.dtype is t.float64 and type(a) is t.Tensor and not a.requires_grad and a.grad is None
    assert type(b) is t.nn.Parameter and b.tolist() == [0, 1, 2] and b.grad.tolist() == [5, 5, 5] and b.note == "kept"
    (b * 2).sum().backward()
    assert b.grad.tolist() == [7, 7, 7]


@LIBRARIES
def test_where_the_program_is(t: Any) -> None:
    seen = []

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.ReLU())

        def forward(self, x: Any) -> Any:
            seen.append(set(tracker.parents))
            return self.inner(x)

    net = Net()
    net.inner[1].register_forward_hook(lambda *_: seen.append(set(tracker.parents)))
    with t.utils.module_tracker.ModuleTracker() as tracker:
        out = net(t.ones(1, 2))
        assert tracker.parents == {"Global"} and not tracker.is_bw
        net.inner[0].weight.register_hook(lambda g: seen.append(tracker.is_bw))
        out.sum().backward()
        assert tracker.parents == {"Global"} and not tracker.is_bw
    assert seen == [{"Global", "Net"}, {"Global", "Net", "Net.inner"}, True]


@LIBRARIES
def test_saved_tensors(t: Any) -> None:
    graph = t.autograd.graph
    x = t.ones(3, requires_grad=True)
    with graph.disable_saved_tensors_hooks("none here"):
        with pytest.raises(RuntimeError, match="none here"), graph.saved_tensors_hooks(lambda v: v, lambda v: v):
            pass
        x.exp().sum().backward()
    a = t.full((3,), 2.0)
    with graph.allow_mutation_on_saved_tensors() as kept:
        y = (x * a).sum()
        a.fill_(7)
        x.grad = None
        y.backward()
        kept.clear()
    assert x.grad.tolist() == [2, 2, 2]


@LIBRARIES
def test_parts_of_checkpoint(t: Any) -> None:
    tools = t.utils.checkpoint
    x = t.ones(2, requires_grad=True)
    cut, number = tools.detach_variable((x * 2, 3))
    assert cut.requires_grad and cut.is_leaf and cut.tolist() == [2, 2] and number == 3
    with pytest.raises(RuntimeError, match="tuple"):
        tools.detach_variable([x])
    with pytest.warns(UserWarning, match="requires_grad"):
        tools.check_backward_validity([x.detach()])
    tools.DefaultDeviceType.set_device_type("cpu")
    assert tools.DefaultDeviceType.get_device_type() == "cpu"
    tools.DefaultDeviceType.set_device_type("cuda")


def test_facts_of_the_machine() -> None:
    assert "numpy==" in flambeau.utils.collect_env.get_pretty_env_info()


@LIBRARIES
def test_old_names(t: Any) -> None:
    reduction = import_module(f"{t.__name__}.nn._reduction")
    assert [reduction.get_enum(name) for name in ("none", "mean", "sum")] == [0, 1, 2]
    assert reduction.legacy_get_string(False, True, emit_warning=False) == "sum"
    function = t.autograd.function.InplaceFunction
    assert issubclass(function, t.autograd.Function)
    with t.autograd.set_multithreading_enabled(False):
        t.ones(1, requires_grad=True).sum().backward()
    assert t.nn.attention.current_flash_attention_impl() is None
    assert t.amp.grad_scaler.OptState.READY.value == 0
    assert t.backends.cuda.is_flash_attention_available() is False
