"""DTensor in real processes: every operator's result and gradients are those of one process, however the operands lie."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
    rules,
)
from flambeau.distributed.tensor import randn as spread_randn
from flambeau.distributed.tensor import zeros as spread_zeros
from flambeau.distributed.tensor._utils import compute_local_shape_and_global_offset
from flambeau.distributed.tensor.debug import CommDebugMode
from flambeau.distributed.tensor.experimental import implicit_replication, local_map
from flambeau.distributed.tensor.redistribute import redistributed
from flambeau.ops.primitives import PRIMITIVES
from tests.distributed.processes import needs_mpi, run

F = nn.functional
CASES: list[tuple[str, tuple[tuple[int, ...], ...], Callable]] = [
    ("add", ((4, 6), (6,)), lambda x, y: x + y), ("mul", ((4, 6), (4, 1)), lambda x, y: x * y), ("shifted", ((4, 6),), lambda x: x + 1),
    ("relu", ((5, 3),), lambda x: x.relu()), ("where", ((4, 3), (4, 3)), lambda x, y: fl.where(x > y, x, y)),
    ("matmul", ((4, 6), (6, 8)), lambda x, y: x @ y), ("batched", ((4, 2, 6), (4, 6, 3)), lambda x, y: x @ y),
    ("linear", ((3, 4, 6), (8, 6), (8,)), F.linear), ("sum", ((4, 6),), lambda x: x.sum()), ("rows", ((5, 6),), lambda x: x.sum(1)),
    ("mean", ((4, 6),), lambda x: x.mean(0, keepdim=True)),
    ("amax", ((4, 6),), lambda x: x.amax(0)),
    ("var", ((4, 6),), lambda x: x.var(0)),
    ("norm", ((4, 6),), lambda x: x.norm()),
    ("t", ((4, 6),), lambda x: x.t() * 2),
    ("reshape", ((4, 6),), lambda x: x.reshape(2, 2, 6).tanh()),
    ("flatten", ((4, 2, 3),), lambda x: x.flatten(1).exp()), ("merge", ((4, 2, 3),), lambda x: x.reshape(8, 3) * 3),
    ("slice", ((4, 6),), lambda x: x[:, 1:4] * 2),
    ("select", ((4, 6),), lambda x: x[1] * 2),
    ("cat", ((4, 6), (4, 2)), lambda x, y: fl.cat([x, y], 1)),
    ("stack", ((4, 3), (4, 3)), lambda x, y: fl.stack([x, y], 1)), ("chunk", ((4, 6),), lambda x: x.chunk(3, 1)[1] * 2),
    ("pad", ((4, 3),), lambda x: F.pad(x, (1, 2))), ("flip", ((4, 3),), lambda x: x.flip(1)), ("cumsum", ((4, 3),), lambda x: x.cumsum(1)),
    ("softmax", ((4, 6),), lambda x: x.softmax(1)), ("log_softmax", ((4, 6),), lambda x: x.log_softmax(0)), ("gelu", ((4, 6),), F.gelu),
    ("layer_norm", ((4, 6), (6,), (6,)), lambda x, w, b: F.layer_norm(x, (6,), w, b)),
    ("rms_norm", ((4, 6), (6,)), lambda x, w: F.rms_norm(x, (6,), w)),
    ("attention", ((2, 4, 5, 4), (2, 4, 5, 4), (2, 4, 5, 4)), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    ("embedding", ((7, 4),), lambda w: F.embedding(fl.tensor([[1, 2, 0], [6, 1, 1]]), w)),
    ("cross_entropy", ((4, 6),), lambda x: F.cross_entropy(x, fl.tensor([1, 5, 0, 2]))),
    ("conv", ((4, 2, 5, 5), (4, 2, 3, 3), (4,)), lambda x, w, b: F.conv2d(x, w, b, padding=1)),
    ("batch_norm", ((4, 3, 2, 2),), lambda x: F.batch_norm(x, None, None, training=True)),
    ("einsum", ((4, 3), (5, 3)), lambda x, y: fl.einsum("ij,kj->ik", x, y)),
    ("gather", ((4, 3),), lambda x: x.gather(1, fl.tensor([[0, 2]] * 4))), ("tril", ((4, 4),), lambda x: x.tril()),
    ("sort", ((4, 3),), lambda x: x.sort(1)[0]),
    ("mse", ((4, 3), (4, 3)), F.mse_loss),
    ("inplace", ((4, 3), (4, 3)), lambda x, y: (x * 2).add_(y)),
    ("expand", ((4, 1),), lambda x: x.expand(4, 3) * 2),
    ("outer", ((4,), (3,)), fl.outer),
    ("complex", ((4, 2),), lambda x: fl.view_as_complex(x).abs()),
]


def values(shape: tuple[int, ...], i: int) -> Any:
    generator = fl.Generator().manual_seed(i)
    return fl.randn(*shape, generator=generator)


def ways(rank: int, world: int) -> list[Placement]:
    return [Replicate(), Partial(), *[Shard(d) for d in range(min(rank, 2))]]


def laid(x: Any, mesh: Any, where: Placement) -> Any:
    """A leaf that lies so, and how its gradient is to be read."""
    local = redistributed(x, mesh, (Replicate(),), (where,), tuple(x.shape)).clone().requires_grad_()
    whole = tuple(x.shape)
    return local, DTensor.from_local(local, mesh, [where], shape=whole, stride=x.stride())


def operators(torch: Any, rank: int, world: int) -> list[str]:
    """What differs from one process."""
    dist.init_process_group("gloo")
    mesh, wrong = init_device_mesh("cpu", (world,)), []
    for name, shapes, fn in CASES:
        given = [values(shape, i) for i, shape in enumerate(shapes)]
        plain = [x.clone().requires_grad_() for x in given]
        want = fn(*plain)
        weight = values(tuple(want.shape), 9)
        (want * weight).sum().backward()
        for where in itertools.product(*[ways(x.ndim, world) for x in given]) if len(given) < 3 else [
                tuple(p if i == j else Replicate() for j in range(3)) for i in range(3) for p in ways(given[i].ndim, world)]:
            leaves, spread = zip(*[laid(x, mesh, p) for x, p in zip(given, where)])
            out = fn(*spread)
            assert isinstance(out, DTensor), (name, where, type(out))
            (out * weight).sum().full_tensor().backward()
            grads = [DTensor.from_local(leaf.grad, mesh, [Replicate() if isinstance(p, Partial) else p], shape=tuple(x.shape),
                                        stride=x.stride()).full_tensor() for leaf, p, x in zip(leaves, where, given)]
            for what, got, expected in [("result", out.full_tensor(), want), *[("gradient", g, p.grad) for g, p in zip(grads, plain)]]:
                if got.shape != expected.shape or not fl.allclose(got, expected, rtol=1e-4, atol=1e-5):
                    wrong.append(f"{name} {where}: {what} {tuple(got.shape)} off by {(got - expected).abs().max().item()}")
    return wrong


@needs_mpi
def test_operators() -> None:
    for wrong in run(operators, 2, timeout=110):
        assert not wrong, "\n".join(wrong)


def around(torch: Any, rank: int, world: int) -> dict:
    """Redistribution on meshes of one and two dimensions, uneven shards, making, modules, optimizers."""
    dist.init_process_group("gloo")
    found: dict[str, Any] = {"wrong": []}
    x = fl.arange(35.0).reshape(5, 7)
    flat, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    options: list[Placement] = [Replicate(), Shard(0), Shard(1), Partial()]
    for mesh in (flat, square):
        all_ways = list(itertools.product(options, repeat=mesh.ndim))
        for old, new in itertools.product(all_ways, all_ways):
            start = redistributed(x, mesh, (Replicate(),) * mesh.ndim, old, x.shape)
            end = redistributed(start, mesh, old, new, x.shape)
            back = redistributed(end, mesh, new, (Replicate(),) * mesh.ndim, x.shape)
            shape = compute_local_shape_and_global_offset(x.shape, mesh, new)[0]
            if not fl.equal(back, x) or tuple(end.shape) != tuple(shape):
                found["wrong"].append((old, new, tuple(end.shape), shape))
    uneven = distribute_tensor(x, flat, [Shard(0)])
    found["uneven"] = tuple(uneven.to_local().shape), compute_local_shape_and_global_offset((5, 7), flat, [Shard(0)])
    source = distribute_tensor(x * (rank + 1), flat, [Shard(1)])
    found["of the first"] = fl.equal(source.full_tensor(), x)
    fl.manual_seed(3)
    drawn = spread_randn(6, 5, device_mesh=square, placements=[Shard(0), Shard(1)])
    fl.manual_seed(3)
    found["drawn"] = fl.equal(drawn.full_tensor(), fl.randn(6, 5)), tuple(drawn.to_local().shape)
    found["zeros"] = tuple(spread_zeros(5, 2, device_mesh=flat, placements=[Shard(0)]).to_local().shape)

    def partition(name: str, module: Any, mesh: Any) -> None:
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(distribute_tensor(module.weight.detach(), mesh, [Shard(0)]))
    fl.manual_seed(0)
    model, batch = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)), x
    plain = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3))
    plain.load_state_dict(model.state_dict())
    distribute_module(model, flat, partition, lambda m, inputs, mesh: (distribute_tensor(inputs[0], mesh, [Shard(0)]),))
    for kind in (fl.optim.AdamW, fl.optim.SGD):
        ours, theirs = kind(model.parameters(), lr=0.01), kind(plain.parameters(), lr=0.01)
        for _ in range(3):
            for net, opt in ((model, ours), (plain, theirs)):
                opt.zero_grad()
                net(batch).square().mean().backward()
                opt.step()
    gap = [(a.full_tensor() - b).abs().max().item() for a, b in zip(model.parameters(), plain.parameters())]
    found["trained"], found["kept"] = max(gap), [str(p.placements) for p in model.parameters()]
    found["names"] = list(model.state_dict())
    return found


@needs_mpi
def test_around() -> None:
    for rank, found in enumerate(run(around, 4, timeout=110)):
        assert not found["wrong"], found["wrong"]
        rows = [2, 2, 1, 0][rank]
        assert found["uneven"] == ((rows, 7), ((rows, 7), (min(2 * rank, 5), 0))) and found["of the first"]
        assert found["drawn"][0] and found["drawn"][1] == (3, [3, 2][rank % 2]) and found["zeros"] == (rows, 2)
        assert found["trained"] < 1e-6 and found["kept"] == ["(Shard(dim=0),)", "(Replicate(),)"] * 2
        assert found["names"] == ["0.weight", "0.bias", "2.weight", "2.bias"]


# -- one process -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def mesh() -> Iterator[Any]:
    dist.init_process_group("fake", rank=1, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def test_axes_are_true() -> None:
    """Of every primitive: what it gives for parts along an axis is the part, or combined the whole, of what it gives."""
    rng = np.random.default_rng(0)
    checked = set()
    for name, prim in PRIMITIVES.items():
        for sample in prim.samples(rng) if prim.samples is not None and "nondeterministic" not in prim.tags else ():
            args = tuple(_tensors(a) for a in sample)
            try:
                whole = prim(*args)
            except NotImplementedError:
                continue
            if not rules.operands(args):
                continue
            for axis in rules.axes(prim, args):
                if _axis_holds(prim, args, axis, whole):
                    checked.add(name)
    assert len(checked) > 60 and {"mm", "sum", "amax", "permute", "cat", "index_select", "convolution", "cumsum", "view"} <= checked


def _tensors(a: Any) -> Any:
    if hasattr(a, "__array_interface__"):
        return fl.from_numpy(a.copy()) if getattr(a, "ndim", 0) else fl.tensor(a.item())
    return [_tensors(i) for i in a] if isinstance(a, list) else a


def _axis_holds(prim: Any, args: tuple, axis: Any, whole: Any) -> bool:
    """AssertionError if not; False where the sizes have no halves."""
    tensors = rules.operands(args)
    first = whole[0] if isinstance(whole, tuple) else whole
    sizes = [t.shape[d] for t, d in zip(tensors, axis.ins) if d is not None]
    sizes += [first.shape[axis.out]] if axis.out is not None else []
    if not sizes or any(n % 2 or not n for n in sizes):
        return False
    outs = []
    for half in range(2):
        parts = iter([t if d is None and i not in axis.adds else (t * (1 - half) if d is None else t.chunk(2, d)[half])
                      for i, (t, d) in enumerate(zip(tensors, axis.ins))])
        given = tuple(next(parts) if isinstance(a, fl.Tensor) else [next(parts) if isinstance(i, fl.Tensor) else i for i in a]
                      if isinstance(a, list) else a for a in args)
        shape = [n // 2 if d == axis.out else n for d, n in enumerate(first.shape)]
        given = tuple(tuple(shape) if n in ("shape", "x_shape", "w_shape") else a for n, a in zip(prim.params, given))
        outs.append(prim(*given))
    for got, want in zip(zip(*outs) if isinstance(whole, tuple) else [outs], whole if isinstance(whole, tuple) else [whole]):
        if axis.out is not None:
            made = fl.cat(list(got), axis.out)
        else:
            made = {"sum": fl.add, "product": fl.mul, "max": fl.maximum, "min": fl.minimum}[axis.reduce](*got)
        made, want = (t if t.dtype.is_complex else t.double() for t in (made, want))
        assert made.shape == want.shape and fl.allclose(made, want, equal_nan=True), (prim, axis, args)
    return True


def test_kernels_of_operators_run_on_parts(mesh: Any) -> None:
    x = distribute_tensor(fl.randn(8, 6), mesh, [Shard(0)])
    calls = dist.group.WORLD.calls  # type: ignore[union-attr]
    del calls[:]
    for out in (F.softmax(x, 1), F.layer_norm(x, (6,)), F.gelu(x), F.linear(x, fl.randn(3, 6))):
        assert out.placements == (Shard(0),) and out.to_local().shape[0] == 2
    assert not calls
    F.softmax(x, 0)
    assert {c.name for c in calls} == {"all_reduce"}


def test_as_a_value(mesh: Any) -> None:
    x = distribute_tensor(fl.ones(4, 2), mesh, [Replicate()])
    assert x.sum().item() == 8 and float(x[0, 0]) == 1 and x.tolist() == [[1, 1]] * 4 and "Replicate" in repr(x) and bool(x[0, 0] > 0)
    p = nn.Parameter(distribute_tensor(fl.ones(8), mesh, [Shard(0)]))
    assert isinstance(p, nn.Parameter) and isinstance(p, DTensor) and p.requires_grad and p.is_leaf
    (p * 2).sum().backward()
    assert isinstance(p.grad, DTensor) and p.grad.tolist() == [2] * 8 and fl.zeros_like(p).placements == (Shard(0),)
    assert tuple(fl.randn_like(p).to_local().shape) == (2,) and p.dtype is fl.float32 and p.device.type == "cpu"
    version = p._version
    with fl.no_grad():
        p.zero_()
    assert p._version > version and not p.to_local().any()


REFUSED = [
    (lambda m: distribute_tensor(fl.ones(4), m, [Shard(1)]), AssertionError, "greater than tensor ndim 1"),
    (lambda m: distribute_tensor(fl.ones(4), m, [Shard(0), Shard(0)]), ValueError, "same length"),
    (lambda m: spread_zeros(4, device_mesh=m).redistribute(placements=[Partial()]), RuntimeError, "internal"),
    (lambda m: spread_zeros(4, device_mesh=m).redistribute(), RuntimeError, "placements is needed"),
    (lambda m: spread_zeros(4, device_mesh=m) + spread_zeros(4, device_mesh=init_device_mesh("cpu", (2, 2))), RuntimeError, "meshes"),
]


def test_pickled(mesh: Any, tmp_path: Any) -> None:
    """By pickle and by torch.save, as data alone: the part, how it lies, and the groups that are there."""
    rows = nn.Parameter(distribute_tensor(fl.arange(12.0).reshape(6, 2), mesh, [Shard(0)]))
    fl.save({"rows": rows, "all": spread_zeros(3, device_mesh=mesh)}, tmp_path / "d.pt")
    loaded = fl.load(tmp_path / "d.pt")
    for back in (pickle.loads(pickle.dumps(rows)), loaded["rows"]):
        assert isinstance(back, DTensor) and back.placements == rows.placements and back.device_mesh == mesh and back.requires_grad
        assert back.shape == rows.shape and fl.equal(back._local_tensor, rows._local_tensor)
        assert back.device_mesh.get_group() is mesh.get_group()
    assert loaded["all"].placements == (Replicate(),) and not loaded["all"].requires_grad
    dist.destroy_process_group()
    dist.init_process_group("fake", rank=3, world_size=4)
    with pytest.raises(ValueError, match="is not this process's"):
        pickle.loads(pickle.dumps(rows))


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(mesh: Any, call: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(mesh)


def test_collectives_are_counted(mesh: Any) -> None:
    """Of DTensors and of tensors, eager and compiled, by kind."""
    kinds, a = fl.ops.c10d_functional, distribute_tensor(fl.ones(8, 4), mesh, [Shard(0)])
    with CommDebugMode() as comm:
        a.full_tensor()
        fl.compile(lambda x: x.sum().full_tensor(), backend="eager")(a)
        dist.all_reduce(fl.ones(2))
        dist.barrier()
    a.full_tensor()
    counts = comm.get_comm_counts()
    assert (counts[kinds.all_gather_into_tensor], counts[kinds.all_reduce], counts[kinds.broadcast], counts[dist.barrier]) == (1, 2, 0, 1)
    assert comm.get_total_counts() == 4


def test_functions_of_parts(mesh: Any) -> None:
    """`local_map`: parts in, parts out; what lies otherwise is refused, or moved."""
    a, whole = distribute_tensor(fl.arange(32.0).reshape(8, 4), mesh, [Shard(0)]).requires_grad_(), fl.ones(4, 3)
    product = local_map(lambda x, w: (x @ w, x.shape[0], w), out_placements=([Shard(0)], None, None), in_placements=([Shard(0)], None))
    out, rows, same = product(a, whole)
    assert out.placements == (Shard(0),) and tuple(out.shape) == (8, 3) and rows == 2 and same is whole
    out.sum().backward()
    assert a.grad.placements == (Shard(0),) and a.grad.tolist() == [[3.0] * 4] * 8
    wanted = {"out_placements": [Shard(1)], "in_placements": ([Shard(1)],)}
    with pytest.raises(ValueError, match="redistribute_inputs=True"):
        local_map(lambda x: x * 2, **wanted)(a)
    moved = local_map(redistribute_inputs=True, **wanted)(lambda x: x * 2)(a)
    assert moved.placements == (Shard(1),) and tuple(moved.to_local().shape) == (8, 1)
    for arguments, said in (((a, a), "does not match the number of inputs: 2"), ((whole,), "None placements")):
        with pytest.raises(AssertionError, match=said):
            local_map(lambda *x: x, **wanted)(*arguments)
    with pytest.raises(AssertionError, match="says None for a DTensor"):
        local_map(lambda x: x, in_placements=(None,))(a)
    with implicit_replication():
        assert (a + 1).placements == (Shard(0),)
