"""torch.jit.trace, save and load, beside what PyTorch's give."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
pytestmark = pytest.mark.filterwarnings("ignore")  # torch says that all of it is old


def _model(t: Any) -> Any:
    class Model(t.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.drop = t.nn.Linear(3, 3), t.nn.BatchNorm1d(3), t.nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.drop(self.norm(self.a(x)))

    t.manual_seed(0)
    return Model().eval()


@LIBRARIES
def test_modules(t: Any) -> None:
    model = _model(t)
    traced = t.jit.trace(model, t.ones(2, 3))
    assert isinstance(traced, t.jit.ScriptModule) and traced.original_name == "Model" and not traced.training
    assert traced.state_dict().keys() == model.state_dict().keys()
    x = t.arange(15.0).reshape(5, 3)
    np.testing.assert_allclose(traced(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    traced(x).sum().backward()
    assert model.a.weight.grad is not None and traced.a.weight is not None
    assert traced.train().training and np.allclose(traced(x).detach(), model(x).detach())     # the record stays as it is
    assert t.jit.trace(traced, x) is traced and str(traced.graph) and traced.code


@LIBRARIES
def test_functions_and_files(t: Any, tmp_path: Path) -> None:
    traced = t.jit.trace(lambda a, b: (a * b + 1, a.sum()), (t.ones(2), t.ones(2)))
    assert isinstance(traced, t.jit.ScriptFunction)
    path = str(tmp_path / "f.pt")
    traced.save(path)
    found = t.jit.load(path)(t.arange(3.0), t.ones(3))
    assert found[0].tolist() == [1, 2, 3] and found[1].item() == 3


@LIBRARIES
def test_modules_in_files(t: Any) -> None:
    model, out = _model(t), io.BytesIO()
    t.jit.save(t.jit.trace(model, t.ones(2, 3)), out, _extra_files={"a.txt": "hi"})
    out.seek(0)
    files = {"a.txt": ""}
    loaded = t.jit.load(out, map_location="cpu", _extra_files=files)
    assert files == {"a.txt": b"hi"} and not loaded.training
    x = t.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(loaded(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)


@LIBRARIES
def test_keywords_and_methods(t: Any) -> None:
    class Add(t.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x + 2 * y

    assert t.jit.trace(Add(), example_kwarg_inputs={"x": t.ones(2), "y": t.ones(2)})(x=t.ones(2), y=t.ones(2)).tolist() == [3, 3]
    assert t.jit.trace_module(Add(), {"forward": (t.ones(2), t.ones(2))})(t.ones(3), t.ones(3)).tolist() == [3, 3, 3]


@LIBRARIES
def test_records_that_differ_are_told(t: Any) -> None:
    calls = []

    def fn(x: Any) -> Any:
        calls.append(1)
        return x * len(calls)

    with pytest.raises(Exception, match=r"(?i)trac"):
        t.jit.trace(fn, t.ones(2))
    assert t.jit.trace(fn, t.ones(2), check_trace=False) is not None


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="example_inputs"):
        fl.jit.trace(lambda x: x)
    with pytest.raises(RuntimeError, match="cannot be recorded"):
        fl.jit.trace(lambda x: x if x.sum() > 0 else -x, fl.ones(2))
    with pytest.raises(NotImplementedError, match="trace it first"):
        fl.jit.save(fl.nn.Linear(1, 1), tmp_path / "x")
    with pytest.raises(NotImplementedError, match="other"):
        fl.jit.trace_module(fl.nn.Linear(1, 1), {"other": fl.ones(1)})
    theirs = tmp_path / "theirs.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1)), str(theirs))
    with pytest.raises(RuntimeError, match="TorchScript"):
        fl.jit.load(theirs)
