"""Names and states of compiled modules are PyTorch's, in each place of a tree, and states go from each library and form to each other."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # that PyTorch's compiler reads
PLACES = {"plain": set(), "whole": {"whole"}, "part": {"part"}, "both": {"whole", "part"}}
NAMINGS = ("state_dict", "named_parameters", "named_buffers", "named_modules", "named_children")


def net(t: ModuleType, place: str, seed: int = 0) -> Any:
    """A small tree with parameters, buffers and versions, compiled nowhere, as a whole, in part, or both."""
    def compiled(module: Any, here: bool) -> Any:
        return t.compile(module, backend="eager") if here else module

    part = compiled(t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4)), "part" in PLACES[place])
    whole = compiled(t.nn.Sequential(t.nn.Linear(2, 3), part), "whole" in PLACES[place])
    rng = np.random.default_rng(seed)
    with t.no_grad():
        for value in whole.parameters():
            value.copy_(t.from_numpy(rng.standard_normal(tuple(value.shape)).astype(np.float32)))
    return whole


def output(t: ModuleType, module: Any) -> np.ndarray:
    x = t.from_numpy(np.random.default_rng(9).standard_normal((5, 2)).astype(np.float32))
    return module.eval()(x).detach().numpy()


@pytest.mark.parametrize("place", PLACES)
def test_names_are_pytorchs(place: str) -> None:
    ours, theirs = net(fl, place), net(torch, place)
    for naming in NAMINGS:
        a, b = (dict(getattr(module, naming)()) for module in (ours, theirs))
        assert list(a) == list(b), naming
    for naming in ("named_parameters", "named_buffers"):
        a, b = (dict(getattr(module, naming)("x", recurse=False)) for module in (ours, theirs))
        assert list(a) == list(b), naming
    assert dict(ours.state_dict()._metadata) == dict(theirs.state_dict()._metadata)
    assert list(ours.state_dict(prefix="p.")) == list(theirs.state_dict(prefix="p."))


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("through", [(torch, fl), (fl, torch), (fl, fl)], ids=["to ours", "to torch", "ours"])
def test_states_go_where_they_go_in_pytorch(through: tuple[ModuleType, ModuleType], source: str, to: str) -> None:
    """Ours go besides without `_orig_mod.` into what is compiled, which PyTorch refuses."""
    writes, reads = through
    given, target = net(writes, source), net(reads, to, seed=1)
    state = {name: reads.from_numpy(value.numpy().copy()) for name, value in given.state_dict().items()}
    if PLACES[source] == PLACES[to] or (reads is fl and PLACES[source] < PLACES[to]):
        assert str(target.load_state_dict(state)) == "<All keys matched successfully>"
        np.testing.assert_allclose(output(reads, target), output(writes, given), rtol=1e-5, atol=1e-6)
    else:
        with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict"):
            target.load_state_dict(state)


@LIBRARIES
def test_faults_are_named(t: ModuleType) -> None:
    target, state = net(t, "whole"), net(t, "whole").state_dict()
    value = state.pop("_orig_mod.0.bias")
    state["other"] = value
    answer = target.load_state_dict(state, strict=False)
    assert answer.missing_keys == ["_orig_mod.0.bias"] and answer.unexpected_keys == ["other"]


@LIBRARIES
def test_functions_are_applied_once_and_conversions_reach_all(t: ModuleType) -> None:
    module = net(t, "both")
    seen: list[Any] = []
    module.apply(lambda m: seen.append(m) if isinstance(m, t.nn.Linear) else None)
    assert len(seen) == 2
    assert {p.dtype for p in module.double().parameters()} == {t.float64}
    assert all(not p.requires_grad for p in module.requires_grad_(False).parameters())


@LIBRARIES
def test_states_through_functional_call_and_averages(t: ModuleType) -> None:
    module = net(t, "whole")
    x = t.ones(2, 2)
    zeros = {name: t.zeros_like(p) for name, p in module.named_parameters()}
    module.eval()
    assert t.func.functional_call(module, zeros, (x,)).abs().sum() == 0
    average = t.optim.swa_utils.AveragedModel(module)
    average.update_parameters(module)
    assert list(average.state_dict())[:2] == ["n_averaged", "module._orig_mod.0.weight"]


@LIBRARIES
def test_checkpoints_of_several_processes_have_own_names(t: ModuleType) -> None:
    state = importlib.import_module(f"{t.__name__}.distributed.checkpoint.state_dict")
    compiled, plain = net(t, "both"), net(t, "plain", seed=1)
    given = state.get_model_state_dict(compiled)
    assert list(given) == list(plain.state_dict())
    assert str(state.set_model_state_dict(plain, given)) == "<All keys matched successfully>"
