"""One compilation serves all sizes: operators whose work depends on a size, compiled with symbolic ones, agree with eager."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau import dynamo
from flambeau.inductor import compile_fx

F = fl.nn.functional


def image(n):
    return (fl.randn(2, 4, n, n + 3),)


def resized(mode, **how):
    corners = {"align_corners": False} if mode in ("linear", "bilinear", "bicubic", "trilinear") else {}
    return lambda x: F.interpolate(x, mode=mode, **corners, **{name: value(x) if callable(value) else value for name, value in how.items()})


WORKS = {
    **{f"{mode} by {scale}": (resized(mode, scale_factor=scale), image)
       for mode in ("nearest", "nearest-exact", "bilinear", "bicubic") for scale in (2, 0.5, (1.5, 0.75))},
    **{f"{mode} to a size": (resized(mode, size=(7, 9)), image) for mode in ("nearest", "bilinear", "bicubic", "area")},
    **{f"{mode} to a symbolic size": (resized(mode, size=lambda x: (x.shape[2] + 5, x.shape[3] * 2)), image)
       for mode in ("nearest", "bilinear", "bicubic", "area")},
    "channels-last": (lambda x: F.interpolate(x.contiguous(memory_format=fl.channels_last), scale_factor=2, mode="bilinear"), image),
    "align_corners": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), image),
    "linear": (resized("linear", scale_factor=2), lambda n: (fl.randn(2, 3, n),)),
    "trilinear": (resized("trilinear", scale_factor=2), lambda n: (fl.randn(1, 2, n, 3, n),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), image),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), image),
    "adaptive_max_pool2d to 1": (lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True), image),
    **{f"grid_sample, {padding}": (lambda x, g, padding=padding: F.grid_sample(x, g, padding_mode=padding, align_corners=False),
                                   lambda n: (*image(n), fl.rand(2, 5, n, 2) * 3 - 1.5)) for padding in ("reflection", "border", "zeros")},
    "affine_grid": (lambda t, x: F.affine_grid(t, x.shape, align_corners=True), lambda n: (fl.randn(2, 2, 3), *image(n))),
    "index": (lambda x, i: x[i], lambda n: (fl.randn(9, 6), fl.randint(0, 9, (n,)))),
    "index_put": (lambda x, i, y: x.index_put((i,), y, accumulate=True),
                  lambda n: (fl.randn(9, 6), fl.randint(0, 9, (n,)), fl.randn(n, 6))),
    "two indices": (lambda x, i, j: x[i, j], lambda n: (fl.randn(n, 6), fl.randint(0, 8, (5,)), fl.randint(0, 6, (5,)))),
    "glu": (F.glu, lambda n: (fl.randn(3, 2 * n),)),
    "chunk": (lambda x: x.chunk(3)[1] * 2, lambda n: (fl.randn(n, 2),)),
    "split": (lambda x: fl.cat([y * k for k, y in enumerate(x.split(x.shape[0] // 2 + 1))]), lambda n: (fl.randn(n, 2),)),
}


@pytest.mark.parametrize("name", WORKS)
def test_one_compilation_serves_all_sizes(name):
    work, inputs = WORKS[name]
    compilations = []

    def backend(gm, examples):
        compilations.append(gm)
        return compile_fx(gm, examples)
    compiled = dynamo.compile(lambda *args: work(*args), backend=backend, dynamic=True)
    for n in (8, 11, 14):
        args = [a.requires_grad_() if a.is_floating_point() else a for a in inputs(n)]
        free = [a for a in args if a.requires_grad]
        results = []
        for fn in (work, compiled):
            out = fn(*args)
            outs = out if isinstance(out, tuple) else (out,)
            gradients = fl.autograd.grad(outs[0].sin().sum(), free, allow_unused=True)
            results.append([*outs, *(g for g in gradients if g is not None)])
        for want, got in zip(*results, strict=True):
            assert got.shape == want.shape and got.dtype is want.dtype
            np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert len(compilations) == 1


def test_integers_below_a_symbolic_size():
    compiled = fl.compile(lambda x: fl.randint(0, x.shape[0], (200,)), dynamic=True)
    for n in (3, 5, 9):
        assert sorted(set(compiled(fl.ones(n)).tolist())) == list(range(n))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_narrow_numbers_on_any_processor(kind, batch):
    """oneDNN has kernels for these on some processors alone, and is asked before a size is known."""
    compiled = fl.compile(lambda a, b: fl.relu(a @ b) + 1, dynamic=True)
    for n in (64, 80, 33):
        a, b = (fl.randn(*batch, n, n + k).to(getattr(fl, kind)) for k in (0, 1))
        b = b[..., :n]
        wide = fl.relu(a.double() @ b.double()) + 1
        assert fl.allclose(compiled(a, b).double(), wide, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "trilinear"])
def test_images_are_made_anew_to_the_bit_as_eagerly(mode, kind):
    """Weights that are computed from symbolic sizes are those that are computed ahead from numbers."""
    rank = {"linear": 1, "trilinear": 3}.get(mode, 2)
    for corners in (False, True):
        def work(x, corners=corners):
            return F.interpolate(x, (7, 6, 4)[:rank], mode=mode, align_corners=corners)

        fl._dynamo.reset()
        compiled = fl.compile(work, dynamic=True)
        for size in ((5, 4, 3), (3, 2, 2)):     # whose dimensions grow in one order
            x = fl.randn(2, 3, *size[:rank], dtype=getattr(fl, kind))
            assert fl.equal(compiled(x), work(x)), (corners, size)
