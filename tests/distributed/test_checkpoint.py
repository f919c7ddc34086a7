"""Checkpoints in folders: by one process and several, read by others and by torch, and never half of one."""

from __future__ import annotations

import importlib
import os
import pickle
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed import checkpoint as dcp
from flambeau.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from flambeau.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from flambeau.distributed.fsdp import FullyShardedDataParallel, fully_shard
from flambeau.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from flambeau.nn.parallel import DistributedDataParallel
from flambeau.serialization.pickler import Pickler
from tests.distributed.processes import Ranks, needs_mpi, run

quiet = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


class Counter:
    """Something of the user's that has a state."""

    def __init__(self, lib: Any, n: int) -> None:
        self.lib, self.n = lib, n

    def state_dict(self) -> dict:
        return {"n": self.n, "x": self.lib.full((2,), float(self.n))}

    def load_state_dict(self, state: dict) -> None:
        self.n = state["n"] + int(state["x"].sum())


def nested(lib: Any, full: bool) -> dict[str, Any]:
    """All that a state dict may hold: as it is saved, or room to load it."""
    def t(*size: int, dtype: str = "float32") -> Any:
        made = lib.arange(24)[: max(1, int(lib.ones(size).sum()))] if 0 not in size else lib.ones(0)
        return (made.reshape(size) if full else lib.zeros(size)).to(getattr(lib, dtype))

    kinds = ("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64")
    return {
        "model": {"w": t(3, 4), "scalar": t(), "none": t(0, 3), "gap": t(4, 6)[:, ::2], **{k: t(2, 2, dtype=k) for k in kinds}},
        "mixed": [1 if full else 0, {"a": "x" if full else "", "t": t(2)}], "numbers": [1, 2, 3] if full else [],
        "state": {0: {"step": 3.5 if full else None}, 1: {"exp": t(2)}}, "tuple": (1, None) if full else (),
        "counter": Counter(lib, 5 if full else 0),
    }


def leaves(value: Any) -> Any:
    """A state dict as plain data."""
    if isinstance(value, dict):
        return {str(k): leaves(v) for k, v in value.items()}
    if isinstance(value, Counter):
        return value.n
    if isinstance(value, (list, tuple)):
        return type(value)(leaves(v) for v in value)
    return value.tolist() if hasattr(value, "tolist") else value


@quiet
@pytest.mark.parametrize(("saver", "loader"), [("flambeau", "flambeau"), ("flambeau", "torch"), ("torch", "flambeau")])
def test_nested_values_both_ways(saver: str, loader: str, tmp_path: Path) -> None:
    def api(name: str) -> Any:
        return importlib.import_module(f"{name}.distributed.checkpoint")

    api(saver).save(nested(importlib.import_module(saver), True), checkpoint_id=tmp_path)
    lib = importlib.import_module(loader)
    found = nested(lib, False)
    if loader == "torch":
        found["state"][0]["step"] = 3.5     # torch puts it under "0", beside 0
        del found["state"][0]
    api(loader).load(found, checkpoint_id=str(tmp_path))
    want = leaves(nested(lib, True))
    assert found["counter"].n == 15
    for key in want:
        if key not in ("counter", "state"):
            assert leaves(found)[key] == want[key], key
    assert leaves(found)["state"]["1"] == want["state"]["1"]


@quiet
def test_formats(tmp_path: Path) -> None:
    """A folder as a file, here and by torch, and back."""
    torch = pytest.importorskip("torch")
    state = {"a": {"w": fl.arange(6).reshape(2, 3)}, "l": [fl.ones(2), 3], "n": None}
    dcp.save(state, checkpoint_id=tmp_path / "folder")
    dcp_to_torch_save(tmp_path / "folder", tmp_path / "file.pt")
    assert leaves(fl.load(tmp_path / "file.pt")) == leaves(state) == leaves(torch.load(tmp_path / "file.pt"))
    torch_save_to_dcp(tmp_path / "file.pt", tmp_path / "again")
    room = {"a": {"w": torch.zeros(2, 3, dtype=torch.int64)}, "l": [torch.zeros(2), 0], "n": 1}
    torch.distributed.checkpoint.load(room, checkpoint_id=str(tmp_path / "again"))
    assert leaves(room) == leaves(state)


def failures(step: Callable[[], Any]) -> list[str]:
    with pytest.raises(dcp.CheckpointException) as caught:
        step()
    assert all(f"RANK {rank}" in str(caught.value) for rank in caught.value.failures)
    return [f"{type(error).__name__}: {error}" for error, _ in caught.value.failures.values()]


def test_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="checkpoint_id"):
        dcp.save({})
    assert "FileNotFoundError" in failures(lambda: dcp.load({"v": fl.ones(2)}, checkpoint_id=tmp_path))[0]
    dcp.save({"v": fl.ones(2), "n": 1, "sparse": fl.eye(3).to_sparse()}, checkpoint_id=tmp_path)
    for room, error in [({"w": fl.ones(2)}, "RuntimeError: Missing key in checkpoint state_dict: w."),
                        ({"v": fl.ones(3)}, "ValueError: Size mismatch between saved torch.Size([2]) and current: torch.Size([3]) for v"),
                        ({"v": 1}, "ValueError: Invalid checkpoint metadata for v")]:
        assert failures(lambda room=room: dcp.load(room, checkpoint_id=tmp_path))[0].startswith(error)  # type: ignore[misc]
    room = {"v": fl.zeros(2, dtype=fl.float64), "other": fl.ones(1), "sparse": None}
    dcp.load(room, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert room["v"].tolist() == [1, 1] and room["other"].tolist() == [1] and room["sparse"].to_dense().sum() == 3
    assert "overwrite=False" in failures(lambda: dcp.save({}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False)))[0]
    assert "lambda" in failures(lambda: dcp.save({"f": lambda: 1}, checkpoint_id=tmp_path))[0]
    dcp.load({"v": fl.zeros(2)}, checkpoint_id=tmp_path)      # the finished one is still there
    with pytest.raises(ValueError, match="duplicated"):
        dcp.DefaultSavePlanner().set_up_planner({"a.b": 1, "a": {"b": 2}})
    with pytest.raises(NotImplementedError, match="PROCESS"):
        dcp.async_save({}, checkpoint_id=tmp_path, async_checkpointer_type=dcp.state_dict_saver.AsyncCheckpointerType.PROCESS)


class _Evil:
    def __reduce__(self) -> tuple:
        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize("evil", ["code", "outside", "other", "torn"])
def test_nothing_but_data_is_read(evil: str, tmp_path: Path) -> None:
    dcp.save({"v": fl.ones(2), "n": 1}, checkpoint_id=tmp_path)
    file = tmp_path / ".metadata"
    data = file.read_bytes()
    file.write_bytes({"code": pickle.dumps(_Evil()), "other": pickle.dumps({"a": 1}), "torn": data[: len(data) // 2],
                      "outside": data.replace(b"__0_0.distcp", b"../../passwd")}[evil])
    said = failures(lambda: dcp.load({"v": fl.zeros(2)}, checkpoint_id=tmp_path))[0]
    assert {"code": "system", "outside": "outside of its folder", "other": "not a checkpoint", "torn": "truncated"}[evil] in said


def _edited(edit: Callable[[Any], None], path: Path) -> str:
    """What loading a checkpoint says whose description somebody has changed."""
    dcp.save({"w": fl.ones(4, 6), "v": fl.ones(2), "n": 1}, checkpoint_id=path)
    description = dcp.FileSystemReader(path).read_metadata()
    edit(description)
    with open(path / ".metadata", "wb") as file:
        Pickler(file).dump(description)
    return failures(lambda: dcp.load({"w": fl.zeros(4, 6), "v": fl.zeros(2), "n": 0}, checkpoint_id=path))[0]


def _where(description: Any, name: str) -> Any:
    return next(info for index, info in description.storage_data.items() if index.fqn == name)


VALUES: list[Any] = [None, -1, 1.5, 2**70, "x", [], {"a": 1}, (1, 2), b"x"]
EDITS: dict[str, Callable[[Any, Any], None]] = {
    "state_dict_metadata": lambda d, v: setattr(d, "state_dict_metadata", v),
    "storage_data": lambda d, v: setattr(d, "storage_data", v),
    "what a name is": lambda d, v: d.state_dict_metadata.update(w=v),
    "size": lambda d, v: setattr(d.state_dict_metadata["w"], "size", v),
    "properties": lambda d, v: setattr(d.state_dict_metadata["w"], "properties", v),
    "chunks": lambda d, v: setattr(d.state_dict_metadata["w"], "chunks", v),
    "offsets": lambda d, v: setattr(d.state_dict_metadata["w"].chunks[0], "offsets", v),
    "sizes": lambda d, v: setattr(d.state_dict_metadata["w"].chunks[0], "sizes", v),
    "where it lies": lambda d, v: d.storage_data.update(dict.fromkeys(d.storage_data, v)),
    "relative_path": lambda d, v: setattr(_where(d, "w"), "relative_path", [v] if isinstance(v, str) else v),
    "offset": lambda d, v: setattr(_where(d, "w"), "offset", v),
    "length": lambda d, v: setattr(_where(d, "w"), "length", v),
}


@pytest.mark.parametrize("part", EDITS)
def test_descriptions_that_no_saving_writes(part: str, tmp_path: Path) -> None:
    for value in VALUES:
        said = _edited(lambda d, value=value: EDITS[part](d, value), tmp_path)  # type: ignore[misc]
        assert said.startswith("ValueError") and ".metadata is no checkpoint's description, or a damaged one" in said, (value, said)


@pytest.mark.parametrize(("edit", "text"), [
    (lambda d: d.state_dict_metadata["w"].chunks.clear(), "the parts of w"),
    (lambda d: d.state_dict_metadata["w"].chunks.extend(d.state_dict_metadata["w"].chunks), "the parts of w"),
    (lambda d: setattr(d.state_dict_metadata["w"].chunks[0], "sizes", fl.Size([3, 6])), "the parts of w"),
    (lambda d: setattr(d.state_dict_metadata["w"].chunks[0], "offsets", fl.Size([1, 0])), "the parts of w"),
    (lambda d: d.planner_data.update(w=("w", 10**12)), "the place of 'w'"),
    (lambda d: setattr(_where(d, "w"), "length", 10**15), "is too short: w lies in its bytes"),
    (lambda d: setattr(_where(d, "w"), "offset", 10**15), "is too short: w lies in its bytes"),
    (lambda d: vars(_where(d, "w")).update(vars(_where(d, "v"))), "of shape (2,), of which (4, 6) from (0, 0) on cannot be read"),
    (lambda d: vars(_where(d, "w")).update(vars(_where(d, "n"))), "is a int, where a tensor was saved"),
    *[(lambda d, name=name: setattr(_where(d, "w"), "relative_path", name), "outside of its folder")
      for name in ("", ".", "..", "/etc/passwd", "../x", "a/b", "a\0b")],
])
def test_descriptions_that_fit_nothing(edit: Callable[[Any], None], text: str, tmp_path: Path) -> None:
    said = _edited(edit, tmp_path)
    assert said.startswith("ValueError") and text in said


def test_torn_files(tmp_path: Path) -> None:
    """A file that ends early, or a description that is missing a bit, is one error, and never half of a checkpoint."""
    state = {"w": fl.ones(4, 6), "v": fl.ones(2), "n": 1}
    dcp.save(state, checkpoint_id=tmp_path)
    rng = random.Random(0)
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        for _ in range(40):
            at = rng.randrange(len(whole))
            for torn in (whole[:at], whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1:]):
                file.write_bytes(torn)
                room = {"w": fl.zeros(4, 6), "v": fl.zeros(2), "n": 0}
                try:
                    dcp.load(room, checkpoint_id=tmp_path)
                except dcp.CheckpointException:
                    continue
                assert fl.equal(room["w"], state["w"]) and fl.equal(room["v"], state["v"]) and room["n"] == 1
        file.write_bytes(whole)


def test_files(tmp_path: Path) -> None:
    """As many as are asked for; a checkpoint in the place of another leaves nothing of it."""
    state = {f"w{i}": fl.full((i + 1,), float(i)) for i in range(5)}
    for options, count in (({}, 1), ({"thread_count": 3}, 3), ({"single_file_per_rank": False}, 5)):
        dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path, **options))  # type: ignore[arg-type]
        assert len(list(tmp_path.glob("*.distcp"))) == count and len(list(tmp_path.iterdir())) == count + 1
        room = {key: fl.zeros_like(t) for key, t in state.items()}
        dcp.load(room, checkpoint_id=tmp_path)
        assert leaves(room) == leaves(state)
    saved = fl.zeros(1000)[:2]      # of a large memory only what is seen
    dcp.save({"v": saved}, checkpoint_id=tmp_path)
    assert next(tmp_path.glob("*.distcp")).stat().st_size < 3000


# -- processes ---------------------------------------------------------------------------------------------------------------
SIZES = {"even": (4, 6), "uneven": (5, 3), "few": (1, 7), "empty": (0, 2), "vector": (7,)}
WAYS = {"rows": 0, "columns": -1, "whole": None}


def spread_out(lib: Any, full: bool, ways: dict[str, Any]) -> dict[str, Any]:
    """DTensors of all sizes and placements."""
    tensor = importlib.import_module(f"{lib.__name__}.distributed.tensor")
    mesh = lib.distributed.device_mesh.init_device_mesh("cpu", (lib.distributed.get_world_size(),))
    found = {}
    for size, shape in SIZES.items():
        count = max(1, int(lib.ones(shape).sum()))
        for name, dim in ways.items():
            value = (lib.arange(float(count))[: int(lib.ones(shape).sum())] if full else lib.zeros(shape)).reshape(shape)
            where = tensor.Replicate() if dim is None else tensor.Shard(dim % len(shape))
            found[f"{size}.{name}"] = tensor.distribute_tensor(value, mesh, [where])
    return found


def dtensors_saved(lib: Any, rank: int, world: int, folder: str) -> None:
    lib.distributed.init_process_group("gloo")
    api = importlib.import_module(f"{lib.__name__}.distributed.checkpoint")
    api.save({"d": spread_out(lib, True, WAYS), "plain": lib.arange(3), "rank": "same"}, checkpoint_id=folder)
    lib.distributed.destroy_process_group()


def dtensors_loaded(lib: Any, rank: int, world: int, folder: str) -> list[str]:
    lib.distributed.init_process_group("gloo")
    api, wrong = importlib.import_module(f"{lib.__name__}.distributed.checkpoint"), []
    for turn in range(3):
        dims = [*WAYS.values()]
        ways = dict(zip(WAYS, dims[turn:] + dims[:turn]))
        room = {"d": spread_out(lib, False, ways), "plain": lib.zeros(3, dtype=lib.int64), "rank": ""}
        api.load(room, checkpoint_id=folder)
        want = spread_out(lib, True, ways)
        wrong += [f"{turn} {k}" for k, v in room["d"].items() if v.full_tensor().tolist() != want[k].full_tensor().tolist()]
        wrong += [f"{turn} {k}" for k in ("plain", "rank") if room[k] != "same" and room[k].tolist() != [0, 1, 2]]
    lib.distributed.destroy_process_group()
    return wrong


@needs_mpi
@pytest.mark.parametrize(("saver", "loaders"), [
    ("flambeau", [("flambeau", 3), ("flambeau", 1), ("torch", 2)]), ("torch", [("flambeau", 2)])])
def test_other_placements_and_other_numbers_of_processes(saver: str, loaders: list[tuple[str, int]], tmp_path: Path) -> None:
    run(dtensors_saved, 2, str(tmp_path), library=saver, timeout=110)
    for loader, world in loaders:
        assert run(dtensors_loaded, world, str(tmp_path), library=loader, timeout=110) == [[]] * world


def model() -> nn.Module:
    fl.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 2))


def wrapped(kind: str) -> tuple[Any, Any]:
    net: Any = model()
    if kind == "fully_shard":
        fully_shard(net[0])
        fully_shard(net)
    elif kind == "fsdp":
        net = FullyShardedDataParallel(net)
    elif kind == "ddp":
        net = DistributedDataParallel(net)
    return net, fl.optim.AdamW(net.parameters(), lr=0.1)


def step(net: Any, optimizer: Any) -> float:
    optimizer.zero_grad()
    loss = net(fl.arange(12.0).reshape(4, 3)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def trained_and_saved(lib: Any, rank: int, world: int, folder: str) -> list[float]:
    """Each way of training saves, in the background too, and goes on: the losses that follow."""
    dist.init_process_group("gloo")
    losses = []
    for kind in ("fully_shard", "fsdp", "ddp"):
        net, optimizer = wrapped(kind)
        for _ in range(2):
            step(net, optimizer)
        state = dict(zip(("model", "optim"), get_state_dict(net, optimizer)))
        saved: Any = dcp.async_save(state, checkpoint_id=f"{folder}/{kind}")
        losses.append(step(net, optimizer))
        saved.result()
        dcp.save(dict(zip(("model", "optim"), get_state_dict(net, optimizer))), checkpoint_id=f"{folder}/{kind}.late")
        losses.append(step(net, optimizer))
    dist.destroy_process_group()
    return losses


def resumed(lib: Any, rank: int, world: int, folder: str) -> list[float]:
    """Each way of training goes on from what another saved."""
    dist.init_process_group("gloo")
    losses = []
    for source, kind in (("fully_shard", "fsdp"), ("fsdp", "ddp"), ("ddp", "fully_shard")):
        for late in ("", ".late"):
            net, optimizer = wrapped(kind)
            found = dict(zip(("model", "optim"), get_state_dict(net, optimizer)))
            dcp.load(found, checkpoint_id=f"{folder}/{source}{late}")
            set_state_dict(net, optimizer, model_state_dict=found["model"], optim_state_dict=found["optim"])
            losses.append(step(net, optimizer))
    dist.destroy_process_group()
    return losses


@needs_mpi
def test_training_goes_on_from_any_checkpoint(tmp_path: Path) -> None:
    want = run(trained_and_saved, 2, str(tmp_path), timeout=110)
    for world in (2, 1):
        for found in run(resumed, world, str(tmp_path), timeout=110):
            assert found == pytest.approx(want[0], abs=1e-5)
    plain, optimizer = wrapped("plain")
    state = dict(zip(("model", "optim"), get_state_dict(plain, optimizer)))
    dcp.load(state, checkpoint_id=tmp_path / "fsdp")
    set_state_dict(plain, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    assert step(plain, optimizer) == pytest.approx(want[0][2], abs=1e-5)


def whole_states(lib: Any, rank: int, world: int) -> list[bool]:
    """full_state_dict, cpu_offload, broadcast_from_rank0, flat names."""
    dist.init_process_group("gloo")
    checks = []
    plain, own = wrapped("plain")
    step(plain, own)
    want, want_optim = get_state_dict(plain, own)
    for kind in ("fully_shard", "fsdp", "ddp"):
        net, optimizer = wrapped(kind)
        step(net, optimizer)
        checks.append(list(get_model_state_dict(net)) == list(want))
        whole = StateDictOptions(full_state_dict=True)
        found, found_optim = get_state_dict(net, optimizer, options=whole)
        checks += [close(found, want), close(found_optim["state"], want_optim["state"])]
        alone = StateDictOptions(full_state_dict=True, cpu_offload=True)
        first = get_state_dict(net, optimizer, options=alone)
        checks.append(all(bool(part) == (rank == 0) for part in first))
        for flat in (False, True):
            options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, flatten_optimizer_state_dict=flat)
            given = get_state_dict(net, optimizer, options=options)
            other, others = wrapped(kind)
            set_state_dict(other, others, model_state_dict=given[0] if rank == 0 else {}, optim_state_dict=given[1] if rank == 0 else {},
                           options=options)
            checks.append(abs(step(other, others) - step(net, optimizer)) < 1e-6)
            found, found_optim = get_state_dict(net, optimizer, options=whole)
            again, again_optim = get_state_dict(other, others, options=whole)
            checks += [close(found, again), close(found_optim["state"], again_optim["state"])]
    dist.destroy_process_group()
    return checks


def close(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return fl.allclose(a.float(), b.float(), atol=1e-5)


@needs_mpi
def test_whole_states() -> None:
    for checks in run(whole_states, 2, timeout=110):
        assert all(checks), checks


def test_state_dict_options() -> None:
    net, optimizer = wrapped("plain")
    net[0].bias.requires_grad_(False)
    assert "0.bias" not in get_model_state_dict(net, options=StateDictOptions(ignore_frozen_params=True))
    assert list(get_model_state_dict(net, submodules={net[3]})) == ["3.weight", "3.bias"]
    bare = StateDictOptions(keep_submodule_prefixes=False)
    assert list(get_model_state_dict(net, submodules={net[3]}, options=bare)) == ["weight", "bias"]
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        StateDictOptions(broadcast_from_rank0=True)
    with pytest.raises(RuntimeError, match="Missing key"):
        set_model_state_dict(net, {})
    assert set_model_state_dict(net, {}, options=StateDictOptions(strict=False)).missing_keys
    before = [p.clone() for p in net.parameters()]
    assert set(get_optimizer_state_dict(net, optimizer)["state"]) == {n for n, p in net.named_parameters() if p.requires_grad}
    assert all(fl.equal(a, b) for a, b in zip(before, net.parameters()))


# -- faults --------------------------------------------------------------------------------------------------------------------
def saving(lib: Any, rank: int, world: int, folder: str) -> None:
    """Saves one checkpoint after another in one place, each full of its number."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,))
    for n in range(1, 10**6):
        value = fl.full((1 << 14,), float(n))
        dcp.save({"a": distribute_tensor(value, mesh, [Shard(0)]), "b": distribute_tensor(value, mesh, [Replicate()]), "n": n},
                 checkpoint_id=folder)


@needs_mpi
def test_a_killed_process_leaves_the_finished_checkpoint(tmp_path: Path) -> None:
    draw = random.Random(5)
    for attempt in range(4):
        begun = time.time()
        with Ranks(saving, 2, str(tmp_path)) as ranks:
            file = tmp_path / ".metadata"
            while time.time() < begun + 50 and not (file.exists() and file.stat().st_mtime > begun):
                time.sleep(0.01)
            time.sleep(draw.random() / 5)
            os.kill(ranks.processes[attempt % 2].pid or 0, signal.SIGKILL)
            time.sleep(0.05)
        room = {"a": fl.zeros(1 << 14), "b": fl.zeros(1 << 14), "n": 0}
        dcp.load(room, checkpoint_id=tmp_path)
        assert room["n"] > 0 and bool((room["a"] == room["n"]).all()) and bool((room["b"] == room["n"]).all())


def failing(lib: Any, rank: int, world: int, folder: str) -> str:
    dist.init_process_group("gloo")
    try:
        dcp.save({"f": (lambda: 1) if rank else 1, f"only{rank}": (lambda: 1) if rank else 1}, checkpoint_id=folder)
    except dcp.CheckpointException as error:
        return str(error)
    return "saved"


@needs_mpi
def test_all_learn_what_failed(tmp_path: Path) -> None:
    for said in run(failing, 2, str(tmp_path)):
        assert "RANK 1" in said and "lambda" in said, said
    assert not (tmp_path / ".metadata").exists()
