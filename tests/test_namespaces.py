"""The thin namespaces: true answers, and clear errors for what is not there."""

from __future__ import annotations

import importlib
import operator
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import backends, compiler, cuda, distributed, hub, jit, profiler, testing
from flambeau.torch_version import TorchVersion

MODULES = ["accelerator", "ao", "backends", "compiler", "cpu", "cuda", "cuda.amp", "distributed", "distributions", "export", "func",
           "futures", "hub", "jit", "library", "mps", "nested", "nn.attention", "onnx", "overrides", "profiler", "random", "signal",
           "signal.windows", "sparse", "storage", "testing", "torch_version", "types", "utils._pytree", "utils.benchmark",
           "utils.checkpoint", "utils.dlpack", "utils.flop_counter", "utils.hooks", "utils.model_zoo", "version", "xpu"]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_imports(name: str) -> None:
    module = importlib.import_module(f"flambeau.{name}")
    assert module.__doc__
    with pytest.raises(AttributeError):
        _ = module.no_such_name


def test_facts_of_devices() -> None:
    assert cuda.is_available() is False and cuda.device_count() == 0
    assert distributed.is_available() is True and distributed.is_initialized() is False
    assert backends.cuda.is_built() is False and backends.mps.is_available() is False
    assert fl.accelerator.current_accelerator() is None
    assert fl.get_device_module("cpu") is fl.cpu
    cuda.manual_seed_all(3)
    cuda.empty_cache()
    assert cuda.memory_allocated() == 0


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: cuda.current_device(), AssertionError, "not compiled with CUDA"),
    (lambda: cuda.Stream(), AssertionError, "use device='cpu'"),
    (lambda: cuda.device(0).__enter__(), AssertionError, "CUDA"),
    (lambda: distributed.shrink_group([1]), ValueError, "init_process_group"),
    (lambda: distributed.get_rank(), ValueError, "init_process_group"),
    (lambda: jit.trace(len, 1), RuntimeError, "cannot be traced"),
    (lambda: jit.save(None, "x"), TypeError, "trace it first"),
    (lambda: fl.export.export_for_training(None), NotImplementedError, "export"),
    (lambda: fl.onnx.InputObserver(), NotImplementedError, "torch.onnx"),
    (lambda: fl.nested.nested_tensor([], layout=fl.jagged), RuntimeError, "empty tensor list"),
    (lambda: fl.sparse.spsolve(1, 2), NotImplementedError, "dense"),
    (lambda: fl.ao.quantization.convert(1), NotImplementedError, "float32"),
    (lambda: fl.accelerator.synchronize(), RuntimeError, "none is available"),
    (lambda: fl.set_float32_matmul_precision("low"), RuntimeError, "highest"),
    (lambda: fl._check(False, lambda: "sizes differ"), RuntimeError, "sizes differ"),
    (lambda: fl._check_value(False, lambda: "bad"), ValueError, "bad"),
    (lambda: fl._check(1), TypeError, "must be a bool"),
])  # fmt: skip
def test_what_is_missing_says_so(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@jit.script
def plus_one(x: int) -> int:
    return x + 1


class Ignored(fl.nn.Module):
    @jit.ignore
    def forward(self, x: Any) -> Any:
        return x * 2


def test_script_compiles_and_ignore_keeps_python() -> None:
    assert plus_one(1) == 2 and isinstance(plus_one, jit.ScriptFunction)
    assert jit.script(Ignored())(3) == 6
    assert not jit.is_scripting()
    assert jit.isinstance([1], list)


def test_flags_come_back() -> None:
    with backends.cudnn.flags(enabled=False, benchmark=True):
        assert backends.cudnn.enabled is False and backends.cudnn.benchmark is True
    assert backends.cudnn.enabled is True and backends.cudnn.benchmark is False
    with pytest.raises(TypeError, match="speed"):
        backends.cudnn.flags(speed=11).__enter__()


@pytest.mark.parametrize(("a", "b"), [("2.9.1", "2.13.0"), ("2.13.0a0", "2.13.0"), ("2.13", "2.13.1"), ("1.13", "2.0")])
def test_versions_are_ordered_by_number(a: str, b: str) -> None:
    assert TorchVersion(a) < b and TorchVersion(b) > a and TorchVersion(a) != b
    assert TorchVersion(b) >= TorchVersion(b)
    assert TorchVersion("2.13.0+x") == "2.13" and TorchVersion("2.13.0") >= (2, 4)


def test_assert_close() -> None:
    testing.assert_close(fl.ones(3), fl.ones(3) + 1e-7)
    testing.assert_close({"a": [1, 2.0]}, {"a": [1, 2.0]})
    testing.assert_close(fl.tensor(float("nan")), fl.tensor(float("nan")), equal_nan=True)
    for call, message in [
        (lambda: testing.assert_close(fl.ones(3), fl.tensor([1.0, 2.0, 1.0])), r"Mismatched elements: 1 / 3.*\n.*index \(1,\)"),
        (lambda: testing.assert_close(fl.ones(3), fl.ones(2)), "shape"),
        (lambda: testing.assert_close(fl.ones(3), fl.ones(3).double()), "dtype"),
        (lambda: testing.assert_close([1], [1, 2]), "length"),
        (lambda: testing.assert_close({"a": 1}, {"b": 1}), "keys"),
        (lambda: testing.assert_close({"a": [1, 2]}, {"a": [1, 3]}), r"item \['a'\]\[1\]"),
    ]:
        with pytest.raises(AssertionError, match=message):
            call()


def test_profiles() -> None:
    with profiler.profile() as taken, profiler.record_function("my part"):
        fl.ones(3) + fl.ones(3)
    sums = {e.key: e for e in taken.key_averages()}
    assert sums["my part"].count == 1 and sums["aten::add"].count == 1 and sums["aten::ones"].count == 2
    assert sums["my part"].cpu_time_total >= sums["aten::add"].cpu_time_total
    assert "Self CPU time total" in taken.key_averages().table(sort_by="self_cpu_time_total")


def test_profile_schedules() -> None:
    seen = []
    with profiler.profile(schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
                          on_trace_ready=lambda p: seen.append([e.name for e in p.events()])) as taken:  # fmt: skip
        for _ in range(6):
            fl.ones(1) * 2
            taken.step()
    assert [names.count("aten::mul") for names in seen] == [2]


def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "net-00000000.pth"
    fl.save({"w": fl.arange(3)}, weights)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    loaded = hub.load_state_dict_from_url(weights.as_uri(), progress=False)
    np.testing.assert_array_equal(loaded["w"].numpy(), [0, 1, 2])
    assert (tmp_path / "home" / "hub" / "checkpoints" / weights.name).exists()
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.download_url_to_file(weights.as_uri(), tmp_path / "copy", "00000000", progress=False)
    with pytest.raises(urllib.error.URLError):
        hub.download_url_to_file((tmp_path / "missing").as_uri(), tmp_path / "copy", progress=False)
    assert not list(tmp_path.glob("copy*"))


def test_compiler_namespace() -> None:
    assert compiler.is_compiling() is False and compiler.is_exporting() is False
    assert compiler.disable(abs)(-1) == 1


def test_submodules_need_no_import_of_their_own() -> None:
    named = ["utils.data.DataLoader", "utils.data.distributed", "utils.checkpoint.checkpoint", "utils._pytree", "utils.model_zoo",
             "cuda.amp.autocast", "nn.utils.rnn.pad_sequence", "optim.lr_scheduler.StepLR", "nn.attention.sdpa_kernel"]  # fmt: skip
    code = "\n".join(["import flambeau as torch", *(f"torch.{name}" for name in named)])
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_that_programs_test_values_against() -> None:
    assert not isinstance(3, fl.SymInt) and not isinstance(0.5, fl.SymFloat) and not isinstance(True, fl.SymBool)
    assert fl.ones(2).clone(memory_format=fl.legacy_contiguous_format).is_contiguous()


def test_versions_are_compared_with_what_is_none() -> None:
    """By text, as torch does; with what is no text, not at all."""
    theirs = pytest.importorskip("torch").torch_version.TorchVersion("2.13.0")
    ours = TorchVersion("2.13.0")
    for other in ("parrots", "2.x", "zzz", "", (2, "a"), None, 2.1, [1, 2], "2.13", "2.13.0a0", "v2.14", "2.9.dev3"):
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            try:
                wanted = compare(theirs, other)
            except TypeError:
                with pytest.raises(TypeError):
                    compare(ours, other)
            else:
                assert compare(ours, other) == wanted, (compare, other)
