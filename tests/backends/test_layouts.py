"""Every entry into native code reads operands where they lie: strided, offset, transposed, expanded, overlapping; values do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import Tensor
from flambeau.backends.cpu import onednn
from flambeau.backends.cpu.onednn import PostOp, operand
from flambeau.nn import functional as F


# -- the same values, laid out otherwise ---------------------------------------------------------------------------
def strided(x: Tensor) -> Tensor:
    room = torch.full([2 * n for n in x.shape], 63, dtype=x.dtype)
    view = room[tuple(slice(0, None, 2) for _ in x.shape)]
    return view.copy_(x)


def offset(x: Tensor) -> Tensor:
    room = torch.full([n + 2 for n in x.shape], 63, dtype=x.dtype)
    return room[tuple(slice(1, -1) for _ in x.shape)].copy_(x)


def turned(x: Tensor) -> Tensor:
    axes = tuple(reversed(range(x.ndim)))
    return x.permute(axes).contiguous().permute(axes)


def channels_last(x: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.ndim]) if x.ndim in formats else strided(x)


def first_repeated(x: Tensor) -> Tensor:
    return x[:1].expand(x.shape)


def last_repeated(x: Tensor) -> Tensor:
    return x[..., :1].expand(x.shape)


def windows(x: Tensor) -> Tensor:
    return x.flatten()[: sum(n - 1 for n in x.shape) + 1].as_strided(x.shape, (1,) * x.ndim)


LAYOUTS = [strided, offset, turned, channels_last, first_repeated, last_repeated, windows]


def normal(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, dtype=torch.float64)


def positive(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape, dtype=torch.float64) + 0.5


n, u = normal, positive
tokens = torch.tensor([[1, 2], [0, 2]])
CALLS: dict[str, tuple[Callable, list]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), [n(2, 4, 9), n(6, 4, 3), n(6)]),
    "conv1d depthwise": (lambda x, w, b: F.conv1d(x, w, b, groups=4), [n(2, 4, 9), n(4, 1, 3), n(4)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [n(2, 4, 9, 9), n(6, 4, 3, 3), n(6)]),
    "conv2d 1x1": (lambda x, w, b: F.conv2d(x, w, b), [n(2, 4, 9, 9), n(6, 4, 1, 1), n(6)]),
    "conv2d groups": (lambda x, w, b: F.conv2d(x, w, b, stride=2, groups=2), [n(2, 4, 9, 9), n(6, 2, 3, 3), n(6)]),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, dilation=2), [n(1, 3, 6, 6, 6), n(4, 3, 2, 2, 2), n(4)]),
    "conv_transpose2d": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, groups=2), [n(2, 4, 5, 5), n(4, 3, 3, 3), n(6)]),
    "linear": (F.linear, [n(5, 8), n(6, 8), n(6)]),
    "linear wide": (F.linear, [n(60, 64), n(150, 64), n(150)]),
    "linear of one row": (F.linear, [n(1, 300), n(400, 300), n(400)]),
    "bilinear": (F.bilinear, [n(5, 8), n(5, 4), n(6, 8, 4), n(6)]),
    "matmul": (torch.matmul, [n(50, 80), n(80, 60)]),
    "matmul large": (torch.matmul, [n(130, 80), n(80, 130)]),
    "bmm": (torch.bmm, [n(5, 30, 40), n(5, 40, 20)]),
    "bmm small": (torch.bmm, [n(5, 3, 4), n(5, 4, 6)]),
    "matvec": (torch.mv, [n(50, 80), n(80)]),
    "dot": (torch.dot, [n(80), n(80)]),
    "addmm": (torch.addmm, [n(60), n(50, 80), n(80, 60)]),
    "addmm full": (torch.addmm, [n(50, 60), n(50, 80), n(80, 60)]),
    "baddbmm": (torch.baddbmm, [n(5, 30, 20), n(5, 30, 40), n(5, 40, 20)]),
    "addmv": (torch.addmv, [n(50), n(50, 80), n(80)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (80,), w, b, 0.1), [n(500, 80), n(80), n(80)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (80,), w, 0.1), [n(50, 80), n(80)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b, 0.1), [n(5, 8, 3, 3), n(8), n(8)]),
    "batch_norm": (lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b), [n(5, 8, 13, 13), n(8), u(8), n(8), n(8)]),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b, eps=0.1), [n(5, 8, 3, 3), n(8), n(8)]),
    "embedding": (lambda w: F.embedding(torch.arange(300).view(2, 150), w), [n(300, 80)]),
    "embedding_bag": (lambda w, p: F.embedding_bag(tokens, w, per_sample_weights=p, mode="sum"), [n(3, 8), n(2, 2)]),
    "embedding_bag max": (lambda w: F.embedding_bag(tokens, w, mode="max"), [n(3, 8)]),
    "prelu": (F.prelu, [n(3, 8, 5), n(8)]),
    "attention": (F.scaled_dot_product_attention, [n(2, 2, 40, 16), n(2, 2, 40, 16), n(2, 2, 40, 16)]),
    "attention masked": (F.scaled_dot_product_attention, [n(2, 2, 16, 16), n(2, 2, 16, 16), n(2, 2, 16, 16), n(16, 16)]),
    "cross_entropy": (lambda x, w: F.cross_entropy(x, torch.tensor([0, 2, 1]), w), [n(3, 8), u(8)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), [n(2, 4, 8, 8)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), [n(2, 4, 8, 8)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [n(2, 4, 8, 8)]),
    "gru_cell": (torch.gru_cell, [n(3, 8), n(3, 6), n(18, 8), n(18, 6), n(18), n(18)]),
    "cumsum": (lambda x: x.cumsum(1), [n(50, 400)]),
    "sum": (lambda x: x.sum(0), [n(50, 400)]),
    "index_select": (lambda x: x.index_select(0, torch.arange(300)), [n(300, 80)]),
    "cat": (lambda x, y: torch.cat([x, y]), [n(300, 80), n(300, 80)]),
}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.06}


def values_and_gradients(fn: Callable, args: list[Tensor]) -> list[Tensor]:
    leaves = [a.detach().requires_grad_() for a in args]
    out = fn(*leaves)
    found = torch.autograd.grad(out, leaves, torch.ones_like(out) / out.numel() ** 0.5, allow_unused=True)
    return [out, *(g for g in found if g is not None)]


@pytest.mark.parametrize("kind", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_values_do_not_depend_on_where_operands_lie(name: str, kind: torch.dtype) -> None:
    fn, makers = CALLS[name]
    torch.manual_seed(0)
    plain = [make().to(kind) for make in makers]
    for i in range(len(plain)):
        for layout in LAYOUTS:
            args = [*plain[:i], layout(plain[i]), *plain[i + 1:]]
            expected = values_and_gradients(fn, [a.contiguous() for a in args])
            for got, want in zip(values_and_gradients(fn, args), expected):
                bound = TOLERANCE[kind] * max(1.0, float(want.abs().max()))
                torch.testing.assert_close(got, want, rtol=bound, atol=bound, msg=lambda m, f=layout: f"operand {i}, {f.__name__}: {m}")


@pytest.mark.parametrize("layout", [strided, offset, turned])
def test_running_statistics_are_kept_where_they_lie(layout: Callable) -> None:
    x = torch.randn(4, 6, 3)
    plain, other = [torch.zeros(6), torch.ones(6)], [layout(torch.zeros(6)), layout(torch.ones(6))]
    for statistics in (plain, other):
        F.batch_norm(x, *statistics, training=True)
    for a, b in zip(plain, other):
        torch.testing.assert_close(b, a)


OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta,
              torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD, torch.optim.Rprop]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.__name__)
@pytest.mark.parametrize("layout", [strided, offset, turned, channels_last])
def test_optimizers_write_parameters_where_they_lie(optimizer: Any, layout: Callable) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(3, 4, 5, 6), torch.randn(3, 3, 4, 5, 6)
    options = {"lr": 0.1} | ({"momentum": 0.9} if optimizer is torch.optim.SGD else {})
    found = []
    for of_parameter, of_gradient in ((torch.clone, torch.clone), (layout, torch.clone), (torch.clone, layout), (layout, layout)):
        parameter = torch.nn.Parameter(of_parameter(start))
        steps = optimizer([parameter], **options)
        for g in gradients:
            parameter.grad = of_gradient(g)
            steps.step()
        found.append(parameter.detach())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


# -- oneDNN's operations, as compiled graphs describe them ---------------------------------------------------------
@pytest.mark.skipif(not onednn.available(), reason="oneDNN is not installed")
@pytest.mark.parametrize("kind", ["bias", "add", "mul"])
@pytest.mark.parametrize("sizes", [(5, 8, 6), (64, 64, 48), (130, 64, 140)])
def test_vectors_beside_a_product(sizes: tuple[int, int, int], kind: str) -> None:
    m, k, width = sizes
    rng = np.random.default_rng(0)
    x, w, room = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, width), (2 * width + 3,)))
    tried = 0
    for vector in (room[:width], room[3:width + 3], room[:2 * width:2], room[None, 1:2 * width + 1:2], np.broadcast_to(room[:1], width),
                   np.broadcast_to(room[:width], (m, width)), room[: (m + width) // 9 * 9][:1].reshape(1, 1)):
        out = np.empty((m, width), np.float32)
        bias, post = (operand(vector), ()) if kind == "bias" else (None, (PostOp(kind, operand=operand(vector)),))
        try:
            op = onednn.matmul(operand(x), operand(w), operand(out), bias=bias, post=post)
        except NotImplementedError:
            continue
        tried += 1
        onednn.run(op, x, w, out, vector)
        np.testing.assert_allclose(out, x @ w * vector if kind == "mul" else x @ w + vector, rtol=1e-4, atol=1e-4)
    assert tried >= 4
