"""The smaller tools of profiles, and traces of what ran inside of what."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])


def _tools(t: Any) -> Any:
    return importlib.import_module(f"{t.__name__}.autograd.profiler")


@LIBRARIES
def test_keys_are_seen_once(t: Any) -> None:
    keys = _tools(t).EnforceUnique()
    keys.see("a", 1)
    keys.see("a", 2)
    with pytest.raises(RuntimeError, match="duplicate key"):
        keys.see("a", 1)


@LIBRARIES
def test_steps_of_several_parties(t: Any) -> None:
    steps = _tools(t).KinetoStepTracker
    begin = steps.current_step()
    steps.init_step_count("profiler")
    assert [steps.increment_step("profiler"), steps.increment_step("optimizer"), steps.increment_step("profiler")] == [
        begin + 1, begin + 2, begin + 2]
    assert [steps.erase_step_count("profiler"), steps.erase_step_count("profiler"), steps.erase_step_count("optimizer")] == [
        True, False, True]
    assert steps.current_step() == begin + 2


@LIBRARIES
def test_events_by_their_fields(t: Any) -> None:
    kind = _tools(t).FunctionEvent
    event = kind(1, "mul", 7, 2.0, 5.0, input_shapes=[[2]], flops=3)
    inner = kind(2, "copy", 7, 3.0, 4.0)
    event.append_cpu_child(inner)
    inner.set_cpu_parent(event)
    assert (event.id, event.name, event.key, event.thread, event.flops, event.input_shapes) == (1, "mul", "mul", 7, 3, [[2]])
    assert (event.cpu_time_total, event.self_cpu_time_total, event.time_range.elapsed_us(), inner.cpu_parent) == (3, 2, 3, event)


def test_what_a_profile_records_are_such_events() -> None:
    with fl.profiler.profile() as taken:
        fl.ones(2)
    assert isinstance(taken.events()[0], _tools(fl).FunctionEvent)


def test_records_by_time() -> None:
    class Record:
        def __init__(self, at: int) -> None:
            self.at = at

        def start_ns(self) -> int:
            return self.at

    found = _tools(fl).MemRecordsAcc([(Record(9000), "c"), (Record(1000), "a"), (Record(5000), "b")]).in_interval(1, 6)
    assert [what for _, what in found] == ["a", "b"]


def test_kinds_of_devices() -> None:
    assert {k: int(v) for k, v in torch.profiler.DeviceType.__members__.items()} == {
        k: int(v) for k, v in fl.profiler.DeviceType.__members__.items()}


@LIBRARIES
def test_execution_traces(t: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    observer = t.profiler.ExecutionTraceObserver()
    observer.register_callback(str(path))
    a, b = t.ones(2, 3), t.ones(3)
    observer.start()
    with t.profiler.record_function("my part"):
        a.add(b).sum()
    observer.stop()
    a.mul(b)
    assert observer.get_output_file_path() == str(path)
    observer.unregister_callback()
    nodes = json.loads(path.read_text())["nodes"]
    by_name = {node["name"].removeprefix("aten::"): node for node in nodes}
    assert by_name["add"]["ctrl_deps"] == by_name["sum"]["ctrl_deps"] == by_name["my part"]["id"]
    assert by_name["add"]["inputs"]["shapes"][:2] == [[2, 3], [3]] and by_name["add"]["inputs"]["strides"][:2] == [[3, 1], [1]]
    assert "mul" not in by_name and "[pytorch|profiler|execution_trace|thread]" in by_name


def test_tensors_have_numbers_of_their_own(tmp_path: Path) -> None:
    observer = fl.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "t"))
    observer.start()
    for _ in range(3):
        fl.ones(2).neg()
    observer.unregister_callback()
    nodes = json.loads((tmp_path / "t").read_text())["nodes"]
    numbers = [node["inputs"]["values"][0][0] for node in nodes if node["name"] == "aten::neg"]
    assert len(set(numbers)) == 3


class Ranges:
    """Takes the place of a tool's package."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def range_push(self, name: str) -> None:
        self.told.append(name)

    def range_pop(self) -> None:
        self.told.append("")

    mark = range_push

    @staticmethod
    def is_available() -> bool:
        return True


@pytest.mark.parametrize("name", ["emit_nvtx", "emit_itt"])
def test_ranges_for_other_tools(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, ranges = getattr(_tools(fl), name), Ranges()
    monkeypatch.setattr(kind, "ranges", ranges)
    monkeypatch.setattr(fl.profiler.itt, "is_available", Ranges.is_available)
    x = fl.ones(2, 3, requires_grad=True)
    with kind(record_shapes=True):
        with fl.profiler.record_function("part"):
            y = x.mul(2)
        y.sum().backward()
    x.sin()
    assert ranges.told[:4] == ["part", "aten::mul, sizes = [[2, 3], []]", "", ""] and ranges.told.count("") * 2 == len(ranges.told)
    assert any(told.startswith("MulBackward0, seq = ") for told in ranges.told) and not any("sin" in told for told in ranges.told)
    ranges.told.clear()
    with kind(enabled=False):
        x.sin()
    assert not ranges.told


def test_without_the_package_vtune_sees_nothing() -> None:
    if fl.profiler.itt.is_available():
        pytest.skip("ittapi is installed")
    for use in (lambda: fl.profiler.itt.mark("x"), lambda: _tools(fl).emit_itt().__enter__()):
        with pytest.raises(RuntimeError, match="pip install ittapi"):
            use()


@pytest.mark.parametrize("column", [f"{self_}{kind}_{what}" for self_ in ("", "self_") for kind in ("cpu", "cuda", "xpu", "device")
                                    for what in ("time_total", "memory_usage")] + ["cpu_time", "cuda_time", "xpu_time", "device_time", "count"])
def test_tables_are_sorted_by_every_documented_column(column: str) -> None:
    with fl.profiler.profile(profile_memory=True) as taken:
        fl.ones(3).sin()
    assert "aten::sin" in taken.key_averages().table(sort_by=column)


def test_calls_in_the_wrong_order_are_told() -> None:
    with pytest.raises(AssertionError, match="before stopping"):
        fl.profiler.profile().stop()
    with fl.profiler.profile() as taken:
        fl.ones(2).sin()
    with pytest.raises(AssertionError, match="with_stack=True"):
        taken.export_stacks("nowhere")
    old = fl.autograd.profiler.profile()
    with old:
        pass
    with pytest.raises(RuntimeError, match="not reentrant"), old:
        pass


def test_an_observer_of_a_profile_writes_its_file(tmp_path: Path) -> None:
    observer = fl.profiler.ExecutionTraceObserver().register_callback(tmp_path / "graph.json")
    with fl.profiler.profile(execution_trace_observer=observer):
        fl.ones(2).sin()
    assert "aten::sin" in {node["name"] for node in json.loads((tmp_path / "graph.json").read_text())["nodes"]}


def test_settings_of_kineto_are_taken() -> None:
    with fl.profiler.profile(experimental_config=fl.profiler._ExperimentalConfig(verbose=True)):
        pass
    with pytest.warns(UserWarning, match="changes nothing"):
        fl.profiler.profile(experimental_config=fl.profiler._ExperimentalConfig(profiler_metrics=["m"]))
