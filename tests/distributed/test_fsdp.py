"""FSDP in real processes, both ways: losses, parameters and gradients are those of one process with the whole batch."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from flambeau.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    OptimStateKeyType,
    ShardingStrategy,
    StateDictType,
    fully_shard,
    wrap,
)
from flambeau.distributed.fsdp.group import ParamGroup
from flambeau.distributed.tensor import DTensor, Shard, init_device_mesh
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from tests.distributed.processes import needs_mpi, run

FSDP = FullyShardedDataParallel


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width + 1), nn.Linear(2 * width + 1, width)

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.attention(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    """A small transformer, whose last layer shares its weight with the first; no size divides by the number of processes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks, self.head = nn.Embedding(11, 6), nn.ModuleList([Block(6), Block(6)]), nn.Linear(6, 11)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", fl.tensor(1.5))

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        y = self.embedding(x) * self.scale
        for block in self.blocks:
            y = block(y)
        return self.head(y)


def model() -> Model:
    fl.manual_seed(7)
    return Model()


def batch(step: int, world: int) -> fl.Tensor:
    return fl.randint(0, 11, (2 * world, 5), generator=fl.Generator().manual_seed(step))


def loss_of(net: Any, x: fl.Tensor) -> fl.Tensor:
    return nn.functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def trained(net: Any, rank: int, world: int, steps: int = 3, clip: Any = None) -> list[float]:
    """The mean losses of some steps; with world 1 of one process with the whole batch."""
    optimizer, losses = fl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    for step in range(steps):
        x = batch(step, 2 if world == 1 else world)
        loss = loss_of(net, x if world == 1 else x[2 * rank : 2 * rank + 2])
        loss.backward()
        if clip is not None:
            losses.append(clip(net).item())
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        if world > 1:
            dist.all_reduce(total)
        losses.append(total.item() / world)
    return losses


def sharded(net: Model, outer: dict | None = None, **options: Any) -> Any:
    for block in net.blocks:
        fully_shard(block, **options)
    return fully_shard(net, **{**options, **(outer or {})})


def both_ways(torch: Any, rank: int, world: int) -> dict:
    dist.init_process_group("gloo")
    found: dict[str, Any] = {}
    plain = model()
    want = trained(plain, 0, 1)
    names = [n for n, _ in plain.named_parameters()]
    blocks = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block})
    square = init_device_mesh("cpu", (2, 1))
    for name, make in {
        "fully_shard": lambda: sharded(model()), "kept": lambda: sharded(model(), reshard_after_forward=False),
        "two dimensions": lambda: sharded(model(), mesh=square), "wrapped": lambda: FSDP(model(), auto_wrap_policy=blocks),
        "one unit": lambda: FSDP(model(), use_orig_params=True), "sized": lambda: FSDP(model(), auto_wrap_policy=functools.partial(
            wrap.size_based_auto_wrap_policy, min_num_params=100), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP),
        "not": lambda: FSDP(model(), auto_wrap_policy=wrap.ModuleWrapPolicy({Block}), sharding_strategy=ShardingStrategy.NO_SHARD),
    }.items():
        net = make()
        losses = trained(net, rank, world)
        gaps = [(p.full_tensor() - q).abs().max().item() for p, q in zip(net.parameters(), plain.parameters(), strict=True)]
        found[name] = max(abs(a - b) for a, b in zip(losses, want)), max(gaps), [n for n, _ in net.named_parameters()] == names
    net = model()
    clipped = trained(net, 0, 1, 2, lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5))
    wrapped = FSDP(model(), auto_wrap_policy=blocks)
    found["clipped"] = max(abs(a - b) for a, b in zip(trained(wrapped, rank, world, 2, lambda m: m.clip_grad_norm_(0.5)), clipped))
    found["states"] = states(wrapped, net)
    found["accumulated"] = accumulated(rank, world)
    found["mixed"] = mixed(rank, world)
    return found


def states(wrapped: Any, plain: Model) -> list[bool]:
    """State dicts of each type say what one process's says, and are taken again."""
    want, checks = plain.state_dict(), []
    full = wrapped.state_dict()
    checks.append(list(full) == list(want) and all(fl.allclose(full[k], want[k], atol=1e-5) for k in want))
    for kind in (StateDictType.SHARDED_STATE_DICT, StateDictType.LOCAL_STATE_DICT, StateDictType.FULL_STATE_DICT):
        with FSDP.state_dict_type(wrapped, kind):
            state = {k: v.clone() for k, v in wrapped.state_dict().items()}
            checks.append(isinstance(state["head.bias"], DTensor) == (kind is StateDictType.SHARDED_STATE_DICT))
            with FSDP.summon_full_params(wrapped):
                checks.append(tuple(wrapped.module.head.weight.shape) == (11, 6) and not isinstance(wrapped.module.head.weight, DTensor))
                with fl.no_grad():
                    wrapped.module.head.bias.fill_(3.0)
            checks.append(bool((wrapped.head.bias.full_tensor() == 3).all()))
            wrapped.load_state_dict(state)
        again = wrapped.state_dict()
        checks.append(all(fl.allclose(again[k], full[k]) for k in full))
    with FSDP.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
        checks.append(len(wrapped.state_dict()) == (len(want) if dist.get_rank() == 0 else 0))
    return checks


def accumulated(rank: int, world: int) -> float:
    """Gradients of two batches, with and without the reduction of the first."""
    grads = []
    for way in range(3):
        net: Any = sharded(model()) if way else model()
        for step in range(2):
            x = batch(step, world)
            if way == 2:
                net.set_requires_gradient_sync(step == 1)
            loss_of(net, x[2 * rank : 2 * rank + 2] if way else x).backward()
        grads.append([p.grad.full_tensor() if way else p.grad for p in net.parameters()])
    return max((a - b).abs().max().item() for other in grads[1:] for a, b in zip(other, grads[0]))


def mixed(rank: int, world: int) -> list:
    """Computing in bfloat16: parameters and gradients stay float32."""
    seen = []
    half = MixedPrecisionPolicy(param_dtype=fl.bfloat16, reduce_dtype=fl.float32)
    outer = {"mp_policy": MixedPrecisionPolicy(param_dtype=fl.bfloat16, reduce_dtype=fl.float32, output_dtype=fl.float32)}
    for net in (sharded(model(), outer, mp_policy=half),
                FSDP(model(), mixed_precision=MixedPrecision(param_dtype=fl.bfloat16))):
        net.blocks[0].up.register_forward_hook(lambda m, args, out: seen.append(out.dtype))
        out = net(batch(0, world)[:2])
        out.float().square().mean().backward()
        seen += [out.dtype, *{p.dtype for p in net.parameters()}, *{p.grad.dtype for p in net.parameters()}]
    return [str(kind) for kind in seen]


@needs_mpi
def test_as_one_process() -> None:
    for found in run(both_ways, 2, timeout=115):
        for name in ("fully_shard", "kept", "two dimensions", "wrapped", "one unit", "sized", "not"):
            loss, gap, same = found[name]
            assert loss < 1e-5 and gap < 1e-4 and same, (name, found[name])
        assert found["clipped"] < 1e-5 and all(found["states"]) and found["accumulated"] < 1e-5, found
        half, full = "flambeau.bfloat16", "flambeau.float32"
        assert [kind.replace("torch.", "flambeau.") for kind in found["mixed"]] == [half, full, full, full, half, half, full, full]


def optimizers(torch: Any, rank: int, world: int) -> list:
    """An optimizer's state goes from each kind of wrapper and type of state dict to a new one, whose next losses are the same."""
    dist.init_process_group("gloo")
    blocks = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block})

    def pair() -> tuple[Any, Any]:
        net = FSDP(model(), auto_wrap_policy=blocks)
        return net, fl.optim.AdamW([{"params": [p for p in net.parameters() if p.ndim > 1]},
                                    {"params": [p for p in net.parameters() if p.ndim < 2], "lr": 0.02}], lr=0.01)

    def losses(net: Any, optimizer: Any, count: int) -> list[float]:
        found = []
        for i in range(count):
            optimizer.zero_grad()
            loss = loss_of(net, batch(i, world)[2 * rank : 2 * rank + 2])
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    net, optimizer = pair()
    losses(net, optimizer, 2)
    weights = net.state_dict()
    given = {}
    first = {"optim_state_dict_config": FullOptimStateDictConfig(rank0_only=True)}
    ways: dict[str, tuple] = {"full": (StateDictType.FULL_STATE_DICT, {}), "first": (StateDictType.FULL_STATE_DICT, first),
                              "parts": (StateDictType.LOCAL_STATE_DICT, {}), "spread": (StateDictType.SHARDED_STATE_DICT, {})}
    for name, (kind, options) in ways.items():
        with FSDP.state_dict_type(net, kind, **options):
            given[name] = copy.deepcopy(FSDP.optim_state_dict(net, optimizer))
    old = {"old full": FSDP.full_optim_state_dict(net, optimizer, rank0_only=False),
           "old first": FSDP.full_optim_state_dict(net, optimizer)}
    numbered = FSDP.rekey_optim_state_dict(old["old full"], OptimStateKeyType.PARAM_ID, net, optim=optimizer)
    plain = model()
    alone = fl.optim.AdamW([{"params": [p for p in plain.parameters() if (p.ndim > 1) == large]} for large in (True, False)])
    alone.load_state_dict(numbered)
    want, checks = losses(net, optimizer, 2), [list(numbered["state"]) == list(range(len(list(net.parameters()))))]
    checks.append(alone.state[plain.head.weight]["exp_avg"].shape == (11, 6) and alone.param_groups[1]["lr"] == 0.02)
    checks.append(isinstance(given["spread"]["state"]["embedding.weight"]["exp_avg"], DTensor) and bool(given["first"]) == (rank == 0))
    for name in (*ways, *old):
        net, optimizer = pair()
        net.load_state_dict(weights)
        if name in ways:
            with FSDP.state_dict_type(net, ways[name][0], **ways[name][1]):
                FSDP.optim_state_dict_to_load(net, optimizer, given[name], load_directly=True)
        elif name == "old full":
            optimizer.load_state_dict(FSDP.shard_full_optim_state_dict(old[name], net, optim=optimizer))
        else:
            optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(old[name] if rank == 0 else None, net, optim=optimizer))
        checks.append(max(abs(a - b) for a, b in zip(losses(net, optimizer, 2), want)) < 1e-6)
    return checks


@needs_mpi
def test_state_of_optimizers() -> None:
    for checks in run(optimizers, 2, timeout=110):
        assert all(checks), checks


def hybrid(torch: Any, rank: int, world: int) -> tuple:
    """Two groups of two processes: parameters and buffers begin as those of the first, and training is one process's."""
    dist.init_process_group("gloo")
    fl.manual_seed(7 if rank == 0 else 100 + rank)
    net = Model()
    net.scale.fill_(1.5 if rank == 0 else 9.0)
    where = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    wrapped = FSDP(net, device_mesh=where, sharding_strategy=ShardingStrategy.HYBRID_SHARD, sync_module_states=True,
                   auto_wrap_policy=wrap.ModuleWrapPolicy({Block}))
    plain, want = model(), []
    optimizer = fl.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        loss = loss_of(plain, batch(step, world))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        want.append(loss.item())
    losses = trained(wrapped, rank, world)
    groups = where.get_group("shard"), where.get_group("replicate")
    others = [FSDP(model(), g, ShardingStrategy.HYBRID_SHARD, auto_wrap_policy=wrap.ModuleWrapPolicy({Block})) for g in (groups, None)]
    meshes = [other.head.weight.device_mesh.mesh.tolist() for other in others]  # by two groups; of one machine
    assert meshes == [where.mesh.tolist(), [[0, 1, 2, 3]]], meshes
    dist.barrier()  # the first process has the store, in which the others make groups
    return max(abs(a - b) for a, b in zip(losses, want)), wrapped.scale.item(), tuple(wrapped.head.weight._local_tensor.shape)


@needs_mpi
def test_hybrid_begins_as_the_first() -> None:
    for (gap, scale, shape), rows in zip(run(hybrid, 4, timeout=115), (6, 5, 6, 5)):
        assert gap < 1e-5 and scale == 1.5 and shape == (rows, 6)


def test_steps_run_on_parts() -> None:
    """An optimizer's step is one native call on this process's parts, with the result of one process."""
    dist.init_process_group("fake", rank=1, world_size=3)
    try:
        for make in (fl.optim.AdamW, fl.optim.Adam, functools.partial(fl.optim.SGD, momentum=0.9)):
            spread, whole = nn.Linear(4, 5), nn.Linear(4, 5)
            whole.load_state_dict(spread.state_dict())
            fully_shard(spread)
            pairs = list(zip(spread.parameters(), whole.parameters(), strict=True))
            optimizers = [make(spread.parameters(), lr=0.1), make(whole.parameters(), lr=0.1)]
            for _ in range(2):
                for p, q in pairs:
                    q.grad = fl.rand_like(q)
                    p.grad = DTensor.from_local(q.grad[2:4], p.device_mesh, p.placements, shape=q.shape, stride=q.stride())
                for optimizer in optimizers:
                    optimizer.step()
            assert all(fl.equal(p._local_tensor, q[2:4]) for p, q in pairs)
            assert all(isinstance(s, DTensor) for s in optimizers[0].state[pairs[0][0]].values() if isinstance(s, fl.Tensor) and s.ndim)
    finally:
        dist.destroy_process_group()


def test_memory_of_one_of_many() -> None:
    """Rank 5 of 64: its part of the parameters, and what is gathered for one block at a time."""
    dist.init_process_group("fake", rank=5, world_size=64)
    try:
        net: Any = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(4)])
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        assert all(tuple(p._local_tensor.shape) == (1, 64) for p in net.parameters())
        calls = dist.group.WORLD.calls  # type: ignore[union-attr]
        del calls[:]
        net(fl.ones(2, 64)).sum().backward()
        assert [c.name for c in calls].count("all_gather_into_tensor") == 8 and [c.name for c in calls].count("reduce_scatter_tensor") == 4
        assert all(p.grad is not None and isinstance(p, DTensor) for p in net.parameters())
        with pytest.raises(AssertionError, match="applied"):
            fully_shard(net)
        with pytest.raises(ValueError, match="two process groups"):
            FSDP(nn.Linear(2, 2), dist.group.WORLD, ShardingStrategy.HYBRID_SHARD)
        with pytest.raises(ValueError, match="not for FULL_SHARD"):
            FSDP(nn.Linear(2, 2), (dist.group.WORLD, dist.group.WORLD))
        with pytest.raises(ValueError, match="no dimension"):
            module = nn.Linear(2, 2)
            module.scale = nn.Parameter(fl.tensor(1.0))
            fully_shard(module)
    finally:
        dist.destroy_process_group()


def test_reductions_end_when_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the layer before computes its gradients."""
    dist.init_process_group("fake", rank=0, world_size=2)
    said: list[str] = []
    net = nn.Sequential(*[nn.Linear(2, 2 + 2 * k) if not k else nn.Linear(2 * k, 2 + 2 * k) for k in range(3)])
    for k, layer in enumerate(net):
        layer.register_full_backward_pre_hook(lambda m, g, k=k: said.append(f"backward {k}"))
        fully_shard(layer)
    number = {id(layer._fsdp_group): k for k, layer in enumerate(net)}
    for name in ("_reduce", "_end"):
        def told(self: ParamGroup, *args: Any, before: Any = getattr(ParamGroup, name), name: str = name) -> None:
            said.append(f"{name} {number[id(self)]}")
            before(self, *args)
        monkeypatch.setattr(ParamGroup, name, told)
    net(fl.randn(3, 2, requires_grad=True)).sum().backward()
    dist.destroy_process_group()
    assert said == ["backward 2", "_reduce 2", "backward 1", "_end 2", "_reduce 1", "backward 0", "_end 1", "_reduce 0", "_end 0"]
    assert all(p.grad is not None for p in net.parameters())


def test_the_next_group_is_gathered_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second step on: before a module computes, the one after it is on its way; in backward the one before it. A group that does
    not come after all is let go, and weights that changed on their way are gathered again."""
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        class Some(nn.Sequential):
            def forward(self, x: fl.Tensor) -> fl.Tensor:
                for k in self.layers:
                    x = self[k](x)
                return x

        net = Some(*[nn.Linear(4, 4) for _ in range(4)])
        names: dict[ParamGroup, int] = {}
        for k, layer in enumerate(net):
            names[fully_shard(layer, reshard_after_forward=True)._fsdp_group] = k
            layer.register_forward_pre_hook(lambda m, args, k=k: events.append(f"run {k}"))
            layer.register_full_backward_hook(lambda m, gi, go, k=k: events.append(f"back {k}"))
        names[fully_shard(net)._fsdp_group] = 4
        gather = ParamGroup._gather
        monkeypatch.setattr(ParamGroup, "_gather", lambda self, p, part: (events.append(f"gather {names[self]}"), gather(self, p, part))[1])
        x, events = fl.ones(2, 4, requires_grad=True), list[str]()

        def step(*layers: int) -> list[str]:
            events.clear()
            net.layers = layers
            net(x).sum().backward()
            return list(dict.fromkeys(events))      # a weight and a bias each

        assert step(0, 1, 2, 3)[:4] == ["gather 0", "run 0", "gather 1", "run 1"]
        ahead = step(0, 1, 2, 3)
        assert ahead[:5] == ["gather 0", "gather 1", "run 0", "gather 2", "run 1"]
        back = events[events.index("run 3") + 1:]
        assert [back.index(f"gather {k}") < back.index(f"back {k + 1}") for k in (1, 2)] == [True, True]
        step(0, 3)
        assert net[1]._fsdp_group._gathering is None and all(g._gathering is None for g in names)
        net[0](x)       # 3 is on its way
        with fl.no_grad():
            net[3].weight._local_tensor.fill_(5.0)
        net[3](x)
        assert net[3]._fsdp_group.params[0].shard._local_tensor.eq(5).all() and net[3]._fsdp_group._bundles[0].flat[:8].eq(5).all()
    finally:
        dist.destroy_process_group()


PLAN = {"blocks.*.up": ColwiseParallel(use_local_output=False), "blocks.*.down": RowwiseParallel()}


def spread_twice(torch: Any, rank: int, world: int) -> dict:
    """Of nets of which some are tensor parallel, along the other dimension of the mesh, and some are split by other dimensions than rows:
    the largest difference of a parameter from one process's, after some steps, and how one lies."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    plain, found = model(), {}
    trained(plain, 0, 1)
    last = {"shard_placement_fn": lambda p: Shard(-1)}
    for name, plan, options, compiled in (("tensor parallel", PLAN, {}, False), ("by the last dimension", {}, last, False),
                                          ("both", PLAN, last, False), ("compiled", PLAN, last, True)):
        net = sharded(parallelize_module(model(), mesh["tp"], plan), mesh=mesh["dp"], **options)
        optimizer = fl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        run_it = fl.compile(net, backend="aot_eager") if compiled else net
        for step in range(3):
            loss_of(run_it, batch(step, 2)[2 * (rank // 2) : 2 * (rank // 2) + 2]).backward()
            optimizer.step()
            optimizer.zero_grad()
        whole = {n: p.full_tensor() for n, p in net.named_parameters()}
        gaps = [(p - q).abs().max().item() for p, q in zip(whole.values(), plain.parameters(), strict=True)]
        up = net.blocks[0].up.weight
        state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        found[name] = max(gaps), up.placements, up.device_mesh.mesh_dim_names, all(
            fl.equal(state[n], p) for n, p in whole.items())
    return found


@needs_mpi
def test_spread_along_two_dimensions() -> None:
    for found in run(spread_twice, 4, timeout=120):
        assert all(gap < 1e-5 and whole for gap, *_, whole in found.values()), found
        lies = {name: (placements, names) for name, (_, placements, names, _) in found.items()}
        assert lies == {"tensor parallel": ((Shard(0), Shard(0)), ("tp", "dp")), "by the last dimension": ((Shard(1),), ("dp",)),
                        "both": ((Shard(0), Shard(1)), ("tp", "dp")), "compiled": ((Shard(0), Shard(1)), ("tp", "dp"))}


def test_what_cannot_be_spread_further() -> None:
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        mesh, other = (init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")) for _ in range(2))
        for tp, dp in ((mesh["tp"], other["dp"]), (mesh["tp"], mesh["tp"])):
            with pytest.raises(ValueError, match="different dimensions of one DeviceMesh"):
                fully_shard(parallelize_module(nn.Linear(4, 4), tp, ColwiseParallel()), mesh=dp)
        with pytest.raises(ValueError, match=r"Shard\(dim\) or None, not Replicate"):
            fully_shard(nn.Linear(4, 4), shard_placement_fn=lambda p: dist.tensor.Replicate())
    finally:
        dist.destroy_process_group()


def told(torch: Any, rank: int, world: int) -> list:
    """Gradients of the first weight: as it is, divided by another number, and of replicas that are added up over two passes."""
    dist.init_process_group("gloo")
    rows, square = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (2, 1))
    made = []
    for mesh, divisor, late in ((rows, None, False), (rows, 1.0, False), (square, None, False), (square, 1.0, False), (square, None, True)):
        fl.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        for layer in (*net, net):
            fully_shard(layer, mesh=mesh)
            if divisor is not None:
                layer.set_gradient_divide_factor(divisor)
        for reduces in (False, True) if late else (True,):
            net.set_requires_all_reduce(reduces)
            net.set_is_last_backward(reduces)
            net(fl.ones(2, 3) + rank).sum().backward()
            assert (net[0].weight.grad is None) == (not reduces)
        made.append(net[0].weight.grad.full_tensor())
    mean, total, *others = made
    return [bool(fl.allclose(total, 2 * mean)), *(bool(fl.allclose(a, b)) for a, b in zip(others, (mean, total, 2 * mean)))]


@needs_mpi
def test_gradients_are_divided_and_replicas_added_up_as_told() -> None:
    assert run(told, 2) == [[True] * 4] * 2


@pytest.mark.parametrize("kind", [None, fl.bfloat16])
@pytest.mark.parametrize("way", ["fully_shard", "wrapped"])
def test_parts_on_the_cpu(way: str, kind: Any) -> None:
    """Of a module on a GPU, without its elements: parts, gradients and the optimizer's state lie on the CPU, and travel on the GPU."""
    dist.init_process_group("fake", rank=1, world_size=4)
    seen: list[tuple] = []
    try:
        mesh = init_device_mesh("cuda", (4,))
        with FakeTensorMode():
            net: Any = nn.Sequential(nn.Linear(8, 8, device="cuda"), nn.Tanh(), nn.Linear(8, 3, device="cuda"))
            if way == "wrapped":
                net = FullyShardedDataParallel(net, device_mesh=mesh, cpu_offload=CPUOffload(offload_params=True),
                                               auto_wrap_policy=wrap.ModuleWrapPolicy({nn.Linear}),
                                               mixed_precision=MixedPrecision(param_dtype=kind))
            else:
                for part in (net[0], net):
                    fully_shard(part, mesh=mesh, offload_policy=CPUOffloadPolicy(), mp_policy=MixedPrecisionPolicy(param_dtype=kind))
            group = mesh.get_group()
            begin = group._begin
            group._begin = lambda name, tensor, *rest: (seen.append((name, tensor.device.type, tensor.dtype)), begin(name, tensor, *rest))[1]
            out = net(fl.ones(2, 8, device="cuda"))
            out.sum().backward()
            del group._begin
            assert out.device.type == "cuda" and out.dtype is (kind or fl.float32)
            params = list(net.parameters())
            assert {t.device.type for p in params for t in (p, p.grad, p.to_local(), p.full_tensor())} == {"cpu"}
            assert {t.dtype for p in params for t in (p, p.grad)} == {fl.float32}
            assert [tuple(p.to_local().shape) for p in params] == [(2, 8), (2,), (1, 8), (1,)]
        assert {name for name, *_ in seen} == {"all_gather_into_tensor", "reduce_scatter_tensor"}
        assert {(where, dtype) for _, where, dtype in seen} == {("cuda", kind or fl.float32)}
    finally:
        dist.destroy_process_group()


def test_what_is_gathered_ahead_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
        for layer in net:
            fully_shard(layer, reshard_after_forward=True)
        net[0].set_modules_to_forward_prefetch([net[1], net[2]])
        net[2].set_modules_to_backward_prefetch([net[0]])
        net[1].set_modules_to_forward_prefetch([])
        events, begin = list[tuple[str, int]](), ParamGroup.begin
        numbers = {layer._fsdp_group: k for k, layer in enumerate(net)}

        def noted(self: ParamGroup) -> None:
            if not self.gathered and self._gathering is None:
                events.append(("gather", numbers[self]))
            begin(self)

        monkeypatch.setattr(ParamGroup, "begin", noted)
        for k, layer in enumerate(net):
            layer.register_forward_hook(lambda m, args, out, k=k: events.append(("run", k)))
        net(fl.ones(2, 4, requires_grad=True)).sum().backward()
        assert events == [("gather", 0), ("gather", 1), ("gather", 2), ("run", 0), ("run", 1), ("run", 2), ("gather", 2), ("gather", 0),
                          ("gather", 1)]
        with pytest.raises(ValueError, match="not Linear"):
            net[0].set_modules_to_forward_prefetch([nn.Linear(1, 1)])
        net.zero_grad()
        net[0].set_unshard_in_backward(False)
        del events[:]
        net[0](fl.ones(2, 4)).sum().backward()      # the gradient of its weight asks for nothing of it
        assert events.count(("gather", 0)) == 1 and net[0].weight.grad.full_tensor().eq(2).all()
    finally:
        dist.destroy_process_group()
