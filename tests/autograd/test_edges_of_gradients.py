"""Gradients where operators have edges: the origin of an angle, infinite weights, narrow floats, nothing to take the median of, and
paddings that leave room for another window."""

from __future__ import annotations

import itertools

import pytest

import flambeau

theirs = pytest.importorskip("torch")

FUNCTIONS = {
    "atan2": lambda t, a, b: t.atan2(a, b),
    "nextafter": lambda t, a, b: t.nextafter(a, b),
    "nextafter of float16": lambda t, a, b: t.nextafter(a.half(), b.half()),
    "nextafter of bfloat16": lambda t, a, b: t.nextafter(a.bfloat16(), b.bfloat16()),
    "lerp by infinity": lambda t, a, b: t.lerp(a, b, t.tensor([1.0, float("inf"), 0.2, 0.4, -0.7])),
    "lerp by its end": lambda t, a, b: t.lerp(b, a, a),
    "lerp of complex numbers": lambda t, a, b: t.view_as_real(t.lerp(t.complex(a, b), t.complex(b, a), t.complex(b, b))),
    "median of nothing": lambda t, a, b: a[:0].median() + b[:0].nanmedian(),
    "lerp broadcast": lambda t, a, b: t.lerp(a, b[:1], b.reshape(5, 1)),
}


def gradients(t, f):
    a = t.tensor([0.0, 1.0, -2.0, 0.0, 0.3]).requires_grad_()
    b = t.tensor([0.0, 0.0, 3.0, -2.0, 0.3]).requires_grad_()
    y = f(t, a, b)
    return [y.detach().float().tolist()] + [None if g is None else g.tolist() for g in t.autograd.grad(y.sum(), [a, b], allow_unused=True)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_torch(name):
    for ours, right in zip(gradients(flambeau, FUNCTIONS[name]), gradients(theirs, FUNCTIONS[name])):
        assert (ours is None) == (right is None)
        if ours is not None:
            theirs.testing.assert_close(theirs.tensor(ours), theirs.tensor(right), equal_nan=True)


def transposed(t, dims, stride, dilation, extra, kind):
    x = (t.arange(2.0 * 3**dims).reshape(1, 2, *[3] * dims) % 5).to(getattr(t, kind)).requires_grad_()
    w = (t.arange(4.0 * 2**dims).reshape(2, 2, *[2] * dims) % 3).to(getattr(t, kind)).requires_grad_()
    y = getattr(t.nn.functional, f"conv_transpose{dims}d")(x, w, stride=stride, dilation=dilation, output_padding=extra, padding=1)
    weights = (t.arange(float(y.numel())).reshape(y.shape) % 7).to(y.dtype)
    return [y.tolist()] + [g.tolist() for g in t.autograd.grad((y * weights).sum(), [x, w])]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_an_output_padding_beyond_the_stride(dims):
    for how, kind in itertools.product([(1, 2, 1), (1, 3, 2), (2, 3, 2), (1, 2, 0), (2, 5, 4)], ["float32", "float64"]):
        assert transposed(flambeau, dims, *how, kind) == transposed(theirs, dims, *how, kind), (how, kind)
