"""Operators over lists of tensors, and the torch.* forms of layers, against torch."""

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops import foreach

torch = pytest.importorskip("torch")


def lists(lib, seed=0):
    rng = np.random.default_rng(seed)
    return [lib.tensor(rng.random(s).astype(np.float32) + 0.1) for s in ((2, 3), (4,))]


@pytest.mark.parametrize("name", [*foreach.UNARY, "add", "sub", "mul", "div", "clamp_min", "maximum", "minimum", "pow",
                                  "addcmul", "addcdiv",
                                  "lerp"])
def test_as_torch(name):
    def call(lib, suffix):
        a, b, c = lists(lib, 0), lists(lib, 1), lists(lib, 2)
        fn = getattr(lib, f"_foreach_{name}{suffix}")
        if name in foreach.UNARY:
            args = ()
        elif name in ("addcmul", "addcdiv"):
            args = (b, c, 0.5)
        else:
            args = (b, c) if name == "lerp" else (b,)
        out = fn(a, *args)
        return a if suffix else out
    for suffix in ("", "_"):
        for x, y in zip(call(fl, suffix), call(torch, suffix)):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int64", "complex64"])
@pytest.mark.parametrize("other", [2, 2.0, 1.5, [2, 1.5], True])
@pytest.mark.parametrize("name", [n for n in foreach.BINARY if n not in ("addcmul", "addcdiv", "lerp")])
def test_numbers_as_torch(name, other, kind):
    def call(lib):
        try:
            given = [lib.tensor(v, dtype=getattr(lib, kind)) for v in ([1, 2, 3], [2])]
            leaves = [t.requires_grad_() for t in given] if kind == "float32" else []
            made = getattr(lib, f"_foreach_{name}")(given, other)
            grads = lib.autograd.grad([t.sum() for t in made], leaves) if leaves else []
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return type(error)
        return [(str(t.dtype), t.tolist()) for t in (*made, *grads)]
    assert call(fl) == call(torch)


def test_scalars_norms_and_bad_lists():
    for lib in (fl, torch):
        a = lists(lib)
        assert np.allclose(lib._foreach_mul(a, 2.0)[1].numpy(), a[1].numpy() * 2)
        assert np.allclose(lib._foreach_mul(a, [2.0, 3.0])[1].numpy(), a[1].numpy() * 3)
        assert np.allclose(lib._foreach_norm(a)[0].item(), np.linalg.norm(a[0].numpy()))
        with pytest.raises(RuntimeError):
            lib._foreach_add(a, lists(lib)[:1])
        lib._foreach_zero_(a)
        assert not a[0].numpy().any()


def test_layers_with_torchs_argument_order():
    rng = np.random.default_rng(0)
    x, w, b, m = (rng.random(s).astype(np.float32) for s in ((4, 3, 5), (3,), (3,), (3,)))
    found = []
    for lib in (fl, torch):
        t = [lib.tensor(v.copy()) for v in (x, w, b, m, m + 1)]
        found.append([lib.batch_norm(*t, False, 0.1, 1e-5, False), lib.instance_norm(t[0], t[1], t[2], None, None,
                                                                                     True, 0.1, 1e-5, False),
                      lib.embedding(lib.tensor(x[0]), lib.tensor([0, 2])), *lib.native_layer_norm(t[0], [5], None, None, 1e-5),
                      lib.convolution(t[0], lib.tensor(x[:2, :, :2].copy()), None, [1], [0], [1], False, [0], 1),
                      *lib.native_group_norm(t[0], t[1], t[2], 4, 3, 5, 3, 1e-5), lib.native_dropout(t[0], 0.5, False)[1],
                      lib.nn.functional.conv_tbc(t[0], lib.tensor(x[:2, 0, :, None] * x[:2, :1, :2]), t[1][:2], 1),
                      lib.embedding_renorm_(lib.tensor(x[0].copy()), lib.tensor([0, 2]), 0.3, 2.0),
                      lib.alpha_dropout_(t[0], 0.5, False), lib.native_channel_shuffle(t[0], 3),
                      lib.grid_sampler_2d(t[0][None], lib.zeros(1, 2, 2, 2), 0, 0, False)])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_native_dropout_keeps_what_its_mask_says():
    fl.manual_seed(0)
    out, mask = fl.native_dropout(fl.ones(1000), 0.25, True)
    assert fl.allclose(out, mask / 0.75) and 0.7 < mask.float().mean() < 0.8
    x = fl.ones(4, 6)
    assert fl.feature_dropout_(x, 0.5, True) is x and ((x == 0) | (x == 2)).all()


def test_refused_shapes_of_conv_tbc():
    for lib in (fl, torch):
        with pytest.raises(RuntimeError, match="time, batch"):
            lib.conv_tbc(lib.ones(2, 2), lib.ones(2, 2, 2), lib.ones(2))


@pytest.mark.parametrize("call", [
    lambda p: fl._foreach_add_(p, 1.0), lambda p: fl._foreach_mul_(p, 2.0), lambda p: fl._foreach_zero_(p),
    lambda p: fl._foreach_copy_(p, [fl.zeros(2), fl.zeros(3)]), lambda p: fl._foreach_sqrt_(p), lambda p: fl._foreach_lerp_(p, p, 0.5)])
def test_nothing_is_written_where_one_tensor_is_refused(call) -> None:
    given = [fl.full((2,), 4.0), fl.ones(3, requires_grad=True)]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        call(given)
    assert given[0].tolist() == [4, 4] and given[0]._version == 0
