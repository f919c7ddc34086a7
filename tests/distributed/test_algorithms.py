"""Averages of models, wrappers of activations, records of errors and the sharded scaler, in two processes of each library."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from tests.distributed.processes import needs_mpi, run


def _module(torch: Any, name: str) -> Any:
    return importlib.import_module(f"{torch.__name__}.distributed.{name}")


def _linear(torch: Any, out: int = 1) -> Any:
    net = torch.nn.Linear(2, out)
    with torch.no_grad():
        for i, p in enumerate(net.parameters(), 1):
            p.copy_(torch.linspace(-1, i, p.numel()).reshape(p.shape))
    return net


def _said(fn: Any) -> str:
    """What a call is refused with."""
    try:
        fn()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def averages(torch: Any, rank: int) -> dict:
    """A bias that is `rank` before each average, and after it."""
    periodic = _module(torch, "algorithms.model_averaging.averagers").PeriodicModelAverager
    in_groups = _module(torch, "algorithms.model_averaging.hierarchical_model_averager").HierarchicalModelAverager
    made = {"periodic": periodic(3), "later": periodic(2, 1), "pairs": in_groups(OrderedDict([(3, 2)])),
            "pairs later": in_groups(OrderedDict([(2, 2)]), 1), "alone": in_groups(OrderedDict([(2, 1), (4, 2)]))}
    found: dict[str, Any] = {}
    for name, averager in made.items():
        net = _linear(torch)
        net.bias.grad = torch.ones(1)       # the weight has none, and stays as it is
        each = []
        for step in range(7):
            with torch.no_grad():
                net.bias.fill_(float(rank))
            averager.average_parameters(net.parameters() if step % 2 else [{"params": [net.bias]}, {"params": [net.weight]}])
            each.append(net.bias.item())
        found[name] = (each, averager.step, net.weight.tolist())
    refused = [lambda: periodic(0), lambda: periodic(2, -1), lambda: in_groups(OrderedDict()), lambda: in_groups(OrderedDict([(2, 1)])),
               lambda: in_groups(OrderedDict([(2, 2)]), -1)]
    return {**found, "refused": [_said(fn) for fn in refused]}


def local_steps(torch: Any, rank: int) -> dict:
    """Steps of an optimizer that averages, and its state in another one."""
    optim = _module(torch, "optim")
    averagers = _module(torch, "algorithms.model_averaging.averagers")

    def made() -> Any:
        return optim.PostLocalSGDOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), averagers.PeriodicModelAverager(2, 1))

    net = _linear(torch)
    one = made()
    for _ in range(4):
        one.zero_grad()
        net(torch.ones(1, 2) * (rank + 1)).square().sum().backward()
        one.step()
    state, other = one.state_dict(), made()
    other.load_state_dict(state)
    before = other.averager.step
    del state["step"]
    other.load_state_dict(state)
    return {"parameters": [p.tolist() for p in net.parameters()], "state": sorted(one.state_dict()), "step": before,
            "none": other.averager.step, "is": isinstance(one, torch.optim.Optimizer), "repr": repr(one),
            "momentum": [s["momentum_buffer"].tolist() for s in other.state.values()]}


def recomputed(torch: Any, rank: int) -> dict:
    """Wrappers of modules: names, states, gradients."""
    del rank
    wrappers = _module(torch, "algorithms._checkpoint.checkpoint_wrapper")
    wrap = _module(torch, "fsdp.wrap")
    nn, ways = torch.nn, wrappers.CheckpointImpl

    def net() -> Any:
        return nn.Sequential(_linear(torch, 2), nn.Sequential(_linear(torch, 2), nn.Tanh()))

    def applied(**options: Any) -> Any:
        made = net()
        wrappers.apply_activation_checkpointing(made, **options)
        return made

    made = {
        "plain": wrappers.checkpoint_wrapper(net()), "reentrant": wrappers.checkpoint_wrapper(net(), checkpoint_impl=ways.REENTRANT),
        "own": wrappers.checkpoint_wrapper(net(), checkpoint_fn=lambda f, *args, **kwargs: f(*args, **kwargs) * 2),
        "offload": wrappers.offload_wrapper(net()), "all": applied(), "linear": applied(check_fn=lambda m: isinstance(m, nn.Linear)),
        "policy": applied(auto_wrap_policy=wrap.ModuleWrapPolicy({nn.Tanh})),
        "offloaded": applied(checkpoint_wrapper_fn=wrappers.offload_wrapper, check_fn=lambda m: isinstance(m, nn.Tanh)),
    }
    found = {}
    for name, module in made.items():
        x = torch.ones(3, 2).requires_grad_()
        module(x).sum().backward()
        loaded = module.load_state_dict({key: value * 0 for key, value in net().state_dict().items()})
        found[name] = (repr(module), list(module.state_dict()), [n for n, _ in module.named_parameters()], x.grad.tolist(),
                       [p.grad.tolist() for p in module.parameters()], str(loaded), float(sum(p.abs().sum() for p in module.parameters())))

    class Unit(nn.Module):
        def __init__(self, module: Any, size: int = 0) -> None:
            super().__init__()
            self.module, self.size = module, size

    with wrap.enable_wrap(wrapper_cls=Unit, size=3):
        units = [wrap.wrap(nn.ReLU()), wrap.wrap(nn.ReLU(), size=4)]
    return {**found, "units": [u.size for u in units], "outside": type(wrap.wrap(nn.ReLU())).__name__, "ways": [w.name for w in ways]}


def recorded(torch: Any, rank: int) -> dict:
    """What `record` writes of an exception."""
    del rank
    record = _module(torch, "elastic.multiprocessing.errors").record
    file = os.path.join(tempfile.mkdtemp(), "error.json")
    os.environ["TORCHELASTIC_ERROR_FILE"] = file

    @record
    def add(a: int, b: int = 1) -> int:
        return a + b

    @record
    def fail() -> None:
        raise ValueError("too much")

    sum_of, none = add(1, b=2), os.path.exists(file)
    said = _said(fail)
    with open(file) as opened:
        written = json.load(opened)["message"]
    return {"sum": sum_of, "none": none, "said": said, "name": add.__name__, "message": written["message"],
            "more": sorted(written["extraInfo"]), "where": "in fail" in written["extraInfo"]["py_callstack"]}


def scaled(torch: Any, rank: int) -> dict:
    """An overflow in one process."""
    scaler = _module(torch, "fsdp.sharded_grad_scaler").ShardedGradScaler(device="cpu", init_scale=4.0)
    net, found = _linear(torch), []
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        sgd.zero_grad()
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        if step == rank:
            net.weight.grad[0, 0] = float("inf")
        scaler.step(sgd)
        scaler.update()
        found.append((net.weight.tolist(), scaler.get_scale()))
    return {"steps": found}


PARTS = (averages, local_steps, recomputed, recorded, scaled)


def program(torch: Any, rank: int, world: int) -> dict:
    torch.distributed.init_process_group("gloo")
    return {part.__name__: part(torch, rank) for part in PARTS}


@pytest.fixture(scope="module")
def both() -> tuple[list, list]:
    return run(program, 2, timeout=100), run(program, 2, library="torch", timeout=100)


@needs_mpi
@pytest.mark.parametrize("part", [part.__name__ for part in PARTS])
def test_as_torch(part: str, both: tuple[list, list]) -> None:
    for ours, theirs in zip(*both):
        for name, expected in theirs[part].items():
            _alike(ours[part][name], expected, f"{part} {name}")


def _alike(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(theirs, float):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=where)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for a, b in zip(ours, theirs):
            _alike(a, b, where)
    else:
        assert ours == theirs, where
