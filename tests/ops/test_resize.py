"""Padding with an image's own elements, resizing and sampling, on images large enough for generated kernels, against torch's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as TF

import flambeau
import flambeau.nn.functional as F
from flambeau.inductor import graph as graphs
from flambeau.inductor.loop.ir import Compute
from flambeau.ops.registry import COMPOSITES
from tests.nn.oracle import assert_close, to_ours

TOLERANCE = {"float32": 1e-4, "float64": 1e-10, "bfloat16": 3e-2}
LAYOUTS = ["contiguous_format", "channels_last"]
RESIZED = [
    {"scale_factor": 2}, {"scale_factor": 0.3, "mode": "nearest-exact"}, {"size": (5, 90)}, {"scale_factor": 2, "mode": "bilinear"},
    {"size": (60, 21), "mode": "bilinear", "align_corners": True}, {"scale_factor": (0.4, 1.9), "mode": "bilinear"},
    {"size": (33, 80), "mode": "bilinear"}, {"size": (1, 1), "mode": "bilinear"}, {"scale_factor": 2, "mode": "bicubic"},
    {"size": (20, 70), "mode": "bicubic", "align_corners": True}, {"size": (14, 15), "mode": "area"}]
PADDED = [("reflect", (2, 1, 1, 3)), ("replicate", (0, 0, 2, 5)), ("circular", (3, 2, 0, 4)), ("reflect", (32, 0, 31, 1)),
          ("reflect", (-1, 2, 1, -3)), ("replicate", (-2, 1, 0, 3)), ("circular", (-1, 4, 2, -2))]


def image(*shape, layout="contiguous_format", dtype="float32", seed=0):
    """A torch image that wants a gradient, and ours."""
    values = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(getattr(torch, dtype))
    ours = to_ours(values.float()).to(getattr(flambeau, dtype)) if dtype == "bfloat16" else to_ours(values)
    return tuple(x.contiguous(memory_format=getattr(library, layout)).requires_grad_()
                 for x, library in ((ours, flambeau), (values, torch)))


def compare(ours, theirs, inputs, tolerance, seed=7):
    """Values, strides and gradients of both functions over pairs of inputs."""
    out, expected = ours(*[a for a, _ in inputs]), theirs(*[b for _, b in inputs])
    sized = [(a, b) for a, b, n in zip(out.stride(), expected.stride(), expected.shape) if n > 1]
    assert all(a == b for a, b in sized), (out.stride(), expected.stride())
    assert out.dtype is inputs[0][0].dtype
    weights = torch.from_numpy(np.random.default_rng(seed).standard_normal(tuple(expected.shape))).float()
    (out.float() * to_ours(weights)).sum().backward()
    (expected.float() * weights).sum().backward()
    pairs = [(out, expected), *[(a.grad, b.grad) for a, b in inputs]]
    for got, wanted in pairs:
        scale = max(1.0, wanted.detach().abs().max().item())
        assert_close(got.double() / scale, wanted.double() / scale, 0, tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kwargs", RESIZED, ids=str)
def test_resized_images(kwargs, layout, dtype):
    compare(lambda x: F.interpolate(x, **kwargs), lambda x: TF.interpolate(x, **kwargs),
            [image(3, 16, 33, 41, layout=layout, dtype=dtype)], TOLERANCE[dtype])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_gradients_of_so_many_elements_that_they_are_added_in_a_loop(mode):
    compare(lambda x: F.interpolate(x, scale_factor=19, mode=mode), lambda x: TF.interpolate(x, scale_factor=19, mode=mode),
            [image(2, 3, 5, 6)], 1e-4)


@pytest.mark.parametrize("kwargs", [{"scale_factor": 2, "mode": "trilinear"}, {"size": (3, 17, 12)}], ids=str)
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last_3d"])
def test_resized_volumes(kwargs, layout):
    compare(lambda x: F.interpolate(x, **kwargs), lambda x: TF.interpolate(x, **kwargs),
            [image(2, 12, 9, 10, 11, layout=layout)], 1e-4)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mode", "amounts"), PADDED, ids=str)
def test_padded_images(mode, amounts, layout, dtype):
    compare(lambda x: F.pad(x, amounts, mode), lambda x: TF.pad(x, amounts, mode),
            [image(3, 16, 33, 41, layout=layout, dtype=dtype)], TOLERANCE[dtype])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sampled_images(mode, padding, align, layout):
    points = torch.from_numpy(np.random.default_rng(1).uniform(-1.3, 1.3, (2, 60, 41, 2))).float()
    compare(lambda x, g: F.grid_sample(x, g, mode, padding, align), lambda x, g: TF.grid_sample(x, g, mode, padding, align),
            [image(2, 16, 33, 32, layout=layout), (to_ours(points).requires_grad_(), points.requires_grad_())], 1e-4)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampled_volumes(padding):
    points = torch.from_numpy(np.random.default_rng(1).uniform(-1.3, 1.3, (2, 12, 13, 14, 3)))
    compare(lambda x, g: F.grid_sample(x, g, "bilinear", padding, False),
            lambda x, g: TF.grid_sample(x, g, "bilinear", padding, False),
            [image(2, 12, 9, 10, 11, dtype="float64"), (to_ours(points).requires_grad_(), points.requires_grad_())], 1e-10)


def test_narrow_images_are_sampled_at_exact_positions():
    ours, _ = image(2, 16, 40, 40)
    points = flambeau.rand(2, 40, 40, 2) * 2 - 1
    narrow = points.bfloat16()
    got = F.grid_sample(ours.bfloat16(), narrow, align_corners=False)
    assert (got - F.grid_sample(ours.bfloat16().float(), narrow.float(), align_corners=False)).abs().max() < 0.03


def test_points_that_are_no_numbers_stand_for_minus_one():
    points, x = flambeau.full((1, 130, 130, 2), float("nan")), flambeau.randn(1, 2, 4, 4)
    for grid in (points, points[:, :2, :2]):
        assert F.grid_sample(x, grid, align_corners=False).equal(F.grid_sample(x, flambeau.full_like(grid, -1), align_corners=False))


@pytest.mark.parametrize("kwargs", [{"scale_factor": 0.4}, {"scale_factor": 0.3, "mode": "bilinear"},
                                    {"scale_factor": 2, "mode": "bicubic"}], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_infinite_gradient_reaches_only_what_was_read(kwargs, layout):
    ours, theirs = image(2, 16, 33, 41, layout=layout)
    out, expected = F.interpolate(ours, **kwargs), TF.interpolate(theirs, **kwargs)
    g = torch.ones_like(expected)
    g[:, :, 0, 0] = float("inf")
    out.backward(to_ours(g))
    expected.backward(g)
    assert np.array_equal(np.isfinite(ours.grad.numpy()), np.isfinite(theirs.grad.numpy()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_derivatives(layout):
    def laid(x):
        return x.contiguous(memory_format=getattr(flambeau, layout))
    x = flambeau.randn(1, 2, 4, 3).double().requires_grad_()
    points = (flambeau.rand(1, 2, 3, 2).double() * 2 - 1).requires_grad_()
    for resize in (lambda x: F.interpolate(laid(x), scale_factor=1.7, mode="bilinear"),
                   lambda x: F.interpolate(laid(x), (7, 2), mode="bicubic"),
                   lambda x: F.pad(laid(x), (1, 2, 2, 1), "reflect"), lambda x: F.pad(laid(x), (1, 2, 2, 1), "replicate")):
        assert flambeau.autograd.gradgradcheck(resize, (x,))
    for mode in ("bilinear", "bicubic"):
        assert flambeau.autograd.gradgradcheck(
            lambda x, g, mode=mode: F.grid_sample(laid(x), g, mode, align_corners=False), (x, points))


SHUFFLES = {
    "pixel_shuffle": lambda f, x: f.pixel_shuffle(x, 2), "pixel_unshuffle": lambda f, x: f.pixel_unshuffle(x, 3),
    "channel_shuffle": lambda f, x: f.channel_shuffle(x, 4), "pad": lambda f, x: f.pad(x, (1, -2, 3, 0), value=0.5)}


@pytest.mark.parametrize("shape", [(3, 16, 33, 42), (2, 8, 6, 3)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffled_and_surrounded_images(name, layout, shape):
    compare(lambda x: SHUFFLES[name](F, x), lambda x: SHUFFLES[name](TF, x), [image(*shape, layout=layout)], 1e-6)


@pytest.mark.parametrize("window", [
    {"kernel_size": 3}, {"kernel_size": (2, 3), "stride": (2, 1), "padding": 1, "dilation": (1, 2)}], ids=str)
def test_windows_as_columns_and_back(window):
    compare(lambda x: F.unfold(x, **window), lambda x: TF.unfold(x, **window), [image(2, 8, 33, 41)], 1e-5)
    columns = TF.unfold(torch.zeros(2, 8, 33, 41), **window).shape
    compare(lambda x: F.fold(x, (33, 41), **window), lambda x: TF.fold(x, (33, 41), **window), [image(*columns)], 1e-5)


def test_weights_need_a_floating_dtype():
    with pytest.raises(NotImplementedError, match="convert the input to a floating dtype"):
        F.interpolate(flambeau.zeros(1, 1, 4, 4, dtype=flambeau.int32), scale_factor=2, mode="bilinear")
    assert F.interpolate(flambeau.eye(2, dtype=flambeau.uint8)[None, None], scale_factor=2)[0, 0, :2, :2].eq(1).all()


@pytest.mark.parametrize(("mode", "options"), [("bilinear", {}), ("bilinear", {"antialias": True}), ("bicubic", {"align_corners": True}),
                                                ("bicubic", {"antialias": True})], ids=str)
def test_pixels_of_images_are_rounded(mode, options):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 9, 14), dtype=np.uint8)
    got = F.interpolate(flambeau.from_numpy(pixels), size=(6, 20), mode=mode, **options)
    # of the exact result: torch rounds and clamps between the axes too
    expected = TF.interpolate(torch.from_numpy(pixels).double(), size=(6, 20), mode=mode, **options).round().clamp(0, 255)
    assert got.dtype is flambeau.uint8
    assert np.abs(got.numpy() - expected.numpy()).max() <= 1 and (got.numpy() == expected.numpy()).mean() > 0.99


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_small_images_are_padded_by_native_programs(mode):
    x, amounts = flambeau.randn(1, 3, 8, 9), ((0, 0, 1, 2), (0, 0, 3, 1), mode)
    for name in ("_edge_padded", "_edges_folded"):
        record = COMPOSITES[name]
        flambeau.testing.assert_close(record.eager.replays((x, *amounts)), record.fn(x, *amounts), rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_small_images_are_sampled_by_native_programs(mode):
    x, grid = flambeau.randn(1, 3, 6, 7), flambeau.rand(1, 10, 2)
    args = (grid, x, mode, "border", True)
    taps = COMPOSITES["_sample_taps"].eager.replays(args)
    rows = x.flatten(2).transpose(1, 2).contiguous()
    got, expected = COMPOSITES["_rows_read"].eager.replays((rows, *taps)), F.grid_sample(x, grid.unsqueeze(1), mode, "border", True)
    flambeau.testing.assert_close(got.transpose(1, 2).reshape(expected.shape), expected)


# -- compiled ---------------------------------------------------------------------------------------------------
PROGRAMS = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, (50, 21), mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2), "reflect": lambda x: F.pad(x, (1, 2, 3, 1), "reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 3, 1), "replicate"), "circular": lambda x: F.pad(x, (1, 2, 3, 1), "circular")}


@pytest.fixture
def steps(monkeypatch):
    """The kinds of steps of graphs that are compiled."""
    found: list[str] = []
    flambeau.compiler.reset()
    monkeypatch.setattr(graphs, "listening", [*graphs.listening, lambda g: found.extend(
        s.kind for s in g.program.steps if isinstance(s, Compute))])
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_gradients_are_gathered(steps, name, layout):
    (x, _), (same, _) = (image(2, 8, 12, 17, layout=layout) for _ in range(2))
    out, expected = flambeau.compile(PROGRAMS[name])(x), PROGRAMS[name](same)
    out.square().sum().backward()
    expected.square().sum().backward()
    flambeau.testing.assert_close(out, expected)
    flambeau.testing.assert_close(x.grad, same.grad, rtol=1e-4, atol=1e-4)
    assert out.stride() == expected.stride()
    assert steps and not any(kind.startswith("scatter") for kind in steps)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_sampling(layout):
    flambeau.compiler.reset()
    (x, _), (same, _) = (image(2, 16, 16, 32, layout=layout) for _ in range(2))
    points = flambeau.rand(2, 9, 32, 2) * 2.2 - 1.1
    mine, theirs = points.clone().requires_grad_(), points.clone().requires_grad_()

    def sample(x, g):
        return F.grid_sample(x, g, align_corners=False)
    out, expected = flambeau.compile(sample)(x, mine), sample(same, theirs)
    out.square().sum().backward()
    expected.square().sum().backward()
    for got, wanted in ((out, expected), (x.grad, same.grad), (mine.grad, theirs.grad)):
        flambeau.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    assert out.stride() == expected.stride()


def test_compiled_windows_are_plain_copies(steps):
    x = flambeau.randn(2, 4, 30, 30)
    expected = F.unfold(x, 3)
    steps.clear()
    out = flambeau.compile(lambda x: F.unfold(x, 3))(x)
    assert steps and set(steps) == {"pointwise"}
    flambeau.testing.assert_close(out, expected, rtol=0, atol=0)


def test_compiled_for_sizes_that_change():
    flambeau.compiler.reset()
    programs = [PROGRAMS["bilinear"], PROGRAMS["reflect"], PROGRAMS["circular"],
                lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False)]
    for program in programs:
        compiled = flambeau.compile(program, dynamic=True)
        for shape in ((2, 3, 8, 9), (3, 4, 11, 6), (2, 5, 12, 13)):
            x = flambeau.randn(*shape)
            flambeau.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_an_image_padded_by_nothing_is_a_copy(mode, compiled):
    def padded(x):
        y = F.pad(x, [0, 0], mode=mode)
        return y, y * 2

    x = flambeau.ones(1, 3)
    y, _ = (flambeau.compile(padded, backend="aot_eager") if compiled else padded)(x)
    assert flambeau.equal(x, y) and y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_position_that_is_nan_stands_for_minus_one(mode, padding):
    nan, x = float("nan"), flambeau.arange(9.0).reshape(1, 1, 3, 3)
    places, meant = (flambeau.tensor([[[[v, 0.0], [0.3, v], [v, v]]]]) for v in (nan, -1.0))
    assert F.grid_sample(x, places, mode, padding, False).equal(F.grid_sample(x, meant, mode, padding, False))


def test_the_nearest_pixel_has_no_slope():
    """Whatever the pixel is."""
    grid = flambeau.zeros(1, 1, 1, 2).requires_grad_()
    F.grid_sample(flambeau.full((1, 1, 2, 2), float("inf")), grid, "nearest", align_corners=False).sum().backward()
    assert grid.grad.eq(0).all()
