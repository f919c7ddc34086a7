"""Convolutions over arrays, against torch in float64."""

import ml_dtypes
import numpy as np
import pytest

from flambeau.backends.cpu import conv, onednn

torch = pytest.importorskip("torch")

F32, F64, F16, BF16 = np.float32, np.float64, np.float16, ml_dtypes.bfloat16
TOLERANCE = {np.dtype(F32): 2e-5, np.dtype(F64): 1e-12, np.dtype(F16): 5e-3, np.dtype(BF16): 4e-2}
CONVOLUTION = [None, torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d]

# x, w, stride, padding, dilation, groups
CASES = {
    "1d": ((2, 6, 20), (8, 6, 3), (1,), (1,), (1,), 1),
    "1d strided, a rest": ((2, 6, 20), (8, 6, 4), (3,), (0,), (1,), 1),
    "2d": ((2, 6, 12, 10), (8, 6, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "rgb stem": ((1, 3, 33, 33), (16, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "pointwise": ((2, 16, 9, 9), (32, 16, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "pointwise strided": ((2, 16, 9, 9), (32, 16, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    "patches": ((2, 3, 32, 32), (24, 3, 8, 8), (8, 8), (0, 0), (1, 1), 1),
    "uneven": ((2, 5, 13, 11), (7, 5, 2, 4), (2, 3), (1, 2), (1, 1), 1),
    "dilated": ((2, 4, 15, 14), (6, 4, 3, 3), (1, 1), (2, 2), (2, 2), 1),
    "groups": ((2, 8, 10, 10), (12, 2, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise": ((2, 16, 10, 10), (16, 1, 3, 3), (2, 2), (1, 1), (1, 1), 16),
    "one channel": ((2, 1, 10, 10), (1, 1, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "3d": ((1, 4, 6, 7, 8), (6, 4, 3, 3, 3), (1, 2, 1), (1, 0, 1), (1, 1, 1), 1),
    "no rows": ((0, 4, 8, 8), (6, 4, 3, 3), (1, 1), (1, 1), (1, 1), 1),
}


@pytest.fixture(params=["onednn", "numpy"])
def library(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(conv, "available", lambda: False)
    elif not onednn.available():
        pytest.skip("oneDNN is not installed")
    return request.param


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.abs(got.astype(F64) - want).max(initial=0) <= TOLERANCE[got.dtype] * scale


def reference(x, w, g, bias, stride, padding, dilation, groups):
    """torch's result and gradients in float64."""
    tensors = [torch.tensor(a.astype(F64), requires_grad=True) for a in (x, w, bias)]
    out = CONVOLUTION[len(stride)](*tensors, stride, padding, dilation, groups)
    out.backward(torch.tensor(g.astype(F64)))
    return [out.detach().numpy(), *(t.grad.numpy() for t in tensors[:2])]


@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
@pytest.mark.parametrize("order", ["plain", "channels_last"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_forward_and_gradients(library, dtype, order, case) -> None:
    x_shape, w_shape, *attrs = case
    if order == "channels_last" and len(x_shape) < 4:
        pytest.skip("channels-last order is for two and three spatial axes")
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(s).astype(dtype) for s in (x_shape, w_shape, w_shape[:1]))
    out = conv.convolution(x, w, bias, *attrs)
    g = rng.standard_normal(out.shape).astype(dtype)
    if order == "channels_last":
        x, g = channels_last(x), channels_last(g)
    want, want_x, want_w = reference(x, w, g, bias, *attrs)
    out = conv.convolution(x, w, bias, *attrs)
    gx = conv.convolution_input_grad(g, w, x_shape, *attrs)
    gw = conv.convolution_weight_grad(g, x, w_shape, *attrs)
    for got, reference_array in ((out, want), (gx, want_x), (gw, want_w)):
        assert got.dtype == dtype
        assert_close(got, reference_array)
    assert conv.is_channels_last(out) == conv.is_channels_last(x)
    assert conv.is_channels_last(gx) == conv.is_channels_last(g)
    assert out.flags.c_contiguous or conv.is_channels_last(out)
    assert gw.flags.c_contiguous


@pytest.mark.parametrize("dtype", [F32, F64])
def test_odd_strides(library, dtype) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 12, 20, 9)).astype(dtype)[:, ::2, ::2].swapaxes(2, 3)
    w = rng.standard_normal((3, 6, 5, 8)).astype(dtype).transpose(3, 1, 2, 0)
    attrs = ((1, 1), (1, 1), (1, 1), 1)
    out = conv.convolution(x, w, None, *attrs)
    g = np.broadcast_to(rng.standard_normal((1, 8, 1, 1)).astype(dtype), out.shape)
    want, want_x, want_w = reference(x, w, g, np.zeros(8), *attrs)
    assert_close(out, want)
    assert_close(conv.convolution_input_grad(g, w, x.shape, *attrs), want_x)
    assert_close(conv.convolution_weight_grad(g, x, w.shape, *attrs), want_w)


def test_transposed_convolution_with_output_padding(library) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((2, 6, 5, 5)).astype(F32), rng.standard_normal((6, 4, 3, 3)).astype(F32)
    want = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), stride=2, padding=1, output_padding=1).numpy()
    assert_close(conv.convolution_input_grad(x, w, want.shape, (2, 2), (1, 1), (1, 1), 1), want.astype(F64))


def test_an_input_smaller_than_its_padding(library) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 4, 1, 1)).astype(F32), rng.standard_normal((4, 4, 3, 3)).astype(F32)
    attrs = ((1, 1), (1, 1), (1, 1), 1)
    want, *_ = reference(x, w, np.zeros((1, 4, 1, 1)), np.zeros(4), *attrs)
    assert_close(conv.convolution(x, w, None, *attrs), want)
