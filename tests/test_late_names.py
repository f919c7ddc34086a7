"""Names of torch.compile, torch.compiler, torch.library, torch.export, torch.jit, torch.onnx and torch.utils.cpp_extension."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.dynamo.exceptions import RecompileLimitExceeded
from flambeau.utils import cpp_extension

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])


# -- compile ------------------------------------------------------------------------------------------------------------------
def test_a_limit_of_its_own() -> None:
    def fn(x: Any) -> Any:
        return x + 1

    fl._dynamo.reset()
    compiled = fl.compile(fn, backend="eager", dynamic=False, fullgraph=True, recompile_limit=1)
    compiled(fl.ones(2))
    with pytest.raises(RecompileLimitExceeded, match=r"recompile_limit \(1\)"):
        compiled(fl.ones(3))
    lenient = fl.compile(fn, backend="eager", dynamic=False, recompile_limit=1)
    lenient(fl.ones(4))
    with pytest.warns(UserWarning, match="recompile_limit"):
        assert lenient(fl.ones(5)).tolist() == [2] * 5
    with pytest.raises(ValueError, match="positive"):
        fl.compile(fn, recompile_limit=0)
    with pytest.raises(NotImplementedError, match="mark_dynamic"):
        fl.compile(fn, shapes_spec={})


def test_versions_that_do_not_count() -> None:
    def fn(x: Any) -> Any:
        return x + 1

    fl._dynamo.reset()
    for size in (2, 3):
        assert fl.compile(fn, backend="eager", dynamic=False, fullgraph=True, recompile_limit=1,
                          isolate_recompiles=True)(fl.ones(size)).tolist() == [2] * size


def test_a_compilation_by_name() -> None:
    fl._dynamo.reset()
    compiled = fl.compile(lambda x: x + 1, backend="eager", name="my region")
    with fl.profiler.profile() as taken:
        compiled(fl.ones(2))
    assert any(e.name == "torch.compile my region" for e in taken.events())


def test_functions_of_arrays_as_graphs() -> None:
    @fl.compile(fullgraph=True)
    @fl.compiler.wrap_numpy
    def fn(a: Any) -> Any:
        return np.sum(a * a)

    x = fl.arange(6.0).requires_grad_()
    fn(x).backward()
    assert x.grad.tolist() == [0, 2, 4, 6, 8, 10]
    assert fl.compiler.wrap_numpy(lambda a: (a + 1, a.sum()))(fl.arange(3.0))[0].tolist() == [1, 2, 3]


def test_guards_are_never_left_out() -> None:
    for name in ("keep_portable_guards_unsafe", "keep_tensor_guards_unsafe"):
        with pytest.raises(NotImplementedError, match="never left out"):
            getattr(fl.compiler, name)([])
    with pytest.raises(NotImplementedError, match="save_cache_artifacts"):
        fl.compiler.load_compiled_function(None)


# -- library ------------------------------------------------------------------------------------------------------------------
def test_sizes_that_values_tell() -> None:
    @fl.library.custom_op("names::places", mutates_args=())
    def places(x: fl.Tensor) -> fl.Tensor:
        return fl.nonzero(x)

    @places.register_fake
    def _(x: Any) -> Any:
        return x.new_empty((fl.library.get_ctx().new_dynamic_size(), x.ndim), dtype=fl.int64)

    with pytest.raises(RuntimeError, match="get_ctx"):
        fl.library.get_ctx()
    compiled = fl.compile(lambda x: places(x) * 2, backend="eager")
    assert [compiled(fl.tensor(v)).tolist() for v in ([1, 0, 2], [1, 1, 2])] == [[[0], [4]], [[0], [2], [4]]]
    kernel = fl.library.get_kernel(places, "CompositeExplicitAutograd")
    assert kernel(fl.tensor([0, 1])).tolist() == kernel.call_boxed(None, fl.tensor([0, 1])).tolist() == [[1]]
    with pytest.raises(RuntimeError, match="no kernel"):
        fl.library.get_kernel(places, "CUDA")


@LIBRARIES
def test_keys_that_fall_through(t: Any) -> None:
    with pytest.raises(NotImplementedError, match="never be called"):
        t.library.fallthrough_kernel()
    lib = t.library.Library(f"falls_{t.__name__}", "DEF")
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: x * 2, "CPU")
    lib.impl("twice", t.library.fallthrough_kernel, "AutogradCPU")
    assert getattr(t.ops, f"falls_{t.__name__}").twice(t.ones(1)).item() == 2
    with pytest.warns(FutureWarning, match="register_fake"):
        t.library.impl_abstract(f"falls_{t.__name__}::twice", func=lambda x: t.empty_like(x))


# -- export -------------------------------------------------------------------------------------------------------------------
class Model(fl.nn.Module):
    def forward(self, x: Any, y: int) -> Any:
        return (x * 2).sum() + y


def test_sizes_from_further_inputs() -> None:
    more = fl.export.AdditionalInputs()
    more.add((fl.ones(3, 2), 1))
    shapes = more.dynamic_shapes(Model(), (fl.ones(4, 2), 1))
    assert set(shapes["x"]) == {0} and shapes["y"] is None
    program = fl.export.export(Model(), (fl.ones(4, 2), 1), dynamic_shapes=more)
    assert program.module()(fl.ones(7, 2), 1).item() == 29
    more.verify(program)
    more.add((fl.ones(3, 2, 1), 1))
    with pytest.raises(ValueError, match="number of dimensions"):
        more.dynamic_shapes(Model(), (fl.ones(4, 2), 1))


def test_tables_and_signatures() -> None:
    table = fl.export.default_decompositions()
    assert isinstance(table, fl.export.CustomDecompTable) and dict(table) == table.materialize() == table.copy()
    table.popitem()
    assert len(table) == len(fl.export.default_decompositions()) - 1
    found = fl.export.ExportBackwardSignature({"g": "w"}, {}, "loss")
    assert found.loss_output == "loss"
    with pytest.raises(TypeError, match="abstract"):
        fl.export.FlatArgsAdapter()  # type: ignore[abstract]


# -- jit, onnx ------------------------------------------------------------------------------------------------------------------
def test_switches_of_fusion() -> None:
    assert not fl.jit.onednn_fusion_enabled()
    with fl.jit.strict_fusion():
        pass


def test_names_of_onnx() -> None:
    onnx = importlib.import_module("flambeau.onnx")
    assert issubclass(onnx.errors.UnsupportedOperatorError, onnx.OnnxExporterError)
    assert "opset version 9" in str(onnx.errors.UnsupportedOperatorError("x", 9, 11))
    with pytest.raises(TypeError, match="abstract"):
        onnx.ExportableModule()
    with pytest.raises(NotImplementedError, match="torch"):
        onnx.ops.attention()


# -- compilers --------------------------------------------------------------------------------------------------------------------
def test_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++-of-mine")
    assert cpp_extension.get_cxx_compiler() == "g++-of-mine"
    assert not cpp_extension.check_compiler_is_gcc("no-such-compiler")
    with pytest.warns(UserWarning, match="no-such-compiler"):
        assert cpp_extension.get_compiler_abi_compatibility_and_version("no-such-compiler") == (False, "0.0.0")
    assert cpp_extension.get_default_build_root().endswith("torch_extensions")
    if not cpp_extension.is_ninja_available():
        with pytest.raises(RuntimeError, match="Ninja"):
            cpp_extension.verify_ninja_availability()


def test_compilers_as_they_say(tmp_path: Any) -> None:
    if not cpp_extension.check_compiler_ok_for_platform("g++"):
        pytest.skip("no g++ here")
    fits, version = cpp_extension.get_compiler_abi_compatibility_and_version("g++")
    assert fits is cpp_extension.check_compiler_abi_compatibility("g++") and version > "4.0"


# -- attention, graphs, sparse gradients -----------------------------------------------------------------------------------------
@LIBRARIES
def test_implementations_of_attention(t: Any) -> None:
    attention, steps = importlib.import_module(f"{t.__name__}.nn.attention"), []

    class Handle:
        def remove(self) -> None:
            steps.append("removed")

    attention.register_flash_attention_impl(f"mine of {t.__name__}", register_fn=lambda: steps.append("put") or Handle())
    assert f"mine of {t.__name__}" in attention.list_flash_attention_impls() and attention.current_flash_attention_impl() is None
    attention.activate_flash_attention_impl(f"mine of {t.__name__}")
    assert attention.current_flash_attention_impl() == f"mine of {t.__name__}"
    attention.restore_flash_attention_impl()
    assert steps == ["put", "removed"] and attention.current_flash_attention_impl() is None
    with pytest.raises(ValueError, match="nope"):
        attention.activate_flash_attention_impl("nope")


@LIBRARIES
def test_options_and_extras(t: Any) -> None:
    options = importlib.import_module(f"{t.__name__}.nn.attention.flex_attention").FlexKernelOptions(num_warps=4)
    assert options == {"num_warps": 4}
    graph = t.fx.Graph(tracer_extras={"a": 1})
    node = t.fx.Node(graph, "x", "placeholder", "x", (), {}, return_type=int)
    assert node.type is int


@pytest.mark.filterwarnings("ignore")
@LIBRARIES
@pytest.mark.parametrize("masked", [True, False])
def test_gradients_of_sparse_tensors(t: Any, masked: bool) -> None:
    check = t.sparse.as_sparse_gradcheck(t.autograd.gradcheck)
    x = t.tensor([[0, 1.0], [2.0, 3.0]], dtype=t.float64).to_sparse_coo().requires_grad_()
    y = t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64, requires_grad=True)
    assert check(lambda x, y: t.sparse.mm(x, y), (x, y), masked=masked)
    assert check(lambda x: x * 2, (x,), masked=masked)


def test_a_smaller_group() -> None:
    dist = fl.distributed
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        small = dist.shrink_group([1])
        assert dist.get_process_group_ranks(small) == [0, 2, 3]
        assert dist.get_process_group_ranks(dist.shrink_group([1], small)) == [0, 3]
        for wrong, error in (([], ValueError), ([7], ValueError), ([0], RuntimeError)):
            with pytest.raises(error):
                dist.shrink_group(wrong)
    finally:
        dist.destroy_process_group()


@LIBRARIES
def test_signatures_as_objects(t: Any) -> None:
    text = "ns::f.over(Tensor(a!) self, int[] b=[1, 2], *, float? c=None) -> (Tensor(a!), int)"
    found = t.parse_schema(text)
    assert (found.name, found.overload_name, str(found), found.is_mutable) == ("ns::f", "over", text, True)
    assert [(a.name, str(a.type), a.default_value, a.has_default_value(), a.kwarg_only) for a in found.arguments] == [
        ("self", "Tensor", None, False, False), ("b", "List[int]", [1, 2], True, False), ("c", "Optional[float]", None, True, True)]
    assert [str(r.type) for r in found.returns] == ["Tensor", "int"] and found.arguments[0].alias_info.is_write
    shown = t.ops.aten.conv1d.padding._schema
    assert (shown.name, shown.overload_name, [str(a.type) for a in shown.arguments], [a.N for a in shown.arguments][2:]) == (
        "aten::conv1d", "padding", ["Tensor", "Tensor", "Optional[Tensor]", "List[int]", "str", "List[int]", "int"],
        [None, 1, None, 1, None])
    assert [a.default_value for a in shown.arguments] == [None, None, None, [1], "valid", [1], 1] and not shown.is_mutable
    nested = t.parse_schema("f(Dict(str, Tensor[]) x, (int, str)[] y, Future(t)? z) -> ((int, str) a, Dict(int, bool)? b)")
    assert [str(a.type) for a in (*nested.arguments, *nested.returns)] == [
        "Dict[str, List[Tensor]]", "List[Tuple[int, str]]", "Optional[Future[t]]", "Tuple[int, str]", "Optional[Dict[int, bool]]"]
    written = t.parse_schema("f(Tensor! x, Tensor y) -> Tensor!").arguments
    assert [a.alias_info is not None and a.alias_info.is_write for a in written] == [True, False]
    newer = t.parse_schema("f(Tensor x, int n=1) -> Tensor")
    assert newer.is_backward_compatible_with(t.parse_schema("f(Tensor x) -> Tensor"))
    assert not newer.is_backward_compatible_with(t.parse_schema("f(int x) -> Tensor"))
    with pytest.raises(RuntimeError):
        t.parse_schema("foo(")


def test_drafts_of_programs() -> None:
    class Fixed(fl.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(3, 4) * 2

    with pytest.warns(UserWarning, match="vary less"):
        draft = fl.export.draft_export(Fixed(), (fl.ones(4, 3),), dynamic_shapes={"x": {0: fl.export.Dim.DYNAMIC}})
    assert not draft._report.successful() and draft.module()(fl.ones(4, 3)).shape == (3, 4)
    right = fl.export.draft_export(Model(), (fl.ones(4, 2), 1))
    assert right._report.successful() and "nothing" in str(right._report)
