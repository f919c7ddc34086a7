"""What profiles tell of compiled functions: they run compiled, and each kernel and library call is an event with the user's line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.dynamo.compiler import entries_of
from flambeau.profiler import profile, record_function


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    fl._dynamo.reset()


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, depth: int, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def graphs_of(f: Callable) -> int:
    return len(entries_of(f.__code__))


def f(x: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
    return (x @ w).relu().sum() + x.sin().mean()


def inputs() -> tuple[fl.Tensor, fl.Tensor]:
    return fl.randn(8, 8, requires_grad=True), fl.randn(8, 8, requires_grad=True)


def names(taken: profile) -> set[str]:
    return {event.name for event in taken.events()}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_the_profiler_changes_no_guard(backend: str) -> None:
    def g(x: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
        return f(x, w) + 1

    compiled, (x, w) = fl.compile(g, backend=backend), inputs()
    expected = g(x, w)
    compiled(x, w)
    assert graphs_of(g) == 1
    with profile(), profile(record_shapes=True):
        fl.testing.assert_close(compiled(x, w), expected)
    compiled(x, w)
    assert graphs_of(g) == 1


def test_compiled_within_the_profiler_runs_outside() -> None:
    def g(x: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
        return f(x, w) + 2

    compiled, (x, w) = fl.compile(g, fullgraph=True), inputs()
    with profile() as taken:
        compiled(x, w).backward()
    assert "torch.compile g" in names(taken) and not names(taken) & {"matmul", "relu", "sin"}
    expected = x.grad.clone()
    x.grad = None
    with profile():
        pass
    compiled(x, w).backward()
    fl.testing.assert_close(x.grad, expected)
    assert graphs_of(g) == 1


def test_each_kernel_and_library_call_is_an_event() -> None:
    net, x = Net(2), fl.randn(32, 64)
    compiled = fl.compile(net, fullgraph=True)
    compiled(x).sum().backward()
    with profile(record_shapes=True) as taken:
        compiled(x).sum().backward()
    events = taken.events()
    products = [e for e in events if e.name.startswith("mm")]
    assert len([e for e in products if any("in forward" in s or ": forward" in s for s in e.stack)]) == len(products) == 4 + 8
    assert {e.module.split(".")[-1] for e in products} == {"up", "down"}
    assert [32, 64] in products[0].input_shapes and [256, 64] in products[0].input_shapes
    whole = {e.name.split(" of ")[0]: e for e in events if e.name.startswith("compiled ")}
    assert whole.keys() == {"compiled forward", "compiled backward"}
    for event in events:
        outer = [w for w in whole.values() if w.start <= event.start and event.end <= w.end]
        assert not event.name.startswith("mm") or len(outer) == 1
    assert all(e.start <= e.end and e.self_cpu_time_total >= 0 for e in events)


def test_layers_that_share_their_code_are_told_apart() -> None:
    net, x = Net(8, 128), fl.randn(256, 128, requires_grad=True)
    compiled = fl.compile(net, fullgraph=True)
    compiled(x).sum().backward()
    with profile() as taken:
        compiled(x).sum().backward()
    layers = [e.module.split(".")[1] for e in taken.events() if e.name.startswith("mm")]
    assert {layer: layers.count(layer) for layer in layers} == {str(i): 6 for i in range(8)}


def test_what_the_cache_kept_has_the_lines_of_this_program(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))

    def first(x: fl.Tensor) -> fl.Tensor:
        return x.exp() * 3.5

    def second(y: fl.Tensor) -> fl.Tensor:
        return y.exp() * 3.5

    x = fl.randn(16)
    for function in (first, second):
        compiled = fl.compile(function)
        compiled(x)
        with profile() as taken:
            compiled(x)
        kernel = next(e for e in taken.events() if e.name == "fused_exp_mul")
        assert kernel.stack[0].endswith(f": {function.__name__}")


def test_primitives_without_loops_are_events() -> None:
    compiled = fl.compile(lambda x: fl.sort(x.sin())[0] + 1)
    x = fl.randn(40)
    compiled(x)
    with profile() as taken:
        compiled(x)
    assert any("sort" in name for name in names(taken))


def test_times_nest() -> None:
    compiled, x = fl.compile(lambda x: (x @ x).sin()), fl.randn(64, 64)
    compiled(x)
    with profile() as taken, record_function("part"):
        compiled(x)
    part = next(e for e in taken.events() if e.name == "part")
    whole = next(e for e in taken.events() if e.name.startswith("compiled "))
    assert abs(part.cpu_time_total - part.self_cpu_time_total - whole.cpu_time_total) < 1


def test_eager_steps_of_backward_and_their_lines() -> None:
    x, w = inputs()
    with profile(with_stack=True) as taken:
        f(x, w).backward()
    assert {"MulBackward0" in names(taken) or "MmBackward0" in names(taken), "aten::relu" in names(taken)} == {True}
    event = next(e for e in taken.events() if e.name == "aten::relu")
    assert event.stack[0].startswith(f"{__file__}(") and event.stack[0].endswith(": f")
    table = taken.key_averages(group_by_stack_n=1).table()
    assert "Source Location" in table


def test_other_threads_are_not_recorded() -> None:
    compiled, x = fl.compile(lambda x: x.sin() * 4), fl.randn(16)
    compiled(x)
    with profile() as taken:
        thread = threading.Thread(target=lambda: compiled(x))
        thread.start()
        thread.join()
    assert not taken.events()


def test_an_error_leaves_the_profiler_as_it_was() -> None:
    compiled = fl.compile(lambda x, i: x[i] * 2)
    x = fl.randn(16)
    compiled(x, fl.tensor([1]))
    with profile() as taken:
        with pytest.raises(IndexError):
            compiled(x, fl.tensor([99]))
        compiled(x, fl.tensor([1]))
        x.sin()
    assert {"aten::sin"} <= names(taken)
    assert fl.core.dispatch.state.watchers == ()


def test_the_older_profiler() -> None:
    compiled, x = fl.compile(lambda x: x.exp() * 5), fl.randn(16)
    compiled(x)
    with fl.autograd.profiler.profile(record_shapes=True) as taken, fl.autograd.profiler.record_function("part"):
        compiled(x)
    assert {e.name for e in taken.function_events} >= {"part", "fused_exp_mul"}
    assert "part" in taken.table(sort_by="cpu_time_total") and taken.total_average().count >= 3 and taken.self_cpu_time_total > 0
    with fl.autograd.profiler.profile(enabled=False) as nothing:
        x.sin()
    assert not nothing.function_events
