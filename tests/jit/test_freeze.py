"""torch.jit.freeze: modules without parameters that compute the same, here and, saved, in torch."""

from __future__ import annotations

import copy
import importlib
import io
import warnings

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle")


@pytest.fixture(scope="module")
def programs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tests.jit.programs")


def loaded(module):
    """torch's module, as Flambeau loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.jit.save(module, buffer)
    return fl.jit.load(io.BytesIO(buffer.getvalue()))


def in_torch(module):
    buffer = io.BytesIO()
    fl.jit.save(module, buffer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(io.BytesIO(buffer.getvalue()))


def ours(value):
    if isinstance(value, torch.Tensor):
        return fl.tensor(value.numpy().copy())
    return type(value)(map(ours, value)) if isinstance(value, (tuple, list)) else {k: ours(v) for k, v in value.items()} if isinstance(
        value, dict) else value


def agree(a, b) -> bool:
    if isinstance(b, torch.Tensor):
        return np.allclose(a.detach().numpy(), b.detach().numpy(), 1e-4, 1e-5)
    if isinstance(b, dict):
        return all(agree(a[k], b[k]) for k in b)
    return all(map(agree, a, b)) if isinstance(b, (tuple, list)) else a == b


OF_TENSORS = ("methods", "sequences", "attention, evaluated", "images")


@pytest.mark.parametrize(("how", "name"), [*(("trace", name) for name in OF_TENSORS), *(
    ("script", name) for name in (*OF_TENSORS, "interface", "objects", "indexing", "scopes"))])
def test_the_same_without_parameters(programs, how, name):
    torch.manual_seed(0)
    make, inputs = programs.SCRIPTED[name]
    given = inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(make().eval()) if how == "script" else torch.jit.trace(make().eval(), given, check_trace=False)
    expected = copy.deepcopy(module)(*copy.deepcopy(given))
    frozen = fl.jit.freeze(loaded(module))
    assert isinstance(frozen, fl.jit.ScriptModule) and not list(frozen.parameters())
    assert agree(frozen(*ours(given)), expected)
    assert agree(in_torch(fl.jit.freeze(loaded(module)))(*copy.deepcopy(given)), expected)


def test_what_is_traced_here():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    x = fl.randn(5, 3)
    traced = fl.jit.trace(net, x)
    frozen = fl.jit.freeze(traced)
    assert not frozen.state_dict() and fl.equal(frozen(x), traced(x)) and "CONSTANTS.c0" in frozen.code
    assert len(list(fl.jit.freeze(traced, preserve_parameters=True).parameters())) == 6
    assert fl.jit.optimize_for_inference(frozen) is frozen and fl.equal(fl.jit.optimize_for_inference(traced)(x), traced(x))


def test_what_cannot_be_frozen(programs):
    net = fl.jit.trace(nn.Linear(2, 2), fl.ones(1, 2))
    with pytest.raises(RuntimeError, match="training mode"):
        fl.jit.freeze(net)
    with pytest.raises(RuntimeError, match="expects a ScriptModule"):
        fl.jit.freeze(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="'nothing' does not exist"):
        fl.jit.freeze(net.eval(), ["nothing"])
    kept = fl.jit.freeze(net, ["weight"])
    assert [n for n, _ in kept.named_parameters()] == ["weight"] and kept.weight is net.weight


def halved(self, input: tuple[fl.Tensor], output: fl.Tensor) -> fl.Tensor:
    return output / 2 + input[0]


def shifted(self, input: tuple[fl.Tensor]) -> tuple[fl.Tensor]:
    return (input[0] + self.weight[0],)


def test_frozen_modules_keep_their_hooks():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).eval()
    net[0].register_forward_pre_hook(shifted)
    net[1].register_forward_hook(halved)
    x = fl.linspace(-1, 1, 6).view(2, 3)
    frozen = fl.jit.freeze(fl.jit.script(net))
    assert not list(frozen.parameters()) and fl.allclose(frozen(x), net(x))
    theirs = in_torch(frozen)(torch.linspace(-1, 1, 6).view(2, 3))
    np.testing.assert_allclose(theirs.numpy(), net(x).detach().numpy(), rtol=1e-5)
