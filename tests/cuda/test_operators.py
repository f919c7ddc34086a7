# ruff: noqa: E501 - a table
"""Operators of every family on the GPU give what they give on the CPU: eager and compiled, forward and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import flambeau as fl

F = fl.nn.functional
GPUS = ["cuda:0", *[f"cuda:{k}" for k in range(1, fl.cuda.device_count())][-1:]]    # the current one, and another where there is one
ROWS = np.linspace(-2, 2, 96, dtype=np.float32)[np.random.default_rng(0).permutation(96)]


def _index(x: fl.Tensor, *values: int) -> fl.Tensor:
    return fl.tensor(values, device=x.device)


def _layer(x: fl.Tensor, make: Callable) -> fl.nn.Module:
    """With weights that nobody drew: compiled code draws others than eager code does."""
    layer = make().to(x.device)
    with fl.no_grad():
        for p in layer.parameters():
            p.copy_(fl.linspace(-3, 4, p.numel()).sin().reshape(p.shape) / 2)
    return layer


# name: (function, shape of its input)
CASES: dict[str, tuple[Callable, tuple[int, ...]]] = {
    **{f"interpolate {mode}": (lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), (2, 3, 4, 4))
       for mode in ("nearest", "bilinear", "bicubic", "nearest-exact")},
    "interpolate down": (lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), (2, 3, 4, 4)),
    "grid_sample": (lambda x: F.grid_sample(x, x.movedim(1, -1)[..., :2].tanh(), align_corners=False), (2, 3, 4, 4)),
    "affine_grid": (lambda x: F.affine_grid(x, (2, 1, 4, 4), align_corners=True), (2, 2, 3)),
    **{f"pad {mode}": (lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode=mode), (2, 3, 4, 4)) for mode in ("reflect", "replicate", "circular")},
    "unfold": (lambda x: F.unfold(x, 2, stride=1), (2, 3, 4, 4)),
    "fold": (lambda x: F.fold(x, (3, 5), (2, 2)), (2, 12, 8)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 8, 2, 3)),
    "group_norm": (lambda x: F.group_norm(x, 2), (3, 4, 8)),
    "instance_norm": (lambda x: F.instance_norm(x), (3, 4, 8)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), (3, 4, 8)),
    "rms_norm": (lambda x: F.rms_norm(x, (8,)), (3, 4, 8)),
    "normalize": (lambda x: F.normalize(x, dim=1), (3, 4, 8)),
    "conv1d": (lambda x: F.conv1d(x, x[:, :2, :3].repeat(1, 2, 1)), (3, 4, 8)),
    "conv3d": (lambda x: F.conv3d(x, x[..., :2, :2, :2].transpose(0, 1).repeat(1, 3, 1, 1, 1)[:, :3] * 0.1), (1, 3, 4, 4, 2)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, x[:1, :, :2, :2].transpose(0, 1), stride=2), (2, 3, 4, 4)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (3, 4, 8)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2), (2, 3, 4, 4)),
    "huber": (lambda x: F.huber_loss(x, x.flip(0)), (12, 8)),
    "kl_div": (lambda x: F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean"), (12, 8)),
    "bce": (lambda x: F.binary_cross_entropy_with_logits(x, x.flip(0).sigmoid()), (12, 8)),
    "nll": (lambda x: F.nll_loss(x.log_softmax(1), _index(x, *range(8), 0, 1, 2, 3)), (12, 8)),
    "label smoothing": (lambda x: F.cross_entropy(x, _index(x, *range(8), 0, 1, 2, 3), label_smoothing=0.1), (12, 8)),
    "ctc": (lambda x: F.ctc_loss(x.log_softmax(2), _index(x, 1, 2, 3, 1).view(2, 2), [6, 6], [2, 2]), (6, 2, 8)),
    "embedding_bag": (lambda x: F.embedding_bag(_index(x, 0, 3, 3, 1).view(2, 2), x), (12, 8)),
    "one_hot": (lambda x: F.one_hot(_index(x, 0, 3, 3, 1), 5).float() @ x[:5], (12, 8)),
    "lstm": (lambda x: _layer(x, lambda: fl.nn.LSTM(8, 5))(x)[0], (3, 4, 8)),
    "gru": (lambda x: _layer(x, lambda: fl.nn.GRU(8, 5, num_layers=2))(x)[0], (3, 4, 8)),
    "transformer": (lambda x: _layer(x, lambda: fl.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True))(x), (3, 4, 8)),
    "activations": (lambda x: F.silu(x) + F.mish(x) + F.elu(x) + F.selu(x) + F.softplus(x) + F.hardswish(x) + F.softsign(x) + F.logsigmoid(x),
                    (12, 8)),
    "clipped": (lambda x: F.relu6(x) + F.hardtanh(x) + F.leaky_relu(x) + F.threshold(x, 0.1, 0) + F.softshrink(x) + F.celu(x), (12, 8)),
    "glu": (lambda x: F.glu(x) + F.prelu(x, x[0, :1])[:, :4], (12, 8)),
    "einsum": (lambda x: fl.einsum("abc,dbc->ad", x, x), (3, 4, 8)),
    "cdist": (lambda x: fl.cdist(x, x + 3), (12, 8)),
    "cov": (lambda x: fl.cov(x) + fl.corrcoef(x), (3, 32)),
    "quantile": (lambda x: x.quantile(0.3, dim=1) + x.median(1).values + x.kthvalue(3, 1).values, (12, 8)),
    "topk": (lambda x: x.topk(3, 1).values + x.sort(1, descending=True).values[:, :3], (12, 8)),
    "extrema": (lambda x: x.cummax(1).values + x.cummin(0).values + x.max(1, keepdim=True).values + x.aminmax(dim=0).min, (12, 8)),
    "scans": (lambda x: x.cumprod(1) + x.cumsum(0) + x.logcumsumexp(1), (12, 8)),
    "statistics": (lambda x: x.var(0) + x.std(1).mean() + x.logsumexp(0) + x.norm(dim=0) + x.prod(0), (12, 8)),
    "scatter": (lambda x: x.scatter_reduce(0, _index(x, *[0, 1] * 48).view(12, 8), x, "amax") + x.scatter_add(1, _index(x, *[1] * 96).view(12, 8), x),
                (12, 8)),
    "index writes": (lambda x: x.index_add(0, _index(x, 0, 0, 3), x[:3]).index_fill(1, _index(x, 2), 1.0).index_copy(0, _index(x, 5), x[:1]), (12, 8)),
    "masks": (lambda x: x.masked_fill(x > 1, 0) + x.where(x < 0, x * 2) + x.masked_scatter(x > 1.5, x.flatten()), (12, 8)),
    "rearranged": (lambda x: x.roll(1, 0) + x.flip(1) + x.rot90(2) + x.repeat_interleave(2, 0)[::2] + x.tile(2, 1)[12:], (12, 8)),
    "triangles": (lambda x: x.tril() + x.triu(1) + fl.diag(x.diagonal()).sum() + fl.diag_embed(x[0]).sum(), (12, 8)),
    "differences": (lambda x: x.diff(dim=0).sum() + fl.gradient(x, dim=1)[0] + fl.trapezoid(x, dim=1).sum(), (12, 8)),
    "remainders": (lambda x: x.remainder(0.7) + x.fmod(0.6) + (x / 0.3).floor() + x.frac(), (12, 8)),
    "special": (lambda x: fl.lgamma(x.abs() + 0.5) + fl.digamma(x.abs() + 0.5) + fl.erf(x) + fl.special.i0(x) + fl.special.ndtr(x) + fl.sinc(x), (12, 8)),
    "fft": (lambda x: fl.fft.rfft2(x).abs() + fl.fft.fft(x, dim=1).real[:, :5] + fl.fft.irfft(fl.fft.rfft(x))[:, :5], (12, 8)),
    "stft": (lambda x: fl.stft(x, 8, return_complex=True, window=fl.hann_window(8, device=x.device)).abs(), (3, 32)),
    "solve": (lambda x: fl.linalg.solve(x[:8].T @ x[:8] + fl.eye(8, device=x.device), x[:4].T), (12, 8)),
    "decompositions": (lambda x: fl.linalg.svdvals(x) + fl.linalg.eigvalsh(x.T @ x) + fl.linalg.qr(x).R.abs().sum(0), (12, 8)),
    "inverses": (lambda x: fl.linalg.inv(x[:8] + 5 * fl.eye(8, device=x.device)) + fl.linalg.pinv(x)[:, :8] + fl.linalg.det(x[:8]), (12, 8)),
    "cholesky": (lambda x: fl.linalg.cholesky(x.T @ x + fl.eye(8, device=x.device)) + fl.matrix_exp(x[:8] / 9), (12, 8)),
    "kron": (lambda x: fl.kron(x[:2], x[2:4]) + fl.outer(x[0, :4], x[0]).sum(), (12, 8)),
}
WITHOUT_GRADIENT: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "unique": (lambda x: (x * 2).round().unique(), (12, 8)),
    "nonzero": (lambda x: (x > 1).nonzero(), (12, 8)),
    "counting": (lambda x: fl.bincount((x.flatten() * 2 + 5).long()), (12, 8)),
    "histc": (lambda x: x.histc(5, -1, 1), (12, 8)),
    "searchsorted": (lambda x: fl.searchsorted(x.flatten().sort().values, x[0]), (12, 8)),
    "isin": (lambda x: fl.isin((x * 3).long(), _index(x, 1, 2)), (12, 8)),
    "mode": (lambda x: (x * 2).long().mode(1).values, (12, 8)),
    "integers": (lambda x: fl.gcd((x * 9).long(), (x * 5).long()) + (x * 9).long() // 2 + (x * 9).long() % 5, (12, 8)),
    "bits": (lambda x: ((x * 9).int() & 5) | ((x * 9).int() ^ 3) << 1, (12, 8)),
    "places": (lambda x: x.argmax(1) + x.argsort(1)[:, 0] + x.argmin(), (12, 8)),
}


def _run(f: Callable, shape: tuple[int, ...], device: str, gradient: bool) -> list[np.ndarray]:
    count = int(np.prod(shape))
    x = fl.tensor(np.resize(ROWS, count).reshape(shape), device=device, requires_grad=gradient)
    out = f(x)
    found = [out]
    if gradient:
        weight = fl.linspace(0.5, 1, out.numel()).to(device).reshape(out.shape)
        found.append(fl.autograd.grad((out * weight).sum(), x)[0])
    return [t.detach().cpu().numpy() for t in found]


def _check(case: tuple[Callable, tuple[int, ...]], how: str, gradient: bool, gpu: str) -> None:
    f, shape = case
    fl._dynamo.reset()
    got = _run(fl.compile(f) if how == "compiled" else f, shape, gpu, gradient)
    for a, b in zip(got, _run(f, shape, "cpu", gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_matches_the_cpu(name: str, how: str, gpu: str) -> None:
    _check(CASES[name], how, True, gpu)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_numbers_match_the_cpu(name: str, how: str, gpu: str) -> None:
    _check(WITHOUT_GRADIENT[name], how, False, gpu)
