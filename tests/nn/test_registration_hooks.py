"""Hooks on what modules register, against torch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch", reason="torch is the oracle")


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
def test_registrations_are_told_and_changed(t: Any) -> None:
    told: list[tuple[str, str]] = []
    at = t.nn.modules.module

    def tell(kind: str) -> Any:
        return lambda module, name, value: told.append((kind, name))

    handles = [at.register_module_parameter_registration_hook(tell("parameter")),
               at.register_module_module_registration_hook(tell("module")),
               at.register_module_buffer_registration_hook(lambda module, name, value: value + 1)]
    try:
        net = t.nn.Module()
        net.weight = t.nn.Parameter(t.ones(1))
        net.register_buffer("b", t.zeros(1))
        net.inner = t.nn.ReLU()
        net.add_module("other", t.nn.ReLU())
    finally:
        for handle in handles:
            handle.remove()
    net.last = t.nn.ReLU()
    assert told == [("parameter", "weight"), ("module", "inner"), ("module", "other")] and net.b.tolist() == [1]
