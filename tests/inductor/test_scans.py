"""Loops over a sequence in generated code: one function for the step, whatever the length, equal to the loop in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import flambeau as torch
from flambeau.inductor import graph
from flambeau.inductor.cpu.compile import have_compiler
from flambeau.inductor.loop.ir import Extern
from flambeau.ops.higher_order import scan

pytestmark = pytest.mark.skipif(not have_compiler(), reason="loops are generated C++")


@pytest.fixture
def compiled() -> Iterator[list]:
    """The graphs that are compiled: with a listener all are, none comes from the disk."""
    seen: list = []
    listener = seen.append
    graph.listening.append(listener)
    yield seen
    graph.listening.remove(listener)


def loops_of(compiled: list) -> list:
    """The loops among their steps."""
    assert [name for g in compiled for name in g.fallbacks] == []
    return [step for g in compiled for step in g.program.steps if isinstance(step, Extern) and step.body is not None]


def shared(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
    """What is carried is a result too."""
    h = torch.tanh(inputs[0] + carried[0] @ captured[0])
    return (h,), (h,)


def in_turn(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
    """What is carried is no result."""
    a, b = carried
    return (a @ captured[0] + inputs[0], b + a), (a * b,)


def passed_on(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
    """What is carried is an input, a view or swapped, and a result comes twice."""
    a, b = carried
    s = b.sin()
    return (inputs[0], a.flip(0)), (s, s, inputs[0][:1])


def heavy(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
    """Temporaries in an arena, reductions, and two inputs."""
    a = carried[0]
    p = (a @ captured[0]).softmax(-1) @ captured[0]
    q = (p - p.mean(0)) * inputs[1].unsqueeze(-1)
    return (q + inputs[0],), (q.sum(), p)


STEPS: dict[str, tuple[Callable, int, int]] = {     # the step, how much is carried, how many inputs
    "shared": (shared, 1, 1), "in turn": (in_turn, 2, 1), "passed on": (passed_on, 2, 1), "heavy": (heavy, 1, 2)}


def operands(carried: int, inputs: int, length: int) -> tuple[list, list, list]:
    torch.manual_seed(length)
    rows = [torch.randn(length, 5, 6) * 0.3, torch.randn(length, 5)]
    return [torch.randn(5, 6) * 0.3 for _ in range(carried)], rows[:inputs], [torch.randn(6, 6) * 0.3]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_loops_equal_those_in_python(name: str, length: int, reverse: bool, compiled: list) -> None:
    step, *counts = STEPS[name]
    given = operands(*counts, length)
    expected = scan(step, *given, reverse)
    made = torch.compile(lambda *args: scan(step, *args, reverse), fullgraph=True)(*given)
    for wanted, got in zip((*expected[0], *expected[1]), (*made[0], *made[1]), strict=True):
        assert got.stride() == wanted.contiguous().stride()
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("layers, both_ways", [(1, False), (2, True)])
def test_recurrent_networks_are_loops(mode: str, layers: int, both_ways: bool, compiled: list) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, mode)(4, 5, num_layers=layers, bidirectional=both_ways)
    x = torch.randn(6, 3, 4, requires_grad=True)
    inputs = [x, *module.parameters()]

    def gradients(f: Callable) -> tuple:
        out, state = f(x)
        return torch.autograd.grad(out.sin().sum() + (state[1] if mode == "LSTM" else state).sum(), inputs)

    fast = torch.compile(module, fullgraph=True)
    with torch.no_grad():
        for got, wanted in zip(fast(x), module(x)):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert len(loops_of(compiled)) == layers * (2 if both_ways else 1)
    for got, wanted in zip(gradients(fast), gradients(module)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert len(loops_of(compiled)) == 3 * layers * (2 if both_ways else 1)


def test_a_longer_sequence_makes_no_more_code(compiled: list) -> None:
    module = torch.nn.LSTM(4, 5)
    with torch.no_grad():
        for length in (3, 300):
            torch._dynamo.reset()
            torch.compile(module, dynamic=False)(torch.randn(length, 2, 4))
    short, long = (len(g.unit.source) for g in compiled)
    assert long < short * 1.1


def test_equal_loops_are_one_function(compiled: list) -> None:
    module = torch.nn.GRU(5, 5, num_layers=4)
    with torch.no_grad():
        torch.compile(module, options={"repeats": False})(torch.randn(6, 3, 5))
    assert len(loops_of(compiled)) == 4
    assert compiled[0].unit.source.count("static FL_CALLS int step") == 1


def test_sequences_of_all_lengths_share_one_program(compiled: list) -> None:
    module = torch.nn.LSTM(4, 5)
    fast = torch.compile(module, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for length in (2, 5, 9, 30):
            x = torch.randn(length, 3, 4)
            torch.testing.assert_close(fast(x)[0], module(x)[0], rtol=1e-5, atol=1e-6)
    assert len(compiled) == 1


def test_an_error_of_a_step_is_the_call_s() -> None:
    def picks(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
        return (carried[0] + captured[0][inputs[0]],), ()

    def run(x: torch.Tensor, places: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return scan(picks, [x], [places], [table])[0][0]

    x, table = torch.zeros(2), torch.arange(6.0).reshape(3, 2)
    fast = torch.compile(run, fullgraph=True)
    torch.testing.assert_close(fast(x, torch.tensor([0, 2]), table), run(x, torch.tensor([0, 2]), table))
    with pytest.raises(IndexError, match="out of bounds"):
        fast(x, torch.tensor([0, 3]), table)


def test_what_generated_code_cannot_do_runs_in_python() -> None:
    def runs(carried: tuple, inputs: tuple, captured: tuple) -> tuple:
        return (carried[0] + inputs[0].logcumsumexp(0),), ()

    def run(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return scan(runs, [x], [rows], [])[0][0]

    x, rows = torch.zeros(4), torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(run, fullgraph=True)(x, rows), run(x, rows))
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(x, rows), run(x, rows))


def test_loops_are_kept_in_the_disk_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.aot.cache import stats

    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    module, x = torch.nn.LSTM(4, 5), torch.randn(6, 3, 4)
    for hits in (0, 1):
        torch._dynamo.reset()
        before = stats["hit"]
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(module)(x)[0], module(x)[0], rtol=1e-5, atol=1e-6)
        assert stats["hit"] - before == hits


def test_gradients_of_gradients_are_unrolled() -> None:
    module = torch.nn.GRU(2, 3).double()
    x = torch.randn(3, 1, 2, dtype=torch.float64)

    def second(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda x: torch.func.grad(lambda x: module(x)[0].sin().sum())(x).pow(2).sum())(x)

    torch.testing.assert_close(torch.compile(second)(x), second(x))
