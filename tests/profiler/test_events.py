"""What profiles tell of eager programs, beside torch: names, nesting, counts, shapes, sequence numbers, tables and traces."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
pytestmark = pytest.mark.filterwarnings("ignore")    # torch warns of memory from before


def trained(t: Any, **options: Any) -> Any:
    """A profile of a training step."""
    net = t.nn.Sequential(t.nn.Linear(8, 16), t.nn.ReLU(), t.nn.Linear(16, 4))
    optimizer = t.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loader = t.utils.data.DataLoader(t.ones(10, 8), batch_size=5)

    def steps() -> None:
        for x in loader:
            with t.profiler.record_function("forward"):
                loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    steps()
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], **options) as taken:
        steps()
    return taken


def test_what_a_program_named_is_named_alike() -> None:
    def told(t: Any) -> list[tuple]:
        events = trained(t).events()
        return [(e.name, e.scope, e.is_user_annotation) for e in events if e.is_user_annotation]

    assert told(fl) == told(torch) and len(told(fl)) == 2 * 4 + 1


def test_operators_of_the_outermost_level_are_named_alike() -> None:
    def program(t: Any) -> list[tuple]:
        a, b = t.ones(2, 3), t.ones(3, 4)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], record_shapes=True) as taken:
            t.nn.functional.gelu(a @ b).add_(1)
            t.cat([a, a], 1).softmax(-1).sum()
            a.view(3, 2).t().exp().select(0, 0).sort()
            t.nn.functional.layer_norm(b, (4,)).reshape(-1)
            t.nn.functional.conv2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 3, 3))
        events = [e for e in taken.events() if e.cpu_parent is None]
        return [(e.name, [s for s in e.input_shapes if s]) for e in events]

    assert [name for name, _ in program(fl)] == [name for name, _ in program(torch)]
    differ = [(a, b) for a, b in zip(program(fl), program(torch)) if a != b and "[[" not in str(a[1])]
    assert not differ


def test_nodes_of_backward_are_within_the_engine_and_have_their_forward() -> None:
    for t in (torch, fl):
        x = t.ones(3, requires_grad=True)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU]) as taken:
            x.mul(2).exp().sum().backward()
        events = taken.events()
        nodes = {e.name: e for e in events if e.scope == 1}
        assert list(nodes) == ["SumBackward0", "ExpBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"]
        for name, node in nodes.items():
            assert node.cpu_parent.name == f"autograd::engine::evaluate_function: {name}"
            if name.endswith("0"):
                forward = next(e for e in events if e.name == f"aten::{name[:-9].lower()}" and e.sequence_nr == node.sequence_nr)
                assert forward.time_range.end <= node.time_range.start and node.fwd_thread


@LIBRARIES
def test_times_and_memory_nest(t: Any) -> None:
    events = trained(t, profile_memory=True).events()
    for event in events:
        assert event.cpu_time_total >= sum(child.cpu_time_total for child in event.cpu_children) - 1e-3
        assert event.cpu_memory_usage == event.self_cpu_memory_usage + sum(child.cpu_memory_usage for child in event.cpu_children)
        assert all(child.cpu_parent is event for child in event.cpu_children)
    assert any(event.name == "[memory]" and event.cpu_memory_usage < 0 for event in events)


def test_memory_of_an_operator_is_told_alike() -> None:
    def told(t: Any) -> dict[str, int]:
        a = t.ones(100, 50)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], profile_memory=True) as taken:
            b = a.exp()
            del b
            t.empty(3)
            a.view(50, 100)
        return {e.key: e.cpu_memory_usage for e in taken.key_averages()}

    ours, theirs = told(fl), told(torch)
    assert {name: ours[name] for name in ("aten::exp", "aten::view")} == {name: theirs[name] for name in ("aten::exp", "aten::view")}
    assert ours["[memory]"] == -20000 - 12 and ours["aten::empty"] == theirs["aten::empty"]


COLUMNS = ["cpu_time", "device_time", "cpu_time_total", "cpu_memory_usage", "device_memory_usage", "self_cpu_memory_usage",
           "self_device_memory_usage", "count", "self_cpu_time_total", "device_time_total", "self_device_time_total"]


@LIBRARIES
@pytest.mark.parametrize("column", COLUMNS)
def test_tables_sort_by_each_column(t: Any, column: str) -> None:
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], profile_memory=True) as taken:
        a = t.ones(50, 50)
        for _ in range(3):
            a = a.exp()
        a.view(-1).sum()
    sums = taken.key_averages()
    text = sums.table(sort_by=column)
    shown = [line.split()[0] for line in text.splitlines() if line.split() and line.split()[0].startswith(("aten", "[mem"))]
    values = [getattr(next(e for e in sums if e.key == name), column) for name in shown]
    assert values == sorted(values, reverse=True) and len(shown) == len(sums)


def test_tables_look_alike() -> None:
    def titles(t: Any, group: dict, **shown: Any) -> tuple[str, set[str]]:
        taken = trained(t, record_shapes=True, profile_memory=True, with_flops=True)
        lines = taken.key_averages(**group).table(**shown).splitlines()
        rules = [i for i, line in enumerate(lines) if line.startswith("---")]
        return " ".join(lines[rules[0] + 1].replace("KFLOPs", "FLOPs").split()), {line.split()[0] for line in lines[rules[1] + 1:rules[2]]}

    for group, shown in (({}, {}), ({"group_by_input_shape": True}, {}), ({}, {"max_name_column_width": 9, "row_limit": 3}),
                         ({}, {"top_level_events_only": True})):
        (ours, names), (theirs, others) = titles(fl, group, **shown), titles(torch, group, **shown)
        assert ours == theirs
        if "top_level_events_only" in shown:
            assert {n for n in names if n[0] not in "a["} == {n for n in others if n[0] not in "a["}
    for t in (torch, fl):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            trained(t).key_averages().table(sort_by="nothing")


def test_operations_are_counted_alike() -> None:
    def told(t: Any) -> dict[str, int]:
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], with_flops=True) as taken:
            t.ones(5, 8).mm(t.ones(8, 3))
            t.addmm(t.ones(3), t.ones(5, 8), t.ones(8, 3))
            t.bmm(t.ones(2, 5, 8), t.ones(2, 8, 3))
            t.nn.functional.conv2d(t.ones(2, 3, 8, 8), t.ones(4, 3, 3, 3), padding=1)
        return {e.key: e.flops for e in taken.key_averages() if e.flops}

    ours, theirs = told(fl), told(torch)
    assert ours == {name: theirs[name] for name in ours} and len(ours) == 4


def test_backward_computes_twice_as_much() -> None:
    x, w = fl.ones(5, 8, requires_grad=True), fl.ones(3, 8, requires_grad=True)
    with fl.profiler.profile(with_flops=True) as taken:
        fl.nn.functional.linear(x, w).sum().backward()
    flops = {e.name: e.flops for e in taken.events() if e.flops}
    assert flops["aten::linear"] == 2 * 5 * 8 * 3 and sum(flops.values()) == 3 * flops["aten::linear"]


def test_arguments_are_told_alike() -> None:
    def told(t: Any) -> tuple:
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], record_shapes=True) as taken:
            t.add(t.ones(2, 3), t.ones(3, dtype=t.float64))
        event = next(e for e in taken.events() if e.name == "aten::add")
        return event.input_shapes[:2], event.input_dtypes[:2], event.concrete_inputs[:2]

    assert told(fl) == told(torch)


@LIBRARIES
def test_traces(t: Any, tmp_path: Path) -> None:
    taken = trained(t, record_shapes=True, profile_memory=True)
    for name in ("trace.json", "trace.json.gz"):
        taken.add_metadata_json("config", '{"width": 8}') if name.endswith("gz") else None
        if t is fl or name == "trace.json":
            taken.export_chrome_trace(str(tmp_path / name))
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = {(row["ph"], row.get("cat")) for row in rows}
    assert {("X", "cpu_op"), ("X", "user_annotation"), ("s", "fwdbwd"), ("f", "fwdbwd"), ("i", "cpu_instant_event")} <= kinds
    threads = {(row["pid"], row["tid"]) for row in rows if row["ph"] == "M" and row["name"] == "thread_name"}
    assert all((row["pid"], row["tid"]) in threads for row in rows if row.get("cat") == "cpu_op")
    starts = {row["id"]: row for row in rows if row["ph"] == "s"}
    ends = {row["id"]: row for row in rows if row["ph"] == "f"}
    assert starts.keys() == ends.keys() and all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)
    linear = next(row for row in rows if row["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][:2] == [[5, 8], [16, 8]] and linear["args"]["Sequence number"] > 0
    if t is fl:
        with gzip.open(tmp_path / "trace.json.gz") as file:
            assert json.load(file)["config"] == {"width": 8}
        totals = [row["args"]["bytes"] for row in rows if row["ph"] == "C"]
        instants = [row["args"] for row in rows if row["ph"] == "i"]
        assert totals == [row["Total Allocated"] for row in instants] and len(totals) > 20


def outer(t: Any, x: Any) -> Any:
    return inner(t, x)


def inner(t: Any, x: Any) -> Any:
    return t.exp(x)


def test_stacks(tmp_path: Path) -> None:
    with fl.profiler.profile(with_stack=True) as taken:
        for _ in range(3):
            outer(fl, fl.ones(300, 300))
    event = next(e for e in taken.events() if e.name == "aten::exp")
    assert [frame.rpartition(" ")[2] for frame in event.stack[:3]] == ["inner", "outer", "test_stacks"]
    assert not any("flambeau/profiler" in frame or "flambeau/ops" in frame for frame in event.stack)
    assert [e.count for e in taken.key_averages(group_by_stack_n=2) if e.key == "aten::exp"] == [3]
    taken.export_stacks(str(tmp_path / "stacks"))
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert any(line.rpartition(" ")[0].endswith("inner") and int(line.rpartition(" ")[2]) > 0 for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        taken.export_stacks(str(tmp_path / "stacks"), "nothing")


def test_modules_are_told_forward_and_backward() -> None:
    net = fl.nn.Sequential(fl.nn.Linear(4, 4), fl.nn.Sequential(fl.nn.Linear(4, 4), fl.nn.Tanh()))
    with fl.profiler.profile(with_modules=True) as taken:
        net(fl.ones(2, 4)).sum().backward()
    names = ("aten::linear", "AddmmBackward0", "aten::tanh", "TanhBackward0", "aten::sum")
    told = [(e.name, e.module) for e in taken.events() if e.name in names]
    assert told == [("aten::linear", "0"), ("aten::linear", "1.0"), ("aten::tanh", "1.1"), ("aten::sum", ""), ("TanhBackward0", "1.1"),
                    ("AddmmBackward0", "1.0"), ("AddmmBackward0", "0")]
    assert not taken.events()[0].stack


@LIBRARIES
def test_steps_of_schedules(t: Any) -> None:
    p, seen = t.profiler, []
    plan = p.schedule(wait=1, warmup=1, active=2, repeat=2)
    with p.profile(activities=[p.ProfilerActivity.CPU], schedule=plan, on_trace_ready=lambda taken: seen.append(
            [e.trace_name for e in taken.events() if e.name == "ProfilerStep*"])) as taken:
        for _ in range(9):
            t.ones(2)
            taken.step()
    assert [sorted(names) for names in seen] == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]


@LIBRARIES
@pytest.mark.parametrize("wrong", [{"wait": -1}, {"warmup": -1}, {"active": 0}, {"repeat": -1}, {"skip_first": -1}], ids=str)
def test_schedules_that_make_no_sense(t: Any, wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        t.profiler.schedule(**{"wait": 1, "warmup": 1, "active": 1, **wrong})


@LIBRARIES
def test_what_is_asked_too_early(t: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    for what, ask in (("accessing events", lambda p: p.events()), ("getting key averages", lambda p: p.key_averages()),
                      ("exporting chrome trace", lambda p: p.export_chrome_trace(path)),
                      ("exporting stacks", lambda p: p.export_stacks(path))):
        with pytest.raises(AssertionError, match=f"must be initialized before {what}"):
            ask(t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU]))


@LIBRARIES
def test_a_profile_that_begins_again_begins_anew(t: Any) -> None:
    taken = t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU])
    for _ in range(2):
        with taken:
            t.ones(2)
        assert [e.name for e in taken.events() if e.cpu_parent is None] == ["aten::ones"]


@LIBRARIES
def test_traces_are_handed_over_in_the_step_that_follows(t: Any) -> None:
    p, seen = t.profiler, []
    with p.profile(activities=[p.ProfilerActivity.CPU], schedule=p.schedule(wait=0, warmup=1, active=1, repeat=2),
                   on_trace_ready=lambda taken: seen.append(taken.step_num)) as taken:
        for _ in range(5):
            taken.step()
    assert seen == [2, 4]


@LIBRARIES
def test_files_for_tensorboard(t: Any, tmp_path: Path) -> None:
    cpu = [t.profiler.ProfilerActivity.CPU]
    with t.profiler.profile(activities=cpu, on_trace_ready=t.profiler.tensorboard_trace_handler(str(tmp_path / "new"))):
        t.ones(2)
    (made,) = (tmp_path / "new").iterdir()
    assert made.name.startswith(socket.gethostname()) and made.name.endswith(".pt.trace.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="Can't create directory"):
        t.profiler.tensorboard_trace_handler(str(tmp_path / "file" / "x"))(t.profiler.profile(activities=cpu))


def test_an_observer_comes_along(tmp_path: Path) -> None:
    observer = fl.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json"))
    with fl.profiler.profile(execution_trace_observer=observer):
        fl.ones(2).neg()
    observer.unregister_callback()
    assert "aten::neg" in (tmp_path / "trace.json").read_text()


def test_a_profile_does_not_change_what_gradients_own() -> None:
    w = fl.ones(3, requires_grad=True)
    for watched in (False, True):
        w.grad = None
        with fl.autograd.profiler.profile(enabled=watched) as taken:
            (w * fl.ones(3)).sum().backward()
        assert not any(e.name == "aten::clone" for e in taken.events())


def test_at_most_so_many_events() -> None:
    taken = fl.profiler.profile()
    taken.recorder.limit(5)
    with taken:
        for _ in range(20):
            fl.ones(2).exp()
    assert len(taken.events()) == 5 and all(e.end >= e.start for e in taken.events())


def test_ids_names_and_metadata() -> None:
    ids = iter("ab")
    with fl.profiler.profile(custom_trace_id_callback=lambda: next(ids)) as taken:
        fl.ones(2)
        taken.toggle_collection_dynamic(False, [fl.profiler.ProfilerActivity.CPU])
        fl.zeros(2)
        taken.toggle_collection_dynamic(True, [fl.profiler.ProfilerActivity.CPU])
    assert taken.get_trace_id() == "a" and [e.name for e in taken.events()] == ["aten::ones"]
    assert fl.profiler.kineto_available() and fl.profiler.ProfilerActivity.CPU in fl.profiler.supported_activities()
    with pytest.raises(NotImplementedError):
        fl.autograd.profiler.load_nvprof("x")


class _Square(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def _custom() -> Any:
    double = fl.library.custom_op("profiled::double", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    double.register_autograd(lambda ctx, g: g * 2)
    return double(fl.ones(2, requires_grad=True)).sum().backward()


def _through_modes() -> Any:
    class Mode(fl.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode(), fl.inference_mode():
        return fl.ones(2).sin()


CALLS = {
    "custom operator": (_custom, "profiled::double"), "mode": (_through_modes, "aten::sin"),
    "function": (lambda: _Square.apply(fl.ones(2, requires_grad=True)).sum().backward(), "_SquareBackward"),
    "vmap": (lambda: fl.vmap(lambda row: row.sin().sum())(fl.ones(2, 3)), "aten::sin"),
    "grad": (lambda: fl.func.hessian(lambda x: (x ** 3).sum())(fl.ones(2)), "aten::pow"),
    "sparse": (lambda: fl.sparse.mm(fl.eye(3).to_sparse(), fl.ones(3, 3)), "aten::eye"),
    "sparse gradient": (lambda: fl.nn.Embedding(4, 2, sparse=True)(fl.tensor([1])).sum().backward(), "aten::embedding"),
    "meta": (lambda: fl.ones(2, device="meta").sin(), "aten::sin"), "cond": (
        lambda: fl.cond(fl.tensor(True), lambda x: x + 1, lambda x: x - 1, (fl.ones(2),)), "aten::add"),
    "subclass": (lambda: fl.ones(2).as_subclass(fl.nn.Parameter).sin(), "aten::sin"),
    "symbolic trace": (lambda: fl.fx.symbolic_trace(fl.nn.Linear(2, 2))(fl.ones(1, 2)), "aten::linear"),
    "checkpoint": (lambda: fl.utils.checkpoint.checkpoint(fl.sin, fl.ones(2, requires_grad=True), use_reentrant=False).sum().backward(),
                   "aten::sin"),
}


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_whatever_runs_can_be_profiled(name: str, everything: bool, tmp_path: Path) -> None:
    call, event = CALLS[name]
    settings = ("record_shapes", "with_stack", "profile_memory", "with_modules", "with_flops")
    with fl.profiler.profile(**dict.fromkeys(settings, everything)) as taken:
        call()
    assert any(e.name.startswith(event) for e in taken.events()), [e.name for e in taken.events()]
    taken.key_averages(group_by_input_shape=True, group_by_stack_n=2).table()
    taken.events().key_averages(group_by_input_shapes=True).table()      # as torch spells it here
    taken.export_chrome_trace(tmp_path / "trace.json")
