"""torchvision's operators beside their definitions, written out element by element, and their gradients beside finite differences."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import flambeau as fl

fl.ops.load_library("site-packages/torchvision/_C.so")
vision = fl.ops.torchvision

REGIONS = np.array([[0, 1.3, 2.2, 9.7, 8.1], [1, -3, -2.5, 4.6, 5.2], [0, 6, 5, 6, 5], [1, 40, 40, 50, 50], [1, 0.4, 0.4, 13, 12.2]])
POOLED = (3, 2)


def images(channels: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, channels, 9, 11))


def read(plane: np.ndarray, y: float, x: float, far: bool = True) -> float:
    """Bilinearly; what lies more than one element outside is 0, and the rest on the edge (`far`), or zeros lie all around."""
    height, width = plane.shape
    if far:
        if not (-1 <= y <= height and -1 <= x <= width):
            return 0.0
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    low = math.floor(y), math.floor(x)
    total = 0.0
    for i, j in itertools.product((0, 1), (0, 1)):
        row, column = low[0] + i, low[1] + j
        if 0 <= row < height and 0 <= column < width:
            total += plane[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def sampled(plane: np.ndarray, region: np.ndarray, scale: float, bin_: tuple, samples: int, aligned: bool) -> float:
    x1, y1, x2, y2 = region[1:] * scale - 0.5 * aligned
    sizes = [length if aligned else max(length, 1.0) for length in (y2 - y1, x2 - x1)]
    steps = [size / n for size, n in zip(sizes, POOLED)]
    grid = [samples if samples > 0 else math.ceil(step) for step in steps]
    at = [[start + p * step + (i + 0.5) * step / n for i in range(n)] for start, p, step, n in zip((y1, x1), bin_, steps, grid)]
    values = [read(plane, y, x) for y, x in itertools.product(*at)]
    return sum(values) / max(len(values), 1)


def elements(region: np.ndarray, scale: float, bin_: tuple, size: tuple, inclusive: bool) -> list[tuple[int, int]]:
    x1, y1, x2, y2 = (math.floor(abs(v) + 0.5) * (1 if v > 0 else -1) for v in region[1:] * scale)
    spans = []
    for start, end, p, n, limit in ((y1, y2, bin_[0], POOLED[0], size[0]), (x1, x2, bin_[1], POOLED[1], size[1])):
        step = max(end - start + inclusive, 1) / n
        low, high = math.floor(p * step) + start, math.ceil((p + 1) * step) + start
        spans.append(range(max(low, 0), min(high, limit)))
    return list(itertools.product(*spans))


def check_gradients(call: Any, tensors: list) -> None:
    """The derivative along a random direction of each tensor, beside a difference of two values."""
    rng = np.random.default_rng(9)
    weight = fl.tensor(rng.standard_normal(tuple(call(*tensors).shape)))
    value = lambda *t: (call(*t) * weight).sum()
    for k, (t, g) in enumerate(zip(tensors, fl.autograd.grad(value(*tensors), tensors))):
        way = fl.tensor(rng.standard_normal(tuple(t.shape)))
        moved = [value(*[u.detach() + way * step if i == k else u.detach() for i, u in enumerate(tensors)]) for step in (1e-6, -1e-6)]
        assert (g * way).sum().item() == pytest.approx((moved[0] - moved[1]).item() / 2e-6, rel=1e-5, abs=1e-6)


def by_bin(value: Any, channels: int) -> np.ndarray:
    out = np.zeros((len(REGIONS), channels, *POOLED))
    for k, c, p, q in np.ndindex(out.shape):
        out[k, c, p, q] = value(REGIONS[k], c, (p, q))
    return out


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("samples", [-1, 2])
def test_roi_align(samples: int, aligned: bool) -> None:
    x = images()
    expected = by_bin(lambda region, c, bin_: sampled(x[int(region[0]), c], region, 0.5, bin_, samples, aligned), 2)
    got = vision.roi_align(fl.tensor(x), fl.tensor(REGIONS), 0.5, *POOLED, samples, aligned)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("samples", [-1, 2])
def test_ps_roi_align(samples: int) -> None:
    x = images(12)

    def value(region: np.ndarray, c: int, bin_: tuple) -> float:
        return sampled(x[int(region[0]), (c * POOLED[0] + bin_[0]) * POOLED[1] + bin_[1]], region, 0.5, bin_, samples, True)

    got, channels = vision.ps_roi_align(fl.tensor(x), fl.tensor(REGIONS), 0.5, *POOLED, samples)
    np.testing.assert_allclose(got.numpy(), by_bin(value, 2), atol=1e-12)
    assert channels.dtype is fl.int32 and channels[3].flatten().tolist() == list(range(12))


def test_ps_roi_pool() -> None:
    x = images(12)

    def value(region: np.ndarray, c: int, bin_: tuple) -> float:
        plane = x[int(region[0]), (c * POOLED[0] + bin_[0]) * POOLED[1] + bin_[1]]
        values = [plane[at] for at in elements(region, 0.5, bin_, (8, 10), False)]
        return sum(values) / max(len(values), 1)

    np.testing.assert_allclose(vision.ps_roi_pool(fl.tensor(x), fl.tensor(REGIONS), 0.5, *POOLED)[0].numpy(), by_bin(value, 2), atol=1e-12)


def test_roi_pool() -> None:
    x = images()

    def value(region: np.ndarray, c: int, bin_: tuple) -> float:
        return max((x[int(region[0]), c][at] for at in elements(region, 0.5, bin_, (9, 11), True)), default=0.0)

    got, place = vision.roi_pool(fl.tensor(x), fl.tensor(REGIONS), 0.5, *POOLED)
    np.testing.assert_allclose(got.numpy(), by_bin(value, 2), atol=1e-12)
    some = place.numpy() >= 0
    image = np.broadcast_to(REGIONS[:, 0].astype(int)[:, None, None, None], some.shape)
    channel = np.broadcast_to(np.arange(2)[None, :, None, None], some.shape)
    assert (x.reshape(2, 2, -1)[image[some], channel[some], place.numpy()[some]] == got.numpy()[some]).all()
    assert (got.numpy()[~some] == 0).all()


INSIDE = fl.tensor(REGIONS[[0, 1, 2]])


@pytest.mark.parametrize(("channels", "call"), [
    (2, lambda x: vision.roi_align(x, INSIDE, 0.5, *POOLED, -1, True)),
    (2, lambda x: vision.roi_align(x, INSIDE, 0.5, *POOLED, 2, False)),
    (2, lambda x: vision.roi_pool(x, INSIDE, 0.5, *POOLED)[0]),
    (6, lambda x: vision.ps_roi_align(x, INSIDE, 0.5, *POOLED, 2)[0]),
    (6, lambda x: vision.ps_roi_pool(x, INSIDE, 0.5, *POOLED)[0]),
])
def test_gradients_of_regions(channels: int, call: Any) -> None:
    check_gradients(call, [fl.tensor(images(channels), requires_grad=True)])


def test_no_regions() -> None:
    x, none = fl.tensor(images(6)), fl.zeros(0, 5, dtype=fl.float64)
    for out in (vision.roi_align(x, none, 1.0, 3, 2, 2, True), vision.roi_pool(x, none, 1.0, 3, 2)[0]):
        assert out.shape == (0, 6, 3, 2)
    assert vision.ps_roi_align(x, none, 1.0, 3, 2, 2)[0].shape == (0, 1, 3, 2)


@pytest.mark.parametrize(("groups", "offset_groups", "masked", "steps"), [
    (1, 1, True, (1, 1, 1, 1, 1, 1)), (2, 2, False, (2, 1, 0, 2, 1, 2)), (1, 4, True, (1, 2, 1, 0, 2, 1))])
def test_deform_conv2d(groups: int, offset_groups: int, masked: bool, steps: tuple) -> None:
    rng = np.random.default_rng(1)
    x, w, b = rng.standard_normal((2, 4, 6, 7)), rng.standard_normal((4, 4 // groups, 3, 2)), rng.standard_normal(4)
    (sh, sw, ph, pw, dh, dw) = steps
    h, v = (6 + 2 * ph - dh * 2 - 1) // sh + 1, (7 + 2 * pw - dw - 1) // sw + 1
    offset, mask = rng.standard_normal((2, offset_groups * 12, h, v)) * 2, rng.random((2, offset_groups * 6, h, v))
    expected = np.zeros((2, 4, h, v)) + b[:, None, None]
    for n, o, i, j, c, r, s in np.ndindex(2, 4, h, v, 4 // groups, 3, 2):
        source = (o // (4 // groups)) * (4 // groups) + c
        tap = (source // (4 // offset_groups)) * 6 + r * 2 + s
        y, z = i * sh - ph + r * dh + offset[n, 2 * tap, i, j], j * sw - pw + s * dw + offset[n, 2 * tap + 1, i, j]
        expected[n, o, i, j] += w[o, c, r, s] * read(x[n, source], y, z, far=False) * (mask[n, tap, i, j] if masked else 1)
    tensors = [fl.tensor(a, requires_grad=True) for a in (x, w, offset, mask, b)]
    call = lambda *t: vision.deform_conv2d(*t, *steps, groups, offset_groups, masked)
    np.testing.assert_allclose(call(*tensors).detach().numpy(), expected, atol=1e-10)
    if masked:
        check_gradients(call, tensors)
    else:
        check_gradients(lambda x, w, o, b: call(x, w, o, tensors[3], b), [*tensors[:3], tensors[4]])


def test_nms() -> None:
    rng = np.random.default_rng(2)
    boxes = rng.random((80, 4)) * 10
    boxes[:, 2:] += boxes[:, :2]
    scores = np.round(rng.random(80), 1)      # many are equal: the earlier one is the better one
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        def shared(j: int, i: int = i) -> float:
            sides = np.minimum(boxes[i, 2:], boxes[j, 2:]) - np.maximum(boxes[i, :2], boxes[j, :2])
            both = np.maximum(sides, 0).prod()
            return both / (sum((boxes[k, 2:] - boxes[k, :2]).prod() for k in (i, j)) - both)
        if all(shared(j) <= 0.3 for j in kept):
            kept.append(int(i))
    got = vision.nms(fl.tensor(boxes), fl.tensor(scores), 0.3)
    assert got.dtype is fl.int64 and got.tolist() == kept
    assert vision.nms(fl.zeros(0, 4), fl.zeros(0), 0.5).shape == (0,)


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: vision.nms(fl.zeros(3, 5), fl.zeros(3), 0.5), RuntimeError, r"\[3, 5\]"),
    (lambda: vision.nms(fl.zeros(3, 4), fl.zeros(3).double(), 0.5), RuntimeError, "same type"),
    (lambda: vision.roi_align(fl.zeros(1, 2, 3, 3), fl.zeros(3, 4), 1.0, 2, 2, 2, True), RuntimeError, r"Tensor\[K, 5\]"),
    (lambda: vision.roi_align(fl.zeros(1, 2, 3, 3), fl.zeros(3, 5).double(), 1.0, 2, 2, 2, True), RuntimeError, "same type"),
    (lambda: vision.ps_roi_pool(fl.zeros(1, 5, 3, 3), fl.zeros(3, 5), 1.0, 2, 2), RuntimeError, "multiple"),
    (lambda: vision.deform_conv2d(fl.zeros(1, 1, 3, 3), fl.zeros(1, 1, 1, 1),
                                  fl.zeros(1, 3, 3, 3), fl.zeros(1, 1, 3, 3), fl.zeros(1), 1, 1, 0,
                                  0, 1, 1, 1, 1, True), RuntimeError, "offset"),
    (lambda: vision.qnms(fl.zeros(3, 4), fl.zeros(3), 0.5), NotImplementedError, "quantized"),
])
def test_refusals(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16])
def test_narrow_dtypes(dtype: Any) -> None:
    x, regions = fl.tensor(images()).to(dtype), fl.tensor(REGIONS).to(dtype)
    got = vision.roi_align(x, regions, 0.5, *POOLED, 2, True)
    wide = vision.roi_align(x.float(), regions.float(), 0.5, *POOLED, 2, True)
    assert got.dtype is dtype
    np.testing.assert_allclose(got.float().numpy(), wide.numpy(), rtol=1e-2, atol=1e-2)


def test_compiled() -> None:
    x, regions = fl.tensor(images(), requires_grad=True), INSIDE
    call = lambda x, r: vision.roi_align(x * 2, r, 0.5, 3, 2, 2, True).sin().sum()
    results = []
    for fn in (call, fl.compile(call, fullgraph=True)):
        x.grad = None
        out = fn(x, regions)
        out.backward()
        results.append((out.item(), x.grad.numpy().copy()))
    assert results[0][0] == pytest.approx(results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-12)


def test_what_depends_on_data_breaks_the_graph() -> None:
    boxes, scores = fl.tensor([[0.0, 0, 4, 4], [1, 1, 4, 4], [8, 8, 9, 9]]), fl.tensor([0.5, 0.9, 0.1])
    fn = lambda b, s: b[vision.nms(b * 1, s, 0.5)] + 1
    assert fl.compile(fn)(boxes, scores).tolist() == fn(boxes, scores).tolist()
