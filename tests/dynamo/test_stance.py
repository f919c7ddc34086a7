"""torch.compiler.set_stance and default backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as fl
from flambeau import compiler


class Backend(list):
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __call__(self, gm: Any, examples: list) -> Any:
        self.append(gm)
        return gm


@pytest.fixture
def backend() -> Iterator[Backend]:
    yield Backend()
    compiler.set_stance("default")
    compiler.set_default_backend(None)
    compiler.reset()


def made(backend: Any) -> Any:
    @fl.compile(backend=backend)
    def f(x: Any) -> Any:
        return (x.sin(), fl.compiler.is_compiling())

    return f


def test_force_eager(backend: Backend) -> None:
    f, x = made(backend), fl.ones(3)
    with compiler.set_stance("force_eager"):
        assert f(x)[1] is False and not backend
    assert f(x)[1] is True and len(backend) == 1
    compiler.set_stance("force_eager")
    assert f(x)[1] is False
    compiler.set_stance("default")
    assert f(x)[1] is True

    @compiler.set_stance("force_eager")
    def eager() -> Any:
        return f(x)[1]

    assert f(x)[1] is True and eager() is False and f(x)[1] is True


def test_modules_too(backend: Backend) -> None:
    model = fl.compile(fl.nn.Linear(2, 2), backend=backend)
    with compiler.set_stance("force_eager"):
        model(fl.ones(1, 2))
    assert not backend


def test_on_recompile(backend: Backend) -> None:
    f, x, other = made(backend), fl.ones(3), fl.ones(3, dtype=fl.float64)
    with compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match=r"fail_on_recompile'.* in f: it isn't compiled yet"):
        f(x)
    with compiler.set_stance("eager_on_recompile"):
        assert f(x)[1] is False
    f(x)
    with compiler.set_stance("fail_on_recompile"):
        assert f(x)[1] is True
        with pytest.raises(RuntimeError, match=r"float64|dtype"):
            f(other)
    with compiler.set_stance("eager_on_recompile"):
        assert f(x)[1] is True and f(other)[1] is False
    assert f(other)[1] is True and len(backend) == 2


def test_forced_backend(backend: Backend) -> None:
    f = made("eager")
    with compiler.set_stance("default", force_backend=backend):
        f(fl.ones(3))
    assert len(backend) == 1


def test_default_backend(backend: Backend) -> None:
    assert compiler.get_default_backend() == "inductor"
    compiler.set_default_backend(backend)
    assert compiler.get_default_backend() is backend
    fl.compile(lambda x: x + 1)(fl.ones(2))
    assert len(backend) == 1
    with pytest.raises(TypeError, match="must be a string or callable"):
        compiler.set_default_backend(3)


def test_regions_are_captured_like_their_function(backend: Backend) -> None:
    region = compiler.nested_compile_region(lambda x: x.sin())
    decorated = compiler.nested_compile_region(max_reuse_entries=2)(region)
    fl.compile(lambda x: decorated(x) + region(x), backend=backend, fullgraph=True)(fl.ones(2))
    assert len(backend) == 1


@pytest.mark.parametrize(("args", "kwargs", "error"), [
    (("bad",), {}, RuntimeError),
    (("force_eager",), {"force_backend": "eager"}, RuntimeError),
    ((), {"skip_guard_eval_unsafe": True}, NotImplementedError),
])  # fmt: skip
def test_errors(args: tuple, kwargs: dict, error: type, backend: Backend) -> None:
    with pytest.raises(error):
        compiler.set_stance(*args, **kwargs)
    assert made(backend)(fl.ones(1))[1] is True


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_is_told_whether_it_is_compiled_or_exported(strict: bool) -> None:
    asks = {"compiling": fl.compiler.is_compiling, "dynamo": fl.compiler.is_dynamo_compiling, "exporting": fl.compiler.is_exporting}

    class Asking(fl.nn.Module):
        def __init__(self, ask):
            super().__init__()
            self.ask = ask

        def forward(self, x):
            return x.sin() if asks[self.ask]() else x.cos()

    told = {}
    for name in asks:
        exported = fl.export.export(Asking(name), (fl.ones(2),), strict=strict)
        told[name] = any("sin" in str(node.target) for node in exported.graph.nodes)
    assert told == {"compiling": True, "dynamo": strict, "exporting": True}
    assert [ask() for ask in asks.values()] == [False] * 3
    assert fl.compile(lambda: [ask() for ask in asks.values()], backend="eager")() == [True, True, False]     # without an operation
    model = Asking("exporting")
    compiled = fl.compile(model, backend="eager")
    x = fl.ones(2)
    assert compiled(x).tolist() == x.cos().tolist()


def test_graph_breaks_as_errors() -> None:
    @fl._dynamo.error_on_graph_break(True)
    def strict(x):
        print("a")
        return x + 1

    def lenient(x):
        with fl._dynamo.error_on_graph_break(False):
            y = x + 1
        return y * 2

    x = fl.ones(2)
    with pytest.raises(fl._dynamo.exc.Unsupported, match="error_on_graph_break"):
        fl.compile(strict, backend="eager")(x)
    assert fl.compile(lenient, backend="eager", fullgraph=True)(x).tolist() == [4.0, 4.0]
    with fl._dynamo.error_on_graph_break(True), pytest.raises(fl._dynamo.exc.Unsupported):
        fl.compile(lambda x: (print("b"), x + 1)[1], backend="eager")(x)
    assert fl.compile(lambda x: (print("c"), x + 1)[1], backend="eager")(x).tolist() == [2.0, 2.0]
