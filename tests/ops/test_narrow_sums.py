"""Sums of narrow floats with alpha= are rounded once, by the alpha that the dtype holds, as PyTorch rounds them; eager and compiled."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["add", "sub", "rsub", "add_", "sub_"])
def test_alpha(name: str, dtype: str) -> None:
    def made(t: Any, compiled: bool = False) -> Any:
        t.manual_seed(0)
        a, b = (t.randn(500).to(getattr(t, dtype)) for _ in range(2))
        call = (lambda x, y: t.rsub(x, y, alpha=0.3)) if name == "rsub" else lambda x, y: getattr(x, name)(y, alpha=0.3)
        return (t.compile(call) if compiled else call)(a, b)

    theirs, ours = made(torch).double(), made(fl).double()
    last_place = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    differ = [abs(x - y) / max(abs(x), 1e-3) for x, y in zip(theirs.tolist(), ours.tolist()) if x != y]
    assert len(differ) < 10 and all(d < 4 * last_place for d in differ)     # PyTorch's may be fused into one rounding
    assert made(fl, compiled=True).tolist() == made(fl).tolist()


@pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
@pytest.mark.parametrize("alpha", [1e5, 2**40])
def test_an_alpha_that_the_dtype_has_not(t: Any, alpha: float) -> None:
    for call in (t.add, t.sub, lambda x, y, alpha: x.add_(y, alpha=alpha)):
        with pytest.raises(RuntimeError, match="without overflow"):
            call(t.ones(2, dtype=t.float16), t.ones(2, dtype=t.float16), alpha=alpha)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(3, 3, 3), (8, 16, 5), (64, 64, 64)])
def test_products_with_coefficients(shape: tuple[int, int, int], dtype: str) -> None:
    n, k, m = shape

    def made(t: Any, wrap: Any = lambda f: f) -> list[Any]:
        t.manual_seed(0)
        a, b, c = (t.randn(2, *s).to(getattr(t, dtype)) for s in ((n, k), (k, m), (n, m)))
        one = wrap(lambda c, a, b: t.addmm(c, a, b, beta=-4.775, alpha=2.0315))
        many = wrap(lambda c, a, b: t.baddbmm(c, a, b, beta=0.5, alpha=0.3))
        return [one(c[0], a[0], b[0]), many(c, a, b)]

    last_place = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    for theirs, ours, compiled in zip(made(torch), made(fl), made(fl, fl.compile)):
        pairs = list(zip(theirs.double().flatten().tolist(), ours.double().flatten().tolist()))
        differ = [abs(x - y) / max(abs(x), 1) for x, y in pairs if x != y]
        assert len(differ) <= len(pairs) // 50 and all(d <= 2 * last_place for d in differ)
        assert compiled.dtype is ours.dtype and (compiled.float() - ours.float()).abs().max() < 0.1


def test_muon_is_pytorchs() -> None:
    def run(t: Any) -> list[float]:
        t.manual_seed(0)
        p, goal = t.nn.Parameter(t.randn(7, 4)), t.randn(7, 4)
        optimizer = t.optim.Muon([p], lr=0.1)
        for _ in range(8):
            optimizer.zero_grad()
            ((p - goal) ** 2).sum().backward()
            optimizer.step()
        found: list[float] = p.detach().flatten().tolist()
        return found

    assert run(fl) == pytest.approx(run(torch), abs=2e-4)
