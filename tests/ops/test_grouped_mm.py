"""Products of groups of different sizes, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch", reason="torch is the oracle")

ENDS = [2, 5, 5, 16]
SHAPES = {"rows": ((16, 32), (4, 32, 24)), "columns": ((4, 8, 32), (32, 16)), "sums": ((8, 16), (16, 24)),
          "batch": ((4, 8, 32), (4, 32, 24))}


def _run(t: Any, kind: str, dtype: str, turned: bool, compiled: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    a, b = (t.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(getattr(t, dtype)) for shape in SHAPES[kind])
    if turned and b.ndim == 3:
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    a.requires_grad_()
    b.requires_grad_()
    flambeau._dynamo.reset()
    offs = None if kind == "batch" else t.tensor(ENDS, dtype=t.int32)
    product = t.nn.functional.grouped_mm
    call = t.compile(lambda a, b, offs: product(a, b, offs=offs) * 2, fullgraph=True) if compiled else \
        lambda a, b, offs: product(a, b, offs=offs) * 2
    out = call(a, b, offs)
    grads = t.autograd.grad((out.float() ** 2).sum(), (a, b))
    return [x.detach().float().numpy() for x in (out, *grads)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "turned"), [("rows", False), ("rows", True), ("columns", False), ("sums", False), ("batch", False)])
def test_as_torch(kind: str, turned: bool, dtype: str, compiled: bool) -> None:
    expected = _by_products(kind, dtype)
    for ours, theirs in zip(_run(flambeau, kind, dtype, turned, compiled), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-2 if dtype == "bfloat16" else 1e-4, atol=1e-1 if dtype == "bfloat16" else 1e-3)
    if kind in ("rows", "batch"):  # torch's own gradient refuses the layouts of the others
        for ours, theirs in zip(_run(flambeau, kind, dtype, turned, compiled), _run(torch, kind, dtype, turned, False), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-2 if dtype == "bfloat16" else 1e-4, atol=1e-1 if dtype == "bfloat16" else 1e-3)


def _by_products(kind: str, dtype: str) -> list[np.ndarray]:
    """The same, group by group."""
    class Products:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        class nn:
            class functional:
                @staticmethod
                def grouped_mm(a: Any, b: Any, offs: Any) -> Any:
                    if offs is None:
                        return a @ b
                    cuts = list(zip([0, *offs.tolist()], offs.tolist()))
                    if a.ndim == 3:
                        return torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(cuts)], 1)
                    if b.ndim == 3:
                        return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(cuts)])
                    return torch.stack([a[:, i:j] @ b[i:j] for i, j in cuts])

    return _run(Products(), kind, dtype, False, False)


def test_what_lies_behind_the_last_group_is_zero() -> None:
    a, b = flambeau.ones(5, 4, requires_grad=True), flambeau.ones(2, 4, 3)
    out = flambeau._grouped_mm(a, b, flambeau.tensor([1, 3], dtype=flambeau.int32))
    assert out.sum(1).tolist() == [12, 12, 12, 0, 0]
    out.sum().backward()
    assert a.grad.sum(1).tolist() == [12, 12, 12, 0, 0]
    meta = flambeau._grouped_mm(a.to("meta"), b.to("meta"), flambeau.empty(2, dtype=flambeau.int32, device="meta"))
    assert meta.shape == (5, 3)


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
@pytest.mark.parametrize(("change", "says"), [
    ({"a": "double", "b": "double"}, "mat_a to be"), ({"offs": "long"}, "int32"), ({"offs": None}, "offsets"),
    ({"b": "half"}, "same dtype"),
    ({"a": lambda a: a[0]}, "2 or 3d"), ({"a": lambda a: a[:, :16]}, "contraction"), ({"offs": lambda o: o[:3]}, "batch sizes"),
    ({"offs": lambda o: o[None]}, "1D"), ({"bias": True}, "Bias"), ({"out_dtype": "float64"}, "output dtype"),
])  # fmt: skip
def test_refusals(t: Any, change: dict[str, Any], says: str) -> None:
    given = {"a": t.ones(16, 32), "b": t.ones(4, 32, 24), "offs": t.tensor(ENDS, dtype=t.int32)}
    for name, how in change.items():
        if name in given:
            given[name] = how if how is None else how(given[name]) if callable(how) else getattr(given[name], how)()
    more: dict[str, Any] = {"bias": t.ones(4, 24)} if "bias" in change else {"out_dtype": t.float64} if "out_dtype" in change else {}
    with pytest.raises(RuntimeError, match=says):
        t.nn.functional.grouped_mm(given["a"], given["b"], offs=given["offs"], **more)
