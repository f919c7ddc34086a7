"""Boxes and regions of images, exported and in ONNX Runtime beside eager."""

import numpy as np
import pytest

import flambeau as fl
from flambeau.export import Dim
from flambeau.extensions import vision

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


class Kept(fl.nn.Module):
    """What is left of boxes, best first."""

    def forward(self, boxes, scores):
        kept = fl.ops.torchvision.nms(boxes, scores, 0.3)
        return boxes[kept], kept


class Regions(fl.nn.Module):
    def __init__(self, samples: int, aligned: bool) -> None:
        super().__init__()
        self.samples, self.aligned = samples, aligned

    def forward(self, images, regions):
        return fl.ops.torchvision.roi_align(images, regions, 0.5, 3, 2, self.samples, self.aligned)


def boxes(count: int) -> fl.Tensor:
    low = fl.rand(count, 2) * 20
    return fl.cat([low, low + 2 + fl.rand(count, 2) * 10], 1)


def agree(program, call, inputs):
    for got, want in zip(program(*inputs), call, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_boxes_that_are_kept():
    assert vision.nms is not None
    fl.manual_seed(0)
    net, vary = Kept().eval(), ({0: Dim("boxes")}, {0: Dim("boxes")})
    program = fl.export.export(net, (boxes(9), fl.rand(9)), dynamic_shapes=vary)
    model = fl.onnx.export(net, (boxes(9), fl.rand(9)), dynamic_shapes=vary)
    counts = set()
    for count in (5, 20, 60):
        inputs = boxes(count), fl.rand(count)
        want = net(*inputs)
        counts.add(len(want[1]))
        assert all(fl.equal(a, b) for a, b in zip(program.module()(*inputs), want, strict=True))
        agree(model, want, inputs)
    assert len(counts) == 3


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("samples", [-1, 2])
def test_regions(samples, aligned):
    fl.manual_seed(1)
    net, images = Regions(samples, aligned).eval(), fl.randn(2, 3, 24, 30)
    regions = [fl.cat([fl.randint(0, 2, (count, 1)).float(), boxes(count)], 1) for count in (4, 7)]
    model = fl.onnx.export(net, (images, regions[0]), dynamic_shapes=({}, {0: Dim("regions")}))
    for some in regions:
        agree(model, [net(images, some)], (images, some))
