"""Convolution, pooling and batch norm on the GPU against the CPU backend, eager and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

functional = fl.nn.functional

CONVOLUTIONS = {  # x, w, (stride, padding, dilation, groups)
    "plain": ((2, 8, 9, 9), (16, 8, 3, 3), (1, 1, 1, 1)),
    "strided": ((2, 8, 9, 10), (16, 8, 3, 3), (2, 1, 1, 1)),
    "pointwise": ((2, 8, 5, 5), (16, 8, 1, 1), (1, 0, 1, 1)),
    "dilated": ((2, 8, 12, 12), (8, 8, 3, 3), (1, 2, 2, 1)),
    "grouped": ((2, 8, 9, 9), (16, 2, 3, 3), (1, 1, 1, 4)),
    "depthwise": ((2, 16, 9, 9), (16, 1, 3, 3), (1, 1, 1, 16)),
    "images": ((2, 3, 32, 32), (64, 3, 7, 7), (2, 3, 1, 1)),
    "odd": ((3, 5, 7, 11), (7, 5, 2, 3), ((2, 1), (1, 0), (1, 2), 1)),
    "line": ((2, 8, 20), (16, 8, 5), (2, 2, 1, 1)),
    "volume": ((2, 4, 6, 7, 8), (8, 4, 3, 3, 3), (1, 1, 1, 1)),
}
TOLERANCE = {"float32": 2e-5, "float64": 1e-9, "float16": 3e-3, "bfloat16": 2e-2}


@pytest.fixture(autouse=True)
def exact_sums():
    """f32 is compared without TF32."""
    with fl.backends.cudnn.flags(allow_tf32=False):
        yield


def _made(shape, kind, seed, format=fl.contiguous_format):
    values = np.random.default_rng(seed).standard_normal(shape)
    return fl.tensor(values, dtype=kind).contiguous(memory_format=format)


def _gradients(fn, tensors, where):
    placed = [t.detach().to(where).requires_grad_() for t in tensors]
    out = fn(*placed)
    weight = fl.tensor(np.random.default_rng(9).standard_normal(tuple(out.shape)), dtype=out.dtype).to(where)
    grads = fl.autograd.grad((out * weight).sum(), placed)
    return out, [t.detach().double().cpu().numpy() for t in (out, *grads)]


def _same(got, want, tolerance):
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert np.linalg.norm(a - b) <= tolerance * max(np.linalg.norm(b), 1e-30)


def _compare(fn, tensors, kind, compiled=False):
    fl._dynamo.reset()
    out, got = _gradients(fl.compile(fn) if compiled else fn, tensors, "cuda")
    _, want = _gradients(fn, [t.double() for t in tensors], "cpu")
    _same(got, want, TOLERANCE[kind])
    return out


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_and_its_gradients(name, kind, compiled):
    x_shape, w_shape, (stride, padding, dilation, groups) = CONVOLUTIONS[name]
    conv = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}[len(x_shape)]
    dtype = getattr(fl, kind)
    tensors = [_made(x_shape, dtype, 0), _made(w_shape, dtype, 1), _made(w_shape[:1], dtype, 2)]
    _compare(lambda x, w, b: conv(x, w, b, stride, padding, dilation, groups), tensors, kind, compiled)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_transposed_convolution(kind, rank):
    conv = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    dtype = getattr(fl, kind)
    tensors = [_made((2, 8, *(5,) * rank), dtype, 0), _made((8, 4, *(3,) * rank), dtype, 1), _made((8,), dtype, 2)]
    _compare(lambda x, w, b: conv(x, w, b, 2, 1, 1, 2), tensors, kind)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_memory_order_follows_the_input(kind):
    dtype = getattr(fl, kind)
    x, w = _made((2, 8, 6, 6), dtype, 0, fl.channels_last), _made((16, 8, 3, 3), dtype, 1)
    out = _compare(lambda x, w: functional.conv2d(x, w, None, 1, 1), [x, w], kind)
    assert out.is_contiguous(memory_format=fl.channels_last) and not out.is_contiguous()
    assert _compare(lambda x, w: functional.conv2d(x, w, None, 1, 1), [x.contiguous(), w], kind).is_contiguous()


def test_empty_batches_and_strided_operands():
    conv = fl.nn.Conv2d(4, 6, 3).cuda()
    assert conv(fl.zeros(0, 4, 8, 8, device="cuda")).shape == (0, 6, 6, 6)
    x = _made((2, 8, 9, 9), fl.float32, 0)[:, ::2]
    np.testing.assert_allclose(conv(x.cuda()).detach().cpu().numpy(), conv.cpu()(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_without_a_kernel_the_error_says_what_to_do():
    with pytest.raises(RuntimeError, match="not implemented for 'int64'"):
        functional.conv2d(fl.ones(1, 1, 4, 4, dtype=fl.int64, device="cuda"), fl.ones(1, 1, 2, 2, dtype=fl.int64, device="cuda"))


def test_benchmark_times_the_candidates():
    x, w = _made((4, 16, 16, 16), fl.float16, 0), _made((16, 16, 3, 3), fl.float16, 1)
    with fl.backends.cudnn.flags(benchmark=True):
        _compare(lambda x, w: functional.conv2d(x, w, None, 1, 1), [x, w], "float16")


POOLS = {
    "max": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "max_dilated": lambda x: functional.max_pool2d(x, 2, 1, 0, 2),
    "max_ceil": lambda x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "average_without_padding": lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average_ceil": lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average_divisor": lambda x: functional.avg_pool2d(x, (2, 3), divisor_override=5),
    "adaptive_average": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive_average_uneven": lambda x: functional.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive_max": lambda x: functional.adaptive_max_pool2d(x, (3, 5)),
    "line": lambda x: functional.max_pool1d(x.flatten(2), 5, 3, 2),
    "volume": lambda x: functional.max_pool3d(x.unsqueeze(2).expand(-1, -1, 4, -1, -1), 2, 2),
    "average_volume": lambda x: functional.avg_pool3d(x.unsqueeze(2).expand(-1, -1, 4, -1, -1), 2, 2),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("name", POOLS)
def test_pooling(name, last, kind, compiled):
    x = _made((2, 8, 13, 10), getattr(fl, kind), 0, fl.channels_last if last else fl.contiguous_format)
    _compare(POOLS[name], [x], kind, compiled)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_padding_and_concatenation_stay_channels_last(kind, compiled):
    def work(x):
        return functional.pad(x, (1, 0, 2, -1)), fl.cat([x, x * 2], 1), functional.max_pool2d(x, 3, 2, 1, return_indices=True)[1]

    x = _made((2, 8, 13, 10), getattr(fl, kind), 0, fl.channels_last)
    for got, want in zip((fl.compile(work) if compiled else work)(x.cuda()), work(x), strict=True):
        assert got.stride() == want.stride() and fl.equal(got.cpu(), want)


def test_positions_of_maxima():
    x = _made((2, 3, 9, 9), fl.float32, 0)
    x[0, 0, 4, 4] = float("nan")
    for last in (fl.contiguous_format, fl.channels_last):
        y = x.contiguous(memory_format=last)
        got, want = (functional.max_pool2d(t, 3, 2, 1, return_indices=True) for t in (y.cuda(), y))
        np.testing.assert_array_equal(got[1].cpu().numpy(), want[1].numpy())
        np.testing.assert_array_equal(got[0].cpu().numpy(), want[0].numpy())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(8, 6, 5, 7), (64, 32), (4, 5, 33), (4, 256, 14, 14), (2, 3, 4, 5, 6)], ids=str)
def test_batch_norm(shape, kind, training, compiled):
    dtype = getattr(fl, kind)
    x = _made(shape, dtype, 0) * 2 + 3
    results = []
    for where in ("cuda", "cpu"):
        wide = kind if where == "cuda" else "float64"
        norm = (fl.nn.BatchNorm1d, fl.nn.BatchNorm2d, fl.nn.BatchNorm3d)[max(len(shape) - 3, 0)](shape[1]).to(where).train(training)
        with fl.no_grad():
            norm.weight.copy_(_made((shape[1],), fl.float32, 1))
            norm.bias.copy_(_made((shape[1],), fl.float32, 2))
        if where == "cpu":
            norm = norm.double()
        y = x.detach().to(where, getattr(fl, wide)).requires_grad_()
        out = (fl.compile(norm) if compiled and where == "cuda" else norm)(y)
        weight = fl.tensor(np.random.default_rng(3).standard_normal(shape), dtype=out.dtype).to(where)
        (out * weight).sum().backward()
        results.append([t.detach().double().cpu().numpy() for t in
                        (out, y.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)])
    _same(*results, 2e-2 if kind == "bfloat16" else 1e-5)


def test_a_small_residual_network_trains_as_on_the_cpu():
    def build():
        fl.manual_seed(0)
        return fl.nn.Sequential(fl.nn.Conv2d(3, 16, 3, 2, 1, bias=False), fl.nn.BatchNorm2d(16), fl.nn.ReLU(), fl.nn.MaxPool2d(3, 2, 1),
                                fl.nn.Conv2d(16, 32, 3, 1, 1), fl.nn.BatchNorm2d(32), fl.nn.ReLU(), fl.nn.AdaptiveAvgPool2d(1),
                                fl.nn.Flatten(), fl.nn.Linear(32, 10))

    rng = np.random.default_rng(0)
    images, classes = rng.standard_normal((8, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, 8)

    def losses(where, transform):
        model = build().to(where)
        run, optimizer, found = transform(model), fl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
        for _ in range(6):
            optimizer.zero_grad()
            loss = functional.cross_entropy(run(fl.tensor(images).to(where)), fl.tensor(classes).to(where))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    want = losses("cpu", lambda m: m)
    np.testing.assert_allclose(losses("cuda", lambda m: m), want, rtol=1e-3)
    np.testing.assert_allclose(losses("cuda", fl.compile), want, rtol=1e-3)
