"""Compiled graphs on the GPU give what eager gives, forward and backward; whole models train the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as fl


def _load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


eager_cases = _load("cuda_eager_cases", Path(__file__).parent / "test_eager.py")
programs = _load("end_to_end_programs", Path(__file__).parent.parent / "test_end_to_end.py")


@pytest.mark.parametrize("name", eager_cases.CASES)
def test_matches_eager(name):
    fn = eager_cases.CASES[name]
    compiled = fl.compile(fn, backend="inductor")
    for a, b in zip(eager_cases._run(compiled, "cuda"), eager_cases._run(fn, "cuda"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_large_reductions_and_dropout():
    x = fl.randn(3000, 5000, device="cuda")
    for fn in (lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.softmax(1), lambda x: x.var(1), lambda x: x.t().contiguous() + 1):
        np.testing.assert_allclose(fl.compile(fn)(x).cpu().numpy(), fn(x).cpu().numpy(), rtol=2e-3, atol=2e-3)
    f = fl.compile(lambda x: fl.nn.functional.dropout(x, 0.25))
    fl.manual_seed(1)
    a = f(x)
    fl.manual_seed(1)
    b = fl.nn.functional.dropout(x, 0.25)
    assert fl.equal(a, b)


def test_gpt_trains_the_same_compiled():
    maker, batches = programs.MAKERS["gpt"]
    weights = programs.weights_of("gpt")

    def train(transform):
        model = maker(fl)
        model.load_state_dict({k: fl.tensor(v) for k, v in weights.items()})
        model.cuda()
        run, optimizer, losses = transform(model), fl.optim.AdamW(model.parameters(), lr=1e-2), []
        for x, y in batches:
            optimizer.zero_grad()
            with fl.device("cuda"):
                loss = run(fl.tensor(x, device="cuda"), fl.tensor(y, device="cuda"))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(train(fl.compile), train(lambda m: m), rtol=1e-3)


@pytest.mark.parametrize("kind", [fl.bfloat16, fl.float16], ids=str)
def test_max_autotune_measures_and_keeps_its_choice(kind, tmp_path, monkeypatch):
    from flambeau.inductor.gpu import tuning
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    functional = fl.nn.functional
    x, w, b, y = (fl.randn(*s, device="cuda").to(kind) for s in ((200, 512), (1024, 512), (1024,), (200, 1024)))

    def fn(x, w, b, y):
        return functional.gelu(functional.linear(x, w, b)) + y, (x[:64] @ w.t()).relu()
    measured = []
    plain = tuning._measure
    monkeypatch.setattr(tuning, "_measure", lambda *args: measured.append(plain(*args)) or measured[-1])
    for expected in (2, 2):
        got = fl.compile(fn, mode="max-autotune-no-cudagraphs")(x, w, b, y)
        for a, c in zip(got, fn(x, w, b, y), strict=True):
            np.testing.assert_allclose(a.float().cpu().numpy(), c.float().cpu().numpy(), rtol=3e-2, atol=0.1)
        assert len(measured) == expected     # the second time the choice is read
        fl._dynamo.reset()
    assert all(min(times) > 0 for times in measured) and list((tmp_path / "tuned").glob("*.json"))
    monkeypatch.setattr(tuning, "_measure", lambda cupy, program, call, printed, after: [1.0] + [0.5] * len(printed))
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "other"))
    got = fl.compile(fn, mode="max-autotune")(x, w, b, y)   # the first tile, though it may be slower
    for a, c in zip(got, fn(x, w, b, y), strict=True):
        np.testing.assert_allclose(a.float().cpu().numpy(), c.float().cpu().numpy(), rtol=3e-2, atol=0.1)
