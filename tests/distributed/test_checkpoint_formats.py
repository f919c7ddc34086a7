"""Checkpoints as safetensors files (both ways with torch), and files of torch.save that one process reads for all."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl
from flambeau.distributed import checkpoint as dcp
from flambeau.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from flambeau.utils.safetensors import load_file, safe_open, save_file
from tests.distributed.processes import needs_mpi, run

NUMBERS = {"a": 1, "b": 2, "n": 1}
WAYS: dict[str, dict] = {"parts": {"save_distributed": True}, "consolidated": {"save_distributed": True, "enable_consolidation": True},
                         "numbered": {"save_distributed": True, "enable_consolidation": True, "fqn_to_index_mapping": NUMBERS}}


def _state(torch: Any, placements: tuple, mesh: Any, full: bool) -> dict:
    spread = torch.distributed.tensor.distribute_tensor
    whole = torch.arange(15.0).reshape(5, 3) if full else torch.zeros(5, 3)
    return {"a": spread(whole, mesh, [placements[0]]), "b": torch.full((2,), 7.0 if full else 0.0, dtype=torch.bfloat16),
            "n": spread(whole * 2, mesh, [placements[1]])}


def _begin(torch: Any) -> tuple[Any, Any, Any]:
    dist, tensor = torch.distributed, importlib.import_module(f"{torch.__name__}.distributed.tensor")
    dist.init_process_group("gloo")
    return dist.init_device_mesh("cpu", (2,)), tensor, importlib.import_module(f"{torch.__name__}.distributed.checkpoint")


def saves(torch: Any, rank: int, world: int, folder: str) -> None:
    mesh, tensor, dcp = _begin(torch)
    for name, options in WAYS.items():
        dcp.save(_state(torch, (tensor.Shard(0), tensor.Replicate()), mesh, True),
                 storage_writer=dcp.HuggingFaceStorageWriter(f"{folder}/{name}", **options))


def loads(torch: Any, rank: int, world: int, folder: str) -> list:
    mesh, tensor, dcp = _begin(torch)
    found = []
    for name in WAYS:
        state = _state(torch, (tensor.Shard(1), tensor.Shard(0)), mesh, False)
        dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(f"{folder}/{name}"))
        found.append([state["a"].full_tensor().tolist(), state["b"].tolist(), state["n"].full_tensor().tolist()])
    return found


def _described(folder: Path) -> dict:
    """Of each file what it holds: shapes, dtypes, where parts begin; of the index all."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            found[name] = json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            with safe_open(path) as file:
                told = dict(file.metadata() or {})
                told["DCP_SHARDING_INFO"] = json.loads(told.get("DCP_SHARDING_INFO", "{}"))
                found[name] = told, {k: (tuple(v.shape), v.dtype, v.tolist()) for k in file.keys() if (v := file.get_tensor(k)) is not None}  # noqa: SIM118
    return found


@needs_mpi
def test_safetensors_both_ways(tmp_path: Path) -> None:
    """What torch's writer writes, and each reads the other's, however the tensors lie."""
    pytest.importorskip("torch")
    whole = [[float(3 * i + j) for j in range(3)] for i in range(5)]
    for library in ("flambeau", "torch"):
        run(saves, 2, str(tmp_path / library), library=library)
    for name in WAYS:
        assert _described(tmp_path / "flambeau" / name) == _described(tmp_path / "torch" / name)
    for library, saver in (("flambeau", "torch"), ("torch", "flambeau"), ("flambeau", "flambeau")):
        for found in run(loads, 2, str(tmp_path / saver), library=library):
            assert found == [[whole, [7.0, 7.0], [[2 * x for x in row] for row in whole]]] * len(WAYS)
    assert load_file(tmp_path / "flambeau" / "numbered" / "model-00002-of-00002.safetensors")["b"].dtype is fl.bfloat16


def test_one_process(tmp_path: Path) -> None:
    """Whole tensors, with others' files: shared memory is written twice, what is no tensor is left out, others' files are read."""
    shared = fl.ones(3)
    with pytest.warns(UserWarning, match="n is no tensor"):
        dcp.save({"a": shared, "b": shared, "n": 3}, storage_writer=dcp.HuggingFaceStorageWriter(tmp_path))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index == {"metadata": {"total_size": 24}, "weight_map": dict.fromkeys("ab", "model-00001-of-00001.safetensors")}
    save_file({"c": fl.arange(4)}, tmp_path / "theirs.safetensors")
    state = {"a": fl.zeros(3, dtype=fl.float64), "c": fl.zeros(4, dtype=fl.int64)}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    assert state["a"].tolist() == [1, 1, 1] and state["c"].tolist() == [0, 1, 2, 3]
    for numbers, wrong in (({"a": 1}, "no number for 'b'"),):
        with pytest.raises(dcp.CheckpointException, match=wrong):
            dcp.save({"a": shared, "b": shared}, storage_writer=dcp.HuggingFaceStorageWriter(tmp_path / "x", numbers))


@pytest.mark.parametrize(("offsets", "said"), [
    ({"a": {"saved_offsets": [1]}}, "are"), ({"a": {"saved_offsets": [-1]}}, "begins at"), ({"a": {"saved_offsets": [0, 0]}}, "begins at")])
def test_parts_that_are_no_whole(offsets: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(dcp.CheckpointException, match="FileNotFoundError"):
        dcp.load({"a": fl.ones(2)}, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    save_file({"a": fl.ones(2)}, tmp_path / "shard.safetensors", {"DCP_SHARDING_INFO": json.dumps(offsets)})
    with pytest.raises(dcp.CheckpointException, match=said):
        dcp.load({"a": fl.ones(2)}, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))


def broadcasts(torch: Any, rank: int, world: int, folder: str) -> list:
    mesh, tensor, dcp = _begin(torch)
    whole = fl.arange(15.0).reshape(5, 3)
    if rank == 1:       # the others need not see the file
        fl.save({"m": {"w": whole}, "l": [fl.ones(2)], "more": 1}, f"{folder}/file.pt")
    torch.distributed.barrier()

    def load(state: dict, planner: Any = None) -> Any:
        try:
            dcp.load(state, storage_reader=BroadcastingTorchSaveReader(f"{folder}/file.pt" if rank else "/nowhere", coordinator_rank=1),
                     planner=planner or DynamicMetaLoadPlanner())
        except dcp.CheckpointException as error:
            return str(error)
        return state

    state = {"m": {"w": tensor.zeros(5, 3, device_mesh=mesh, placements=[tensor.Shard(0)])}, "l": [fl.zeros(2, dtype=fl.float64)]}
    load(state)
    wrong = [load({"m": {"w": fl.zeros(3, 3)}}), load({"more": 2}), load({"l": [fl.zeros(2)]}, dcp.DefaultLoadPlanner())]
    return [state["m"]["w"].full_tensor().tolist() == whole.tolist() and state["l"][0].tolist() == [1, 1], *wrong]


@needs_mpi
def test_one_process_reads_for_all(tmp_path: Path) -> None:
    for right, shape, kind, planner in run(broadcasts, 2, str(tmp_path)):
        assert right and "has no tensor m.w of shape [3, 3]" in shape and "more is none" in kind and "Missing key" in planner
    state = {"l": [fl.zeros(2)]}
    dcp.load(state, storage_reader=BroadcastingTorchSaveReader(os.fspath(tmp_path / "file.pt")), planner=DynamicMetaLoadPlanner())
    assert state["l"][0].tolist() == [1, 1]
