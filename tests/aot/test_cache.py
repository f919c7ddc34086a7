"""Keys and entries of the program cache, without a compiler: what is found runs as what was put in."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau import fx
from flambeau.aot import Uncacheable, aot_compile, interpret
from flambeau.aot import cache as programs
from flambeau.aot.keys import describe, surroundings
from flambeau.backends.cpu import onednn
from flambeau.core import cache
from flambeau.core.symbolic import ShapeEnv
from flambeau.core.tensor import fake
from tests.aot.test_random_programs import STEP, backward, program


class InMemory:
    """Artefacts that stay in this process; the rest of the entry goes through the file."""

    classes = ()
    made: dict[int, Any] = {}

    def fingerprint(self, program: str) -> str:
        return "interpreted"

    def pack(self, compiled: Any) -> int:
        self.made[id(compiled)] = compiled
        return id(compiled)

    def unpack(self, record: int) -> Any:
        return self.made.get(record)


@pytest.fixture(autouse=True, scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("programs")))
        patch.setattr(cache, "package_hash", lambda: "this version")
        yield cache.cache_directory()


def data(seed: int, grad: bool) -> torch.Tensor:
    array = np.random.default_rng(seed).uniform(-1, 1, (4, 4)).astype(np.float32)
    return torch.from_numpy(array).requires_grad_(grad)


def observe(gm: fx.GraphModule, grad: bool) -> tuple[Any, ...]:
    inputs = [data(0, grad), data(1, False)]
    got = aot_compile(gm, inputs, forward_compiler=interpret, artefacts=InMemory())(*inputs)
    aliases = [[a is b or a._storage is b._storage for b in (*got, *inputs)] for a in got]
    gradient = backward(got, inputs[0])
    values = [t.detach().numpy().copy() for t in (*got, *inputs)]
    return values, aliases, [t.requires_grad for t in got], [t.stride() for t in got], gradient


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, min_size=1, max_size=12), st.lists(st.integers(0, 20), min_size=1, max_size=3), st.booleans())
def test_random_programs_come_back(steps: Any, returned: Any, grad: bool) -> None:
    gm = fx.symbolic_trace(program(steps, returned))
    try:
        observe(gm, grad)
    except RuntimeError:
        return  # a write that autograd forbids
    programs.stats.clear()
    first, second = observe(gm, grad), observe(gm, grad)
    assert programs.stats["hit"] == 2
    for a, b in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert first[1:4] == second[1:4]
    assert type(first[4]) is type(second[4])
    if isinstance(first[4], torch.Tensor):
        np.testing.assert_array_equal(first[4].numpy(), second[4].numpy())
    else:
        assert str(first[4]) == str(second[4])


def test_parameters_of_the_module_are_read_when_it_runs() -> None:
    model = torch.nn.Linear(4, 3)
    x = data(0, False)

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = model.weight, model.bias

        def forward(self, x: Any) -> Any:
            return (torch.nn.functional.linear(x, self.weight, self.bias),)

    gm = fx.symbolic_trace(Holder())
    for _ in range(2):
        programs.stats.clear()
        f = aot_compile(gm, [x], forward_compiler=interpret, artefacts=InMemory())
        with torch.no_grad():
            model.weight.add_(1)
        (out,) = f(x)
        np.testing.assert_allclose(out.detach().numpy(), model(x).detach().numpy(), rtol=1e-5)
        out.sum().backward()
    assert programs.stats == {"hit": 1}


# -- keys ---------------------------------------------------------------------------------------------------------------


def graph_of(target: Any, *args: Any, **kwargs: Any) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x, *args), kwargs),))
    return fx.GraphModule({}, graph)


def key(gm: fx.GraphModule, *examples: Any, needs: Any = None) -> str:
    return describe(gm, examples or (fake((2, 3), torch.float32),), (), needs)


ARGUMENTS = [1, 1.0, True, 0.0, -0.0, float("nan"), float("inf"), "1", b"1", None, (1,), [1], (1, 1), {"a": 1}, {"a": 1.0},
             slice(1), slice(1, None), 1j, ..., torch.float32, torch.float64, torch.device("cpu"), torch.channels_last,
             int, float, range(1)]  # fmt: skip


def test_different_arguments_have_different_keys() -> None:
    keys = [key(graph_of(torch.add, a)) for a in ARGUMENTS]
    assert len(set(keys)) == len(keys)
    assert keys == [key(graph_of(torch.add, a)) for a in ARGUMENTS]
    assert key(graph_of(torch.add, 1)) != key(graph_of(torch.sub, 1)) != key(graph_of(operator.add, 1))


def test_different_inputs_have_different_keys() -> None:
    gm = graph_of(torch.add, 1)
    env = ShapeEnv()
    n = env.create_symint(2, "n")
    other = ShapeEnv()
    m = other.create_symint(7, "m")
    inputs = [
        fake((2, 3), torch.float32), fake((3, 2), torch.float32), fake((2, 3), torch.float32, strides=(1, 2)),
        fake((2, 3), torch.float32, None, None, 4), fake((2, 3), torch.float64), fake((2, 3), torch.float32, "meta"),
        fake((n, 3), torch.float32), fake((m, 3), torch.float32), 3, 3.0, n, None,
    ]  # fmt: skip
    keys = [key(gm, a) for a in inputs] + [key(gm, needs=needs) for needs in ((1,), (2,), (0,))]
    assert len(set(keys)) == len(keys)
    before = key(gm, n)
    env.evaluate(programs.Relation("<", n.expr, 5), "somebody looked")
    assert key(gm, n) != before


def mine(x: Any) -> Any:
    return x


@pytest.mark.parametrize(("gm", "reason"), [
    (lambda: graph_of(mine), "calls mine of tests.aot"), (lambda: graph_of(lambda x: x), "calls .*<lambda>"),
    (lambda: graph_of(torch.add, torch.ones(2)), r"live tensor of shape \[2\]"),
    (lambda: graph_of(torch.add, object()), "holds a builtins.object"), (lambda: graph_of(torch.add, mine), "holds a builtins.function"),
    (lambda: fx.symbolic_trace(torch.nn.Linear(3, 3)), "refers to weight, a live Parameter|calls the module"),
], ids=["a function", "a lambda", "a tensor", "an object", "a callable", "a module"])  # fmt: skip
def test_what_cannot_be_spelled_out_is_refused(gm: Any, reason: str) -> None:
    with pytest.raises(Uncacheable, match=reason):
        key(gm())


def test_a_replaced_function_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = graph_of(torch.nn.functional.gelu)
    key(gm)
    target = next(n.target for n in gm.graph.nodes if n.op == "call_function")
    monkeypatch.setitem(programs.name_of.__globals__["OPERATORS"], target._operator.name, mine)
    monkeypatch.setattr(f"{target.__module__}.{target.__qualname__}", mine)
    with pytest.raises(Uncacheable):
        key(gm)


def test_a_method_of_the_users_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "mine", mine, raising=False)
    graph = fx.Graph()
    graph.output((graph.call_method("mine", (graph.placeholder("x"),)),))
    with pytest.raises(Uncacheable, match="calls mine"):
        key(fx.GraphModule({}, graph))


def autocast_off() -> None:
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)


SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    "default device": (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
    "grad mode": (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True), lambda: torch.autograd.set_detect_anomaly(False)),
    "TF32": (lambda: torch.set_float32_matmul_precision("high"), lambda: torch.set_float32_matmul_precision("highest")),
    "parts of products": (lambda: onednn.split_products(3), lambda: onednn.split_products(6)),
    "reduced precision": (lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
                          lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", True)),
    "determinism": (lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
    "flash": (lambda: torch.backends.cuda.enable_flash_sdp(False), lambda: torch.backends.cuda.enable_flash_sdp(True)),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), autocast_off),
    "autocast's dtype": (lambda: torch.set_autocast_dtype("cpu", torch.float16), autocast_off),
}  # fmt: skip


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_of_the_process_are_in_the_key(name: str) -> None:
    if name == "parts of products" and not onednn.split_products_set():
        pytest.skip("this processor has no bf16 tiles")
    change, back = SWITCHES[name]
    back()
    before = surroundings()
    try:
        change()
        assert surroundings() != before
    finally:
        back()
    assert surroundings() == before


def test_files_that_changed_make_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    package = tmp_path / "flambeau"
    (package / "core").mkdir(parents=True)
    for name in ("__init__.py", "core/cache.py", "data.txt"):
        (package / name).write_text("1")
    monkeypatch.setattr(cache, "__file__", str(package / "core" / "cache.py"))

    def hashed(started: float = 1e12) -> str | None:
        monkeypatch.setattr(cache, "_process_start", lambda: started)
        return inner()

    inner = _real_package_hash
    first = hashed()
    assert first is not None and hashed() == first
    assert hashed(started=0) is None
    (package / "data.txt").write_text("2")
    assert hashed() == first
    (package / "__init__.py").write_text("2")
    assert hashed() not in (first, None)
    (package / "__init__.py").rename(package / "other.py")
    assert hashed() not in (first, None)


_real_package_hash: Any = cache.package_hash.__wrapped__


def test_this_process_started_in_the_past() -> None:
    assert time.time() - 3600 * 24 < cache._process_start() <= cache._IMPORTED <= time.time()
