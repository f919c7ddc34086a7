"""Every primitive on the GPU gives what it gives on the CPU, eager and compiled, on the samples of its record.

Where there are several GPUs, also on the last one, which isn't the current one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.registry import PRIMITIVES

SAMPLED = sorted(name for name, p in PRIMITIVES.items() if p.kind not in ("factory", "inplace") and "samples" not in p.why_absent)
GPUS = ["cuda:0", *[f"cuda:{k}" for k in range(1, fl.cuda.device_count())][-1:]]
PHASES = {"eig", "eigh", "svd", "qr", "geqrf"}  # results that are unique up to signs, compared by size


def _samples(prim: Any) -> list[tuple]:
    rng = np.random.default_rng(7)
    return prim.samples(rng) if prim.samples is not None else [tuple(rng.standard_normal((2, 3)) for _ in prim.params)]


def _on(value: Any, device: str) -> Any:
    if isinstance(value, np.ndarray):
        return fl.tensor(value, device=device)
    return [_on(v, device) for v in value] if isinstance(value, list) else value


def _compare(got: Any, want: Any, by_size: bool, gpu: str) -> None:
    got, want = (v if isinstance(v, tuple) else (v,) for v in (got, want))
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype is w.dtype and g.device == fl.device(gpu)
        assert g._data.data.device_id == g.device.index or not g.numel()
        g, w = (np.asarray(v.detach().resolve_conj().resolve_neg().cpu().numpy()) for v in (g, w))
        np.testing.assert_allclose(abs(g) if by_size else g, abs(w) if by_size else w, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", SAMPLED)
def test_matches_the_cpu(name: str, how: str, gpu: str) -> None:
    prim = PRIMITIVES[name]
    fl._dynamo.reset()
    for sample in _samples(prim):
        want = prim(*(_on(a, "cpu") for a in sample))
        given = [_on(a, gpu) for a in sample]
        tensors = [a for a in given if isinstance(a, fl.Tensor)]
        if how == "eager" or "random" in prim.tags or len(tensors) < sum(isinstance(a, (fl.Tensor, list)) for a in given):
            _compare(prim(*given), want, name in PHASES, gpu)
            continue

        def call(*values: fl.Tensor, given: list = given) -> Any:
            rest = iter(values)
            return prim(*(next(rest) if isinstance(a, fl.Tensor) else a for a in given))

        _compare(fl.compile(call)(*tensors), want, name in PHASES, gpu)
