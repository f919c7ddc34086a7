"""Strides of convolutions, pools, stacks and their like beside torch's, over every way that images may lie, sizes of one included."""

from __future__ import annotations

import itertools

import pytest

import flambeau as fl
from flambeau.core.size import looks_channels_last

torch = pytest.importorskip("torch")
SIZES = {3: [(2, 3, 4), (1, 2, 3), (2, 1, 3), (3, 2, 1)], 4: [(2, 3, 4, 3), (1, 2, 3, 2), (2, 1, 3, 2), (2, 3, 1, 1), (1, 1, 2, 2)],
         5: [(2, 3, 2, 3, 2), (1, 2, 1, 2, 3), (2, 1, 2, 2, 1)], 2: [(3, 4), (1, 3)]}


def laid_out(lib, shape):
    """The same numbers in every order of the dimensions, with gaps between them, and cut out of channels-last images."""
    plain = lib.arange(1.0, 1.0 + float(fl.Size(shape).numel())).reshape(shape)
    rank = len(shape)
    for order in itertools.permutations(range(rank)):
        yield plain.permute(order).contiguous().permute([order.index(d) for d in range(rank)])
    if rank > 2:
        last = plain.movedim(1, -1).contiguous().movedim(-1, 1)
        yield lib.cat([last, last])[: shape[0]]
        yield lib.cat([last, last]).movedim(1, -1).contiguous().movedim(-1, 1)[::2]
        yield lib.cat([last, last], 2).movedim(1, -1).contiguous().movedim(-1, 1)[:, :, ::2]
        yield lib.cat([last, last], 1).movedim(1, -1).contiguous().movedim(-1, 1)[:, ::2]


def strides(t):
    return tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()


def pools():
    made = {}
    for d in (1, 2, 3):
        f = {lib: lib.nn.functional for lib in (fl, torch)}
        made |= {
            (f"max_pool{d}d", d): lambda lib, x, d=d: getattr(f[lib], f"max_pool{d}d")(x, 1),
            (f"positions{d}d", d): lambda lib, x, d=d: getattr(f[lib], f"max_pool{d}d")(x, 1, return_indices=True)[1],
            (f"avg_pool{d}d", d): lambda lib, x, d=d: getattr(f[lib], f"avg_pool{d}d")(x, 1),
            (f"lp_pool{d}d", d): lambda lib, x, d=d: getattr(f[lib], f"lp_pool{d}d")(x, 2.0, 1),
            (f"adaptive_avg_pool{d}d", d): lambda lib, x, d=d: getattr(f[lib], f"adaptive_avg_pool{d}d")(x, 2),
            (f"adaptive_max_pool{d}d", d): lambda lib, x, d=d: getattr(f[lib], f"adaptive_max_pool{d}d")(x, 2),
        }
    return made


POOLS = pools()


@pytest.mark.parametrize("name,spatial", POOLS)
def test_pools(name, spatial):
    run = POOLS[name, spatial]
    for shape in SIZES[spatial + 1] + SIZES[spatial + 2]:
        for x, y in zip(laid_out(fl, shape), laid_out(torch, shape)):
            assert x.stride() == y.stride()
            if name in ("max_pool3d", "positions3d") and len(shape) == 4 and looks_channels_last(y.shape, y.stride()):
                continue    # torch takes an image for a batch there, and refuses it
            assert strides(run(fl, x)) == strides(run(torch, y)), (shape, x.stride())


def same_order(run, shapes, fewer=1):
    """Results of `run(lib, *tensors)` lie alike, for every pair of layouts of tensors of these shapes."""
    ours, theirs = ([list(laid_out(lib, shape))[::fewer] for shape in shapes] for lib in (fl, torch))
    for xs, ys in zip(itertools.product(*ours), itertools.product(*theirs)):
        got, want = run(fl, *xs), run(torch, *ys)
        assert strides(got) == strides(want), (shapes, [x.stride() for x in xs])
        assert fl.allclose(got, fl.from_numpy(want.contiguous().numpy()))


CONVOLUTIONS = {
    "conv1d": [((2, 2, 4), (3, 2, 2)), ((2, 4), (3, 2, 2)), ((2, 1, 2), (2, 1, 1)), ((1, 2, 3), (1, 2, 1))],
    "conv2d": [((2, 2, 3, 2), (3, 2, 2, 1)), ((2, 3, 2), (3, 2, 2, 1)), ((2, 1, 3, 3), (2, 1, 1, 1)), ((1, 2, 1, 1), (2, 2, 1, 1))],
    "conv_transpose1d": [((2, 2, 4), (2, 3, 2)), ((2, 4), (2, 3, 2)), ((2, 1, 2), (1, 2, 1))],
    "conv_transpose2d": [((2, 2, 3, 2), (2, 3, 2, 1)), ((2, 3, 2), (2, 3, 2, 1)), ((1, 2, 1, 1), (2, 2, 2, 2))],
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    """Channels last where the weight lies so, or the batch of images does."""
    for shapes in CONVOLUTIONS[name]:
        same_order(lambda lib, x, w: getattr(lib.nn.functional, name)(x, w), shapes, 3)


def test_convolutions_in_three_dimensions_follow_the_weight_or_the_batch():
    """As those in two; torch's hang on the number of threads."""
    x, w = fl.randn(2, 3, 4, 3, 3), fl.randn(4, 3, 2, 2, 2)
    last = fl.channels_last_3d
    for a, b in itertools.product((x, x.contiguous(memory_format=last)), (w, w.contiguous(memory_format=last))):
        out = fl.nn.functional.conv3d(a, b)
        assert out.is_contiguous(memory_format=fl.contiguous_format if a is x and b is w else last)
        assert fl.allclose(out, fl.nn.functional.conv3d(x, w), atol=1e-5)


OTHERS = {
    "roll": lambda lib, x: x.roll((1, 1), (1, 2)),
    "flat roll": lambda lib, x: x.roll(1),
    "fftshift": lambda lib, x: lib.fft.ifftshift(x, dim=(1, -1)),
    "cat": lambda lib, x: lib.cat([x, x], 1),
    "stack": lambda lib, x: lib.stack([x]),
    "stack of two": lambda lib, x: lib.stack([x, x], 1),
    "stack behind": lambda lib, x: lib.stack([x, x], -1),
    "angle": lambda lib, x: lib.complex(x, x).angle(),
    "rms_norm": lambda lib, x: lib.nn.functional.rms_norm(x, x.shape[-2:]),
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(x, x.shape[-2:]),
    "channel_shuffle": lambda lib, x: lib.nn.functional.channel_shuffle(x, x.shape[1]),
    "pixel_shuffle": lambda lib, x: lib.nn.functional.pixel_unshuffle(x.repeat_interleave(2, -1).repeat_interleave(2, -2), 2),
    "pad": lambda lib, x: lib.nn.functional.pad(x, (1, 0)),
    "crop": lambda lib, x: lib.nn.functional.pad(x, (-1, 1)),
    "bessel": lambda lib, x: lib.special.spherical_bessel_j0(x),
    "made out": lambda lib, x: lib.ne(x, 2.0, out=lib.empty(0, dtype=lib.bool)),
    "rounded out": lambda lib, x: lib.round(x, out=lib.empty(0)),
    "index": lambda lib, x: x[None, lib.tensor([1, 0, 1])] if x.shape[0] > 1 else x[None],
    "index behind": lambda lib, x: x[..., lib.tensor([0, 0])],
    "index before": lambda lib, x: x[:, lib.tensor([[0, 0]]), None],
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    for rank in (3, 4):
        for shape in SIZES[rank]:
            for x, y in zip(laid_out(fl, shape), laid_out(torch, shape)):
                assert strides(OTHERS[name](fl, x)) == strides(OTHERS[name](torch, y)), (shape, x.stride())


def test_powers_of_matrices_lie_in_rows():
    for n in range(-3, 5):
        same_order(lambda lib, x: lib.matrix_power(x + 3 * lib.eye(3), n).round(decimals=2), [(2, 3, 3)])


def test_attention_lies_as_the_query():
    """In whose rows the heads may lie, where all have whole rows of one size; else in rows."""
    def laid(x):
        return {"plain": x, "heads inside": x.transpose(1, 2).contiguous().transpose(1, 2), "gaps": x.repeat_interleave(2, -1)[..., ::2],
                "columns": x.mT.contiguous().mT}

    shape, other = (2, 3, 4, 5), (2, 3, 4, 6)
    ours, theirs = ({size: laid(lib.ones(size)) for size in (shape, other)} for lib in (fl, torch))
    for q, k, v in itertools.product(ours[shape], repeat=3):
        for size in (shape, other):
            got, want = (lib.nn.functional.scaled_dot_product_attention(made[shape][q], made[shape][k], made[size][v])
                         for lib, made in ((fl, ours), (torch, theirs)))
            assert got.stride() == want.stride(), (q, k, v, size)


@pytest.mark.parametrize("name", ["soft_margin_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss"])
def test_losses_that_are_not_reduced(name):
    """As the scores lie, whichever way the target does; with logits as the target does."""
    for shape in SIZES[2] + SIZES[3] + SIZES[4]:
        for x, y in zip(laid_out(fl, shape), laid_out(torch, shape)):
            got, want = (getattr(lib.nn.functional, name)(scores / 1000, lib.ones(tuple(scores.shape)), reduction="none")
                         for lib, scores in ((fl, x), (torch, y)))
            assert strides(got) == strides(want), (shape, x.stride())
