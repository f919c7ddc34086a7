"""The memory order of padded, pooled, normalised and concatenated images: channels-last stays, in eager, in fakes and compiled."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.core.dispatch import fake_mode

functional = fl.nn.functional
WORKS = {
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1)),
    "crop": lambda x: functional.pad(x, (-1, 0, 0, -2)),
    "cat": lambda x: fl.cat([x, x * 2], 1),
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "positions": lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "large windows": lambda x: functional.avg_pool2d(x, 4),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, 3),
    "uneven means": lambda x: functional.adaptive_avg_pool2d(x, (5, 7)),
    "uneven maxima": lambda x: functional.adaptive_max_pool2d(x, (5, 7)),
    "group_norm": lambda x: functional.group_norm(x, 1, fl.arange(3.0), fl.ones(3)),
    "uneven positions": lambda x: functional.adaptive_max_pool2d(x, (5, 7), return_indices=True)[1],
}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_memory_order(name, last):
    x = fl.randn(2, 3, 12, 12)
    x = x.contiguous(memory_format=fl.channels_last) if last else x
    eager, compiled = WORKS[name](x), fl.compile(WORKS[name])(x)
    assert eager.is_contiguous(memory_format=fl.channels_last if last else fl.contiguous_format)
    assert compiled.stride() == eager.stride() and fl.allclose(compiled, eager, atol=1e-6)
    with fake_mode():
        fake = WORKS[name](fl.empty_strided(tuple(x.shape), x.stride()))
    assert fake.stride() == eager.stride()


def test_instance_norm_is_contiguous():
    """Whatever lies before it, as torch's."""
    x = fl.randn(2, 3, 12, 12).contiguous(memory_format=fl.channels_last)
    assert functional.instance_norm(x).is_contiguous() and fl.compile(functional.instance_norm)(x).is_contiguous()


def test_mixed_orders_concatenate_to_contiguous():
    x = fl.randn(2, 3, 4, 4)
    y = fl.cat([x.contiguous(memory_format=fl.channels_last), x], 1)
    assert y.is_contiguous() and fl.equal(y[:, :3], x)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 0, 2), (5, 3, 2, 1)], ids=str)
def test_compiled_maxima_and_positions_are_eager_ones(window, ceil_mode):
    """Also of NaN, which wins, and of windows of minus infinity, whose first element is taken."""
    x = fl.randn(2, 3, 11, 13)
    x[0, 0, 4, 4], x[0, 1] = float("nan"), -float("inf")

    def pool(x):
        return functional.max_pool2d(x, *window, ceil_mode=ceil_mode, return_indices=True)

    y = x.clone().requires_grad_()
    for got, want in zip(fl.compile(pool)(x), pool(x), strict=True):
        fl.testing.assert_close(got, want, equal_nan=True)
    fl.compile(lambda x: pool(x)[0].nan_to_num().sin())(y).sum().backward()
    z = x.clone().requires_grad_()
    pool(z)[0].nan_to_num().sin().sum().backward()
    fl.testing.assert_close(y.grad, z.grad, equal_nan=True)


def test_symbolic_sizes():
    pool = fl.compile(lambda x: functional.max_pool2d(x * 2, 3, 2, 1) + 1, dynamic=True)
    for size in (8, 13, 20):
        x = fl.randn(2, 3, size, size + 1, requires_grad=True)
        out, want = pool(x), functional.max_pool2d(x * 2, 3, 2, 1) + 1
        fl.testing.assert_close(out, want)
        fl.testing.assert_close(*(fl.autograd.grad(y.sin().sum(), x)[0] for y in (out, want)))
