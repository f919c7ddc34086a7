"""The compiler as authors of backends and tools use it: what PyTorch's tutorials write, with `torch` for Flambeau."""

from __future__ import annotations

import copy
import functools
import logging
import operator
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import _dynamo, nn
from flambeau._decomp import core_aten_decompositions, get_decompositions, register_decomposition
from flambeau._dynamo.backends.common import aot_autograd
from flambeau._dynamo.backends.registry import register_backend as register
from flambeau._dynamo.comptime import comptime
from flambeau._dynamo.testing import (
    AotEagerAndRecordGraphs,
    CompileCounter,
    CompileCounterWithBackend,
    EagerAndRecordGraphs,
    InductorAndRecordGraphs,
    same,
)
from flambeau._dynamo.utils import compile_times, counters
from flambeau._functorch.aot_autograd import aot_function, aot_module, aot_module_simplified, make_boxed_compiler, make_boxed_func
from flambeau._functorch.compilers import memory_efficient_fusion
from flambeau._functorch.make_fx import make_fx
from flambeau._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from flambeau._inductor.compile_fx import compile_fx, compile_fx_inner
from flambeau._inductor.utils import run_and_get_code
from flambeau._subclasses import FakeTensor, FakeTensorMode
from flambeau.fx.experimental import symbolic_shapes
from flambeau.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    _dynamo.reset()
    counters.clear()


def f(x: Any, y: Any) -> Any:
    a = torch.sin(x)
    return a @ y + torch.cos(a)


def inputs(grad: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(4, 4, requires_grad=grad), torch.randn(4, 4, requires_grad=grad)


def agrees(compiled: Callable, grad: bool = True) -> None:
    """Results and gradients are eager's."""
    expected_in, got_in = inputs(grad), inputs(grad)
    expected, got = f(*expected_in), compiled(*got_in)
    torch.testing.assert_close(got, expected)
    if grad:
        expected.sum().backward()
        got.sum().backward()
        for a, b in zip(expected_in, got_in):
            torch.testing.assert_close(b.grad, a.grad)


# -- backends ------------------------------------------------------------------------------------------------------------


def test_a_backend_that_looks_at_the_graph(capsys: pytest.CaptureFixture) -> None:
    def custom(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
        gm.graph.print_tabular()
        print(gm.code, [tuple(x.shape) for x in example_inputs])
        return gm.forward

    agrees(torch.compile(f, backend=custom))
    out = capsys.readouterr().out
    assert "call_function" in out and "def forward" in out and "(4, 4), (4, 4)" in out


def test_a_backend_that_rewrites_the_graph() -> None:
    def custom(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
        for node in gm.graph.nodes:
            if node.op == "call_function" and node.target is torch.sin:
                node.target = torch.cos
        gm.graph.lint()
        gm.recompile()
        return gm

    x, y = inputs()
    a = torch.cos(x)
    torch.testing.assert_close(torch.compile(f, backend=custom)(x, y), a @ y + torch.cos(a))


def test_registered_backends() -> None:
    @register
    def my_backend(gm: Any, inputs: Any) -> Any:
        return gm.forward

    register(name="other", compiler_fn=lambda gm, inputs: gm.forward, tags=("debug",))
    assert "my_backend" in _dynamo.list_backends() and "other" not in _dynamo.list_backends()
    assert {"other", "eager", "aot_eager"} <= set(_dynamo.list_backends(exclude_tags=None))
    assert {"inductor", "cudagraphs"} <= set(torch.compiler.list_backends())
    agrees(torch.compile(f, backend="my_backend"))
    agrees(torch.compile(f, backend="other"))
    with pytest.raises(_dynamo.exc.InvalidBackend, match="my_backend"):
        torch.compile(f, backend="my_backent")


def test_backends_by_options() -> None:
    seen: list[Any] = []

    def custom(gm: Any, inputs: Any, *, level: int = 0) -> Any:
        seen.append(level)
        return gm.forward

    agrees(torch.compile(f, backend=custom, options={"level": 3}))
    assert set(seen) == {3}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept", "cudagraphs", "inductor"])
def test_named_backends(backend: str) -> None:
    import flambeau._dynamo.backends.debugging  # noqa: F401 - registers

    agrees(torch.compile(f, backend=backend))


def test_counters() -> None:
    counter = CompileCounter()
    compiled = torch.compile(f, backend=counter)
    compiled(*inputs())
    compiled(*inputs())
    assert (counter.frame_count, counter.op_count) == (1, 4)
    counter.clear()
    assert counter.frame_count == 0
    around = CompileCounterWithBackend("aot_eager")
    agrees(torch.compile(f, backend=around))
    assert around.frame_count == 1 and len(around.graphs) == 1
    kept, aot = EagerAndRecordGraphs(), AotEagerAndRecordGraphs()
    agrees(torch.compile(f, backend=kept))
    agrees(torch.compile(f, backend=aot))
    assert len(kept.graphs) == len(aot.graphs) == len(aot.fw_graphs) == len(aot.bw_graphs) == 1
    assert counters["stats"]["unique_graphs"] == 4 and counters["frames"]["ok"] == 4
    assert "Runtimes" in compile_times() and compile_times(repr="csv", aggregate=True)[0]


def test_graph_breaks_are_counted() -> None:
    def g(x: Any) -> Any:
        y = x.sin()
        print("", end="")
        return y + 1

    counter = CompileCounter()
    _dynamo.optimize(counter)(g)(torch.ones(3))
    assert counter.frame_count == 2 and sum(counters["graph_break"].values()) == 1
    with pytest.raises(_dynamo.exc.Unsupported):
        _dynamo.optimize_assert("eager")(g)(torch.ones(3))


# -- aot autograd ----------------------------------------------------------------------------------------------------------


def recording(stages: list[str], name: str) -> Callable:
    def compiler(gm: Any, inputs: Any) -> Any:
        stages.append(name)
        assert all(node.op in ("placeholder", "call_function", "output", "get_attr") for node in gm.graph.nodes)
        return make_boxed_func(gm.forward)

    return compiler


@pytest.mark.parametrize("partition", [None, default_partition, min_cut_rematerialization_partition])
def test_aot_autograd_with_compilers(partition: Any) -> None:
    stages: list[str] = []
    backend = aot_autograd(fw_compiler=recording(stages, "fw"), bw_compiler=recording(stages, "bw"),
                           inference_compiler=recording(stages, "inference"), partition_fn=partition)
    agrees(torch.compile(f, backend=backend))
    assert stages == ["fw", "bw"]
    agrees(torch.compile(f, backend=backend), grad=False)
    assert stages == ["fw", "bw", "inference"]


def test_plain_and_boxed_compilers() -> None:
    agrees(torch.compile(f, backend=aot_autograd(fw_compiler=lambda gm, inputs: gm)))
    agrees(torch.compile(f, backend=aot_autograd(fw_compiler=make_boxed_compiler(lambda gm, inputs: gm.forward))))

    def backend(gm: Any, sample_inputs: Any) -> Any:
        return aot_module_simplified(gm, sample_inputs, fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward))

    agrees(torch.compile(f, backend=backend))


def test_a_partition_fn_sees_the_joint_graph_and_must_give_what_it_got() -> None:
    seen: list[Any] = []

    def partition(joint: Any, joint_inputs: Any, *, num_fwd_outputs: int, **others: Any) -> Any:
        seen.append((len([n for n in joint.graph.nodes if n.op == "placeholder"]), len(joint_inputs), num_fwd_outputs))
        return default_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs)

    agrees(torch.compile(f, backend=aot_autograd(fw_compiler=recording([], ""), partition_fn=partition)))
    assert seen == [(3, 3, 1)]
    wrong = aot_autograd(fw_compiler=recording([], ""), partition_fn=lambda joint, inputs, **others: (joint, joint))
    with pytest.raises(RuntimeError, match="partition_fn has to return"):
        torch.compile(f, backend=wrong)(*inputs(True))


def test_default_partition_computes_nothing_again() -> None:
    def g(x: Any) -> Any:
        return x.sin().exp().sum()

    counts = {}
    for partition in (default_partition, min_cut_rematerialization_partition):
        graphs: list[Any] = []

        def keep(gm: Any, inputs: Any, graphs: list[Any] = graphs) -> Any:
            graphs.append(gm)
            return gm.forward

        x = torch.randn(64, requires_grad=True)
        aot_function(g, keep, keep, partition_fn=partition)(x).backward()
        counts[partition] = [n.target.__name__ for n in graphs[1].graph.nodes if n.op == "call_function"]
    assert not {"sin", "exp"} & set(counts[default_partition])
    assert {"sin"} & set(counts[min_cut_rematerialization_partition])


def test_aot_function_and_module() -> None:
    stages: list[str] = []
    compiled = aot_function(lambda x, *, scale, pair: {"out": (x * scale + pair[0]).sin(), "n": 3},
                            recording(stages, "fw"), recording(stages, "bw"))
    x, y = torch.randn(3, requires_grad=True), torch.ones(3)
    got = compiled(x, scale=2.0, pair=[y])
    got["out"].sum().backward()
    assert got["n"] == 3 and stages == ["fw", "bw"]
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach() + y).cos())
    compiled(x, scale=2.0, pair=[y])
    assert stages == ["fw", "bw"]

    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    reference, data = copy.deepcopy(net), torch.randn(8, 4)
    module = aot_module(net, recording(stages, "fw"), recording(stages, "bw"))
    expected, result = reference(data), module(data)
    expected.sum().backward()
    result.sum().backward()
    torch.testing.assert_close(result, expected)
    for a, b in zip(reference.parameters(), net.parameters()):
        torch.testing.assert_close(b.grad, a.grad)
    torch.testing.assert_close(net[1].running_mean, reference[1].running_mean)
    agrees(memory_efficient_fusion(f))


def test_decompositions() -> None:
    used: list[str] = []

    def gelu(x: Any, *args: Any, **kwargs: Any) -> Any:
        used.append("gelu")
        return x * torch.sigmoid(1.702 * x)

    table = {torch.ops.aten.gelu.default: gelu}
    backend = aot_autograd(fw_compiler=recording([], ""), decompositions=table)
    x = torch.randn(5)
    got = torch.compile(lambda x: nn.functional.gelu(x), backend=backend)(x)
    torch.testing.assert_close(got, x * torch.sigmoid(1.702 * x))
    assert used

    registry: dict = {}
    register_decomposition([torch.ops.aten.silu], registry)(lambda x: x * x.sigmoid())
    assert torch.ops.aten.silu in registry
    found = get_decompositions([torch.ops.aten.gelu, torch.ops.aten.softplus])
    torch.testing.assert_close(found[torch.ops.aten.softplus](x), nn.functional.softplus(x))
    assert torch.ops.aten.addcmul in core_aten_decompositions()


# -- inductor --------------------------------------------------------------------------------------------------------------


def test_inductor_as_a_part() -> None:
    def backend(gm: Any, example_inputs: Any) -> Any:
        return compile_fx(gm, example_inputs)

    agrees(torch.compile(f, backend=backend))
    agrees(torch.compile(f, backend=aot_autograd(fw_compiler=compile_fx_inner, bw_compiler=compile_fx_inner)))


def test_inductor_and_its_graphs() -> None:
    kept = InductorAndRecordGraphs()
    agrees(torch.compile(f, backend=kept))
    assert len(kept.graphs) == 1 and len(kept.inductor_graphs) == 2


def test_generated_code() -> None:
    result, codes = run_and_get_code(torch.compile(lambda x: x.sin() + 1), torch.ones(3))
    torch.testing.assert_close(result, torch.ones(3).sin() + 1)
    assert len(codes) == 1 and "run_0" in codes[0]


def test_a_pass_of_the_users() -> None:
    def double(graph: Any) -> None:
        for node in list(graph.nodes):
            if getattr(node.target, "name", "") == "sin":
                node.target = torch._prims.cos

    with torch._inductor.config.patch(post_grad_custom_post_pass=double):
        got = torch.compile(lambda x: x.sin() * 2)(torch.ones(3))
    torch.testing.assert_close(got, torch.ones(3).cos() * 2)


def test_options() -> None:
    assert "max_autotune" in torch._inductor.list_options()
    with pytest.raises(RuntimeError, match="Unexpected optimization option typo"):
        torch.compile(f, options={"typo": True})
    with pytest.raises(RuntimeError, match="Unexpected type of attr max_autotune"):
        torch.compile(f, options={"max_autotune": "yes"})
    with pytest.warns(UserWarning, match="shape_padding.*has no effect"):
        torch.compile(f, options={"shape_padding": False})
    agrees(torch.compile(f, options={"fx_graph_cache": False, "triton.cudagraphs": True}))


# -- settings --------------------------------------------------------------------------------------------------------------


CONFIGS = [torch._dynamo.config, torch._inductor.config, torch._functorch.config, torch.compiler.config]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_misspelt_settings_are_errors(config: Any) -> None:
    for wrong in (lambda: setattr(config, "typo", 3), lambda: config.typo, lambda: config.patch(typo=3), lambda: delattr(config, "typo")):
        with pytest.raises(AttributeError, match=r"config\.typo does not exist"):
            wrong()
    before = config.get_config_copy()
    config.load_config(config.save_config())
    assert config.get_config_copy() == before and isinstance(config.get_hash(), bytes)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_settings_without_effect_say_so(config: Any) -> None:
    for name, value in config.ACCEPTED.items():
        group, _, inner = name.rpartition(".")
        place = getattr(config, group) if group else config
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            setattr(place, inner, getattr(place, inner))
        if isinstance(value, bool) and inner not in ("verbose", "allow_rnn", "guard_nn_modules"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                setattr(place, inner, not value)
            setattr(place, inner, value)
            assert not caught or f"{inner} = {not value} has no effect here" in str(caught[0].message)


def test_patches() -> None:
    config = torch._dynamo.config

    @config.patch(recompile_limit=3)
    def inside() -> int:
        return config.recompile_limit

    @config.patch("recompile_limit", 4)
    def other() -> int:
        return config.cache_size_limit

    assert (inside(), other(), config.recompile_limit) == (3, 4, 8)
    with torch._inductor.config.patch({"triton.cudagraphs": True, "max_autotune": True}):
        assert torch._inductor.config.triton.cudagraphs
    assert not torch._inductor.config.triton.cudagraphs


def test_settings_with_effect() -> None:
    config, counter = torch._dynamo.config, CompileCounter()
    with config.patch(error_on_recompile=True):
        compiled = torch.compile(lambda x: x + 1, backend=counter)
        compiled(torch.ones(2))
        with pytest.raises(_dynamo.exc.RecompileError, match="size"):
            compiled(torch.ones(3))
    with config.patch(disable=True):
        assert torch.compile(lambda x: (x + 1, torch.compiler.is_compiling()))(torch.ones(1))[1] is False
    counter.clear()
    with config.patch(dynamic_shapes=False):
        compiled = torch.compile(lambda x: x * 2, backend=counter)
        for n in (2, 3, 4, 5):
            compiled(torch.ones(n))
    assert counter.frame_count == 4


def test_logs() -> None:
    for setting in ("typo", "+dynamo,graph_brakes"):
        with pytest.raises(ValueError, match=r"Valid are .*graph_breaks"):
            torch.dynamo.logs.configure(setting)
    with pytest.raises(TypeError, match="typo"):
        torch._logging.set_logs(typo=True)
    torch._logging.set_logs(graph_breaks=True)
    assert logging.getLogger("flambeau.graph_breaks").level == logging.DEBUG
    torch._logging.set_logs(graph_breaks=False)
    ran = subprocess.run([sys.executable, "-c", "import flambeau"], capture_output=True, text=True,
                         env={"TORCH_LOGS": "gaurds", "PATH": ""}, check=False)
    assert ran.returncode != 0 and "there is no channel 'gaurds'" in ran.stderr


# -- torch.compiler ----------------------------------------------------------------------------------------------------------


def test_stances() -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x + 1, backend=counter)
    for stance in ("eager_then_compile", "aot_eager_then_compile"):
        counter.clear()
        _dynamo.reset()
        with torch.compiler.set_stance(stance):
            compiled(torch.ones(3))
            assert counter.frame_count == 0
            compiled(torch.ones(3))
            assert counter.frame_count == 1
    _dynamo.reset()
    counter.clear()
    _dynamo.run(compiled)(torch.ones(3))
    assert counter.frame_count == 0


def test_cache_artifacts(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = ("import flambeau as t, sys\nfrom flambeau.aot import cache\n"
               "data = open(sys.argv[1], 'rb').read() if len(sys.argv) > 2 else b''\n"
               "info = t.compiler.load_cache_artifacts(data) if data else None\n"
               "assert t.compile(lambda x: x.exp() * 1.25)(t.zeros(3)).tolist() == [1.25] * 3\n"
               "if data: assert info.inductor_artifacts and cache.stats['hit'] == 1, cache.stats\n"
               "else: open(sys.argv[1], 'wb').write(t.compiler.save_cache_artifacts()[0])\n")
    for i, more in enumerate(([], ["load"])):
        monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / str(i)))
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "artifacts"), *more], check=True)
    assert torch.compiler.load_cache_artifacts(b"damaged") is None


def test_substitute_in_graph() -> None:
    import zlib

    @torch.compiler.substitute_in_graph(zlib.crc32)
    def crc32(data: bytes, value: int = 0, /) -> int:
        return len(data)

    x = torch.ones(3)
    assert torch.compile(lambda x: x + zlib.crc32(b"ab"), fullgraph=True)(x).tolist() == [3, 3, 3]


# -- looking in --------------------------------------------------------------------------------------------------------------


def test_comptime(capsys: pytest.CaptureFixture) -> None:
    def g(x: Any) -> Any:
        y = x.sin()
        comptime.print_graph()
        comptime.print_locals()
        comptime.print_bt()
        comptime(lambda ctx: print("ops:", len(list(ctx.graph().nodes))))
        return y + 1

    x = torch.ones(3)
    torch.testing.assert_close(torch.compile(g, backend="eager", fullgraph=True)(x), x.sin() + 1)
    out = capsys.readouterr().out
    assert "sin" in out and "y = " in out and "in g" in out and "ops: 2" in out
    g(x)
    assert capsys.readouterr().out == ""


def test_callbacks() -> None:
    seen: list[str] = []
    start = _dynamo.on_compile_start(lambda args: seen.append("start"))
    end = _dynamo.on_compile_end(lambda args: seen.append("end"))
    try:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    finally:
        _dynamo.callback.callback_handler.remove_start_callback(start)
        _dynamo.callback.callback_handler.remove_end_callback(end)
    assert seen == ["start", "end"]


def test_same() -> None:
    x = torch.randn(3)
    assert same([x, {"a": x}], [x.clone(), {"a": x + 1e-7}]) and not same(x, x + 1) and not same(x, x.double())


def test_make_fx() -> None:
    graph = make_fx(lambda x: torch.autograd.grad((x * x).sum(), x)[0])(torch.ones(3, requires_grad=True))
    torch.testing.assert_close(graph(torch.full((3,), 2.0)), torch.full((3,), 4.0))
    with pytest.raises(ValueError, match="Unexpected tracing type"):
        make_fx(f, tracing_mode="no")


def test_fake_tensors() -> None:
    with FakeTensorMode() as mode:
        x = torch.empty(8, 4)
        y = nn.Linear(4, 2)(x)
    assert isinstance(y, FakeTensor) and y.shape == (8, 2) and not isinstance(torch.ones(1), FakeTensor)
    fake = mode.from_tensor(torch.randn(3, 5).t())
    assert fake.stride() == (1, 5) and isinstance(fake + 1, FakeTensor)


def test_dispatch_modes() -> None:
    seen: list[Any] = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, y = inputs(True)
    with Log():
        out = f(x, y).sum()
        out.backward()
    torch.testing.assert_close(out, f(x, y).sum())
    assert torch.ops.aten.sin.default in seen and torch.ops.aten.mm in set(seen) and str(seen[0]).startswith("aten.")
    assert x.grad is not None

    class Replace(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            return torch.cos(*args) if func == torch.ops.aten.sin.default else func(*args, **(kwargs or {}))

    with Replace():
        got = torch.sin(torch.ones(2))
    torch.testing.assert_close(got, torch.ones(2).cos())


def test_export() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    written, _ = _dynamo.export(net, aten_graph=True)(x)
    assert all(isinstance(n.target, torch._ops.OpOverload) for n in written.graph.nodes if n.op == "call_function")
    torch.testing.assert_close(written(x), net(x))
    gm, guards = _dynamo.export(net)(x)
    torch.testing.assert_close(gm(x + 1), net(x + 1))
    assert guards and {n.op for n in gm.graph.nodes} >= {"placeholder", "get_attr", "call_function", "output"}
    assert len(list(gm.parameters())) == 4

    def g(pair: Any, *, scale: float) -> Any:
        a, b = pair
        return {"sum": (a + b) * scale, "same": a, "n": 3, "list": [b.sin(), a.cos()]}

    result = _dynamo.export(g)((x, x + 1), scale=2.0)
    y, z = torch.randn(3, 4), torch.randn(3, 4)
    got, expected = result.graph_module((y, z), scale=2.0), g((y, z), scale=2.0)
    assert same(expected, got) and got["same"] is y
    with pytest.raises(ValueError, match="structure"):
        result.graph_module(y, z, scale=2.0)
    with pytest.raises(_dynamo.exc.Unsupported):
        _dynamo.export(lambda x: (print(), x + 1)[1])(x)


def test_what_is_not_there_says_what_to_use() -> None:
    for call, word in ((lambda: make_fx(f, pre_dispatch=True), "torch.export"),
                       (lambda: aot_function(f, lambda gm, inputs: gm, dynamic=True), "dynamic=True"),
                       (lambda: torch.compiler.skip_all_guards_unsafe([]), "microseconds"),
                       (lambda: torch.compiler.set_stance("default", skip_guard_eval_unsafe=True), "guards")):
        with pytest.raises(NotImplementedError, match=word):
            call()


def test_symbolic_sizes_as_libraries_ask() -> None:
    seen: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        size = next(x for x in inputs if not isinstance(x, torch.Tensor))
        seen.append((symbolic_shapes.is_concrete_int(size), symbolic_shapes.hint_int(size), len(symbolic_shapes.free_symbols(size)),
                     symbolic_shapes.statically_known_true(size >= 2), symbolic_shapes.statically_known_true(size > 5)))
        return gm.forward

    torch.compile(lambda x: x * x.shape[0], backend=backend, dynamic=True)(torch.ones(7))
    assert seen == [(False, 7, 1, True, False)] and symbolic_shapes.is_concrete_int(3) and symbolic_shapes.guard_or_false(True)


def test_functorch_by_its_name() -> None:
    program = ("import flambeau.as_torch, torch, functorch\nfrom functorch.compile import aot_function, make_boxed_func\n"
               "from functorch import make_fx, vmap\nimport torch._inductor.config as c, torch._dynamo.config as d\n"
               "assert c is torch._inductor.config and d is torch._dynamo.config and torch._dynamo.testing.CompileCounter\n"
               "x = torch.ones(3, requires_grad=True)\n"
               "aot_function(lambda x: (x * 2).sum(), lambda g, i: make_boxed_func(g.forward))(x).backward()\n"
               "assert x.grad.tolist() == [2, 2, 2]\n")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_inner_compiler_of_the_programs_own() -> None:
    seen = []

    def inner(gm, example_inputs, **told):
        seen.append(gm)
        return compile_fx_inner(gm, example_inputs, **told)

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, inner_compile=inner)

    x = torch.arange(3.0, requires_grad=True)
    torch.compile(lambda x: (x * x).sin().sum(), backend=backend)(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() * (x.detach() ** 2).cos())
    assert len(seen) == 2       # forward and backward
    with pytest.raises(TypeError, match="unexpected keyword argument 'typo'"):
        compile_fx_inner(None, [], typo=True)


ONES = torch.ones(3)
LIBRARY: dict[str, tuple[Any, tuple]] = {
    "operator": (torch.sin, (ONES,)), "layer": (nn.functional.gelu, (ONES,)), "method": (torch.Tensor.exp, (ONES,)),
    "bound": (ONES.add, (2,)),
    "overload": (torch.ops.aten.mul.Tensor, (ONES, ONES)), "written in C": (operator.add, (ONES, ONES)),
    "partial": (functools.partial(torch.add, alpha=2), (ONES, ONES)), "norm": (torch.linalg.norm, (ONES,)),
    "attention": (nn.functional.scaled_dot_product_attention, (torch.ones(1, 2, 3),) * 3),
    "loss": (nn.functional.cross_entropy, (torch.ones(2, 3), torch.tensor([0, 1]))), "einsum": (torch.einsum, ("i,i->i", ONES, ONES)),
    "distribution": (torch.distributions.Normal(0.0, 1.0).log_prob, (ONES,)), "transform": (torch.vmap(torch.sin), (ONES,)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_functions_of_the_library_are_compiled_themselves(name: str) -> None:
    function, args = LIBRARY[name]
    counter = CompileCounter()
    for _ in range(2):
        compiled = torch.compile(function, backend=counter, fullgraph=True)
        torch.testing.assert_close(compiled(*args), function(*args))
    assert counter.frame_count == (2 if name in ("bound", "partial", "distribution") else 1)
    assert compiled.__name__ == getattr(function, "__name__", compiled.__name__)
