"""Causal masks by name, against torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import flambeau
import flambeau.nn.attention.bias

torch = pytest.importorskip("torch", reason="torch is the oracle")
import_module("torch.nn.attention.bias")


@pytest.mark.parametrize("variant", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 6)])
def test_as_torch(variant: str, queries: int, keys: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, n, 8)).astype(np.float32) for n in (queries, keys, keys)]

    def run(t: Any) -> np.ndarray:
        mask = getattr(t.nn.attention.bias, variant)(queries, keys)
        assert isinstance(mask, t.Tensor) and type(mask).__name__ == "CausalBias" and mask.seq_len_q == queries
        return t.nn.functional.scaled_dot_product_attention(*map(t.from_numpy, arrays), attn_mask=mask).numpy()

    np.testing.assert_allclose(run(flambeau), run(torch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
def test_refusals(t: Any) -> None:
    x = t.ones(1, 1, 2, 4)
    with pytest.raises(ValueError, match="CausalBias"):
        t.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=t.nn.attention.bias.causal_upper_left(2, 2), is_causal=True)
