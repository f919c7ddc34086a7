"""DTensors in captured graphs: one graph, the eager run's values and placements, collectives as steps of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, zeros
from flambeau.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from tests.distributed.processes import needs_mpi, run

F = nn.functional
mesh: Any = None


def begin(backend: str = "gloo", **place: int) -> None:
    global mesh
    dist.init_process_group(backend, **place)
    mesh = dist.init_device_mesh("cpu", (2,))


@pytest.fixture
def fake() -> Iterator[None]:
    fl._dynamo.reset()
    begin("fake", rank=1, world_size=2)
    yield
    dist.destroy_process_group()


def spread(*placements: Any, shape: tuple = (4, 6)) -> DTensor:
    """A leaf over the mesh, the same in each run."""
    whole = fl.from_numpy(np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32))
    return distribute_tensor(whole, mesh, list(placements)).requires_grad_()


def local(*shape: int) -> fl.Tensor:
    return fl.from_numpy(np.random.default_rng(3).standard_normal(shape).astype(np.float32)).requires_grad_()


def asks(a: DTensor) -> Any:
    """What a program asks of it is known while it is captured."""
    known = a.placements == (Shard(0),) and a.placements[0].is_shard(0) and a.device_mesh.size() == 2 and isinstance(a, DTensor)
    return a.to_local() * a.shape[0] if known else None


def within(a: DTensor, t: Any) -> Any:
    with loss_parallel():
        return F.cross_entropy(a, t)


def written(a: DTensor) -> Any:
    b = a * 2
    b.add_(1)
    return b


def writes(a: DTensor) -> Any:
    with fl.no_grad():
        a.mul_(2)
    return a + 1


def unrecorded(a: DTensor) -> Any:
    with fl.no_grad():
        b = a * 2
    return a * b


PROGRAMS: dict[str, tuple[Callable, Callable]] = {
    "product": (lambda a, b: a @ b, lambda: (spread(Shard(0)), spread(Replicate(), shape=(6, 4)))),
    "sums": (lambda a, b: a @ b, lambda: (spread(Shard(1)), spread(Shard(0), shape=(6, 4)))),
    "sums, whole": (lambda a, b: (a @ b).full_tensor() + 1, lambda: (spread(Shard(1)), spread(Shard(0), shape=(6, 4)))),
    "to another dimension": (lambda a: a.redistribute(placements=[Shard(1)]) * 2, lambda: (spread(Shard(0)),)),
    "to all": (lambda a: a.redistribute(mesh, [Replicate()]).sin(), lambda: (spread(Shard(0)),)),
    "of local parts": (lambda x: DTensor.from_local(x, mesh, [Shard(0)]).sin().sum(0).full_tensor(), lambda: (local(4, 6),)),
    "of local sums": (lambda x: DTensor.from_local(x, mesh, [Partial()]).redistribute(placements=[Shard(0)]), lambda: (local(4, 6),)),
    "distributed": (lambda x: distribute_tensor(x.detach(), mesh, [Shard(0)]) * 2, lambda: (local(4, 6),)),
    "made": (lambda a: a + zeros(4, 6, device_mesh=mesh, placements=[Shard(1)]), lambda: (spread(Shard(0)),)),
    "made alike": (lambda a: fl.zeros_like(a) + a.new_ones(a.shape), lambda: (spread(Shard(0)),)),
    "softmax": (lambda a: F.softmax(a, -1) * a, lambda: (spread(Shard(0)),)),
    "softmax over parts": (lambda a: F.softmax(a, -1) * a, lambda: (spread(Shard(1)),)),
    "norm": (lambda a: F.layer_norm(a, (6,)) * a, lambda: (spread(Shard(0)),)),
    "loss": (F.cross_entropy, lambda: (spread(Shard(0)), distribute_tensor(fl.tensor([1, 2, 0, 3]), mesh, [Shard(0)]))),
    "loss of parts": (within, lambda: (spread(Shard(1)), fl.tensor([1, 2, 0, 3]))),
    "views": (lambda a: a.view(2, 2, 6).transpose(1, 2) * 2, lambda: (spread(Shard(0)),)),
    "several": (lambda a: [a, *(x * 2 for x in a.chunk(2, 1)), a.max(1)], lambda: (spread(Shard(0)),)),
    "cat": (lambda a: fl.cat([a, a * 2], 1), lambda: (spread(Shard(0)),)),
    "uneven": (lambda a: (a.sum(0) * 2).redistribute(placements=[Replicate()]), lambda: (spread(Shard(0), shape=(5, 3)),)),
    "scalar": (lambda a: a.sum() / a.numel(), lambda: (spread(Shard(0)),)),
    "whose gradient": (lambda a: (a * 2).to_local(grad_placements=[Shard(0)]), lambda: (spread(Shard(0)),)),
    "asks": (asks, lambda: (spread(Shard(0)),)), "written": (written, lambda: (spread(Shard(0)),)),
    "writes": (writes, lambda: (spread(Shard(0)),)), "unrecorded": (unrecorded, lambda: (spread(Shard(0)),)),
}


class Block(nn.Module):
    """One of a transformer."""

    def __init__(self, d: int = 16) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Any) -> Any:
        y = self.n1(x)
        q, k, v = (f(y).view(2, 8, -1, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 8, -1))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.blocks, self.head = nn.Embedding(10, 16), nn.ModuleList([Block(), Block()]), nn.Linear(16, 10)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


COLUMNS, ROWS = ("q", "k", "v", "up"), ("o", "down")
TENSOR = {**{f"blocks.*.{n}": ColwiseParallel() for n in COLUMNS}, **{f"blocks.*.{n}": RowwiseParallel() for n in ROWS}}
SEQUENCE = {
    "emb": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "blocks.*": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Shard(1),)),
    "blocks.*.n1": SequenceParallel(), "blocks.*.n2": SequenceParallel(),
    **{f"blocks.*.{n}": ColwiseParallel(input_layouts=Shard(1)) for n in COLUMNS},
    **{f"blocks.*.{n}": RowwiseParallel(output_layouts=Shard(1), use_local_output=False) for n in ROWS},
    "blocks.1": PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate()),
}
PLANS = {"tensor": TENSOR, "sequence": SEQUENCE}


def _trained(plan: str, backend: str | None) -> list:
    """Losses of some steps of a net that is spread by a plan, and its parameters then."""
    fl.manual_seed(0)
    fl._dynamo.reset()
    net = parallelize_module(Net(), mesh, PLANS[plan])
    model = net if backend is None else fl.compile(net, backend=backend, fullgraph=True)
    optimizer = fl.optim.SGD(net.parameters(), lr=0.1)
    ids = fl.from_numpy(np.random.default_rng(1).integers(0, 10, (2, 8)))
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [np.array(losses), *(_whole(p) for p in net.parameters())]


def _whole(x: Any) -> np.ndarray:
    return (x.detach().full_tensor() if isinstance(x, DTensor) else x.detach()).numpy()


def _leaves(out: Any) -> list:
    return [leaf for item in out for leaf in _leaves(item)] if isinstance(out, (tuple, list)) else [out]


def _facts(x: Any) -> tuple:
    return type(x).__name__, tuple(x.shape), x.stride(), str(getattr(x, "placements", "")), x.requires_grad


def _done(fn: Callable, given: tuple) -> tuple[list, list]:
    """Of results what they are; and values of results, gradients and of the arguments afterwards."""
    outs = _leaves(fn(*given))
    total = [(o.full_tensor() if isinstance(o, DTensor) else o).square().sum() for o in outs if o.requires_grad]
    sum(total[1:], total[0]).backward() if total else None
    grads = [x.grad for x in given if x.grad is not None]
    return [*map(_facts, outs)], [_whole(x) for x in (*outs, *grads, *given)]


def programs(torch: Any, rank: int, world: int, backend: str) -> dict:
    begin()
    found: dict[str, Any] = {plan: [_trained(plan, None), _trained(plan, backend)] for plan in PLANS}
    for name, (program, given) in PROGRAMS.items():
        fl._dynamo.reset()
        found[name] = [_done(program, given()), _done(fl.compile(program, backend=backend, fullgraph=True), given())]
    return found


@needs_mpi
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_is_eager(backend: str) -> None:
    for found in run(programs, 2, backend, timeout=200):
        for plan in PLANS:
            for eager, compiled in zip(*found[plan], strict=True):
                np.testing.assert_allclose(compiled, eager, rtol=1e-4, atol=1e-4, err_msg=plan)
        for name in PROGRAMS:
            (facts, eager), (facts_too, compiled) = found[name]
            assert facts == facts_too, name
            for a, b in zip(eager, compiled, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6, err_msg=name)


def _calls(fn: Callable, *given: Any) -> list[str]:
    calls = dist.group.WORLD.calls
    del calls[:]
    fn(*given).sum().backward()
    return [c.name for c in calls]


def test_collectives_are_joined(fake: None) -> None:
    """A sequence-parallel net: those that the eager run does one by one, fewer."""
    net, ids = parallelize_module(Net(), mesh, SEQUENCE), fl.zeros(2, 8, dtype=fl.int64)
    eager, compiled = _calls(net, ids), _calls(fl.compile(net, fullgraph=True), ids)
    whole = _calls(fl.compile(net, fullgraph=True, options={"join_collectives": False}), ids)
    assert len(compiled) < len(whole) - 10 and set(compiled) == set(whole) >= set(eager)


def test_how_a_tensor_lies_is_guarded(fake: None) -> None:
    """One that lies otherwise, or is of another mesh or dtype, is another graph."""
    seen = fl._dynamo.testing.CompileCounter()
    double = fl.compile(lambda a: a * 2, backend=seen, fullgraph=True)
    again = dist.init_device_mesh("cpu", (2,))
    for count, a in enumerate([spread(Shard(0)), spread(Shard(1)), spread(Replicate()), spread(Shard(0)).detach(),
                               distribute_tensor(fl.ones(4, 6, dtype=fl.float64), mesh, [Shard(0)])], 1):
        assert double(a).placements == a.placements and double(a + 1).placements == a.placements and seen.frame_count == count
    assert double(distribute_tensor(fl.ones(4, 6), again, [Shard(0)])).device_mesh is again


def test_parts_of_any_size(fake: None) -> None:
    """Local parts whose sizes vary, within one graph."""
    seen = fl._dynamo.testing.CompileCounter()
    fn = fl.compile(lambda x: DTensor.from_local(x, mesh, [Shard(0)]).sin().to_local() * 2, backend=seen, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        x = local(n, 2)
        np.testing.assert_allclose(fn(x).detach().numpy(), (x.sin() * 2).detach().numpy(), rtol=1e-6)
    assert seen.frame_count == 1


def test_what_nobody_reads_is_communicated(fake: None) -> None:
    """Other processes may need it."""
    def program(a: DTensor) -> fl.Tensor:
        a.full_tensor()
        return a.to_local() * 2

    fl.compile(program, fullgraph=True)(spread(Shard(0)))
    assert [c.name for c in dist.group.WORLD.calls][-1:] == ["all_gather_into_tensor"]


def test_loss_parallel_is_guarded(fake: None) -> None:
    """Cross entropy is another within and without, whoever enters the block."""
    loss = fl.compile(F.cross_entropy, fullgraph=True)
    a, t = spread(Shard(1)).detach(), fl.tensor([1, 2, 0, 3])
    for _ in range(2):
        gathered = _names(loss, a, t)
        with loss_parallel():
            assert "all_gather_into_tensor" in gathered and "all_gather_into_tensor" not in _names(loss, a, t)


def _names(fn: Callable, *given: Any) -> list[str]:
    calls = dist.group.WORLD.calls
    del calls[:]
    fn(*given)
    return [c.name for c in calls]
