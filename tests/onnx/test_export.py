"""torch.onnx.export: names, sizes that vary, files, weights, custom translations, control flow, and errors."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.export import Dim
from flambeau.onnx.errors import OnnxExporterError, OnnxExporterWarning, UnsupportedOperatorError

onnx = pytest.importorskip("onnx", reason="flambeau[onnx] is not installed")
ort = pytest.importorskip("onnxruntime", reason="flambeau[onnx] is not installed")


class Net(nn.Module):
    """A small network with a buffer that it writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.bn = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.register_buffer("count", fl.zeros(()))

    def forward(self, x: Any, scale: int = 2) -> Any:
        self.count.add_(1)
        h = self.bn(self.lin(x)).relu()
        return {"wide": h.view(x.shape[0] * 2, -1), "sum": h.sum() * scale}


def small() -> nn.Module:
    return Net().eval()


def names_of(values: Any) -> list[str]:
    return [v.name for v in values]


def run(path: Path, *feeds: Any) -> list[Any]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names_of(session.get_inputs()), (np.asarray(f.numpy()) for f in feeds))))


def module(f: Any) -> nn.Module:
    class Program(nn.Module):
        def forward(self, *args: Any) -> Any:
            return f(*args)

    return Program().eval()


def check(f: Any, *args: Any, **how: Any) -> Any:
    """The exported program, which gives what the function does."""
    mod = f if isinstance(f, nn.Module) else module(f)
    program = fl.onnx.export(mod, args, **how)
    onnx.checker.check_model(program.model_proto, full_check=True)
    for got, want in zip(program(*args), fl.utils._pytree.tree_leaves(mod(*args)), strict=True):
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    return program


# -- what the model's inputs and outputs are ---------------------------------------------------------------------------------------
def test_names_and_sizes() -> None:
    net, x = small(), fl.randn(3, 4)
    program = fl.onnx.export(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    graph = program.model_proto.graph
    assert names_of(graph.input) == ["x"] and "lin.weight" in names_of(graph.initializer)
    assert [d.dim_param or d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == ["batch", 4]
    assert [d.dim_param or d.dim_value for d in graph.output[0].type.tensor_type.shape.dim] == ["2*batch", 4]
    for n in (3, 5):
        x = fl.randn(n, 4)
        for got, want in zip(program(x), net(x).values(), strict=True):
            assert fl.allclose(got, want, atol=1e-5)
    renamed = fl.onnx.export(net, (x,), input_names=["image"], output_names=["a", "b"], dynamic_shapes={"x": {0: "n"}})
    graph = renamed.model_proto.graph
    assert names_of(graph.input) == ["image"] and names_of(graph.output) == ["a", "b"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    renamed.rename_axes({"n": "rows"})
    assert renamed.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"


def test_axes_by_name(tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", fl.randn(3, 4)
    for axes in ({"image": {0: "batch"}, "out": {0: "batch"}}, {"image": [0]}):
        answer = fl.onnx.export(small(), (x,), path, input_names=["image"], output_names=["out", "sum"], dynamic_axes=axes, dynamo=False,
                                opset_version=17, do_constant_folding=True, verbose=False)
        assert answer is None
        model = onnx.load(str(path))
        assert model.opset_import[0].version == 17
        first = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
        assert first == ("batch" if isinstance(axes["image"], dict) else "s0")
        assert run(path, fl.randn(7, 4))[0].shape == (14, 4)


def test_inputs_of_other_kinds() -> None:
    def f(x: Any, pair: Any, table: Any, n: int, flag: bool) -> Any:
        return (x + pair[0] * n, table["k"].sum() if flag else x, None, 3)

    args = (fl.ones(2), [fl.ones(2), None], {"k": fl.arange(3)}, 4, True)
    program = fl.onnx.export(module(f), args)
    assert len(program.model_proto.graph.input) == 3
    assert [v.tolist() for v in program(*args)] == [[5.0, 5.0], 3, 3]
    varying = fl.onnx.export(module(lambda x, n: (x * n, n + 1)), (fl.ones(2), 3), dynamic_shapes=((None, Dim.DYNAMIC),))
    assert [v.tolist() for v in varying(fl.ones(2), 7)] == [[7.0, 7.0], 8]
    same = check(lambda x: (x, x, x + 1), fl.ones(2))
    assert len(set(names_of(same.model_proto.graph.output))) == 3
    last = fl.onnx.export(small(), (fl.ones(2, 4), {"scale": 5}))     # a dict at the end is kwargs
    assert len(last.model_proto.graph.input) == 1


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"])
def test_dtypes(kind: str) -> None:
    kind = getattr(fl, kind)
    program = fl.onnx.export(module(lambda x: (x.to(fl.float32) + 1, x.reshape(2, 2), x != 0)), (fl.ones(4).to(kind),))
    onnx.checker.check_model(program.model_proto, full_check=True)
    if kind is not fl.bfloat16:
        assert program(fl.ones(4).to(kind))[1].dtype is kind
    a, _, c = program.call_reference(fl.ones(4).to(kind)) if kind is not fl.bfloat16 else (fl.full((4,), 2.0), 0, fl.ones(4))
    assert a.tolist() == [2.0] * 4 and bool(c.all())


# -- files -------------------------------------------------------------------------------------------------------------------------
def test_files(tmp_path: Path) -> None:
    net, x = nn.Linear(64, 64).eval(), fl.randn(3, 64)
    program = fl.onnx.export(net, (x,), tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx.data").stat().st_size >= 64 * 64 * 4
    fl.onnx.export(net, (x,), str(tmp_path / "b.onnx"), external_data=False)
    assert not (tmp_path / "b.onnx.data").exists()
    program.save(tmp_path / "c.onnx", keep_initializers_as_inputs=True)
    assert names_of(onnx.load(str(tmp_path / "c.onnx")).graph.input) == ["input", "weight", "bias"]
    program.save(tmp_path / "d.onnx", include_initializers=False)
    bare = onnx.load(str(tmp_path / "d.onnx")).graph
    assert names_of(bare.initializer) == [] and names_of(bare.input) == ["input", "weight", "bias"]
    buffer = io.BytesIO()
    fl.onnx.export(net, (x,), buffer, dynamo=False)
    (tmp_path / "e.onnx").write_bytes(buffer.getvalue())
    for name in "abe":
        onnx.checker.check_model(str(tmp_path / f"{name}.onnx"), full_check=True)
        np.testing.assert_allclose(run(tmp_path / f"{name}.onnx", x)[0], net(x).detach().numpy(), atol=1e-5)


def test_weights_past_what_one_message_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["flambeau.onnx.program"], "MOST", 10_000)     # as though that were two gigabytes
    net, x = nn.Linear(64, 64).eval(), fl.randn(3, 64)
    program = fl.onnx.export(net, (x,))
    with pytest.raises(OnnxExporterError, match="beside the model"):
        assert program.model_proto
    with pytest.raises(OnnxExporterError, match="external_data=True"):
        program.save(tmp_path / "a.onnx", external_data=False)
    program.save(tmp_path / "c.onnx", include_initializers=False)
    assert (tmp_path / "c.onnx").stat().st_size < 1000
    program.save(tmp_path / "b.onnx")
    onnx.checker.check_model(str(tmp_path / "b.onnx"), full_check=True)
    assert (tmp_path / "b.onnx").stat().st_size < 1000 and (tmp_path / "b.onnx.data").stat().st_size == 64 * 64 * 4
    for options in ({"opset_version": 16}, {"dynamo": False}, {"keep_initializers_as_inputs": True}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxExporterWarning)    # what converts models takes one message
            fl.onnx.export(net, (x,), tmp_path / "d.onnx", **options)
        onnx.checker.check_model(str(tmp_path / "d.onnx"), full_check=True)
        np.testing.assert_allclose(run(tmp_path / "d.onnx", x)[0], net(x).detach().numpy(), atol=1e-5)
    with pytest.raises(OnnxExporterError, match="beside the model"):
        fl.onnx.export(net, (x,), io.BytesIO(), dynamo=False)
    np.testing.assert_allclose(run(tmp_path / "b.onnx", x)[0], net(x).detach().numpy(), atol=1e-5)
    assert fl.allclose(program(x)[0], net(x), atol=1e-5)


def test_other_weights() -> None:
    net, x = nn.Linear(4, 4).eval(), fl.randn(3, 4)
    program = fl.onnx.export(net, (x,))
    before = program(x)[0]
    other = nn.Linear(4, 4)
    program.apply_weights(other.state_dict())
    assert fl.allclose(program(x)[0], other(x), atol=1e-5) and not fl.allclose(program(x)[0], before)
    with pytest.raises(ValueError, match="'weight' is"):
        program.apply_weights({"weight": fl.ones(2)})


def test_reports(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    fl.onnx.export(nn.ReLU().eval(), (fl.ones(2),), report=True, dump_exported_program=True, artifacts_dir=tmp_path, verbose=True,
                   verify=True)
    assert "| Relu | 1 |" in (tmp_path / "onnx_export_report.md").read_text()
    assert "aten.relu" in (tmp_path / "onnx_exported_program.txt").read_text()
    assert "1 nodes" in capsys.readouterr().out


# -- programs ----------------------------------------------------------------------------------------------------------------------
def test_control_flow() -> None:
    def branch(x: Any) -> Any:
        return fl.cond(x.sum() > 0, lambda x: (x * 2, x + 1), lambda x: (x - 1, x.relu()), (x,))

    for sign in (1, -1):
        check(branch, sign * fl.ones(3))

    def loop(x: Any) -> Any:
        return fl.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (fl.tensor(0), x))

    check(loop, fl.ones(3))

    def rows(x: Any) -> Any:
        from flambeau._higher_order_ops import scan
        return scan(lambda total, row: (total + row, total * row), fl.zeros(3), x)

    check(rows, fl.randn(4, 3))


def test_training() -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), fl.randn(8, 4)
    with pytest.warns(UserWarning, match="training mode"):
        program = fl.onnx.export(net, (x,))
    assert "Dropout" in [n.op_type for n in program.model_proto.graph.node]
    assert net.training
    buffer = io.BytesIO()
    fl.onnx.export(net, (x,), buffer, dynamo=False)     # EVAL is what it is without a word
    assert "Dropout" not in [n.op_type for n in onnx.load_from_string(buffer.getvalue()).graph.node]
    assert net.training
    fl.onnx.export(net, (x,), buffer := io.BytesIO(), dynamo=False, training=fl.onnx.TrainingMode.TRAINING)
    assert "Dropout" in [n.op_type for n in onnx.load_from_string(buffer.getvalue()).graph.node]


def test_random_numbers() -> None:
    program = fl.onnx.export(module(lambda x: (fl.rand(2, 1000), fl.randn_like(x), fl.randperm(7), fl.bernoulli(x * 0 + 0.5))),
                             (fl.zeros(1000),))
    uniform, normal, order, coins = program(fl.zeros(1000))
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.1
    assert abs(normal.std() - 1) < 0.2 and sorted(order.tolist()) == list(range(7)) and 0.3 < coins.mean() < 0.7


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("how", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True}, {"bias": False}], ids=str)
def test_recurrent(kind: str, how: dict[str, Any]) -> None:
    net, x = getattr(nn, kind)(4, 5, **how).eval(), fl.randn(3, 2, 4)
    program = fl.onnx.export(net, (x,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for given in (x, fl.randn(5, 6, 4)):
        for got, want in zip(program(given), fl.utils._pytree.tree_leaves(net(given)), strict=True):
            np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_equal_steps_are_written_once() -> None:
    def f(x: Any) -> Any:
        return (x.exp() + 1) * (x.exp() + 2)

    program, plain = (fl.onnx.export(module(f), (fl.ones(2),), optimize=o) for o in (True, False))
    ops = [n.op_type for n in program.model_proto.graph.node]
    assert ops.count("Exp") == 1 and [n.op_type for n in plain.model_proto.graph.node].count("Exp") == 2


def test_while_exporting() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(fl.onnx.is_in_onnx_export())
        return x + 1

    assert not fl.onnx.is_in_onnx_export()
    fl.onnx.export(module(f), (fl.ones(1),))
    assert seen[0] and not fl.onnx.is_in_onnx_export()
    with pytest.raises(OnnxExporterError):
        fl.onnx.export(module(lambda x: 1 / 0), (fl.ones(1),))
    assert not fl.onnx.is_in_onnx_export()


def test_translations_of_ones_own() -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from onnxscript import opset18 as op

    def twice(x: Any) -> Any:
        return op.Mul(x, op.Constant(value_float=2.0)) + 0.0

    program = fl.onnx.export(module(lambda x: x.lgamma()), (fl.ones(3),), opset_version=18,
                             custom_translation_table={fl.ops.aten.lgamma.default: twice})
    assert program(fl.ones(3))[0].tolist() == [2.0] * 3

    @fl.library.custom_op("onnx_tests::thrice", mutates_args=())
    def thrice(x: fl.Tensor) -> fl.Tensor:
        return x * 3

    thrice.register_fake(lambda x: fl.empty_like(x))
    with pytest.raises(UnsupportedOperatorError, match="thrice"):
        fl.onnx.export(module(lambda x: thrice(x)), (fl.ones(3),))
    program = fl.onnx.export(module(lambda x: thrice(x) + 1), (fl.ones(3),),
                             custom_translation_table={fl.ops.onnx_tests.thrice.default: lambda x: op.Mul(x, op.Constant(value_float=3.0))})
    assert program(fl.ones(3))[0].tolist() == [4.0] * 3


# -- errors ------------------------------------------------------------------------------------------------------------------------
def test_all_that_is_missing_is_told_at_once() -> None:
    def f(x: Any) -> Any:
        a = fl.linalg.svdvals(x)
        b = x.lgamma()
        return a, b, fl.linalg.eigvals(x)

    with pytest.raises(UnsupportedOperatorError) as caught:
        fl.onnx.export(module(f), (fl.eye(3),))
    text = str(caught.value)
    assert "a = fl.linalg.svdvals(x)" in text and "b = x.lgamma()" in text and "eigvals" in text and __file__ in text
    assert "custom_translation_table" in text and "opset 20" in text


@pytest.mark.parametrize(("call", "error", "match"), [
    (lambda: fl.onnx.export(3, ()), OnnxExporterError, "got int"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), opset_version=99), ValueError, "99"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), opset_version="x"), ValueError, "'x'"),
    (lambda: fl.onnx.export(nn.Linear(3, 3).eval(), (fl.ones(2, 5),)), OnnxExporterError, r"\[2, 5\]"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), ()), OnnxExporterError, "input"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), input_names=["a", "b"]), ValueError, "1 more names"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), output_names=["a", "b"]), ValueError, "1 outputs"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), "/nowhere/at/all.onnx"), OSError, "nowhere"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), profile=True), NotImplementedError, "profile"),
    (lambda: fl.onnx.export(nn.ReLU().eval(), (fl.ones(1),), custom_translation_table={1: 2}), TypeError, "int"),
    (lambda: fl.onnx.export(module(lambda x: x if x.sum() > 0 else -x), (fl.ones(1),)), OnnxExporterError, "torch.cond"),
])
def test_bad_calls(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_an_opset_that_cannot_be() -> None:
    with pytest.warns(OnnxExporterWarning, match="could not be converted to opset 7"):
        program = fl.onnx.export(module(lambda x: fl.nn.functional.layer_norm(x, [4])), (fl.ones(2, 4),), opset_version=7)
    assert program.model_proto.opset_import[0].version == 18


def test_importing_needs_no_other_package() -> None:
    code = "import sys, flambeau.onnx; assert not {'onnx', 'onnxruntime', 'onnxscript'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_that_keep_what_they_compute() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.grid = fl.zeros(0)

        def forward(self, x: Any) -> Any:
            self.grid = fl.arange(x.shape[0]) * 1.0
            return x + self.grid

    net = Keeps().eval()
    with pytest.raises(OnnxExporterError, match=r"self\.grid was assigned"):
        fl.onnx.export(net, (fl.ones(3),))
    fl.onnx.export(net, (fl.ones(3),), buffer := io.BytesIO(), dynamo=False)      # as a trace would
    assert ort.InferenceSession(buffer.getvalue()).run(None, {"x": np.ones(3, np.float32)})[0].tolist() == [1, 2, 3]
    assert net.grid.shape == (0,)


def test_symbolic_functions() -> None:
    @fl.library.custom_op("onnx_tests::scaled", mutates_args=())
    def scaled(x: fl.Tensor, by: float) -> fl.Tensor:
        return x * by

    scaled.register_fake(lambda x, by: fl.empty_like(x))
    fl.onnx.register_custom_op_symbolic("onnx_tests::scaled", lambda g, x, by: g.op("mine::Scaled", x, by_f=by), 9)
    fl.onnx.register_custom_op_symbolic("onnx_tests::scaled", lambda g, x, by: g.op(
        "Mul", x, g.op("Constant", value_t=fl.tensor(by))), 17)
    try:
        fl.onnx.export(module(lambda x: scaled(x, 3.0)), (fl.ones(2),), buffer := io.BytesIO(), dynamo=False)
        assert ort.InferenceSession(buffer.getvalue()).run(None, {onnx.load_from_string(buffer.getvalue()).graph.input[0].name: np.ones(
            2, np.float32)})[0].tolist() == [3, 3]
        fl.onnx.unregister_custom_op_symbolic("onnx_tests::scaled", 17)
        fl.onnx.export(module(lambda x: scaled(x, 3.0)), (fl.ones(2),), buffer := io.BytesIO(), dynamo=False, custom_opsets={"mine": 2})
        model = onnx.load_from_string(buffer.getvalue())
        assert [(n.domain, n.op_type) for n in model.graph.node] == [("mine", "Scaled")]
        assert {o.domain: o.version for o in model.opset_import} == {"": 20, "mine": 2}
    finally:
        fl.onnx.unregister_custom_op_symbolic("onnx_tests::scaled", 9)
    with pytest.raises(UnsupportedOperatorError, match="scaled"):
        fl.onnx.export(module(lambda x: scaled(x, 3.0)), (fl.ones(2),), io.BytesIO(), dynamo=False)


# -- operators of libraries that mean one of ours ------------------------------------------------------------------------------------
def _grouped_in_python(input: fl.Tensor, weight: fl.Tensor, offs: fl.Tensor) -> fl.Tensor:
    out, start = fl.zeros(input.shape[0], weight.shape[2]), 0
    for group, end in enumerate(offs.tolist()):
        out[start:end] = input[start:end] @ weight[group]
        start = end
    return out


@pytest.fixture
def grouped() -> Any:
    """The operator that transformers defines in Python for products of groups."""
    namespace = getattr(fl.ops, "transformers")     # noqa: B009
    if not hasattr(namespace, "grouped_mm_fallback"):
        fl.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())(_grouped_in_python).register_fake(
            lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))
    return namespace.grouped_mm_fallback


@pytest.mark.parametrize("ends", [[3, 3, 9, 12], [0, 0, 0, 0], [12, 12, 12, 12], [0, 1, 5, 7]])
def test_products_of_groups(grouped: Any, ends: list[int], tmp_path: Any) -> None:
    fl.manual_seed(0)
    net, w, offs = module(lambda x, w, offs: grouped(x, w, offs) * 2), fl.randn(4, 6, 5), fl.tensor(ends, dtype=fl.int32)
    given, shapes = (fl.randn(12, 6), w, offs), ([{0: fl.export.Dim.AUTO}, None, None],)
    program = fl.onnx.export(net, given, dynamic_shapes=shapes)
    package = fl._inductor.aoti_compile_and_package(fl.export.export(net, given, dynamic_shapes=shapes), package_path=tmp_path / "p.pt2")
    loaded = fl._inductor.aoti_load_package(package)
    for x in (given[0], fl.randn(15, 6)):
        want = net(x, w, offs)
        assert fl.allclose(program(x, w, offs)[0], want, atol=1e-5)
        assert fl.allclose(loaded(x, w, offs), want, atol=1e-5)


def test_what_later_opsets_alone_have_is_written_in_parts_before():
    x = fl.linspace(-3, 3, 12).view(3, 4)
    for net, inputs in [(nn.GELU(), (x,)), (nn.GELU(approximate="tanh"), (x,)), (nn.RMSNorm(4), (x,))]:
        model = fl.onnx.export(net.eval(), inputs, opset_version=18)
        assert model.model_proto.opset_import[0].version == 18
        np.testing.assert_allclose(model(*inputs)[0].detach().numpy(), net(*inputs).detach().numpy(), atol=1e-5, rtol=1e-4)


def test_as_many_as_a_mask_picks_filled_up():
    def f(x):
        kept = (x[:, 0] > 0).nonzero()[:, 0].flip(0)[:3]
        both = fl.cat([x[kept], kept.view(-1, 1)], 1)
        return fl.nn.functional.pad(both, (0, 0, 0, 3 - both.shape[0])).reshape(3, 3)

    x = fl.arange(10.0).reshape(5, 2)
    net = module(f)
    model = fl.onnx.export(net, (x,))
    for given in (x, x - 7, -x):
        assert fl.equal(model(given)[0], net(given))
