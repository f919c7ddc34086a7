"""Transposed copies of compiled graphs, and the layouts that convolutions take."""

from __future__ import annotations

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.inductor import graph


@pytest.fixture
def sources(monkeypatch):
    found: list[str] = []
    fl.compiler.reset()
    monkeypatch.setattr(graph, "listening", [*graph.listening, lambda g: found.append(g.unit.source)])
    return found


def is_tiled(source: str) -> bool:
    return "int64_t first = 0" in source


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16, fl.int64, fl.uint8, fl.bool])
@pytest.mark.parametrize("shape", [(3, 45, 70), (2, 64, 32), (2, 33, 31), (1, 40, 300)])
def test_transposed_copies_go_through_tiles(sources, dtype, shape):
    x = (fl.randn(*shape) * 20).to(dtype)

    def copy(x):
        return x.transpose(1, 2).contiguous()
    got = fl.compile(copy)(x)
    assert is_tiled(sources[-1])
    assert got.stride() == copy(x).stride()
    fl.testing.assert_close(got, copy(x), rtol=0, atol=0)


def test_what_is_computed_on_the_way_is_computed_in_the_tiles(sources):
    x, bias = fl.randn(2, 48, 40, 40).contiguous(memory_format=fl.channels_last), fl.randn(48)

    def planes(x, bias):
        return (x.relu() + bias.view(1, -1, 1, 1)).to(fl.bfloat16).contiguous(memory_format=fl.contiguous_format)
    got = fl.compile(planes)(x, bias)
    assert is_tiled(sources[-1])
    fl.testing.assert_close(got, planes(x, bias))


def test_sizes_that_change(sources):
    def copy(x):
        return (x.transpose(1, 2) * 2).contiguous()
    compiled = fl.compile(copy, dynamic=True)
    for shape in [(3, 45, 70), (2, 64, 128), (7, 33, 200), (4, 200, 3)]:
        x = fl.randn(*shape)
        fl.testing.assert_close(compiled(x), copy(x), rtol=0, atol=0)
    assert any(map(is_tiled, sources))


def test_copies_without_a_transposed_side_have_no_tiles(sources):
    x = fl.randn(4, 32, 64, 32)
    fl.compile(lambda x: x.permute(0, 2, 1, 3).contiguous())(x)
    assert not is_tiled(sources[-1])


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 3])
def test_gradients_of_convolutions_of_plain_images(ndim, window):
    function = (F.conv1d, F.conv2d, F.conv3d)[ndim - 1]
    x, w = fl.randn(2, 16, *(9,) * ndim), fl.randn(24, 16, *(window,) * ndim)

    def gradients(f):
        leaves = [t.detach().requires_grad_() for t in (x, w)]
        out = f(*leaves, padding=window // 2)
        return fl.autograd.grad(out.sin().sum(), leaves)
    for got, want in zip(gradients(fl.compile(function)), gradients(function), strict=True):
        fl.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_folds_over_reshaped_images_divide_no_index(sources):
    x = fl.randn(2, 32, 14, 14).contiguous(memory_format=fl.channels_last)

    def groups(x):
        return x.reshape(2, 4, -1).sum(-1)
    got = fl.compile(groups)(x)
    assert " % " not in sources[-1] and " / " not in sources[-1]
    fl.testing.assert_close(got, groups(x), rtol=1e-4, atol=1e-4)
    norm = fl.nn.GroupNorm(4, 32)
    fl.testing.assert_close(fl.compile(norm)(x), norm(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.int64])
@pytest.mark.parametrize("channels", [40, 64])
def test_lines_that_would_push_each_other_out_of_cache_are_stored_from_tiles(sources, dtype, channels):
    x, rows = (fl.randn(2, 33 * 64, channels) * 20).to(dtype), fl.randint(0, 33 * 64, (2, 32 * 32))

    def planes(x, rows):    # one row of `x` after another is read, and what is made of it stored 32 * 32 elements apart
        return fl.stack([a[i] * 2 + 1 for a, i in zip(x, rows)]).transpose(1, 2).contiguous()
    got = fl.compile(planes)(x, rows)
    assert "tile0[" in sources[-1]
    fl.testing.assert_close(got, planes(x, rows), rtol=0, atol=0)


def test_relaid_rows_are_stored_before_they_are_read_at_computed_positions(sources):
    x, rows = fl.randn(2, 32, 40, 40), fl.randint(0, 1600, (5000,))

    def read(x, rows):
        return x.flatten(2).transpose(1, 2).contiguous()[:, rows].sum(1)
    got = fl.compile(read)(x, rows)
    assert is_tiled(sources[-1])
    fl.testing.assert_close(got, read(x, rows), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("channels", [8, 12, 16])
def test_few_channels_go_through_tiles(sources, channels):
    """Rows a multiple of 512 elements apart push each other out of the cache, however few there are."""
    x = fl.randn(2, channels, 64, 64).contiguous(memory_format=fl.channels_last)

    def planes(x):
        return (x * 2).contiguous(memory_format=fl.contiguous_format)
    got = fl.compile(planes)(x)
    assert is_tiled(sources[-1])
    fl.testing.assert_close(got, planes(x), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(2, 48, 40, 33), (2, 32, 32, 64)], ids=str)
def test_costly_bodies_read_turned_tiles(sources, shape):
    """What is side by side in the inner loop is computed in vectors."""
    x, y = fl.randn(*shape).contiguous(memory_format=fl.channels_last), fl.randn(*shape)

    def planes(x, y):
        return x.sigmoid() * y.exp()
    want = planes(x, y)
    sources.clear()
    got = fl.compile(planes)(x, y)
    assert is_tiled(sources[-1]) and "read0[" in sources[-1]
    fl.testing.assert_close(got, want)


def test_loops_over_a_few_channels_of_a_group_are_joined(sources):
    x, weight = fl.randn(4, 32, 16, 16).contiguous(memory_format=fl.channels_last).requires_grad_(), fl.randn(32, requires_grad=True)

    def normed(x, weight):
        return F.silu(F.group_norm(x, 8, weight))

    def gradients(f):
        return fl.autograd.grad(f(x, weight).sin().sum(), (x, weight))
    wanted = gradients(normed)
    sources.clear()
    for got, want in zip(gradients(fl.compile(normed)), wanted, strict=True):
        fl.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert sum("kept0[" in source for source in sources) == 2    # forward and backward


def test_what_is_repeated_is_stored_once(monkeypatch):
    """A costly value that is read twice is stored before it is expanded, not after."""
    programs = []
    x, y = fl.rand(64, 1), fl.randn(64, 512)

    def f(x, y):
        z = (x + 1).rsqrt().expand(64, 512)
        return (z * y).sum(0), (z + y).cumsum(0)
    want = f(x, y)
    monkeypatch.setattr(graph, "listening", [programs.append])
    for a, b in zip(fl.compile(f)(x, y), want, strict=True):
        fl.testing.assert_close(a, b)
    assert any("rsqrt" in str(s.origins) and tuple(n for _, n in s.loops) == (64,) for s in programs[0].program.steps)


def test_what_is_read_at_computed_positions_is_read_before_costly_bodies(sources):
    """The check of a position is a branch, without which the rest is computed in vectors."""
    x, at = fl.randn(6, 300), fl.randint(-300, 300, (6, 700))

    def f(x, at):
        return x.gather(1, at % 300).exp() + x.gather(1, (at % 300).flip(1)).tanh()
    want = f(x, at)
    compiled = fl.compile(f)
    got = compiled(x, at)
    assert any("got1[" in source for source in sources)
    fl.testing.assert_close(got, want)
    with pytest.raises(RuntimeError, match="out of bounds"):
        fl.compile(lambda x, at: x.gather(1, at).exp())(x, at + 300)
