"""Python numbers that change from call to call: a second version at most, the same values, and exceptions as in eager."""

from __future__ import annotations

import math
import types
from collections import Counter as Counted
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau.aot import cache
from flambeau.dynamo.api import Explanation
from flambeau.dynamo.compiler import entries_of, observing
from flambeau.nn import functional as F

VALUES = [0.13, 0.23, 0.33, 0.43, 0.53, 0.73]


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def alone(function: Callable) -> Callable:
    """The function with a code object of its own, whose versions are counted."""
    return types.FunctionType(function.__code__.replace(), function.__globals__, None, function.__defaults__, function.__closure__)


def versions(function: Callable) -> int:
    return len(entries_of(function.__code__))


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).standard_normal(shape).astype(np.float32))


POINTWISE: dict[str, Callable] = {
    "mul": lambda x, k: x * k, "div": lambda x, k: x / k, "rdiv": lambda x, k: k / x, "sub": lambda x, k: k - x, "add": lambda x, k: x + k,
    "arithmetic": lambda x, k: x * (1 - k) + k ** 2 * x.sin() - x / (k + 1), "clamp": lambda x, k: x.clamp(-k, k),
    "clamp_min": lambda x, k: x.clamp_min(k), "alpha": lambda x, k: torch.add(x, x, alpha=k), "leaky": lambda x, k: F.leaky_relu(x, k),
    "pow": lambda x, k: x.abs() ** k, "rpow": lambda x, k: k ** x,
    "full": lambda x, k: torch.full_like(x, k) * x, "masked_fill": lambda x, k: x.masked_fill(x > k, k),
    "where": lambda x, k: torch.where(x > k, x, k), "elu": lambda x, k: F.elu(x, k), "softplus": lambda x, k: F.softplus(x, k),
    "hardtanh": lambda x, k: F.hardtanh(x, -k, k), "threshold": lambda x, k: F.threshold(x, k, 0.0), "celu": lambda x, k: F.celu(x, k),
    "hardshrink": lambda x, k: F.hardshrink(x, k), "softshrink": lambda x, k: F.softshrink(x, k), "remainder": lambda x, k: x % k,
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k), "floor_divide": lambda x, k: x // k, "compare": lambda x, k: (x > k) * x,
    "math": lambda x, k: x * math.cos(k) + math.exp(-k), "round": lambda x, k: x * round(k, 1),
    "extremum": lambda x, k: x * min(1.0, k) + max(k, -k),
    "in place": lambda x, k: (x * 1).mul_(k).add_(k), "tensor": lambda x, k: torch.tensor([k, 1.0, 2.0, k]) * x,
    "half": lambda x, k: x.half() * k, "bfloat16": lambda x, k: x.bfloat16() * k + k, "float64": lambda x, k: x.double() * k + k,
    "integers": lambda x, k: x.long() * k, "complex": lambda x, k: x.to(torch.complex64) * k, "steps": lambda x, k: _euler(x, k),
    "arange": lambda x, k: torch.arange(4.0) * k + x, "scaled": lambda x, k: x * (x.shape[0] * k),
}


def _euler(x: torch.Tensor, dt: float) -> torch.Tensor:
    t = 0.5 * dt
    for _ in range(5):
        x = x + dt * (x * t).cos()
        t = t + dt
    return x


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_float_that_changes_is_an_input(name: str, backend: str) -> None:
    if backend == "inductor" and name not in ("arithmetic", "clamp", "half", "bfloat16", "complex", "math", "steps", "scaled"):
        pytest.skip("one backend is enough")
    f = alone(POINTWISE[name])
    compiled = torch.compile(f, backend=backend)
    for k in VALUES:
        x = data(4, 4)
        assert torch.equal(compiled(x, k), f(x, k))
    assert versions(f) == 2


@pytest.mark.parametrize("name", [name for name in POINTWISE if name != "integers"])
def test_gradients_follow_a_float_that_changes(name: str) -> None:
    f = alone(POINTWISE[name])
    compiled = torch.compile(f)
    for k in VALUES:
        x, y = data(4, 4).requires_grad_(), data(4, 4).requires_grad_()
        compiled(x, k).abs().sum().backward()
        f(y, k).abs().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert versions(f) == 2


def test_branches_are_guards_of_the_comparison() -> None:
    f = alone(lambda x, k: x * k if k > 0.3 else x + k)
    compiled = torch.compile(f, backend="aot_eager")
    for k in [*VALUES, *VALUES]:
        assert torch.equal(compiled(data(3), k), f(data(3), k))
    assert versions(f) == 3


def test_one_graph_holds_a_float_that_changes() -> None:
    f = alone(lambda x, k: x * k + math.sqrt(k))
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for k in (VALUES * 3)[:12]:
        assert torch.equal(compiled(data(3), k), f(data(3), k))
    assert versions(f) == 2


@pytest.mark.parametrize(("function", "bad", "error"), [
    (lambda x, k: x + 1 / k, 0.0, ZeroDivisionError), (lambda x, k: x + math.log(k), -1.0, ValueError),
    (lambda x, k: x + math.exp(k), 1e4, OverflowError), (lambda x, k: x + 2.0 % k, 0.0, ZeroDivisionError)])
def test_what_python_raises_is_raised(function: Callable, bad: float, error: type[Exception]) -> None:
    f = alone(function)
    compiled = torch.compile(f, backend="aot_eager")
    for k in VALUES[:3]:
        assert torch.equal(compiled(data(3), k), f(data(3), k))
    for _ in range(2):
        with pytest.raises(error):
            compiled(data(3), bad)
    assert torch.equal(compiled(data(3), 0.9), f(data(3), 0.9))


def test_results_of_other_types() -> None:
    """A power that becomes complex, an int, a text, a key."""
    f = alone(lambda x, k: (x.sum() * 2, k ** 0.5, int(k * 10), f"{k:.2f}", {k: 1}[k], k * 2))
    compiled = torch.compile(f, backend="aot_eager")
    for k in [0.5, 0.6, -0.25, 0.7]:
        got, want = compiled(data(3), k), f(data(3), k)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:] and [*map(type, got)] == [*map(type, want)]


def test_special_values_keep_their_bits() -> None:
    f = alone(lambda x, k: (x * k, k + 1, k > 1))
    compiled = torch.compile(f, backend="aot_eager")
    for k in [1.0, 2.0, -0.0, math.inf, math.nan, 0.0, 5e-324]:
        got, want = compiled(data(3), k), f(data(3), k)
        assert torch.equal(got[0].nan_to_num(7.0), want[0].nan_to_num(7.0)) and repr(got[1:]) == repr(want[1:])


class Annealed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tau, self.steps = 1.0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tau = self.tau * 0.9
        self.steps += 1
        return (x / self.tau).softmax(-1)


def test_an_attribute_that_is_annealed() -> None:
    model, plain = Annealed(), Annealed()
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(12):
        assert torch.equal(compiled(data(3, 4)), plain(data(3, 4)))
    assert (model.tau, model.steps) == (plain.tau, 12)
    assert versions(Annealed.forward) <= 3


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_numbers_of_numpy(kind: type) -> None:
    f = alone(lambda x, k: x * k + k)
    compiled = torch.compile(f, backend="aot_eager")
    for k in range(2, 12):
        number = kind(k + 0.5) if kind is not np.int64 else kind(k)
        assert torch.equal(compiled(data(3), number), f(data(3), number))
    assert versions(f) == 1


OWN_FIRST_STEP = frozenset({"ASGD", "Rprop"})
"""Optimizers whose first states are of their settings."""
OPTIMIZERS = [name for name, kind in vars(torch.optim).items() if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
              and name not in ("Optimizer", "LBFGS", "SparseAdam")]
SETTINGS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in sorted(OPTIMIZERS)] + [
    ("SGD", {"momentum": 0.9}), ("Adam", {"foreach": False}), ("Adagrad", {"lr_decay": 0.1}), ("RMSprop", {"centered": True})]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_optimizers_under_a_schedule_do_not_recompile(name: str, settings: dict[str, Any]) -> None:
    graphs = []

    def backend(gm: Any, examples: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    weights = [torch.nn.Parameter(data(4)[None]) for _ in range(2)]
    optimizers = [getattr(torch.optim, name)([w], lr=0.1, **settings) for w in weights]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in optimizers]
    steps = [torch.compile(optimizers[0].step, backend=backend), optimizers[1].step]
    with observing(Explanation()) as seen:
        for k in range(10):
            for w, step, schedule in zip(weights, steps, schedules):
                w.grad = data(4)[None] * (k + 1)
                step()
                schedule.step()
    torch.testing.assert_close(weights[0], weights[1])
    assert len(graphs) <= 4 and not seen.breaks


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize(("name", "settings"), [(name, {}) for name in OPTIMIZERS] + [
    ("SGD", {"momentum": 0.9, "nesterov": True}), ("SGD", {"momentum": 0.9, "dampening": 0.5}), ("Adam", {"amsgrad": True})])
def test_the_first_step_of_an_optimizer_has_the_graph_of_the_others(name: str, settings: dict[str, Any], looks: bool) -> None:
    """Two groups, whose states the first step makes; a program that has `looks` at them before finds what it would find eagerly."""
    counter = Counter()
    torch.manual_seed(0)
    shapes = [(2, n) if name == "Muon" else (n,) for n in (2, 3, 4)]
    weights = [[torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2)]
    optimizers = [getattr(torch.optim, name)([{"params": w[:2]}, {"params": w[2:]}], lr=0.1, **settings) for w in weights]

    def step(optimizer: Any, x: torch.Tensor) -> Any:
        known = len(optimizer.state) if looks else None
        optimizer.step()
        return known, x + 1

    compiled = torch.compile(step, backend=counter, fullgraph=True)
    for _ in range(4):
        gradients = [torch.randn(p.shape) for p in weights[0]]
        for group in weights:
            for p, g in zip(group, gradients, strict=True):
                p.grad = g.clone()
        assert same(step(optimizers[1], torch.ones(2)), compiled(optimizers[0], torch.ones(2)))
    for ours, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert looks or settings.get("dampening") or name in OWN_FIRST_STEP or len(counter.graphs) == 1


@pytest.mark.parametrize("lr", [0.01, torch.tensor(0.01)], ids=["number", "tensor"])
@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Adagrad", "Adafactor", "SGD"])
def test_optimizers_of_float64_count_steps_in_it(name: str, lr: Any) -> None:
    """Powers of a count that were taken in float32 would be 1e-8 off."""
    weights = [torch.nn.Parameter(data(4, 5).double()) for _ in range(2)]
    optimizers = [getattr(torch.optim, name)([w], lr=lr) for w in weights]
    steps = [torch.compile(optimizers[0].step, backend="aot_eager"), optimizers[1].step]
    for k in range(8):
        for w, step in zip(weights, steps):
            w.grad = w.detach() + k
            step()
    torch.testing.assert_close(weights[0], weights[1], atol=1e-14, rtol=1e-14)


def test_what_decides_by_numbers_at_each_step_runs_as_it_is_written() -> None:
    """LBFGS; its closure is captured."""
    weights = [torch.nn.Parameter(data(4)) for _ in range(2)]
    graphs = []

    def backend(gm: Any, examples: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    for compiled, w in zip((True, False), weights):
        optimizer = torch.optim.LBFGS([w], max_iter=4)

        def step(w=w, optimizer=optimizer) -> Any:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = (w - 3).square().sum()
                loss.backward()
                return loss

            return optimizer.step(closure)

        run = torch.compile(step, backend=backend) if compiled else step
        for _ in range(2):
            run()
    torch.testing.assert_close(weights[0], weights[1])
    assert 0 < len(graphs) <= 3


def test_the_count_of_an_averaged_model_stays_a_tensor() -> None:
    model = torch.nn.Linear(3, 2)
    averages = [torch.optim.swa_utils.AveragedModel(model) for _ in range(2)]
    graphs = []

    def backend(gm: Any, examples: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    update = torch.compile(averages[0].update_parameters, backend=backend)
    for _ in range(5):
        with torch.no_grad():
            model.weight += 1
        update(model)
        averages[1].update_parameters(model)
    torch.testing.assert_close(averages[0].state_dict(), averages[1].state_dict())
    assert len(graphs) <= 4


def test_programs_that_ask_for_a_float_differ_in_the_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`alpha == 1` is answered while the graph is traced: what is kept is for that answer."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    for values in ([0.5, 0.75, 2.0], [0.5, 1.0, 1.0, 3.0]):
        torch._dynamo.reset()
        f = alone(lambda x, k: torch.add(x, x, alpha=k).sin())
        compiled = torch.compile(f)
        for k in values:
            assert torch.equal(compiled(data(3), k), f(data(3), k))
    assert cache.stats["hits"] >= 0


STEPS: dict[str, Callable[[int], Any]] = {
    "warmup": lambda n: min(1.0, n / 5), "decay": lambda n: max(0.1, 1 - n / 10),
    "cosine": lambda n: 0.5 * (1 + math.cos(math.pi * n / 10)), "exponential": lambda n: math.exp(-n / 5),
    "noam": lambda n: min(n ** -0.5, n * 4 ** -1.5), "debiased": lambda n: math.sqrt(1 - 0.999 ** n) / (1 - 0.9 ** n),
    "logarithm": lambda n: math.log(n), "stairs": lambda n: 0.5 ** (n // 3),
    "branch": lambda n: 1.0 if n / 10 < 0.5 else 0.5, "rounded": lambda n: round(n * 1.6),
    "floor": lambda n: math.floor(1 + n / 7.0), "whole part": lambda n: int(n * 0.3), "beside a float": lambda n: 2.0 if n <= 7.5 else 3.0,
    "share": lambda n: F.celu(data(2), n / 20), "shifted": lambda n: data(2).lerp(data(2) + 1, (n + 1.0) * 0.1),
    "milestone": lambda n: 0.5 ** MILESTONES.get(n, 0), "at a key": lambda n: MILESTONES[n] + 1.0 if n in MILESTONES else 3.0,
    "in a set": lambda n: 2.0 if n in {5, 20} else 3.0, "parity": lambda n: 2.0 * (n & 1) + (n >> 1) - (n ^ 3) + ~n,
}
MILESTONES = Counted({5: 1, 20: 2})


@pytest.mark.parametrize("name", STEPS)
def test_a_schedule_of_a_step_count(name: str) -> None:
    f = alone(lambda x, n: x * STEPS[name](n))
    compiled = torch.compile(f, backend="aot_eager")
    for n in range(2, 12):
        assert torch.equal(compiled(data(3, 1), n), f(data(3, 1), n)), n
    assert versions(f) <= 4


RATES = torch.optim.lr_scheduler
SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: RATES.StepLR(o, 2), "MultiStepLR": lambda o: RATES.MultiStepLR(o, [3, 5]),
    "ExponentialLR": lambda o: RATES.ExponentialLR(o, 0.9),
    "ConstantLR": lambda o: RATES.ConstantLR(o, 0.5, 3), "LinearLR": RATES.LinearLR, "PolynomialLR": lambda o: RATES.PolynomialLR(o, 8),
    "CosineAnnealingLR": lambda o: RATES.CosineAnnealingLR(o, 10), "LambdaLR": lambda o: RATES.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "CosineAnnealingWarmRestarts": lambda o: RATES.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda o: RATES.CyclicLR(o, 0.001, 0.1, step_size_up=3, cycle_momentum=True),
    "OneCycleLR": lambda o: RATES.OneCycleLR(o, 0.1, total_steps=30),
    "SequentialLR": lambda o: RATES.SequentialLR(o, [RATES.LinearLR(o, 0.1, total_iters=2), RATES.CosineAnnealingLR(o, 6)], [2]),
    "ChainedScheduler": lambda o: RATES.ChainedScheduler([RATES.ConstantLR(o, 0.5, 2), RATES.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_training_step_with_its_schedule_inside(name: str, kind: str) -> None:
    """The schedule's own count and what it sets (rates, momenta) are numbers that change."""
    found, counter = [], Counter()
    for compiles in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9) if kind == "SGD" else torch.optim.Adam(model.parameters(), 0.05)
        schedule = SCHEDULES[name](optimizer)

        def step(x: torch.Tensor, model: Any = model, optimizer: Any = optimizer, schedule: Any = schedule) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        run = torch.compile(step, backend=counter) if compiles else step
        found.append([run(data(4, 3)).item() for _ in range(12)])
    np.testing.assert_allclose(*found, rtol=1e-5)
    assert len(counter.graphs) <= 6     # one of each milestone


RAISING: dict[str, Callable[[int], Any]] = {
    "true": lambda n: 1 / (n - 5), "remainder": lambda n: 3 % (n - 5), "floor": lambda n: 3 // (n - 5),
    "fraction": lambda n: 2.0 / (n / 2 - 2.5),
    "power": lambda n: (n - 5) ** -1, "too large": lambda n: 1.5 ** (n * 500), "too large an int": lambda n: (n * 500) ** 100.0,
    "complex": lambda n: (n - 5) ** 0.5, "of an int": lambda n: n ** 30, "mixed": lambda n: 0.5 / (n - 5) * 2,
}


@pytest.mark.parametrize("name", RAISING)
def test_ints_that_change_are_computed_as_python_does(name: str) -> None:
    """What Python raises, or gives as another type or with more than 64 bits, a graph of sizes would lose."""
    f = alone(lambda x, n: x * RAISING[name](n))
    compiled = torch.compile(f)
    for n in (7, 8, 5, 9, 3, 2, 6):
        try:
            expected = f(data(3), n)
        except ArithmeticError as error:
            with pytest.raises(type(error)):
                compiled(data(3), n)
        else:
            torch.testing.assert_close(compiled(data(3), n), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("store", [
    lambda x, k: x.clone().fill_(k), lambda x, k: torch.full_like(x, k), lambda x, k: x.clamp(-k, k), lambda x, k: x.masked_fill(x > 0, k),
    lambda x, k: x.half().clamp(max=k), lambda x, k: F.threshold(x, 0.0, k)])
def test_a_float_that_a_dtype_cannot_hold_is_refused(store: Callable) -> None:
    f = alone(store)
    compiled = torch.compile(f, backend="aot_eager")
    for k in (0.5, 0.75, math.inf, 3.0, 4.0):
        assert torch.equal(compiled(data(3), k), f(data(3), k))
    assert versions(f) <= 3
    for k in (1e308, 1e39, -1e308):
        with pytest.raises(RuntimeError, match="without overflow"):
            f(data(3), k)
        with pytest.raises(RuntimeError, match="without overflow"):
            compiled(data(3), k)


def test_full_takes_numbers_of_numpy_as_python_numbers() -> None:
    f = alone(lambda k: torch.full((2,), k))
    compiled = torch.compile(f, backend="aot_eager")
    for k, kind in [(np.float64(v), torch.float32) for v in VALUES] + [(np.float16(0.5), torch.float32), (np.int32(3), torch.int64)]:
        assert f(k).dtype is kind and compiled(k).dtype is kind and torch.equal(compiled(k), f(k))


def test_signs_of_a_complex_number_are_told_apart() -> None:
    compiled = torch.compile(alone(lambda x, z: (x * 2, z.conjugate())), backend="aot_eager")
    for z in (complex(1, 0.0), complex(1, -0.0), complex(-0.0, 2), complex(0.0, 2), complex(math.nan, 1), complex(math.nan, 2)):
        assert repr(compiled(data(2), z)[1]) == repr(z.conjugate())


OF_TWO: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "select": lambda x, k: x.select(1, k), "index": lambda x, k: x[:, k], "from the end": lambda x, k: x[:, -k - 1],
    "narrow": lambda x, k: x.narrow(1, k, 1), "slice": lambda x, k: x[:, k:], "chunk": lambda x, k: x.chunk(k + 1, 2),
    "split": lambda x, k: x.split(k + 1, 1), "roll": lambda x, k: x.roll(k, 1), "diagonal": lambda x, k: x.diagonal(k, 1, 2),
    "tril": lambda x, k: x.tril(k), "pad": lambda x, k: F.pad(x, (k, 1)), "unfold": lambda x, k: x.unfold(2, k + 1, 1),
    "topk": lambda x, k: x.topk(k + 1)[0], "repeat": lambda x, k: x.repeat(k + 1, 1, 1), "power": lambda x, k: x ** k,
    "remainder": lambda x, k: x % (k + 1), "one_hot": lambda x, k: F.one_hot(x[0, 0].long(), k + 2),
    "fill": lambda x, k: x.masked_fill(x > 3, k),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", OF_TWO)
def test_small_numbers_are_no_sizes(name: str, backend: str) -> None:
    """Where a dimension has two elements, 0 and 1 are told from what is 2 or more."""
    x = torch.arange(8.0).reshape(2, 2, 2)
    for order in ((0, 1), (1, 0), (-1, 0, 1), (2, 0, 1)):
        f = alone(OF_TWO[name])
        compiled = torch.compile(f, backend=backend)
        for k in order:
            assert outcome(compiled, x, k) == outcome(f, x, k), (order, k)


def outcome(f: Callable, *args: Any) -> str:
    """The value as text, or the exception's class."""
    try:
        return str(f(*args))
    except Exception as error:
        return type(error).__name__


def test_a_number_of_which_sizes_are_made_is_least_what_they_need() -> None:
    """A size of 1 is a version of its own; of n + 1 that is n = 0."""
    f = alone(lambda x, n: x[:n + 1] * 2)
    compiled = torch.compile(f, backend="aot_eager")
    for n in (0, 1, 2, 3, 4, 0):
        assert torch.equal(compiled(data(6), n), f(data(6), n))
    assert versions(f) == 2


def test_a_number_that_is_a_size_at_times_is_a_number_at_others() -> None:
    f = alone(lambda x, n, whole: x * n if whole else x[:n] * 2)
    compiled = torch.compile(f, backend="aot_eager")
    for whole, n in ((False, 2), (False, 3), (False, 5), (True, 1), (True, 0), (True, 4)):
        assert torch.equal(compiled(data(6), n, whole), f(data(6), n, whole))
    assert versions(f) == 3
    for n in (1, 0, 1):     # a size of 1 or 0 is fixed
        assert torch.equal(compiled(data(6), n, False), f(data(6), n, False))
    assert versions(f) == 5


def test_numbers_that_are_equal_for_a_while_are_not_one() -> None:
    """A ring's position and its length."""
    class Ring:
        def __init__(self) -> None:
            self.rows, self.at, self.length = torch.ones(40, 2), 0, 0

        def push(self, x: torch.Tensor) -> torch.Tensor:
            self.at += len(x)
            self.length = min(6, self.length + len(x))
            return self.rows[:self.length].sum(0) * self.rows[:self.at].sum(0) + x.sum(0)

    rings = Ring(), Ring()
    graphs = []

    def backend(gm: Any, examples: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    push = torch.compile(rings[0].push, backend=backend)
    for k in (2, 2, 3, 2, 4, 2, 3):
        x = torch.full((k, 2), float(k))
        assert torch.equal(push(x), rings[1].push(x))
    assert len(graphs) <= 3


class Entries(dict):
    """A dict of a class that derives from it."""


HOLDERS: dict[str, tuple[Callable, Callable]] = {
    "argument": (lambda x, k: x * k, lambda v: v), "list": (lambda x, k: x * k[0], lambda v: [v]),
    "dict": (lambda x, k: x * k["a"], lambda v: {"a": v}), "kind of dict": (lambda x, k: x * k["a"], lambda v: Entries(a=v)),
    "field": (lambda x, k: x * k.a, lambda v: types.SimpleNamespace(a=v)),
    "power": (lambda x, k: x * 1.5 ** k, lambda v: v), "whole power": (lambda x, k: x * int(2 ** k), lambda v: v),
}


@pytest.mark.parametrize("numbers", [[5, 6, 9, 7], [0.5, 0.7, 2.5, 3.5], [-2, -3, -7, -5]], ids=["int", "float", "negative"])
@pytest.mark.parametrize("place", HOLDERS)
def test_dynamic_numbers_vary_from_the_first_call_on(place: str, numbers: list[float]) -> None:
    plain, hold = HOLDERS[place]
    f = alone(plain)
    compiled = torch.compile(f, backend="aot_eager", dynamic=True)
    for number in numbers if place != "whole power" else map(abs, numbers):
        assert torch.allclose(compiled(data(3), hold(number)), f(data(3), hold(number)))
    assert versions(f) == 1


def test_settings_of_modules_and_defaults_stay_numbers_where_all_varies() -> None:
    class Heads(torch.nn.Module):
        def __init__(self, heads: int) -> None:
            super().__init__()
            self.heads, self.config = heads, types.SimpleNamespace(scale=3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _flip(x.view(-1, self.heads, x.shape[-1] // self.heads) * self.config.scale)

    model = Heads(2)
    graphs: list[Any] = []
    compiled = torch.compile(model, backend=lambda gm, inputs: graphs.append(gm) or gm, dynamic=True)
    for size in (4, 6):
        assert torch.equal(compiled(data(3, size)), model(data(3, size)))
    (graph,) = graphs
    plain = {arg for node in graph.graph.nodes for arg in torch.utils._pytree.tree_leaves(node.args) if type(arg) is int}
    assert plain >= {2, 3}


def _flip(x: torch.Tensor, dim: int = 2) -> torch.Tensor:
    return x.flip(dim)


PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "complex": lambda n, m: (complex(n, m), complex(n), complex(real=n, imag=2), complex(1, m), complex(n * 0.5, m)),
    "arithmetic": lambda n, m: (divmod(n, m), divmod(-n, m), pow(n, m), -n // m, n % m, n / m, n**2, abs(-n), bool(n), n.conjugate(), n.real),
    "bits": lambda n, m: (n | m, n & m, n ^ m, n << m, n >> m, ~n, n.bit_length(), n.to_bytes(2, "big"), bin(n), hex(m), oct(n)),
    "rounding": lambda n, m: (round(n / 3, m), round(n * 1.5), int(n * 1.5), math.floor(n * 0.3 + m), math.ceil(n / m), (n / 3).is_integer()),
    "order": lambda n, m: (max(n, m), min(n, m, 3), sorted([n, m, 4]), (n, m) < (m, n), n == m, n if n > m else m, any([n > 4, m > 4])),
    "sequences": lambda n, m: (range(n, m + 9, 2)[1], slice(n, m), list(range(n))[:m], "ab" * n, [0] * n, "abcdefghijk"[n:], (1, 2, 3) * m),
    "containers": lambda n, m: ({n: m}[n], n in (3, 5), n in {3: 1}, {3, 8} - {n}, list(enumerate("ab", n)), dict.fromkeys([n, m], 1)),
    "text": lambda n, m: (f"{n:>4}|{m!r}", str(n) + "a", "%d %s" % (n, m), f"{n}", int(str(n)), chr(n + 60)),  # noqa: UP031
    "comparisons": lambda n, m: (n <= 4.5, n > 4.5, n == 5.0, n != 5.5, n / 2 == m / 2, hash(n), isinstance(n, int)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PYTHON)
def test_what_python_makes_of_ints_that_change(name: str, dynamic: bool | None) -> None:
    f = alone(lambda x, n, m: (x * n, PYTHON[name](n, m)))
    compiled = torch.compile(f, backend="eager", dynamic=dynamic)
    for n, m in ((3, 4), (5, 6), (7, 9), (8, 2), (3, 4)):
        assert same(compiled(data(3), n, m), f(data(3), n, m)), (n, m)


OF_NUMPY: dict[str, Callable[[Any], Any]] = {
    "function": lambda n: np.sqrt(n) + np.cos(n), "of two": lambda n: np.maximum(n, 0.65) * np.power(n, 2),
    "arithmetic": lambda n: 1 / (n * 2 + 1),
    "with a constant": lambda n: n + np.float64(2) + np.exp(n) * np.float32(3),
    "sign": lambda n: -n + abs(n), "comparison": lambda n: 2 if n > 0.1 else 3,
    "python's": lambda n: min(n, 1.0) + float(n) + int(n * 10), "halved": lambda n: max(n / 3, np.float32(0.01)),
}


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int64, float, int])
@pytest.mark.parametrize("name", OF_NUMPY)
def test_what_numpy_makes_of_numbers_that_change(name: str, kind: type) -> None:
    """Computed by NumPy before the graph, in its dtypes."""
    f = alone(lambda x, n: x * OF_NUMPY[name](n))
    compiled = torch.compile(f, backend="eager")
    for n in (0.5, 0.625, 0.75, 0.8125, 0.5) if kind not in (int, np.int64) else (3, 4, 5, 6, 3):
        assert same(compiled(data(3), kind(n)), f(data(3), kind(n))), n
    assert versions(f) <= 3


@pytest.mark.parametrize("function", [abs, lambda n: +n, lambda n: -n, lambda n: round(n, 2), math.floor, math.ceil, int],
                         ids=["abs", "plus", "minus", "round", "floor", "ceil", "int"])
def test_fractions_of_sizes(function: Callable) -> None:
    f = alone(lambda x: x * function(x.shape[0] / 7 - 1))
    compiled = torch.compile(f, backend="eager", dynamic=True, fullgraph=True)
    for n in (3, 5, 9, 30):
        assert same(compiled(data(n)), f(data(n))), n
