"""Small tools of torch.utils, torch.overrides, torch.serialization and torch.optim that libraries ask for, against torch where it works."""

from __future__ import annotations

import importlib
import types
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])


def _module(t: Any, name: str) -> Any:
    return importlib.import_module(f"{t.__name__}.{name}")


def test_numbers_of_devices() -> None:
    theirs, ours = ({m.name: int(m.value) for m in _module(t, "utils.dlpack").DLDeviceType} for t in (torch, fl))
    assert ours == theirs


@LIBRARIES
def test_storages_and_versions_by_name(t: Any) -> None:
    serialization = _module(t, "serialization")
    assert serialization.StorageType("HalfStorage").dtype is t.float16
    module = types.ModuleType("m")
    module.__version__ = "1.2.3"  # type: ignore[attr-defined]
    check = serialization.check_module_version_greater_or_equal
    assert [check(module, wanted) for wanted in ((1, 2), (1, 3), (1, 2, 3), (2,))] == [True, False, True, False]
    module.__version__ = "abc"  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="malformed"):
        check(module, (1,))
    with pytest.warns(UserWarning, match="malformed"):
        assert check(module, (1,), error_if_malformed=False)


@LIBRARIES
def test_counts_of_instructions(t: Any) -> None:
    benchmark = _module(t, "utils.benchmark")
    row = benchmark.FunctionCount
    counts = benchmark.FunctionCounts((row(5, "b.c:g"), row(3, "a.c:f"), row(2, "dictobject.c:lookdict_unicode")), False)
    assert len(counts) == 3 and counts.sum() == 10 and counts.denoise().sum() == 8
    assert [(c, f) for c, f in counts.filter(lambda name: "b" in name)] == [(5, "b.c:g"), (2, "dictobject.c:lookdict_unicode")]
    assert [(c, f) for c, f in counts.transform(lambda name: name[:1])] == [(5, "b"), (3, "a"), (2, "d")]
    assert [c for c, _ in counts + counts] == [10, 6, 4] and not len(counts - counts)
    assert len(counts[:2]) == 2


def test_counts_from_a_file() -> None:
    read = fl.utils.instruction_counts.read_callgrind
    text = "events: Ir\nfl=(1) a.c\nfn=(1) f\n10 7\ncalls=1 20\n11 100\nfn=(2) g\n20 60\n+1 40\nfn=(1)\n12 1\n"
    counts = read(text)
    assert list(counts) == [(100, "a.c:g"), (8, "a.c:f")]
    empty = read("fn=(1) f\n1 2\n")
    stats = fl.utils.benchmark.CallgrindStats(None, 1, False, empty, empty, counts, counts, None)
    assert stats.counts() == 106 and stats.stats(inclusive=True) is counts
    assert stats.delta(stats).sum() == 0 and "106" in repr(stats) and stats.as_standardized().counts() == 106


@LIBRARIES
def test_drawn_tensors(t: Any) -> None:
    b = _module(t, "utils.benchmark")
    fuzzer = b.Fuzzer(parameters=[b.FuzzedParameter("k", 16, 64, "loguniform"), b.FuzzedParameter("u", 1, 3, "uniform")],
                      tensors=[b.FuzzedTensor("x", size=("k", "u"), min_elements=40, max_elements=100, probability_contiguous=0.5)], seed=0)
    found = list(fuzzer.take(20))
    for tensors, facts, drawn in found:
        assert tuple(tensors["x"].shape) == (drawn["k"], drawn["u"]) and 40 <= tensors["x"].numel() <= 100
        assert facts["x"]["is_contiguous"] == tensors["x"].is_contiguous()
    assert {facts["x"]["is_contiguous"] for _, facts, _ in found} == {True, False} and 0 < fuzzer.rejection_rate < 1


def test_drawn_values_of_others() -> None:
    b = fl.utils.benchmark
    fuzzer = b.Fuzzer([b.FuzzedParameter("k", 2, 9, "uniform"), b.FuzzedParameter("n", distribution={1: 0.5, b.ParameterAlias("k"): 0.5})],
                      [b.FuzzedTensor("x", size=("k", "n"), dtype=fl.int64)], seed=1)
    drawn = [p for _, _, p in fuzzer.take(20)]
    assert all(p["n"] in (1, p["k"]) for p in drawn) and any(p["n"] != 1 for p in drawn)
    with pytest.raises(AssertionError, match="not 1"):
        b.FuzzedParameter("k", distribution={1: 0.2})


@LIBRARIES
def test_backward_hooks_of_one_call(t: Any) -> None:
    seen = []
    module = t.nn.Linear(2, 2)
    hook = _module(t, "utils.hooks").BackwardHook(
        module, [lambda m, gi, go: seen.append((m is module, gi[0].tolist(), go[0].tolist()))],
        [lambda m, go: seen.append((m is module, go[0].tolist()))])
    x = t.ones(2, requires_grad=True)
    out = hook.setup_output_hook(hook.setup_input_hook((x,))[0] * 3)
    out.sum().backward()
    assert seen == [(True, [1, 1]), (True, [3, 3], [1, 1])]


@LIBRARIES
def test_checkpoints_of_several_passes(t: Any) -> None:
    checkpoint = _module(t, "utils.checkpoint")
    runs = []

    def fn(x: Any) -> tuple[Any, Any]:
        runs.append(1)
        return x.sin(), x.cos()

    x = t.ones(2, requires_grad=True)
    a, b = checkpoint.checkpoint(fn, x, use_reentrant=False, early_stop=False)
    with checkpoint.GraphExecGroup():
        a.sum().backward()
        b.sum().backward()
    assert len(runs) == 2
    assert t.ops.aten.detach.default in checkpoint.SAC_IGNORED_OPS
    y = t.ones(2, requires_grad=True)
    checkpoint.CheckpointFunction.apply(lambda y: y * 3, True, y).sum().backward()
    assert y.grad.tolist() == [3, 3]


def test_pipes_that_are_checked() -> None:
    data = fl.utils.data

    class Numbers(data.IterDataPipe[int]):
        def __init__(self, values: Any) -> None:
            self.values = values

        @data.runtime_validation
        def __iter__(self) -> Any:
            yield from self.values

    class Doubled(data.IterDataPipe[int]):
        @data.argument_validation
        def __init__(self, source: fl.utils.data.IterDataPipe) -> None:
            self.source = source

        def __iter__(self) -> Any:
            return (2 * x for x in self.source)

    assert list(Doubled(Numbers([1, 2]))) == [2, 4]
    with pytest.raises(TypeError, match="IterDataPipe"):
        Doubled(3)
    with pytest.raises(RuntimeError, match="'x'"):
        list(Numbers([1, "x"]))
    with data.runtime_validation_disabled():
        assert list(Numbers([1, "x"])) == [1, "x"]


@LIBRARIES
def test_pipes_that_differ_each_time(t: Any) -> None:
    data = _module(t, "utils.data")

    @data.non_deterministic
    class Drawn(data.IterDataPipe):
        def __iter__(self) -> Any:
            yield 1

    assert list(Drawn()) == [1]
    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        Drawn()
    chunk = data.DataChunk([1, 2])
    assert chunk == [1, 2] and chunk.as_str(" ") == " [1, 2]" and list(chunk.raw_iterator()) == [1, 2]


@LIBRARIES
def test_one_level_of_overrides_skipped(t: Any) -> None:
    overrides = _module(t, "overrides")
    calls = []

    class Logged(t.Tensor):  # type: ignore[name-defined, misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
            calls.append(func.__name__)
            return overrides.redispatch_function(func, types, args, kwargs)

    def fn(a: Any, b: Any) -> Any:
        if overrides.has_torch_function((a, b)):
            return overrides.handle_torch_function(fn, (a, b), a, b)
        return a * b + 1

    x, y = (t.tensor([v]).as_subclass(Logged) for v in (3.0, 4.0))
    calls.clear()
    out = fn(x, y)
    assert calls == ["fn", "mul"] and type(out) is t.Tensor and out.item() == 13


@LIBRARIES
def test_functions_that_stand_for_operators(t: Any) -> None:
    found = _module(t, "overrides").get_testing_overrides()
    assert found[t.add](1, 2) == -1 and found[t.nn.functional.linear](1, 2) == -1
    with pytest.raises(TypeError):
        found[t.nn.functional.linear]()


@LIBRARIES
def test_an_optimizer_with_other_parameters(t: Any) -> None:
    p, other = t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.zeros(2))
    optimizer = t.optim.SGD([p], lr=1.0, momentum=0.5)
    p.grad, other.grad = t.ones(2), t.ones(2)
    optimizer.step()
    state = {"state": {0: {"momentum_buffer": t.full((2,), 4.0)}}, "param_groups": optimizer.state_dict()["param_groups"]}
    with t.optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, state):
        optimizer.step()
    assert other.tolist() == [-3, -3] and p.tolist() == [0, 0] and state["state"][0]["momentum_buffer"].tolist() == [3, 3]
    optimizer.step()
    assert p.tolist() == [-1.5, -1.5]


@LIBRARIES
def test_losses_of_linear_layers(t: Any) -> None:
    loss = t.nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), bias=True)
    assert [n for n, _ in loss.named_parameters()] == ["linear.weight", "linear.bias"] and loss.linear.out_features == 8
    x, target = t.arange(15.0).reshape(5, 3) / 10, t.arange(10).reshape(5, 2) % 4
    logits = (x @ loss.linear.weight.T + loss.linear.bias).reshape(5, 4, 2)
    np.testing.assert_allclose(loss(x, target).item(), t.nn.functional.cross_entropy(logits, target).item(), rtol=1e-5)
    for wrong in ({"acc_policy": "x"}, {"chunking_method": "x"}, {"batch_chunk_size": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            t.nn.LinearCrossEntropyOptions(**wrong)


@pytest.mark.parametrize("kind", ["TensorWise", "RowWise"])
def test_products_of_float8_with_scales(kind: str) -> None:
    found = []
    rng = np.random.default_rng(0)
    a, b, rows, columns = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (48, 64), (32, 1), (1, 48)))
    for t in (torch, fl):
        F = t.nn.functional
        recipe = getattr(F.ScalingType, kind)
        scales = (t.tensor(2.0), t.tensor(0.5)) if kind == "TensorWise" else (t.tensor(rows), t.tensor(columns))
        x, y = t.tensor(a).to(t.float8_e4m3fn), t.tensor(b).to(t.float8_e4m3fn).t()
        found.append([F.scaled_mm(x, y, scales[0], recipe, scales[1], recipe).float().numpy(),
                      F.scaled_mm(x, y, scales[0], recipe, scales[1], recipe, bias=t.ones(48), output_dtype=t.float32).numpy()
                      if kind == "TensorWise" else np.zeros(1)])
        with pytest.raises(ValueError, match="Invalid scaling"):
            F.scaled_mm(x.float(), y.float(), scales[0], recipe, scales[1], recipe)
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-5, atol=1e-5)


def test_grouped_products_of_float8() -> None:
    F = fl.nn.functional
    fl.manual_seed(0)
    x, y = fl.randn(32, 64).to(fl.float8_e4m3fn), fl.randn(2, 64, 48).to(fl.float8_e4m3fn)
    rows, columns = fl.rand(32), fl.rand(2, 48)
    row_wise = F.ScalingType.RowWise
    out = F.scaled_grouped_mm(x, y, rows, row_wise, columns, row_wise, offs=fl.tensor([10, 32], dtype=fl.int32), output_dtype=fl.float32)
    for k, part in enumerate((slice(0, 10), slice(10, 32))):
        expected = F.scaled_mm(x[part], y[k], rows[part].unsqueeze(1), row_wise, columns[k:k + 1], row_wise, output_dtype=fl.float32)
        np.testing.assert_allclose(out[part].numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@LIBRARIES
def test_old_names_of_limits(t: Any) -> None:
    with pytest.warns(FutureWarning, match="min_val"), pytest.warns(FutureWarning, match="max_val"):
        module = t.nn.Hardtanh(min_value=-2.0, max_value=3.0)
    assert module(t.tensor([-9.0, 9.0])).tolist() == [-2, 3] and repr(module) == "Hardtanh(min_val=-2.0, max_val=3.0)"
    assert t.nn.ReLU6()(t.tensor([9.0])).item() == 6


@LIBRARIES
def test_constraints_of_mixtures(t: Any) -> None:
    constraints = _module(t, "distributions.constraints")
    found = constraints.MixtureSameFamilyConstraint(constraints.positive)
    assert found.check(t.tensor([[1.0, -1.0], [2.0, 3.0]])).tolist() == [[True, False], [True, True]]
    assert constraints.MixtureSameFamilyConstraint(constraints.simplex).check(t.tensor([[0.5, 0.5], [1.0, 1.0]])).tolist() == [True, False]
