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
