"""Tensors of several devices in one call: refused by every operator, but for the CPU's 0-dim tensors and indices. Needs no GPU."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.core.device import device
from flambeau.core.dispatch import fake_mode
from flambeau.core.tensor import Tensor, fake
from flambeau.ops.registry import PRIMITIVES

F = fl.nn.functional
GPU, CPU = device("cuda", 0), device("cpu")
REFUSED = "Expected all tensors to be on the same device"


def _fakes(sample: tuple, places: dict[int, device]) -> tuple:
    """The arrays of a sample, numbered in order, as tensors without data, on the CPU or where `places` says."""
    count = iter(range(100))

    def made(a):
        if isinstance(a, np.ndarray):
            return fake(a.shape, fl.from_numpy(np.ascontiguousarray(a)).dtype, places.get(next(count), CPU))
        return type(a)(made(item) for item in a) if isinstance(a, list) else a
    return tuple(made(a) for a in sample)


def _arrays(sample: tuple) -> int:
    return sum(isinstance(item, np.ndarray) for a in sample for item in (a if isinstance(a, list) else [a]))


def _several() -> list:
    found = []
    for name, prim in PRIMITIVES.items():
        samples = prim.samples(np.random.default_rng(0)) if prim.samples and "samples" not in prim.why_absent else []
        found += [pytest.param(prim, s, id=f"{name}-{k}") for k, s in enumerate(samples) if _arrays(s) > 1 and prim.kind != "inplace"]
    return found


@pytest.mark.parametrize(("prim", "sample"), _several())
def test_every_primitive_refuses_two_devices(prim, sample):
    with fake_mode():
        for odd in range(_arrays(sample)):
            with pytest.raises(RuntimeError, match=REFUSED):
                prim.run(_fakes(sample, {odd: GPU}))


def e(*shape: int, on: str = "cuda", dtype=fl.float32) -> Tensor:
    return fl.empty(*shape, dtype=dtype, device=on)


MIXED = {
    "add": lambda c, h, i: c + h, "where": lambda c, h, i: fl.where(h > 0, c, c), "addcmul": lambda c, h, i: fl.addcmul(c, h, c),
    "linear": lambda c, h, i: F.linear(c, h), "linear bias": lambda c, h, i: F.linear(c, c, h[0]), "mm": lambda c, h, i: c @ h,
    "conv": lambda c, h, i: F.conv2d(c[None, None], h[None, None, :2, :2]), "cat": lambda c, h, i: fl.cat([c, h]),
    "stack": lambda c, h, i: fl.stack([c, c, h]), "embedding": lambda c, h, i: F.embedding(i, c),
    "embedding weight": lambda c, h, i: F.embedding(i.cuda(), h), "gather": lambda c, h, i: c.gather(0, i[None]),
    "scatter": lambda c, h, i: c.scatter(0, i[None].cuda(), h), "index_add": lambda c, h, i: c.index_add(0, i, c),
    "index_select": lambda c, h, i: c.index_select(0, i), "masked_fill": lambda c, h, i: c.masked_fill(h > 0, 0.0),
    "layer_norm": lambda c, h, i: F.layer_norm(c, (3,), h[0]), "cross_entropy": lambda c, h, i: F.cross_entropy(c, i),
    "in place": lambda c, h, i: c.add_(h), "attention": lambda c, h, i: F.scaled_dot_product_attention(c[None], h[None], c[None]),
    "solve": lambda c, h, i: fl.linalg.solve(c, h), "searchsorted": lambda c, h, i: fl.searchsorted(h[0], c),
    "cdist": lambda c, h, i: fl.cdist(c, h), "addmm": lambda c, h, i: fl.addmm(h, c, c), "mse": lambda c, h, i: F.mse_loss(c, h),
    "batch_norm": lambda c, h, i: F.batch_norm(c, h[0], h[0]), "grid_sample":
        lambda c, h, i: F.grid_sample(c[None, None], h[None, :2, :2, None].expand(1, 2, 2, 2), align_corners=False),
    "meta": lambda c, h, i: h + h.to("meta"), "0-dim of the GPU": lambda c, h, i: h + c.sum(),
}
ALLOWED = {
    "add": lambda c, z, i: c + z, "where": lambda c, z, i: fl.where(c > 0, c, z), "where 2": lambda c, z, i: fl.where(c > 0, z, c),
    "addcmul": lambda c, z, i: fl.addcmul(c, z, c), "clamp": lambda c, z, i: fl.clamp(c, z, z), "pow": lambda c, z, i: c ** z,
    "lerp": lambda c, z, i: fl.lerp(c, c, z), "masked_fill": lambda c, z, i: c.masked_fill(c > 0, z), "in place": lambda c, z, i: c.mul_(z),
    "index": lambda c, z, i: c[i], "index pair": lambda c, z, i: c[i.cuda(), i], "index_put": lambda c, z, i: c.index_put((i,), z),
    "reversed": lambda c, z, i: z - c, "both 0-dim": lambda c, z, i: z * c.sum(), "maximum": lambda c, z, i: fl.maximum(c, z),
}


@pytest.mark.parametrize("name", MIXED)
def test_operators_refuse_two_devices(name):
    with fake_mode(), pytest.raises(RuntimeError, match=REFUSED):
        MIXED[name](e(3, 3), e(3, 3, on="cpu"), e(3, on="cpu", dtype=fl.int64))


@pytest.mark.parametrize("name", ALLOWED)
def test_the_cpus_0_dim_tensors_and_indices_join_the_gpus(name):
    with fake_mode():
        assert ALLOWED[name](e(3, 3), e(on="cpu"), e(3, on="cpu", dtype=fl.int64)).device == GPU


OUT = {
    "add": lambda t, a, o: t.add(a, a, out=o), "sum": lambda t, a, o: t.sum(a, 0, out=o), "mm": lambda t, a, o: t.mm(a, a, out=o),
    "cat": lambda t, a, o: t.cat([a], out=o), "stack": lambda t, a, o: t.stack([a], out=o), "exp": lambda t, a, o: t.exp(a, out=o),
    "where": lambda t, a, o: t.where(a > 0, a, a, out=o), "pow": lambda t, a, o: t.pow(a, 2, out=o),
    "clamp": lambda t, a, o: t.clamp(a, 0, out=o), "einsum of products": lambda t, a, o: t.linalg.multi_dot([a, a], out=o),
    "sort": lambda t, a, o: t.sort(a, out=(o, t.empty(0, dtype=t.int64, device=o.device))),
    "max": lambda t, a, o: t.max(a, 0, out=(o, t.empty(0, dtype=t.int64, device=o.device))),
    "amax": lambda t, a, o: t.amax(a, 0, out=o), "cumsum": lambda t, a, o: t.cumsum(a, 0, out=o), "eq": lambda t, a, o: t.eq(a, a, out=o),
    "gather": lambda t, a, o: t.gather(a, 0, t.zeros(3, 3, dtype=t.int64, device=a.device), out=o),
    "index_select": lambda t, a, o: t.index_select(a, 0, t.tensor([0], device=a.device), out=o),
}


@pytest.mark.parametrize("name", OUT)
def test_out_is_where_the_operands_are(name):
    for here, there in (("cpu", "meta"), ("meta", "cpu")):
        for shape in ((3, 3), (3,), (0,)):
            with pytest.raises(RuntimeError, match=r"copy from device|fake"):
                OUT[name](fl, fl.ones(3, 3, device=here), fl.empty(shape, device=there))


@pytest.mark.parametrize("name", ["arange", "linspace", "logspace", "zeros", "ones", "full", "eye", "rand", "randn", "randint", "randperm"])
def test_factories_make_their_out_where_it_is(name):
    args = {"linspace": (0, 1, 3), "logspace": (0, 1, 3), "full": ((3,), 1.0), "randint": (0, 3, (3,))}.get(name, (3,))
    made = fl.empty(0, device="meta", dtype=fl.int64 if name == "randperm" else fl.float32)
    assert getattr(fl, name)(*args, out=made) is made and made.device.type == "meta" and made.numel() in (3, 9)
