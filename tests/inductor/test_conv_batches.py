"""Convolutions of batches whose size varies are oneDNN's calls in compiled code, forward and backward, at every size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau.inductor import graph as graphs
from flambeau.nn import functional as F

KINDS: dict[str, tuple[Callable, tuple[int, ...], tuple[int, ...]]] = {
    # name: (function, the weight's shape, an image's shape)
    "plain": (lambda x, w: F.conv2d(x, w, padding=1), (8, 4, 3, 3), (4, 9, 9)),
    "one by one": (F.conv2d, (8, 4, 1, 1), (4, 9, 9)),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2, dilation=2), (8, 4, 3, 3), (4, 9, 9)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4), (4, 1, 3, 3), (4, 9, 9)),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (8, 2, 3, 3), (4, 9, 9)),
    "a line": (F.conv1d, (8, 4, 3), (4, 16)),
    "a volume": (F.conv3d, (8, 4, 2, 2, 2), (4, 5, 5, 5)),
    "transposed": (F.conv_transpose2d, (4, 8, 3, 3), (4, 6, 6)),
}


@pytest.mark.parametrize("name", KINDS)
def test_as_eager(name: str) -> None:
    fn, weight_shape, image = KINDS[name]
    torch.manual_seed(0)
    weight = torch.randn(weight_shape, requires_grad=True)
    compiled = torch.compile(lambda x, w: fn(x * 2, w).relu())
    fallbacks: list[str] = []
    graphs.listening.append(lambda graph: fallbacks.extend(graph.fallbacks))
    try:
        for batch in (3, 5, 1, 8):
            x = torch.randn(batch, *image)
            results = []
            for run in (compiled, lambda x, w: fn(x * 2, w).relu()):
                given, weight.grad = x.clone().requires_grad_(), None
                if batch > 1:
                    torch._dynamo.mark_dynamic(given, 0)
                out = run(given, weight)
                out.square().sum().backward()
                results.append((out, given.grad, weight.grad))
            for got, expected in zip(*results, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    finally:
        graphs.listening.pop()
    assert not fallbacks


def test_one_image_with_its_channels_innermost() -> None:
    """A batch of one has no stride to speak of: whatever it says, the kernel is not a reference loop."""
    x = torch.randn(1, 16, 12, 12).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(16, 16, 3, 3)
    torch.testing.assert_close(torch.compile(F.conv2d)(x, weight), F.conv2d(x, weight), rtol=1e-4, atol=1e-4)
