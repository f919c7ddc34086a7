"""Backends, errors, threads, interrupts, reset, nesting: what surrounds capture."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import warnings

import pytest
from dynamo_harness import Counter, run, same

import flambeau as torch
from flambeau import dynamo
from tests.threads import in_threads


def x3():
    return torch.arange(3) * 1.0 + 1


def test_decorator_forms() -> None:
    @dynamo.compile(backend="eager")
    def f(x):
        """Doc."""
        return x + 1

    @functools.partial(dynamo.compile, backend="eager", dynamic=True)
    def g(x):
        return x + 2

    assert same(f(x3()), x3() + 1) and same(g(x3()), x3() + 2)
    assert f.__name__ == "f" and f.__doc__ == "Doc."


def test_unknown_backend_and_mode() -> None:
    with pytest.raises(ValueError, match="Invalid backend: 'nope'"):
        dynamo.compile(lambda x: x, backend="nope")
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        dynamo.compile(lambda x: x, mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        dynamo.compile(lambda x: x, mode="default", options={"a": 1})


def test_registered_backend_gets_options() -> None:
    seen = {}

    def mine(gm, example_inputs, **options):
        seen.update(options)
        assert all(isinstance(t, torch.Tensor) and t.is_fake for t in example_inputs)
        return gm.forward

    if "mine" not in dynamo.list_backends():
        dynamo.register_backend(mine)
    with pytest.raises(ValueError, match="registered already"):
        dynamo.register_backend(mine)
    result = dynamo.compile(lambda x: x + 1, backend="mine", options={"level": 3})(x3())
    assert same(result, x3() + 1) and seen == {"level": 3}


def test_disable_argument_returns_the_function() -> None:
    def f(x):
        return x

    assert dynamo.compile(f, disable=True) is f


def test_backend_failure_names_the_place() -> None:
    def broken(gm, example_inputs):
        raise KeyError("inside the backend")

    def f(x):
        return x + 1

    with pytest.raises(dynamo.BackendCompilerFailed, match=r"test_machinery\.py.*in f.*KeyError") as caught:
        dynamo.compile(f, backend=broken)(x3())
    assert isinstance(caught.value.inner_exception, KeyError)
    with pytest.raises(dynamo.BackendCompilerFailed, match="instead of a callable"):
        dynamo.compile(f, backend=lambda gm, examples: 3)(x3())


def test_suppress_errors() -> None:
    def broken(gm, example_inputs):
        raise KeyError("no")

    dynamo.config.suppress_errors = True
    try:
        with pytest.warns(UserWarning, match="runs eagerly"):
            assert same(dynamo.compile(lambda x: x + 1, backend=broken)(x3()), x3() + 1)
    finally:
        dynamo.config.suppress_errors = False


def test_interrupt_during_compile_leaves_all_in_order() -> None:
    calls = []

    def interrupted(gm, example_inputs):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return gm.forward

    def f(x):
        with torch.no_grad():
            return x + 1

    g = dynamo.compile(f, backend=interrupted)
    with pytest.raises(KeyboardInterrupt):
        g(x3())
    assert torch.is_grad_enabled()
    assert same(g(x3()), x3() + 1) and len(calls) == 2


def test_two_backends_do_not_mix() -> None:
    def f(x):
        return x + 1

    first, second = Counter(), Counter()
    a, b = dynamo.compile(f, backend=first), dynamo.compile(f, backend=second)
    for g in (a, b, a, b):
        g(x3())
    assert (len(first.graphs), first.calls, len(second.graphs), second.calls) == (1, 2, 1, 2)
    assert same(f(x3()), x3() + 1) and first.calls == 2


def test_compiling_twice_is_compiling_once() -> None:
    def f(x):
        return x + 1

    counter = Counter()
    dynamo.compile(dynamo.compile(f, backend=counter), backend=counter)(x3())
    dynamo.compile(f, backend=counter)(x3())
    assert len(counter.graphs) == 1


def test_compiled_function_inside_a_compiled_function_is_inlined() -> None:
    inner = dynamo.compile(lambda x: x * 2, backend="eager")

    def outer(x):
        return inner(x + 1) + 1

    _, seen, counter = run(outer, x3())
    assert len(counter.graphs) == 1 and not seen.breaks


def test_threads() -> None:
    def f(x, n):
        for _ in range(n):
            x = x + 1
        return x

    compiled = dynamo.compile(f, backend="eager", dynamic=False)
    failures = []

    def work(n):
        try:
            for _ in range(20):
                assert same(compiled(x3(), n), x3() + n)
        except BaseException as error:
            failures.append(error)

    in_threads(*[functools.partial(work, n % 4 + 1) for n in range(8)])
    assert not failures


def test_other_threads_are_not_captured() -> None:
    counter = Counter()

    def g(x):
        return x * 2

    def f(x):
        return g(x) + 1

    dynamo.compile(f, backend=counter)(x3())
    thread = threading.Thread(target=g, args=(x3(),))
    thread.start()
    thread.join()
    assert len(counter.graphs) == 1


def test_reset_forgets() -> None:
    def f(x):
        return x + 1

    counter = Counter()
    compiled = dynamo.compile(f, backend=counter)
    compiled(x3())
    dynamo.reset()
    compiled(x3())
    assert len(counter.graphs) == 2


def test_is_compiling() -> None:
    def f(x):
        return x + 1 if torch._dynamo.is_compiling() else x - 1

    assert same(f(x3()), x3() - 1)
    assert same(run(f, x3())[0], x3() + 1)


def test_guards_are_readable_and_reasons_named(caplog) -> None:
    import logging

    def f(x, flag, table):
        return x + table["k"] if flag else x

    logger = logging.getLogger("flambeau.recompiles")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(caplog.handler)
    try:
        g = dynamo.compile(f, backend="eager")
        g(x3(), True, {"k": 1.5})
        g(x3(), True, {"k": 2.5})
        g(torch.ones(3, dtype=torch.float64), True, {"k": 2.5})
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(logging.NOTSET)
    assert "table['k']" in caplog.text and "float64" in caplog.text


def test_logs_setting_of_the_environment() -> None:
    code = ("import flambeau as torch\n"
            "f = torch.compile(lambda x: x + 1, backend='eager')\n"
            "f(torch.ones(2))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "TORCH_LOGS": "+graph_code,guards", "PYTHONPATH": os.pathsep.join(sys.path)})
    assert "[flambeau.graph_code]" in done.stderr and "[flambeau.guards]" in done.stderr


def test_lru_cache_is_seen_through() -> None:
    @functools.lru_cache
    def scale(n):
        return n * 2

    _, seen, _ = run(lambda x: x * scale(3), x3())
    assert not seen.breaks


def test_allow_in_graph_and_constant_result() -> None:
    @dynamo.allow_in_graph
    def opaque(x):
        return x * 2 + 1

    calls = []

    @dynamo.assume_constant_result
    def constant():
        calls.append(1)
        return 7

    result, seen, counter = run(lambda x: opaque(x) + constant(), x3())
    assert same(result, x3() * 2 + 8) and not seen.breaks and calls == [1]
    assert opaque in [n.target for n in counter.graphs[0].graph.nodes]


def test_no_warnings_in_plain_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(lambda x: x + 1, x3())


def test_call_overhead_is_small() -> None:
    import time

    def f(a, b):
        return a + b

    g = dynamo.compile(f, backend=lambda gm, examples: lambda a, b: (a,))
    a, b = x3(), x3()
    g(a, b)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(1000):
            g(a, b)
        best = min(best, (time.perf_counter() - start) / 1000)
    assert best < 8e-6, f"{best * 1e6:.1f} us"


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_debug_folder(backend, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("FLAMBEAU_REPORT", str(tmp_path / "all.html"))

    def f(x, w):
        y = x @ w  # the product
        return (y + 1).relu()

    x, w = torch.rand(4, 4), torch.rand(4, 4)
    w.requires_grad = True
    dynamo.compile(f, backend=backend)(x, w)
    (folder,) = tmp_path.glob("run_*/*")
    names = {path.name for path in folder.iterdir()}
    assert {"replacement.py", "guards.py", "captured.py", "repro.py", "report.html"} <= names
    report = (folder / "report.html").read_text()
    assert "x @ w  # the product" in (tmp_path / "all.html").read_text()
    assert "x @ w  # the product" in report and "matmul" in report
    if backend == "inductor":
        assert {"aot_joint.py", "aot_forward.py", "aot_backward.py", "inductor_0_loops.txt", "inductor_0_schedule.txt"} <= names
        assert "kernel" in report or "library call" in report
    done = subprocess.run([sys.executable, str(folder / "repro.py")], capture_output=True, text=True, check=False,
                          env={**os.environ, "TORCH_COMPILE_DEBUG": "0", "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr


def test_logs_of_the_rooms_below(caplog) -> None:
    import logging

    names = ["flambeau.aot_graphs", "flambeau.output_code"]
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).addHandler(caplog.handler)
    try:
        dynamo.compile(lambda x: x * 2 + 1, backend="inductor")(x3())
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(caplog.handler)
            logging.getLogger(name).setLevel(logging.NOTSET)
    assert "inference graph" in caplog.text and "generated code" in caplog.text


def test_nothing_is_captured_while_a_mode_watches() -> None:
    from flambeau.core import dispatch

    class Watch:
        seen = 0

        def handle(self, prim, args):
            self.seen += 1
            return dispatch.run(prim, args)

    counter = Counter()
    compiled = dynamo.compile(lambda x: x * 2 + 1, backend=counter)
    with dispatch.push_mode(Watch()) as watch:
        compiled(x3())
    assert not counter.graphs and watch.seen >= 2
    assert same(compiled(x3()), x3() * 2 + 1) and len(counter.graphs) == 1
    assert same(torch.vmap(compiled)(torch.ones(2, 3)), torch.ones(2, 3) * 3)
