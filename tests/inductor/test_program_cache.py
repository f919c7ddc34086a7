"""Compiled programs kept between processes: a hit gives what a miss gave, to the last bit, and nothing stale is ever found."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import fx, inductor, nn
from flambeau.aot import cache as programs
from flambeau.aot import compile as aot_compile
from flambeau.core import cache
from flambeau.core.symbolic import ShapeEnv
from flambeau.core.tensor import fake
from flambeau.inductor import graph as graphs
from flambeau.inductor.cpu import compile as build

F = nn.functional

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def directory(own_cache: Path) -> Path:
    return own_cache


def data(*shape: int, seed: int = 0, grad: bool = False) -> torch.Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(array).requires_grad_(grad)


def copies(values: Any) -> list[Any]:
    return [v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v for v in values]


def tensors(value: Any) -> list[np.ndarray]:
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy().copy()]
    return [a for item in value for a in tensors(item)] if isinstance(value, (tuple, list)) else [np.asarray(value)]


def observe(f: Callable, inputs: Any, **settings: Any) -> list[np.ndarray]:
    """What a program compiled from scratch gives: results, gradients, what became of the inputs."""
    torch._dynamo.reset()
    torch.manual_seed(7)
    inputs = copies(inputs)
    out = torch.compile(f, fullgraph=True, **settings)(*inputs)
    seen = tensors(out)
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    total = [o.sum() if i else (o * o).sum() for i, o in enumerate(out if isinstance(out, tuple) else (out,))
             if isinstance(o, torch.Tensor) and o.requires_grad]
    if leaves and total:
        sum(total).backward()
        seen += [t.grad.numpy().copy() for t in leaves if t.grad is not None]
    return seen + tensors([t for t in inputs if isinstance(t, torch.Tensor)])


def outcomes() -> dict[str, int]:
    found = dict(programs.stats)
    programs.stats.clear()
    return found


def check(monkeypatch: pytest.MonkeyPatch, f: Callable, *inputs: Any, **settings: Any) -> None:
    """The second time there is a hit: the same bits, and nothing was traced, lowered or built."""
    first = observe(f, inputs, **settings)
    assert set(outcomes()) == {"miss"}
    with monkeypatch.context() as m:
        m.setattr(aot_compile, "trace", lambda *args: pytest.fail("it was traced again"))
        calls = build.stats["calls"]
        second = observe(f, inputs, **settings)
        assert build.stats["calls"] == calls
    assert set(outcomes()) == {"hit"}
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3


def returns_views(x: Any) -> Any:
    y = x * 2
    return y[:2], y[2:], y.t()


def writes(x: Any, y: Any) -> Any:
    x.mul_(2)
    x[1:].add_(y)
    return x.sum(), x[0]


def mixed(x: Any, n: int) -> Any:
    return x.shape[0] + n, x * n, None, (x + 1, "text")


PROGRAMS: dict[str, tuple[Callable, tuple]] = {
    "pointwise": (lambda x, y: torch.tanh(x) * y + 1, (data(5, 7), data(5, 7, seed=1))),
    "gradients": (lambda x, y: (F.gelu(x @ y), x.exp().mean(0)), (data(5, 7, grad=True), data(7, 3, seed=1, grad=True))),
    "only one needs a gradient": (lambda x, y: F.softmax(x * y, -1), (data(4, 9, grad=True), data(4, 9, seed=1))),
    "views of one result": (returns_views, (data(4, 4),)),
    "views with gradients": (returns_views, (data(4, 4, grad=True),)),
    "writes to inputs": (writes, (data(3, 4), data(4, seed=1))),
    "an input and a view of it": (lambda x: (x, x[1:], x.t(), x * 1), (data(3, 3),)),
    "numbers and constants": (mixed, (data(3, 2), 4)),
    "a tensor of constants": (lambda x: x + torch.tensor([1.0, -0.0, 3.5]), (data(2, 3),)),
    "random numbers": (lambda x: (F.dropout(x, 0.5), torch.rand(3)), (data(6, 6, grad=True),)),
    "eager kernels in between": (lambda x: torch.cummax(x * 2, 1)[0].cumsum(0) + 1, (data(5, 6),)),
    "a product": (lambda x, w, b: F.relu(F.linear(x, w, b)), (data(8, 16), data(4, 16, seed=1), data(4, seed=2))),
    "a convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), (data(2, 3, 8, 8, grad=True), data(4, 3, 3, 3, grad=True))),
    "an embedding": (lambda w: F.embedding(torch.tensor([0, 2, 2]), w).tanh(), (data(4, 8, grad=True),)),
    "an integer result": (lambda x: (x > 0).sum(), (data(40),)),
    "an empty tensor": (lambda x: x[:0] * 2, (data(4, 2),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hit_gives_what_a_miss_gave(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, inputs = PROGRAMS[name]
    check(monkeypatch, f, *inputs)


@pytest.mark.parametrize("name", ["pointwise", "gradients", "only one needs a gradient", "writes to inputs", "a product",
                                  "random numbers"])
def test_symbolic_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, inputs = PROGRAMS[name]
    check(monkeypatch, f, *inputs, dynamic=True)


def test_a_module_with_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 5))
    state = {k: v.clone() for k, v in model.state_dict().items()}

    def step() -> list[np.ndarray]:
        torch._dynamo.reset()
        torch.manual_seed(3)
        model.load_state_dict(state)
        model.zero_grad()
        out = torch.compile(model)(data(2, 3, 8, 8))
        F.cross_entropy(out, torch.tensor([1, 2])).backward()
        return tensors([out, *(p.grad for p in model.parameters()), *model.buffers()])

    first = step()
    assert outcomes() == {"miss": 1}
    second = step()
    assert outcomes() == {"hit": 1}
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_guards_on_sizes_come_back_with_a_hit() -> None:
    def f(x: Any) -> Any:
        return torch.cat([x, x.new_zeros(3, 2)]).view(-1, 2).softmax(0) if x.shape[0] > 3 else x * 2

    def outputs() -> list[np.ndarray]:
        torch._dynamo.reset()
        compiled = torch.compile(f, dynamic=True)
        return [compiled(data(n, 2)).numpy() for n in (6, 2, 5, 3, 4)]

    first = outputs()
    assert "hit" not in outcomes()
    second = outputs()
    assert set(outcomes()) == {"hit"}
    for n, a, b in zip((6, 2, 5, 3, 4), first, second, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, f(data(n, 2)).numpy(), rtol=1e-5, atol=1e-6)


def test_guards_that_only_tracing_finds_come_back_with_a_hit() -> None:
    """Capture leaves the size alone; the tracer looks at it."""
    def trace_guards() -> list[str]:
        env = ShapeEnv()
        n = env.create_symint(6, "n")
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = fake((n, 2), torch.float32)
        y = graph.call_function(torch.reshape, (x, (-1, 3)))
        graph.output((graph.call_function(torch.relu, (y,)),))
        inductor.compile_fx(fx.GraphModule({}, graph), [x.meta["val"]])(data(6, 2))
        return [guard.relation.text() for guard in env.guards]

    first = trace_guards()
    assert first and outcomes() == {"miss": 1}
    assert trace_guards() == first and outcomes() == {"hit": 1}


def test_what_needs_a_gradient_later_is_a_program_of_its_own() -> None:
    def run() -> Any:
        torch._dynamo.reset()
        f = torch.compile(lambda x: (x * 3).sin())
        f(data(4))
        x = data(4, grad=True)
        f(x).sum().backward()
        return x.grad.numpy()

    first = run()
    assert outcomes() == {"miss": 2}
    np.testing.assert_array_equal(first, run())
    assert outcomes() == {"hit": 2}


# -- what must not be found ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [
    {"f": lambda x: x * 2.0 + 1}, {"f": lambda x: x * 2 - 1}, {"f": lambda x: x * True + 1},
    {"inputs": (data(4, 6),)}, {"inputs": (data(6, 4).t(),)}, {"inputs": (data(4, 5).double(),)},
    {"inputs": (data(4, 5, grad=True),)}, {"options": {"max_autotune": True}}, {"dynamic": True},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_other_programs_are_misses(change: dict[str, Any]) -> None:
    known: dict[str, Any] = {"f": lambda x: x * 2 + 1, "inputs": (data(4, 5),)}
    observe(**known)
    observe(**{**known, **change})
    assert outcomes() == {"miss": 2}
    observe(**known)
    assert outcomes() == {"hit": 1}


def test_zeros_and_numbers_of_other_types_differ() -> None:
    results = [observe(lambda x, c=c: x * c, (torch.tensor([1.0, -1.0]),))[0] for c in (0.0, -0.0, 0, float("nan"), 1, 1.0)]
    assert outcomes() == {"miss": 6}
    assert [bool(np.signbit(r[0])) for r in results[:2]] == [False, True] and np.isnan(results[3]).all()


def test_names_and_lines_make_no_difference() -> None:
    observe(lambda x: x.sin() + 1, (data(9),))

    def other(renamed: Any) -> Any:
        between = renamed.sin()
        return between + 1

    observe(other, (data(9, seed=4),))
    assert outcomes() == {"miss": 1, "hit": 1}


def test_settings_of_the_process_belong_to_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return x + torch.full((3,), 0.5)

    first = observe(f, (torch.ones(3, dtype=torch.float32),))
    torch.set_default_dtype(torch.float64)
    try:
        second = observe(f, (torch.ones(3, dtype=torch.float32),))
    finally:
        torch.set_default_dtype(torch.float32)
    assert outcomes() == {"miss": 2} and first[0].dtype == np.float32 and second[0].dtype == np.float64


def test_autocast_belongs_to_the_key() -> None:
    inputs = (data(4, 4), data(4, 4, seed=1))
    plain = observe(lambda x, y: x @ y, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = observe(lambda x, y: x @ y, inputs)
    assert outcomes() == {"miss": 2} and plain[0].dtype != narrow[0].dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(observe(lambda x, y: x @ y, inputs)[0], narrow[0])
    assert outcomes() == {"hit": 1}


@pytest.mark.parametrize("version", ["another version", None])
def test_the_version_belongs_to_the_key(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    observe(lambda x: x + 1, (data(3),))
    monkeypatch.setattr(cache, "package_hash", lambda: version)
    observe(lambda x: x + 1, (data(3),))
    assert outcomes() == {"miss": 2} if version else {"miss": 1, "bypass": 1}


def test_the_machine_belongs_to_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    observe(lambda x: x + 1, (data(3),))
    monkeypatch.setattr(build, "fixed_part", lambda: b"another compiler, another processor")
    observe(lambda x: x + 1, (data(3),))
    assert outcomes() == {"miss": 2}


# -- what is not kept ---------------------------------------------------------------------------------------------------


def said(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if r.name == "flambeau.cache")


def test_a_function_of_the_users_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "flambeau.cache")
    for _ in range(2):
        x = data(4, grad=True)
        torch._dynamo.reset()
        out = torch.compile(lambda x: Scale.apply(x) + 1)(x)
        out.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), 3)
    assert set(outcomes()) == {"bypass"} and "whose code is not Flambeau's" in said(caplog)


def test_a_custom_operator_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "flambeau.cache")

    @torch.library.custom_op("cachetest::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    triple.register_fake(lambda x: torch.empty_like(x))
    for _ in range(2):
        np.testing.assert_allclose(observe(lambda x: triple(x) + 1, (torch.ones(3),))[0], 4)
    assert set(outcomes()) == {"bypass"} and "triple" in said(caplog)


def test_whoever_looks_at_the_stages_sees_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "flambeau.cache")
    observe(lambda x: x + 1, (data(3),))
    seen: list[Any] = []
    graphs.listening.append(seen.append)
    try:
        observe(lambda x: x + 1, (data(3),))
    finally:
        graphs.listening.remove(seen.append)
    assert len(seen) == 1 and outcomes() == {"miss": 1, "bypass": 1} and "looked at" in said(caplog)


def test_the_cache_can_be_left_out(directory: Path) -> None:
    observe(lambda x: x + 1, (data(3),), options={"cache": False})
    assert not outcomes() and not list(directory.rglob("programs/*/*"))


# -- damage -------------------------------------------------------------------------------------------------------------


def entries(directory: Path) -> list[Path]:
    return [p for p in directory.rglob("programs/*/*") if p.is_file()]


def flip(content: bytes) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


class Evil:
    def __reduce__(self) -> tuple:
        return os.system, ('touch "$FLAMBEAU_CACHE_DIR/was-here"',)


DAMAGE: dict[str, Callable[[bytes, str], bytes]] = {
    "empty": lambda content, name: b"", "garbage": lambda content, name: b"garbage" * 99, "cut short": lambda content, name: content[:-1],
    "half": lambda content, name: content[: len(content) // 2], "a flipped bit": lambda content, name: flip(content),
    "sealed, of something else": lambda content, name: (made := pickle.dumps((1, 2))) + cache.seal(made, name),
    "sealed, but hostile": lambda content, name: (made := pickle.dumps(Evil())) + cache.seal(made, name),
    "another entry's": lambda content, name: content[:-24] + cache.seal(content[:-24], "of another name"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_made_anew(name: str, directory: Path) -> None:
    def f(x: Any) -> Any:
        return (x * 2).sum(0)

    first = observe(f, (data(4, 4, grad=True),))
    (entry,) = entries(directory)
    whole = entry.read_bytes()
    entry.write_bytes(DAMAGE[name](whole, entry.name))
    second = observe(f, (data(4, 4, grad=True),))
    assert outcomes() == {"miss": 2} and not (directory / "was-here").exists()
    third = observe(f, (data(4, 4, grad=True),))
    assert outcomes() == {"hit": 1}
    for a, b, c in zip(first, second, third, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize("damage", [None, b"", b"not a library"])
def test_a_library_that_is_gone_is_built_anew(damage: bytes | None, directory: Path) -> None:
    first = observe(lambda x: x.exp() + 2, (data(9),))
    for library in directory.rglob("*.so"):
        library.unlink()  # this process has mapped it
        if damage is not None:
            library.write_bytes(damage)
    calls = build.stats["calls"]
    np.testing.assert_array_equal(observe(lambda x: x.exp() + 2, (data(9),))[0], first[0])
    assert build.stats["calls"] == calls + 1
    observe(lambda x: x.exp() + 2, (data(9),))
    assert outcomes() == {"miss": 2, "hit": 1}


# -- processes ----------------------------------------------------------------------------------------------------------

TRAINING = textwrap.dedent("""
    import sys, numpy as np, flambeau as torch
    from flambeau.aot import cache as programs
    from flambeau.core import cache
    from flambeau.inductor.cpu import compile as build
    cache.package_hash = lambda: "this version"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    compiled = torch.compile(model)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32))
    for step in range(3):
        loss = compiled(x).square().mean()
        model.zero_grad()
        loss.backward()
    total = sum(float(p.grad.abs().sum()) for p in model.parameters())
    print(repr(loss.item()), repr(total), programs.stats["hit"], programs.stats["miss"], int(build.stats["calls"]))
""")


def start(directory: Path, program: str = TRAINING, **environment: str) -> subprocess.Popen:
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(directory), **environment}
    return subprocess.Popen([sys.executable, "-W", "error", "-c", program], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen) -> list[str]:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out.split()


def test_processes_may_fill_one_directory_at_once(directory: Path) -> None:
    running = [start(directory) for _ in range(3)]
    answers = [answer(process) for process in running]
    assert len({tuple(a[:2]) for a in answers}) == 1
    late = answer(start(directory))
    assert late == [*answers[0][:2], "1", "0", "0"]
    assert len(entries(directory)) == 1
    assert not [p for p in directory.rglob("*") if p.name.startswith(("build-", "aside-"))]


def test_a_copied_directory_is_warm(directory: Path, tmp_path: Path) -> None:
    cold = answer(start(directory))
    os.rename(directory, tmp_path / "elsewhere")
    assert answer(start(tmp_path / "elsewhere")) == [*cold[:2], "1", "0", "0"]


def test_the_directory_is_the_owners_alone(directory: Path) -> None:
    observe(lambda x: x + 1, (data(3),))
    assert directory.stat().st_mode & 0o077 == 0


def test_what_is_read_needs_nothing_that_made_it(tmp_path) -> None:
    """A second process imports no part of the compiler: lowering, schedules, printers, GPUs."""
    program = ("import sys, warnings\nimport flambeau as torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(3, 3)\n"
               "compiled = torch.compile(model)\nx = torch.ones(2, 3)\ncompiled(x).sum().backward()\n"
               "assert torch.allclose(compiled(x), model(x))\n"
               "print(sorted(name for name in sys.modules if name.startswith('flambeau.inductor.')))")
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path)}
    cold, warm = (subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
                  for _ in range(2))
    assert "flambeau.inductor.graph" in cold
    assert not any(f"flambeau.inductor.{name}" in warm for name in ("graph", "gpu", "targets", "verify", "cpu.unit", "loop.scheduler"))
