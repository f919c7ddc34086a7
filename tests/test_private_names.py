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
                                  "quantization.fake_quantize.FakeQuantize"])
def test_names_that_libraries_import(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    for library in ("torch", "flambeau"):
        assert hasattr(importlib.import_module(f"{library}.{module}"), attribute), library


def test_overloads_know_their_operator() -> None:
    for t in (torch, fl):
        assert t.ops.aten.add.Tensor._overloadpacket == t.ops.aten.add == t.ops.aten.add.Tensor.overloadpacket
