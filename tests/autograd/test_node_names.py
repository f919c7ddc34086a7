"""What nodes of the tape are called, beside torch: by the names of ATen's operators and their forms."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

CALLS = (
    "x + 1", "1 - x", "x / y", "2 / x", "x ** 2.5", "x ** y", "2 ** x", "x % 2", "x % y", "x.fmod(y)", "x @ y.t()", "x.t()",
    "z.transpose(0, 1)", "z.permute(2, 0, 1)", "x[None].squeeze(0)", "x.sum()", "x.sum(0)", "x.mean()", "x.mean(0)", "x.prod(0)",
    "x.max()", "x.min()", "x.amax(0)", "x.norm()", "x.median()", "x.nanmedian()", "y.log1p()", "x.clamp(0, 1)", "x.clamp(y, y)",
    "x.lerp(y, y)", "x.double()", "x.where(x > 0, y)", "c.conj()", "l.fft.rfft(x)", "l.linalg.inv(s)", "l.linalg.det(s)",
    "l.linalg.cholesky(s)", "l.linalg.qr(s)[0]", "l.linalg.eigh(s)[0]", "l.linalg.svd(s)[1]", "l.cdist(x, y)", "F.linear(x, y)",
    "F.linear(x, y, b)", "F.linear(z, y)", "F.linear(z, y, b)", "F.relu(x)", "F.logsigmoid(x)", "F.prelu(x, b[:1])", "F.dropout(x)",
    "F.layer_norm(x, (3,))", "F.batch_norm(x, None, None, training=True)", "F.conv2d(i, i)", "F.conv2d(i, i, b[:1])",
    "F.conv_transpose2d(i, i)", "F.max_pool2d(i, 2)", "F.avg_pool2d(i, 2)", "F.pad(x, (1, 1))", "F.unfold(i, 2)",
    "F.fold(i[0].reshape(1, 4, 4), (3, 3), 2)", "F.pixel_shuffle(i.view(1, 4, 2, 2), 2)", "F.cross_entropy(x, n)", "x.clone().copy_(y)",
    "l.fake_quantize_per_tensor_affine(x, 1.0, 0, 0, 255)",
)


def name(lib, call):
    lib.manual_seed(0)
    x, y, z, i = (lib.rand(*shape, requires_grad=True) for shape in ((2, 3), (2, 3), (2, 2, 3), (1, 1, 4, 4)))
    s = lib.eye(3).requires_grad_()
    names = {"l": lib, "F": lib.nn.functional, "x": x, "y": y, "z": z, "i": i, "s": s, "b": lib.ones(2, requires_grad=True),
             "n": lib.tensor([0, 1]), "c": lib.ones(2, dtype=lib.complex64, requires_grad=True)}
    node = eval(call, names).grad_fn
    return node.name(), type(node).__name__


@pytest.mark.parametrize("call", CALLS)
def test_names(call):
    assert name(fl, call) == name(torch, call)
