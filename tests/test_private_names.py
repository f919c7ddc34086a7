"""Names that PyTorch keeps for itself and libraries use, against torch's answers."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])


@LIBRARIES
def test_shapes_and_indices(t: Any) -> None:
    assert t._shape_as_tensor(t.ones(2, 3)).tolist() == [2, 3]
    rows = t._convert_indices_from_coo_to_csr(t.tensor([0, 0, 2]), 4)
    assert rows.tolist() == [0, 2, 2, 3, 3]
    assert t._convert_indices_from_csr_to_coo(rows, t.tensor([1, 3, 0])).tolist() == [[0, 0, 2], [1, 3, 0]]
    assert t._convert_indices_from_csr_to_coo(rows, t.tensor([1, 3, 0]), out_int32=True, transpose=True).tolist() == [[1, 3, 0], [0, 0, 2]]
    assert t._segment_reduce(t.ones(3), "sum", lengths=t.tensor([1, 2])).tolist() == [1, 2]


def test_products_and_gradients() -> None:
    rng = np.random.default_rng(0)
    a, b, g = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (48, 32), (3, 4)))
    found = []
    for t in (torch, fl):
        x, y = t.tensor(a).to(t.float8_e4m3fn), t.tensor(b).to(t.float8_e4m3fn).t()
        out = t.tensor(g).softmax(1)
        found.append((t._scaled_mm(x, y, t.tensor(2.0), t.tensor(0.5), out_dtype=t.float32).numpy(),
                      t._softmax_backward_data(t.tensor(g), out, 1, t.float32).numpy()))
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@LIBRARIES
def test_optimizers_of_others(t: Any) -> None:
    optimizer = importlib.import_module(f"{t.__name__}.optim.optimizer")
    assert "cuda" in optimizer._get_capturable_supported_devices()
    assert tuple(optimizer._default_to_fused_or_foreach([t.ones(1)], differentiable=False)) == (False, False)

    class Mine(t.optim.Optimizer):  # type: ignore[name-defined, misc]
        @optimizer._use_grad_for_differentiable
        def step(self) -> bool:
            return t.is_grad_enabled()

    made = [Mine([t.ones(1, requires_grad=True)], {"differentiable": flag}).step() for flag in (False, True)]
    assert made == [False, True]
    groups = t.optim.Optimizer._group_tensors_by_device_and_dtype([[t.ones(1), t.ones(1, dtype=t.float64)], [t.ones(2), t.ones(3)]])
    assert sorted(str(kind) for _, kind in groups) == ["torch.float32", "torch.float64"]


@LIBRARIES
def test_whether_a_profile_is_taken(t: Any) -> None:
    assert not t.autograd._profiler_enabled()
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU]):
        assert t.autograd._profiler_enabled()


@LIBRARIES
def test_small_answers(t: Any) -> None:
    def of(module: str) -> Any:
        return importlib.import_module(f"{t.__name__}.{module}")

    assert of("_utils")._element_size(t.float64) == 8
    assert of("mtia").is_available() is False
    assert of("_prims_common").is_contiguous_or_false(t.ones(2, 2)) and not of("_prims_common").is_contiguous_or_false(t.ones(2, 3).T)
    assert of("profiler.profiler")._default_schedule_fn(3) is t.profiler.ProfilerAction.RECORD
    assert t.Tensor.grad.__get__ in of("overrides").get_default_nowrap_functions()
    assert not of("distributed.fsdp.wrap")._or_policy(t.nn.Linear(1, 1), False, 1, [lambda **_: False])
    assert of("export.decomp_utils").CustomDecompTable is t.export.CustomDecompTable
    x = t.zeros(3)
    assert of("nn.init")._no_grad_uniform_(x, 1.0, 2.0) is x and (x >= 1).all()
    assert of("distributed._composable_state")._get_module_state(t.nn.Flatten()) is None
    assert not isinstance(1, of("distributed.fsdp._common_utils")._FSDPState)
    assert t.nn.Flatten()._slow_forward(t.ones(2, 2, 2)).shape == (2, 4)


@LIBRARIES
def test_calls_that_wait_for_cuda(t: Any) -> None:
    called: list[int] = []
    t.cuda._lazy_call(lambda: called.append(1))
    if not t.cuda.is_available():
        assert called == []
        with pytest.raises(AssertionError, match="not compiled with CUDA"):
            t.cuda._lazy_init()


@LIBRARIES
def test_steps_patched_by_classes_around_optimizers(t: Any) -> None:
    class Around(t.optim.Optimizer):  # type: ignore[name-defined, misc]
        def __init__(self, inner: Any) -> None:
            self._optimizer_step_pre_hooks: OrderedDict = OrderedDict()
            self._optimizer_step_post_hooks: OrderedDict = OrderedDict()
            self.inner, self.param_groups = inner, inner.param_groups
            self._patch_step_function()

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    weight = t.nn.Parameter(t.ones(2))
    optimizer, seen = Around(t.optim.SGD([weight], 0.5)), []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    weight.grad = t.ones(2)
    optimizer.step()
    assert weight.tolist() == [0.5, 0.5] and seen == [1]


@pytest.mark.parametrize("name", ["cuda._lazy_init", "distributed.autograd.DistAutogradContext",
                                  "distributed.distributed_c10d._get_global_rank",
                                  "distributed._tensor.device_mesh.DeviceMesh", "functional.F", "nn.modules.module._addindent",
                                  "distributions.one_hot_categorical.OneHotCategoricalStraightThrough", "nn.quantized.BatchNorm2d",
                                  "quantization.observer.HistogramObserver", "quantization.qconfig.QConfig",
                                  "quantization.fake_quantize.FakeQuantize", "nn.modules.conv._pair", "nn.modules.conv._size_3_t",
                                  "nn.modules.dropout.Module", "nn.modules.pooling._triple", "nn.modules.pooling._size_2_opt_t",
                                  "nn.modules.padding._quadruple", "nn.modules.batchnorm.init", "nn.modules.upsampling._ratio_2_t"])
def test_names_that_libraries_import(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    for library in ("torch", "flambeau"):
        assert hasattr(importlib.import_module(f"{library}.{module}"), attribute), library


def test_overloads_know_their_operator() -> None:
    for t in (torch, fl):
        assert t.ops.aten.add.Tensor._overloadpacket == t.ops.aten.add == t.ops.aten.add.Tensor.overloadpacket


@LIBRARIES
def test_fills_by_the_names_that_libraries_import(t: Any) -> None:
    init = importlib.import_module(f"{t.__name__}.nn.init")
    for name, arguments, public in (("fill", (2.0,), "constant"), ("zero", (), "zeros"), ("normal", (1.0, 2.0), "normal"),
                                    ("uniform", (1.0, 2.0), "uniform"), ("trunc_normal", (0.0, 1.0, -1.0, 1.0), "trunc_normal")):
        x, y = t.ones(20, requires_grad=True), t.ones(20, requires_grad=True)
        t.manual_seed(0)
        assert getattr(init, f"_no_grad_{name}_")(x, *arguments) is x
        t.manual_seed(0)
        assert x.equal(getattr(init, f"{public}_")(y, *arguments))


@LIBRARIES
def test_products_of_bytes(t: Any) -> None:
    a, b = (t.full(shape, 127, dtype=t.int8) for shape in ((2, 200), (200, 3)))
    found = t._int_mm(a, b)
    assert found.dtype is t.int32 and found.tolist() == [[127 * 127 * 200] * 3] * 2
    assert t._int_mm(a.to(t.uint8), b).equal(found)
    for wrong in ((a, a), (a.float(), b), (a[0], b), (a, b.int())):
        with pytest.raises(RuntimeError, match=r"Expected|needs to match"):
            t._int_mm(*wrong)


@LIBRARIES
def test_conversions_by_old_names(t: Any) -> None:
    for name, kind in (("Byte", "uint8"), ("Char", "int8"), ("Double", "float64"), ("Float", "float32"), ("Half", "float16"), ("Int", "int32"),
                       ("Long", "int64"), ("Short", "int16")):
        assert getattr(t, f"_cast_{name}")(t.tensor([1.5, 2])).dtype is getattr(t, kind)


@LIBRARIES
def test_scales_of_losses(t: Any) -> None:
    found = []
    for overflow in (0.0, 1.0):
        for steps in (0, 1):
            scale, tracker = t.tensor([4.0]), t.tensor([steps], dtype=t.int32)
            assert t._amp_update_scale_(scale, tracker, t.tensor([overflow]), 2.0, 0.5, 2) is scale
            found.append((scale.item(), tracker.item()))
    assert found == [(4, 1), (8, 0), (2, 0), (2, 0)]
    grads, infinite = [t.tensor([1.0, 2.0]), t.tensor([float("inf")])], t.zeros(1)
    t._amp_foreach_non_finite_check_and_unscale_(grads[:1], infinite, t.tensor(0.5))
    assert infinite.item() == 0 and grads[0].tolist() == [0.5, 1]
    t._amp_foreach_non_finite_check_and_unscale_(grads, infinite, t.tensor(0.5))
    assert infinite.item() == 1 and grads[0].tolist() == [0.25, 0.5]


@LIBRARIES
def test_parts_of_jacobians(t: Any) -> None:
    of = importlib.import_module(f"{t.__name__}.autograd.functional")
    x = t.ones(1)
    assert of._as_tuple(x, "inputs", "f") == (False, (x,)) and of._as_tuple((x,), "inputs", "f")[0]
    with pytest.raises(TypeError, match="inputs given to f must be either a Tensor or a tuple"):
        of._as_tuple([x], "inputs", "f")
    first, second = of._construct_standard_basis_for((t.ones(2), t.ones(1)), (2, 1))
    assert first.tolist() == [[1, 0], [0, 1], [0, 0]] and second.tolist() == [[0], [0], [1]]
    y = x.clone().requires_grad_() * 2
    assert of._grad_postprocess((y,), True)[0].requires_grad and not of._grad_postprocess(((y,),), False)[0][0].requires_grad
    assert [of._tuple_postprocess(((1,),), (a, b)) for a in (True, False) for b in (True, False)] == [((1,),), (1,), (1,), 1]
    assert of._tuple_postprocess((1,), True) == (1,) and of._tuple_postprocess((1,), False) == 1
    assert importlib.import_module(f"{t.__name__}._vmap_internals")._vmap(t.sum)(t.ones(2, 3)).tolist() == [3, 3]


@LIBRARIES
def test_line_searches_of_others(t: Any) -> None:
    of = importlib.import_module(f"{t.__name__}.optim.lbfgs")
    assert of._cubic_interpolate(*map(t.tensor, (0.0, 1.0, -1.0, 1.0, 1.5, 2.0))).item() == pytest.approx(1 / 3)
    calls = []

    def quartic(x: Any, length: float, direction: Any) -> tuple[float, Any]:
        calls.append(length)
        at = x + length * direction
        return at.pow(4).sum().item(), 4 * at.pow(3)

    x = t.tensor([1.0, 2.0])
    loss, grad = quartic(x, 0.0, x)
    f, g, length, number = of._strong_wolfe(quartic, x, 1.0, -grad, loss, grad, -grad.dot(grad))
    assert (round(float(f), 4), round(float(length), 4), number) == (0.2993, 0.0792, 4) == (0.2993, 0.0792, len(calls) - 1)
    assert g.tolist() == pytest.approx([1.2758, -0.6092], abs=1e-3)


@LIBRARIES
def test_numbers_as_they_are_printed(t: Any) -> None:
    of = importlib.import_module(f"{t.__name__}._tensor_str")
    for values in ([1.5, 22.25], [1, 200], [1e-8, 1e5], [True, False], [2.0, 1.0]):
        formatter = of._Formatter(t.tensor(values))
        assert str(t.tensor(values)) == f"tensor([{', '.join(map(formatter.format, values))}])"
        assert {formatter.width()} == {len(formatter.format(v)) for v in values}
    assert of._add_suffixes("abc", ["a=x", "b"], 3, True) == "abc,\n   a=x, b)" and of._add_suffixes("abc", ["a=x"], 3, False) == "abc, a=x)"
    assert of._tensor_str(t.ones(2, 1), 3) == "[[1.],\n    [1.]]" and of._str_intern(t.ones(1)) == "tensor([1.])"


@LIBRARIES
def test_flags_that_are_set_for_good(t: Any) -> None:
    for module, name in ((t.backends.cudnn, "benchmark"), (t.backends.mkldnn, "deterministic")):
        before = getattr(module, name)
        try:
            assert isinstance(module.set_flags(**{f"_{name}": not before}), tuple) and getattr(module, name) is not before
        finally:
            module.set_flags(**{f"_{name}": before})
        assert getattr(module, name) is before
    assert t.backends.opt_einsum.set_flags(False, None) == (False, None)
    with pytest.raises(ValueError, match="opt_einsum is not"):
        t.backends.opt_einsum.set_flags(True)


@LIBRARIES
def test_inputs_of_joint_graphs(t: Any) -> None:
    of, seen = importlib.import_module(f"{t.__name__}._functorch.partitioners"), []

    def cut(graph: Any, inputs: Any, **options: Any) -> Any:
        seen.extend((of._is_primal(node), of._is_tangent(node)) for node in graph.graph.nodes)
        return of.default_partition(graph, inputs, **options)

    boxed = importlib.import_module(f"{t.__name__}._functorch.aot_autograd").make_boxed_func
    compiled = importlib.import_module(f"{t.__name__}._functorch.aot_autograd").aot_function(
        lambda x, w: (x @ w).tanh().sum(), lambda graph, _: boxed(graph.forward), partition_fn=cut)
    compiled(t.ones(2, 3, requires_grad=True), t.ones(3, 1)).backward()
    assert [pair for pair in seen if any(pair)] == [(True, False), (True, False), (False, True)]


@LIBRARIES
def test_bases_and_sizes_that_libraries_share(t: Any) -> None:
    base = importlib.import_module(f"{t.__name__}.nn.modules.conv")._ConvTransposeMixin
    assert issubclass(base, t.nn.Module) and not isinstance(t.nn.ConvTranspose2d(1, 1, 1), base)
    assert t.utils.data.ConcatDataset.cumsum([[1, 2], [3]]) == [2, 3]
    of_onnx = importlib.import_module(f"{t.__name__}._C._onnx")
    assert of_onnx.TrainingMode is t.onnx.TrainingMode and of_onnx.OperatorExportTypes is t.onnx.OperatorExportTypes
    config = importlib.import_module(f"{t.__name__}._dynamo.config")
    before = config.recompile_limit
    with importlib.import_module(f"{t.__name__}._dynamo.utils").disable_cache_limit():
        assert config.recompile_limit > 1000
    assert config.recompile_limit == before
    batch = t.ones(3, 2, 4)
    check = t.nn.functional._mha_shape_check
    assert check(batch, batch, batch, None, None, 2) and not check(batch[0], batch[0], batch[0], None, None, 2)
    with pytest.raises(AssertionError, match=r"Expected `attn_mask` shape to be \(2, 2, 2\)"):
        check(batch[0], batch[0], batch[0], None, t.ones(3, 2, 2), 2)
