"""Reductions of runs of rows and hashes, against torch: values, gradients, compiled and under vmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
BOTH = (torch, fl)
CUTS = {"lengths": [2, 0, 3, 1], "offsets": [0, 2, 2, 5, 6]}


def _data(t: Any, *shape: int, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(1)
    return t.tensor(rng.integers(-3, 4, shape).astype(np.float32)).to(getattr(t, dtype)).requires_grad_()


@pytest.mark.parametrize("initial", [None, 1.5])
@pytest.mark.parametrize("by", CUTS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_runs(reduce: str, by: str, initial: float | None) -> None:
    found = []
    for t in BOTH:
        x = _data(t, 6, 2)
        out = t.segment_reduce(x, reduce, **{by: t.tensor(CUTS[by])}, initial=initial)
        weights = t.arange(float(out.numel())).reshape(out.shape)
        grad, = t.autograd.grad((out * weights)[[0, 2, 3]].sum(), x)
        found.append((out.detach().numpy(), grad.numpy()))
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("by", CUTS)
def test_runs_of_batches(by: str) -> None:
    cut = {"lengths": [[2, 1], [0, 3]], "offsets": [[0, 2, 3], [0, 0, 3]]}[by]
    theirs, ours = (t.segment_reduce(_data(t, 2, 3, 4), "max", axis=1, **{by: t.tensor(cut)}).detach().numpy() for t in BOTH)
    np.testing.assert_array_equal(ours, theirs)


def test_runs_compiled_and_batched() -> None:
    lengths = fl.tensor([2, 0, 3, 1])

    def fn(x: Any) -> Any:
        return fl.segment_reduce(x, "sum", lengths=lengths, unsafe=True) * 2

    x = _data(fl, 5, 6)
    expected = fl.stack([fn(row) for row in x])
    np.testing.assert_array_equal(fl.func.vmap(fn)(x).detach().numpy(), expected.detach().numpy())
    np.testing.assert_array_equal(fl.compile(fn, fullgraph=True)(x[0]).detach().numpy(), expected[0].detach().numpy())


@pytest.mark.parametrize(("given", "error"), [
    ({}, RuntimeError), ({"lengths": [2, 2]}, RuntimeError), ({"lengths": [-2, 8]}, RuntimeError),
    ({"lengths": [6.0]}, NotImplementedError),
    ({"lengths": [6], "reduce": "most"}, RuntimeError), ({"lengths": [6], "axis": 1}, RuntimeError), ({"indices": [6]}, RuntimeError),
])
def test_runs_refused(given: dict[str, Any], error: type[Exception]) -> None:
    for t in BOTH:
        asked = {name: t.tensor(value) if isinstance(value, list) else value for name, value in given.items()}
        with pytest.raises(error):
            t.segment_reduce(_data(t, 6, 2), asked.pop("reduce", "sum"), **asked)


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "int64", "int8", "uint8", "bool"])
def test_hashes(kind: str) -> None:
    for call in (lambda t, x: t.hash_tensor(x), lambda t, x: t.hash_tensor(x, 1), lambda t, x: t.hash_tensor(x, (0, 2), keepdim=True),
                 lambda t, x: t.hash_tensor(x[:, :, :0], 1), lambda t, x: t.hash_tensor(x[0, 0, 0])):
        theirs, ours = (call(t, _data(t, 3, 5, 7).detach().to(getattr(t, kind))) for t in BOTH)
        assert str(ours.dtype) == str(theirs.dtype)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize(("call", "error"), [
    (lambda t: t.hash_tensor(t.ones(2), mode=1), RuntimeError),
    (lambda t: t.hash_tensor(t.ones(2, dtype=t.complex64)), NotImplementedError),
    (lambda t: t.hash_tensor(t.ones(0)), RuntimeError), (lambda t: t.hash_tensor(t.ones(0, 3), 0), IndexError)])
def test_hashes_refused(call: Any, error: type[Exception]) -> None:
    for t in BOTH:
        with pytest.raises(error):
            call(t)


@pytest.mark.parametrize("by", CUTS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_a_result_is_all_of_its_memory(by, reduce):
    out = fl.segment_reduce(_data(fl, 6, 2), reduce, **{by: fl.tensor(CUTS[by])}, initial=1.0).detach()
    assert out.storage_offset() == 0 and out.is_contiguous() and out.untyped_storage().nbytes() == out.nbytes
