"""Names of torch.distributed that need no second process, and forms of FSDP in a group of one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed import fsdp

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@LIBRARIES
def test_backends_by_device(t: Any) -> None:
    config = t.distributed.BackendConfig
    assert repr(config("gloo")) == "cpu:gloo,cuda:gloo" and config("mpi").get_device_backend_map() == {"cpu": "mpi", "cuda": "mpi"}
    assert repr(config("cpu:gloo,cuda:nccl")) == "cpu:gloo,cuda:nccl"
    with pytest.raises(ValueError, match="invalid"):
        config("cpu:gloo,nccl")


@LIBRARIES
def test_small_names(t: Any) -> None:
    d = t.distributed
    assert [d.supports_complex(getattr(d.ReduceOp, name)) for name in ("SUM", "AVG", "PRODUCT", "MAX", "MIN", "BAND")] == [
        True, True, False, False, False, False]
    assert d.GroupName("x") == "x" and {"ALLREDUCE", "FP16_COMPRESS"} <= set(d.BuiltinCommHookType.__members__)
    with pytest.raises(ValueError, match="t least one"):
        importlib.import_module(f"{t.__name__}.distributed.fsdp").DataParallelMeshDims()


@LIBRARIES
def test_how_layouts_are_shown(t: Any) -> None:
    tensor, parallel = (importlib.import_module(f"{t.__name__}.distributed.tensor{end}") for end in ("", ".parallel"))
    shown = [(repr(p), str(p)) for p in (tensor.Shard(1), tensor.Replicate(), tensor.Partial(), tensor.Partial("avg"))]
    assert shown == [("Shard(dim=1)", "S(1)"), ("Replicate()", "R"), ("Partial(sum)", "P(sum)"), ("Partial(avg)", "P(avg)")]
    layouts = {"output_layouts": tensor.Shard(0), "desired_output_layouts": tensor.Replicate()}
    assert [repr(style) for style in (parallel.ColwiseParallel(), parallel.RowwiseParallel(output_layouts=tensor.Shard(1)),
                                      parallel.SequenceParallel(), parallel.PrepareModuleOutput(**layouts))] == [
        "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), use_local_output=True)",
        "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Shard(dim=1),), use_local_output=True)",
        "SequenceParallel(sequence_dim=1, use_local_output=False)",
        "PrepareModuleOutput(output_layouts=(Shard(dim=0),), desired_output_layouts=(Replicate(),), use_local_output=True)"]


@pytest.mark.usefixtures("alone")
def test_meshes_and_plans() -> None:
    mesh = dist.init_device_mesh("cpu", (1,))
    assert repr(mesh) == "DeviceMesh((1,), 'cpu', stride=((),))" and mesh.get_coordinate() == (0,)
    with pytest.raises(TypeError, match="parallelize_plan"):
        fl.distributed.tensor.parallel.parallelize_module(fl.nn.ReLU(), mesh, {1})
    assert dist.distributed_c10d._get_default_store() is dist.group.WORLD._store
    dist.destroy_process_group()
    dist.init_process_group("fake", rank=5, world_size=8)
    mesh = dist.init_device_mesh("cpu", (2, 1, 4), mesh_dim_names=("a", "b", "c"))
    assert repr(mesh) == "DeviceMesh((a=2, b=1, c=4), 'cpu', stride=(4, (), 1))" and mesh.get_coordinate() == (1, 0, 1)


@pytest.mark.usefixtures("alone")
def test_names_of_communication() -> None:
    with fl.profiler.profile() as taken, dist.record_comm("my part"):
        dist.all_reduce(fl.ones(2))
    assert {e.name for e in taken.events()} >= {"my part", "c10d::all_reduce"}
    with pytest.raises(ValueError, match="processes 0 to 0"):
        dist.breakpoint(3)
    assert dist.breakpoint(0, skip=10**6) is None


@pytest.mark.usefixtures("alone")
def test_forward_methods_and_meshes() -> None:
    class Model(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = fl.nn.Linear(2, 2)

        def again(self, x: Any) -> Any:
            return self.a(x)

    mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"), backend_override={"dp": "fake"})
    model = Model()
    plain = model.again(fl.ones(2)).tolist()
    fsdp.register_fsdp_forward_method(model, "again")
    assert model.again(fl.ones(2)).tolist() == plain
    fsdp.fully_shard(model, mesh=mesh, dp_mesh_dims=fsdp.DataParallelMeshDims(shard="dp"), shard_placement_fn=lambda p: None)
    with pytest.raises(ValueError, match="no_such_method"):
        fsdp.register_fsdp_forward_method(model, "no_such_method")
    fsdp.register_fsdp_forward_method(model, "again")
    out = model.again(fl.ones(2))
    assert out.tolist() == plain
    out.sum().backward()
    assert model.a.weight.grad is not None
    assert isinstance(model.unshard(async_op=True), fsdp.UnshardHandle) and model.unshard() is None
    fsdp.share_comm_ctx([model])
    with pytest.raises(ValueError, match="fully_shard"):
        fsdp.share_comm_ctx([fl.nn.Linear(1, 1)])
    with pytest.raises(ValueError, match=r"Shard\(dim\) or None"):
        fsdp.fully_shard(fl.nn.Linear(2, 2), mesh=mesh["dp"], shard_placement_fn=lambda p: dist.tensor.Shard(1))
    with pytest.raises(RuntimeError, match="no dimension"):
        dist.init_device_mesh("cpu", (1,), backend_override={"x": "fake"})
    assert dist.tensor.zeros(2, layout=fl.strided, device_mesh=mesh["dp"]).shape == (2,)
    with pytest.raises(NotImplementedError, match="layout"):
        dist.tensor.zeros(2, layout=fl.sparse_coo, device_mesh=mesh["dp"])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("call", "error", "message"), [
    *((call, ValueError, "Group x is not registered") for call in (
        lambda: dist.get_rank("x"), lambda: dist.get_world_size("x"), lambda: dist.get_backend("x"), lambda: dist.get_process_group_ranks("x"),
        lambda: dist.all_reduce(fl.ones(1), group="x"), lambda: dist.broadcast(fl.ones(1), 0, group="x"), lambda: dist.barrier(group="x"),
        lambda: dist.all_gather_object([None], 1, group="x"), lambda: dist.monitored_barrier("x"))),
    (lambda: dist.all_gather_into_tensor(fl.ones(1), fl.ones(1).long()), RuntimeError, "dtype"),
    (lambda: dist.reduce_scatter_tensor(fl.ones(1), fl.ones(1).long()), RuntimeError, "dtype"),
    (lambda: dist._functional_collectives.all_reduce(fl.ones(1), "sum", "nope"), RuntimeError, "registered under the name nope"),
    (lambda: fsdp.FullyShardedDataParallel(fl.nn.Linear(2, 2), sharding_strategy="x"), TypeError, "ShardingStrategy"),
    (lambda: fsdp.FullyShardedDataParallel(fl.nn.Linear(2, 2), device_id="x"), RuntimeError, "device"),
    (lambda: fsdp.fully_shard(fl.nn.ModuleList([fl.nn.Linear(2, 2)])), ValueError, "do not implement forward"),
])
def test_wrong_calls(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.usefixtures("alone")
def test_where_fsdp_puts_a_module() -> None:
    inside = fl.nn.Sequential(fl.nn.Linear(2, 2), fl.nn.BatchNorm1d(2))
    unit = fsdp.FullyShardedDataParallel(inside, device_id="cpu", cpu_offload=fsdp.CPUOffload(offload_params=True),
                                         ignored_states=[inside[1].weight])
    assert {t.device.type for t in (*unit.parameters(), *unit.buffers())} == {"cpu"}
    assert unit.process_group.size() == 1 and not isinstance(inside[1].weight, dist.tensor.DTensor)
