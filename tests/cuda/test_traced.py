"""What is remembered of a call on a GPU comes to what the body comes to."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import _C
from flambeau.ops.registry import OPERATORS
from tests.ops import test_traced as on_the_cpu

UNSTEADY = ("F.conv3d(V, V[:, :, :2, :2, :2])",)    # cuDNN adds up the weights' gradient in any order


@pytest.mark.parametrize("layout", on_the_cpu.LAYOUTS)
@pytest.mark.parametrize("grad", [False, True])
def test_every_operator(layout: str, grad: bool) -> None:
    different, good = on_the_cpu._different(lambda: on_the_cpu._tensors(layout, grad, device="cuda"))
    assert [call for call in different if call not in UNSTEADY] == [] and good > 0.9


def test_calls_are_traced() -> None:
    x = torch.ones(3, 1000, 100, device="cuda")     # of any size
    for _ in range(5):
        torch.nn.functional.layer_norm(x, (100,))
    assert any(type(steps) is _C.Steps for steps in OPERATORS["layer_norm"]._body.programs.values())


def test_each_device_has_its_own() -> None:
    _C.trace_at_once(True)
    x = torch.tensor([-1.0, 0.5, 3.0])
    try:
        found = [x.to(where).clamp(0, 1) for where in ("cpu", "cuda", "cpu", "cuda")]
    finally:
        _C.trace_at_once(False)
    assert [f.device.type for f in found] == ["cpu", "cuda"] * 2 and all(f.tolist() == [0, 0.5, 1] for f in found)
