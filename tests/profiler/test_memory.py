"""Memory over time: what it was taken for, who held it at the peak, and histories as PyTorch's viewer reads them."""

from __future__ import annotations

import gzip
import json
import pickle
import threading
from collections import Counter
from pathlib import Path

import pytest

import flambeau as fl
from flambeau.profiler import memory, profile
from flambeau.profiler.memory import Category

WIDTH, BATCH = 64, 512
WEIGHT, ACTIVATION = 4 * WIDTH * WIDTH, 4 * WIDTH * BATCH


def trained(compiled: bool = False) -> profile:
    with profile(profile_memory=True, with_stack=True) as taken:
        net = fl.nn.Sequential(*(layer for _ in range(3) for layer in (fl.nn.Linear(WIDTH, WIDTH, bias=False), fl.nn.Tanh())))
        optimizer = fl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        model = fl.compile(net) if compiled else net
        for _ in range(2):
            x = fl.randn(BATCH, WIDTH)
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return taken


def test_what_memory_is_taken_for() -> None:
    timeline = trained().memory_timeline()
    sizes = Counter[Category]()
    for block in timeline.blocks:
        if block.size >= WEIGHT and block.event is not None:    # parameters of other tests may be there still
            sizes[block.category] += block.size
    assert sizes[Category.PARAMETER] == sizes[Category.OPTIMIZER_STATE] == 3 * WEIGHT and sizes[Category.GRADIENT] == 2 * 3 * WEIGHT
    assert sizes[Category.INPUT] == 2 * ACTIVATION
    assert sizes[Category.ACTIVATION] == 2 * 3 * ACTIVATION     # what tanh gives; its argument is needed by nobody
    assert sizes[Category.TEMPORARY] >= 2 * 3 * ACTIVATION and sizes[Category.AUTOGRAD_DETAIL] >= 2 * 5 * ACTIVATION


def test_what_compiled_code_takes() -> None:
    blocks = [block for block in trained(compiled=True).memory_timeline().blocks if block.size >= WEIGHT and block.places]
    kinds = {block.category for block in blocks}
    assert {Category.PARAMETER, Category.OPTIMIZER_STATE, Category.GRADIENT, Category.ACTIVATION, Category.INPUT} <= kinds
    assert sum(b.size for b in blocks if b.category is Category.INPUT) == 2 * ACTIVATION


def test_the_peak_and_who_held_it() -> None:
    timeline = trained().memory_timeline()
    when, most, held = timeline.peak()
    times, sizes = timeline.totals()
    assert most == max(map(sum, sizes)) == sum(block.size for block in held) and when in times and times == sorted(times)
    assert {block.category for block in held} >= {Category.PARAMETER, Category.ACTIVATION}
    activation = next(block for block in held if block.category is Category.ACTIVATION)
    assert activation.event.name.startswith("aten::") and activation.event.stack[0].endswith("trained")


def test_what_was_there_before() -> None:
    net = fl.nn.Linear(WIDTH, WIDTH, bias=False)
    with profile(profile_memory=True) as taken:
        net(fl.ones(2, WIDTH))
    parameters = [b for b in taken.memory_timeline().blocks if b.category is Category.PARAMETER and b.address == net.weight.data_ptr()]
    assert [block.size for block in parameters] == [WEIGHT]


def test_files(tmp_path: Path) -> None:
    taken = trained()
    for name in ("t.json", "t.json.gz", "t.raw.json.gz", "t.html"):
        taken.export_memory_timeline(str(tmp_path / name), device="cpu")
    times, sizes = json.loads((tmp_path / "t.json").read_text())
    assert len(times) == len(sizes) and all(len(row) == 1 + len(Category) for row in sizes)
    with gzip.open(tmp_path / "t.json.gz") as file:
        assert json.load(file) == [times, sizes]
    with gzip.open(tmp_path / "t.raw.json.gz") as file:
        changes = json.load(file)
    assert sum(size for _, _, size, _ in changes) == sum(sizes[-1]) and {action for _, action, _, _ in changes} == {2, 4}
    assert "<canvas" in (tmp_path / "t.html").read_text()
    with pytest.raises(ValueError, match="was not recorded"):
        taken.export_memory_timeline(str(tmp_path / "t.json"), device="cuda:0")
    with pytest.raises(ValueError, match="profile_memory=True required"):
        profile().export_memory_timeline(str(tmp_path / "t.json"))


def test_histories(tmp_path: Path) -> None:
    memory.record_memory_history(clear_history=True)
    kept = fl.ones(1000, 100)
    fl.ones(1000, 50)
    memory.record_memory_history(None)
    fl.ones(1000, 70)
    memory.dump_memory_snapshot(str(tmp_path / "snapshot"))
    told = pickle.loads((tmp_path / "snapshot").read_bytes())
    segments = [s for s in told["segments"] if s["address"] == kept.data_ptr()]
    assert [(s["total_size"], s["blocks"][0]["state"]) for s in segments] == [(400_000, "active_allocated")]
    assert {"device", "stream", "segment_type", "allocated_size", "active_size", "blocks"} <= segments[0].keys()
    assert any(frame["name"] == "test_histories" and frame["filename"] == __file__ for frame in segments[0]["frames"])
    actions = [(t["action"], t["size"]) for t in told["device_traces"][0] if t["size"] in (200_000, 280_000)]
    assert actions == [("alloc", 200_000), ("free_requested", 200_000), ("free_completed", 200_000)]
    with pytest.raises(ValueError, match="expected enabled in"):
        memory.record_memory_history("some")


def test_the_last_changes_are_kept() -> None:
    memory.record_memory_history(max_entries=10, context=None, clear_history=True)
    for _ in range(50):
        fl.ones(5000)
    told = memory.memory_snapshot()
    memory.record_memory_history(None, clear_history=True)
    assert len([t for t in told["device_traces"][0] if t["action"] in ("alloc", "free_completed")]) <= 10
    assert all(not t["frames"] for t in told["device_traces"][0]) and not memory.memory_snapshot()["device_traces"][0]


def test_threads_write_into_one_history() -> None:
    def work() -> None:
        for _ in range(200):
            fl.ones(3000).exp()

    memory.record_memory_history(clear_history=True)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory.record_memory_history(None)
    taken = [t for t in memory.memory_snapshot()["device_traces"][0] if t["action"] == "alloc" and t["size"] == 12_000]
    assert len(taken) >= 4 * 400


def test_the_memory_of_a_gpu_is_told_in_the_same_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The CPU's memory plays a GPU's."""
    monkeypatch.setattr(memory, "device_count", lambda: 1)
    monkeypatch.setattr(memory.cuda_memory, "MemoryLog", fl._C.MemoryLog)
    taken = trained()
    events = taken.events()
    assert all((e.device_memory_usage, e.self_device_memory_usage) == (e.cpu_memory_usage, e.self_cpu_memory_usage) for e in events
               if e.name != "[memory]")
    assert "CUDA Mem" in taken.key_averages().table(sort_by="device_memory_usage")
    assert taken.memory_timeline().peak()[1] == taken.memory_timeline("cpu").peak()[1] == taken.memory_timeline("cuda:0").peak()[1]
    taken.export_memory_timeline(str(tmp_path / "t.json"), device="cuda:0")


def test_gradients_of_rows_are_gradients() -> None:
    """A sparse gradient has no array of its own, but parts that do."""
    table = fl.nn.Embedding(100, 1000, sparse=True)
    optimizer = fl.optim.SparseAdam(table.parameters())
    with profile(profile_memory=True) as taken:
        table(fl.arange(50)).sum().backward()
        optimizer.step()
    sizes = Counter[Category]()
    for block in taken.memory_timeline().peak()[2]:
        sizes[block.category] += block.size
    assert sizes[Category.GRADIENT] >= 50 * 1000 * 4
